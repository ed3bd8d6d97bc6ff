//! Commands to runs. The `Idempotency-Key` is the command's own key in the ledger, so a repeated request finds the first command,
//! whichever process took it and wherever that process died.

use std::collections::BTreeMap;

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::At;
use super::problem::Failed;
use super::runs::OfRun;
use super::workflows::check_input;
use super::write::{Bare, Write, reasoned};
use crate::exec::ErasureReport;
use crate::flow::{RunStatus, Sent, TenantClient};
use crate::id::{Name, checked};
use crate::store::Labels;

/// A run to be started. Its key is the `Idempotency-Key`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Start {
    reason: String,
    workflow: String,
    #[serde(default)]
    input: Value,
    /// The labels of the run: values by their names
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The label of the runs and calls that are erased.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Erasure {
    reason: String,
    /// The name of the label
    name: String,
    /// The value of the label
    value: String,
}

/// A signal to be sent. Its id is the `Idempotency-Key`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Signal {
    reason: String,
    name: String,
    #[serde(default)]
    body: Value,
}

reasoned!(Start, Signal, Erasure);

/// The answer to a command, marked as the HTTP layer marks one that is given again.
fn told(sent: Sent) -> Response {
    match sent {
        Sent::New => Json(json!({ "sent": "new" })).into_response(),
        Sent::Before => {
            ([("idempotent-replayed", "true")], Json(json!({ "sent": "before" }))).into_response()
        }
    }
}

pub(super) async fn start(
    Extension(client): Extension<TenantClient>,
    headers: HeaderMap,
    write: Write<Start>,
) -> Result<(StatusCode, Json<RunStatus>), Failed> {
    let Start { workflow, input, labels, .. } = &write.body;
    check_input(&client, workflow, &write.key, input).await?;
    let mut start = client.run_named(workflow, input.clone()).key(&write.key);
    for (name, value) in labels {
        start = start.label(name, value);
    }
    // W3C Trace Context: a header that cannot be read is ignored, and begins a new trace.
    if let Some(caller) = headers.get("traceparent").and_then(|text| text.to_str().ok()?.parse().ok()) {
        start = start.traceparent(caller);
    }
    let run = start.start().await?;
    write.log_with_reason("start", run.id());
    Ok((StatusCode::CREATED, Json(run.status().await?)))
}

pub(super) async fn signal(
    Extension(client): Extension<TenantClient>,
    At(run): At<OfRun>,
    write: Write<Signal>,
) -> Result<Response, Failed> {
    let run = run.handle(&client)?;
    let Signal { name, body, .. } = &write.body;
    let sent = run.signal(name.clone(), body.clone()).id(&write.key).await?;
    write.log_with_reason("signal", run.id());
    Ok(told(sent))
}

/// The handler of a command that has nothing but a reason.
macro_rules! command {
    ($($command:ident),+) => {
        $(pub(super) async fn $command(
            Extension(client): Extension<TenantClient>,
            At(run): At<OfRun>,
            write: Write<Bare>,
        ) -> Result<Response, Failed> {
            let run = run.handle(&client)?;
            let sent = run.$command(&write.by, write.reason()).key(&write.key).await?;
            write.log(stringify!($command), run.id());
            Ok(told(sent))
        })+
    };
}

command!(pause, resume, cancel, retry);

/// Begins a new run, and shows it.
pub(super) async fn fork(
    Extension(client): Extension<TenantClient>,
    At(run): At<OfRun>,
    write: Write<Bare>,
) -> Result<(StatusCode, Json<RunStatus>), Failed> {
    let run = run.handle(&client)?;
    let forked = run.fork(&write.by, write.reason()).key(&write.key).await?;
    write.log("fork", forked.id());
    Ok((StatusCode::CREATED, Json(forked.status().await?)))
}

/// Erases the runs and calls with a label, and tells what was erased and what was kept. A repeated request erases what has come since.
pub(super) async fn erase(
    Extension(client): Extension<TenantClient>,
    write: Write<Erasure>,
) -> Result<Json<ErasureReport>, Failed> {
    let Erasure { name, value, .. } = &write.body;
    checked("label", name, Name::MAX_BYTES)?;
    checked("label", value, Labels::MAX_VALUE)?;
    let report = client.erase_labelled(name, value).await?;
    write.log("erase", name); // the label's value and the reason may name the person who is to be forgotten
    Ok(Json(report))
}
