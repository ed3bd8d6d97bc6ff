//! The ledger as a whole, over all tenants: queues, workers and tokens.

use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Asked, At, Page, Paged, Window};
use super::problem::{Failed, Problem};
use super::token::{IssuedToken, Tokens};
use super::write::{Bare, Write};
use crate::flow::TenantClient;
use crate::store::Store as _;

/// The token that a path names.
#[derive(Deserialize)]
pub(super) struct OfToken {
    token: String,
}

/// The queues in which runs wait or have a place.
pub(super) async fn queues(Extension(client): Extension<TenantClient>) -> Paged<Value> {
    let loads = client.core().0.group.queue_load().await?.into_iter();
    let shown =
        loads.map(|load| json!({ "name": load.queue, "queued": load.queued, "running": load.running }));
    Ok(Json(Page { items: shown.collect(), next: None }))
}

/// The workers that work, and those whose work is still to be taken over.
pub(super) async fn workers(Extension(client): Extension<TenantClient>) -> Paged<Value> {
    let shown = client.core().0.group.pulse().await?.workers.into_iter().map(|worker| {
        json!({
            "number": worker.fence,
            "name": worker.name,
            "version": worker.version,
            "enrolled_at": worker.enrolled_at.to_string(),
            "lease_until": worker.lease_until.map(|at| at.to_string()),
            "ended_at": worker.ended_at.map(|at| at.to_string()),
        })
    });
    Ok(Json(Page { items: shown.collect(), next: None }))
}

pub(super) async fn tokens(
    Extension(tokens): Extension<Tokens>,
    Asked(window): Asked<Window>,
) -> Paged<IssuedToken> {
    let page = tokens.list(window.after()?, window.limit()).await?;
    Ok(Page::cut(page, window.limit(), |token| token.id.clone()))
}

pub(super) async fn revoke(
    Extension(tokens): Extension<Tokens>,
    At(of): At<OfToken>,
    write: Write<Bare>,
) -> Result<Json<Value>, Failed> {
    if !tokens.revoke(&of.token, &write.by).await? {
        return Err(Failed::of(Problem::NotFound, "There is no such token."));
    }
    write.log("revoke", &of.token);
    Ok(Json(json!({ "revoked": of.token })))
}
