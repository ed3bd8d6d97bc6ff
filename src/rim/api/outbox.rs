//! The events that could not be published and are set aside, and what becomes of them. Such an event is an open question, and both
//! decisions are its answers.

use axum::{Extension, Json};
use serde::Deserialize;

use super::inspect::OfQuestion;
use super::page::{Asked, At, MOST, Page, Paged, Times, Window};
use super::problem::{Failed, Problem};
use super::verdicts::answered;
use super::write::{Bare, Write};
use crate::exec::QuestionView;
use crate::flow::TenantClient;
use crate::id::QuestionId;
use crate::rim::set_aside::{SetAside, set_aside};
use crate::store::{QuestionKind, Resolution};

/// The events to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct WhichEvents {
    /// Only events of this aggregate
    aggregate: Option<String>,
    /// Only events of this kind
    kind: Option<String>,
}

/// The events that are set aside. A page with a condition may be short and have a next page. `since` and `before` are about the
/// instants at which the events were written.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(which): Asked<WhichEvents>,
    Asked(times): Asked<Times>,
) -> Paged<SetAside> {
    let (core, tenant) = client.core();
    let after = window.after_id()?.unwrap_or(QuestionId(i64::MIN));
    let is_narrow = which.aggregate.is_some() || which.kind.is_some() || times.is_narrow();
    // Each row takes a read of its own.
    let looked_at = if is_narrow { MOST } else { window.limit() };
    let rows = set_aside(&core, &tenant, after, looked_at).await?;
    let takes = |aside: &SetAside| {
        which.aggregate.as_ref().is_none_or(|aggregate| aside.aggregate == *aggregate)
            && which.kind.as_ref().is_none_or(|kind| aside.kind.as_ref() == Some(kind))
            && (!times.is_narrow() || aside.created_at.is_some_and(|at| times.take(at)))
    };
    let id = |aside: &SetAside| aside.question.to_string();
    Ok(Json(Page::sifted(rows, (looked_at, window.limit()), id, takes)))
}

/// Publishes an event once more.
pub(super) async fn release(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfQuestion>,
    write: Write<Bare>,
) -> Result<Json<QuestionView>, Failed> {
    decide(&client, of.id()?, &Resolution::Again, &write).await
}

/// Leaves an event out.
pub(super) async fn skip(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfQuestion>,
    write: Write<Bare>,
) -> Result<Json<QuestionView>, Failed> {
    decide(&client, of.id()?, &Resolution::Skip, &write).await
}

async fn decide(
    client: &TenantClient,
    id: QuestionId,
    resolution: &Resolution,
    write: &Write<Bare>,
) -> Result<Json<QuestionView>, Failed> {
    let asked = client.question(id).await?;
    if !asked.is_some_and(|asked| asked.kind == QuestionKind::Unpublished) {
        let detail =
            format!("{id} is no question of this tenant about an event of the outbox. Nothing was done.");
        return Err(Failed::of(Problem::NotFound, detail));
    }
    let view = answered(client, id, resolution, (&write.by, write.reason())).await?;
    write.log("decide about an event", id);
    Ok(Json(view))
}
