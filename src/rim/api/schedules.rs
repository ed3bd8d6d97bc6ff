//! The schedules of a tenant, as they are listed.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::page::{Asked, Page, Paged, Window};
use crate::clock::Timestamp;
use crate::flow::{ScheduleStatus, TenantClient};
use crate::id::{RunId, some_text};

/// A schedule in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedSchedule {
    name: String,
    /// The workflow whose runs the schedule begins
    workflow: String,
    /// The rule in words
    when: String,
    /// True if no tick comes
    paused: bool,
    /// The instant of the next tick (UTC)
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    next: Option<Timestamp>,
    /// The instant of the last tick that began a run (UTC)
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    last: Option<Timestamp>,
    /// The run that this tick began
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    last_run: Option<RunId>,
    /// The number of ticks that began no run
    missed: u32,
}

impl From<ScheduleStatus> for ListedSchedule {
    fn from(status: ScheduleStatus) -> Self {
        let ScheduleStatus { name, workflow, when, paused, next, last, last_run, missed, .. } = status;
        Self { name, workflow, when, paused, next, last, last_run, missed }
    }
}

/// The schedules to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct WhichSchedules {
    /// Only schedules in this state: active or paused
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    state: Option<StateName>,
    /// Only schedules of this workflow
    workflow: Option<String>,
}

/// The state of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateName {
    Active,
    Paused,
}

/// The schedules by name. A page may be short and have a next page.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(which): Asked<WhichSchedules>,
) -> Paged<ListedSchedule> {
    let after = window.after()?.unwrap_or_default();
    let takes = |schedule: &ScheduleStatus| {
        which.state.is_none_or(|state| schedule.paused == (state == StateName::Paused))
            && which.workflow.as_ref().is_none_or(|workflow| schedule.workflow == *workflow)
    };
    let (schedules, next) = client.schedule_page(after, window.limit(), &takes).await?;
    Ok(Json(Page { items: schedules.into_iter().map(ListedSchedule::from).collect(), next }))
}
