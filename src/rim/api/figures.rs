//! The figures of a tenant, day by day, as the charts of the dashboard show them.

use axum::Extension;
use serde::Serialize;

use super::page::{Asked, Page, Paged, Window};
use crate::flow::TenantClient;
use crate::rim::figures::{date, figures};

/// The figures of a day.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct DayFigures {
    /// The day (UTC), such as `2026-11-26`
    day: String,
    /// Effects that were not made again
    duplicates_avoided: u64,
    /// Effects that were found to have happened more than once
    happened_twice: u64,
    /// Operations that were requested with another content than before
    conflicts: u64,
    /// Questions that were open at any time of the day
    open_questions: u64,
    /// False if there are too many rows: a number may be higher
    is_complete: bool,
}

/// The figures of the last days, the last day first.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<DayFigures> {
    let after = window.after()?;
    let now = client.core().0.now();
    let figures = figures(&client, now).await?;
    let days = figures.days.starts().zip(figures.avoided()).zip(&figures.twice);
    let days = days.zip(&figures.conflicts).zip(&figures.open).rev();
    let items = days.map(|((((start, avoided), twice), conflicts), open)| DayFigures {
        day: date(start),
        duplicates_avoided: avoided.number,
        happened_twice: twice.number,
        conflicts: conflicts.number,
        open_questions: open.number,
        is_complete: [avoided, *twice, *conflicts, *open].iter().all(|count| count.is_all),
    });
    let is_behind = |figures: &DayFigures| after.is_none_or(|after| figures.day.as_str() < after);
    Ok(Page::of_all(items.collect(), window.limit(), |figures| figures.day.clone(), is_behind))
}
