//! The events that could not be published and are set aside, and what becomes of them. Such an event is an open question, and both
//! decisions are its answers.

use axum::{Extension, Json};

use super::inspect::OfQuestion;
use super::page::{Asked, At, Page, Paged, Window};
use super::problem::{Failed, Problem};
use super::verdicts::answered;
use super::write::{Bare, Write};
use crate::exec::QuestionView;
use crate::flow::TenantClient;
use crate::id::QuestionId;
use crate::rim::set_aside::{SetAside, set_aside};
use crate::store::{QuestionKind, Resolution};

pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<SetAside> {
    let (core, tenant) = client.core();
    let after = window.after_id()?.unwrap_or(QuestionId(i64::MIN));
    let page = set_aside(&core, &tenant, after, window.limit()).await?;
    Ok(Page::cut(page, window.limit(), |aside| aside.question.to_string()))
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
