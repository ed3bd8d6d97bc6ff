//! The schedules of a tenant.

use axum::Extension;
use maud::html;

use super::layout::{Shown, page};
use super::pieces::{run_link, some_time, state, table};
use super::site::Site;
use crate::flow::TenantClient;

pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
) -> Shown {
    let schedules = client.schedules().await?;
    let rows: Vec<_> = schedules
        .iter()
        .map(|schedule| {
            html! { tr {
                td { (schedule.name) }
                td { (schedule.workflow) }
                td { (schedule.when) }
                td { (state(if schedule.paused { "paused" } else { "active" })) }
                td { (some_time(&site, schedule.next)) }
                td {
                    (some_time(&site, schedule.last))
                    @if let Some(run) = schedule.last_run { " " (run_link(&site, run)) }
                }
                td.number { (schedule.missed) }
            } }
        })
        .collect();
    let heads = ["Name", "Workflow", "When", "State", "Next", "Last", "Missed"];
    let body = html! {
        h1 { "Schedules" }
        div #live data-events=(site.of_tenant("/events")) { (table(&heads, &rows, "There are no schedules.")) }
    };
    Ok(page(&site, "Schedules", &body))
}
