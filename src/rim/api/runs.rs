//! Runs: listed by filters, shown, and their history.

use std::collections::BTreeMap;

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::history::{self, After, Limit};
use super::page::{Asked, At, Page, Paged, Window};
use super::problem::Failed;
use crate::flow::{PastTurn, RunCursor, RunHandle, RunStatus, TenantClient};
use crate::rim::run_filter::RunConditions;

/// The maximum number of checkpoints and calls on a page of a history.
const ENTRIES: u32 = 1000;

/// The run that a path names.
#[derive(Deserialize)]
pub(super) struct OfRun {
    run: String,
}

impl OfRun {
    pub(super) fn handle(&self, client: &TenantClient) -> Result<RunHandle<Value>, Failed> {
        Ok(client.handle(self.run.parse()?))
    }
}

/// A run with its labels.
#[derive(Serialize)]
pub(super) struct Labelled {
    #[serde(flatten)]
    run: RunStatus,
    labels: BTreeMap<String, String>,
}

/// A page of the runs. A page of a list by start keys and another condition may be short and have a next page.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(conditions): Asked<RunConditions>,
) -> Paged<RunStatus> {
    let (filter, after) = (conditions.filter(), window.after_id::<RunCursor>()?);
    after.as_ref().map_or(Ok(()), |after| after.fits(&filter)).map_err(Failed::malformed)?;
    let page = client.list_runs(&filter, after.as_ref(), window.limit()).await?;
    Ok(Json(Page { items: page.runs, next: page.next.map(|place| place.to_string()) }))
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    At(run): At<OfRun>,
) -> Result<Json<Labelled>, Failed> {
    let run = run.handle(&client)?;
    Ok(Json(Labelled { run: run.status().await?, labels: run.labels().await? }))
}

/// A page of a run's turns, with their checkpoints and calls.
pub(super) async fn history(
    Extension(client): Extension<TenantClient>,
    At(run): At<OfRun>,
    Asked(window): Asked<Window>,
) -> Paged<PastTurn> {
    let after = window.place().map(After::read).transpose()?;
    let limit = Limit { turns: window.limit(), entries: ENTRIES };
    Ok(Json(history::read(&run.handle(&client)?, after, limit).await?))
}
