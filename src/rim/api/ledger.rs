//! The ledger as a whole, over all tenants: tenants, what is stuck, queues, throttles, workers and tokens.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::inspect::Listed;
use super::page::{Asked, At, Page, Paged, Window};
use super::problem::{Failed, Problem};
use super::token::{IssuedToken, Tokens};
use super::write::{Bare, Write};
use crate::flow::TenantClient;
use crate::id::{QuestionId, Tenant};
use crate::store::Store as _;

/// The token that a path names.
#[derive(Deserialize)]
pub(super) struct OfToken {
    token: String,
}

/// A tenant in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedTenant {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    name: Tenant,
}

/// An open question of any tenant.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct Stuck {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    tenant: Tenant,
    #[serde(flatten)]
    question: Listed,
}

/// The tenants that have rows, by their names, without the ledger's own rows.
pub(super) async fn tenants(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<ListedTenant> {
    let after = window.after()?.unwrap_or_default();
    let page = client.core().0.group.tenant_list(after, window.limit()).await?;
    let Json(mut page) = Page::cut(page, window.limit(), |tenant| tenant.as_str().to_owned());
    page.items.retain(|tenant| *tenant != Tenant::ledger());
    Ok(Json(Page {
        items: page.items.into_iter().map(|name| ListedTenant { name }).collect(),
        next: page.next,
    }))
}

/// The open questions of all tenants, the oldest first. Each run that is blocked has one.
pub(super) async fn stuck(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<Stuck> {
    let after = window.after_id()?.unwrap_or(QuestionId(i64::MIN));
    let page = client.core().0.group.escalation_open_everywhere(after, window.limit()).await?;
    let stuck =
        page.into_iter().map(|asked| Stuck { tenant: asked.tenant.clone(), question: Listed::from(asked) });
    Ok(Page::cut(stuck.collect(), window.limit(), |stuck| stuck.question.id.to_string()))
}

/// The limits of tools and providers, as the engine beside this API has them.
pub(super) async fn throttles(Extension(client): Extension<TenantClient>) -> Paged<Value> {
    let shown = client.core().0.throttles().into_iter().map(|throttle| {
        json!({
            "name": throttle.name,
            "is_provider": throttle.is_provider,
            "state": throttle.state,
            "since": throttle.since.to_string(),
            "until": throttle.until.map(|at| at.to_string()),
            "failures": throttle.failures,
            "waiting": throttle.waiting,
        })
    });
    Ok(Json(Page { items: shown.collect(), next: None }))
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
    write.log_with_reason("revoke", &of.token);
    Ok(Json(json!({ "revoked": of.token })))
}
