//! Runs: listed by filters, shown, and their history.

use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::Value;

use super::page::{Asked, At, Page, Paged, Window};
use super::problem::Failed;
use crate::flow::{PastTurn, RunHandle, RunState, RunStatus, TenantClient};
use crate::id::RunId;

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

/// The runs to be listed. Times are compared as RFC 3339 texts in UTC, of which a beginning is enough: `2026-11-26`.
#[derive(Deserialize)]
pub(super) struct Filter {
    state: Option<String>,
    workflow: Option<String>,
    /// The beginning of the start key.
    key: Option<String>,
    since: Option<String>,
    before: Option<String>,
}

impl Filter {
    fn check(&self) -> Result<(), Failed> {
        let is_state = |state: &str| RunState::NAMES.contains(&state);
        if let Some(state) = self.state.as_deref().filter(|state| !is_state(state)) {
            return Err(Failed::malformed(format!("{state:?} is no state of a run: {:?}", RunState::NAMES)));
        }
        let is_time = |time: &str| time.bytes().all(|byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte));
        match [&self.since, &self.before].into_iter().flatten().find(|time| !is_time(time)) {
            Some(time) => Err(Failed::malformed(format!("{time:?} is no time in UTC, 2026-11-26T09:30:00Z"))),
            None => Ok(()),
        }
    }

    fn takes(&self, run: &RunStatus) -> bool {
        let started = run.started_at.to_string();
        self.state.as_deref().is_none_or(|state| run.state.name() == state)
            && self.workflow.as_ref().is_none_or(|workflow| run.workflow == *workflow)
            && self.key.as_deref().is_none_or(|key| run.key.as_deref().unwrap_or_default().starts_with(key))
            && self.since.as_ref().is_none_or(|since| started >= *since)
            && self.before.as_ref().is_none_or(|before| started < *before)
    }
}

/// A page of the runs, in the order of their starts. One request looks at a thousand runs at most, so a page may have fewer items
/// than its limit, even none, and a next page.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(filter): Asked<Filter>,
) -> Paged<RunStatus> {
    filter.check()?;
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
