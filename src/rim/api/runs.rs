//! Runs: listed by filters, shown, and their history.

use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::Value;

use super::page::{Asked, At, Page, Paged, Window};
use super::problem::Failed;
use crate::flow::{PastTurn, RunHandle, RunStatus, TenantClient};
use crate::id::RunId;
use crate::rim::run_filter::RunFilter;

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

/// A page of the runs, in the order of their starts. One request looks at a thousand runs at most, so a page may have fewer items
/// than its limit, even none, and a next page.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(filter): Asked<RunFilter>,
) -> Paged<RunStatus> {
    filter.check().map_err(Failed::malformed)?;
    let looked_at = client.runs(window.after_id::<RunId>()?).await?;
    let mut last = looked_at.last().map(|run| run.id);
    let mut items: Vec<_> = looked_at.into_iter().filter(|run| filter.takes(run)).collect();
    let limit = window.limit() as usize;
    if items.len() > limit {
        items.truncate(limit);
        last = items.last().map(|run| run.id);
    }
    Ok(Json(Page { items, next: last.map(|run| run.to_string()) }))
}

pub(super) async fn show(
    Extension(client): Extension<TenantClient>,
    At(run): At<OfRun>,
) -> Result<Json<RunStatus>, Failed> {
    Ok(Json(run.handle(&client)?.status().await?))
}

/// A page of a run's turns, with their checkpoints and calls.
pub(super) async fn history(
    Extension(client): Extension<TenantClient>,
    At(run): At<OfRun>,
    Asked(window): Asked<Window>,
) -> Paged<PastTurn> {
    let after = window.after()?.map(str::parse).transpose().map_err(Failed::malformed)?;
    let turns = run.handle(&client)?.history(after).await?;
    Ok(Page::cut(turns, window.limit(), |turn| turn.turn.to_string()))
}
