//! The ledger as a whole, for callers for all tenants: open questions of every tenant, queues and workers.

use axum::Extension;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::response::{IntoResponse as _, Response};
use maud::html;
use serde::Deserialize;

use super::gate::see;
use super::layout::{Shown, page};
use super::pieces::{some_time, state, table, time};
use super::site::{Site, escaped};
use crate::flow::TenantClient;
use crate::id::Tenant;
use crate::rim::api::Failed;
use crate::store::Store as _;

/// The tenant that was typed in.
#[derive(Deserialize)]
pub(super) struct Named {
    name: Option<String>,
}

/// What is stuck in all tenants, and the way to one of them.
pub(super) async fn tenants(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
    query: Result<Query<Named>, QueryRejection>,
) -> Result<Response, Failed> {
    let Query(Named { name }) = query.map_err(Failed::malformed)?;
    let of_tenant = |tenant: &Tenant| site.at(&format!("/t/{}", escaped(tenant.as_str())));
    if let Some(name) = name.as_deref().map(str::trim).filter(|name| !name.is_empty()) {
        return Ok(see(&of_tenant(&Tenant::new(name)?)));
    }
    let load = client.core().0.group.escalation_load().await?;
    let rows: Vec<_> = load
        .iter()
        .filter(|load| load.open > 0)
        .map(|load| {
            html! { tr {
                td { (load.kind.name()) }
                td.number { (load.open) }
                td { (time(&site, load.oldest)) }
            } }
        })
        .collect();
    let body = html! {
        h1 { "All tenants" }
        form.filter method="get" action=(site.at("/tenants")) aria-label="Tenant" {
            p { label for="name" { "Tenant" } input #name name="name" required; }
            p { button { "Show" } }
        }
        p {
            a href=(of_tenant(&Tenant::default())) { "The default tenant" } " "
            a href=(of_tenant(&Tenant::ledger())) { "The ledger itself" }
        }
        h2 { "Open questions of all tenants" }
        div #live { (table(&["Kind", "Open", "Oldest"], &rows, "No question is open.")) }
    };
    Ok(page(&site, "All tenants", &body).into_response())
}

pub(super) async fn queues(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
) -> Shown {
    let load = client.core().0.group.queue_load().await?;
    let rows: Vec<_> = load
        .iter()
        .map(|load| {
            html! { tr {
                td { (load.queue) }
                td.number { (load.queued) }
                td.number { (load.running) }
            } }
        })
        .collect();
    let body = html! {
        h1 { "Queues" }
        div #live { (table(&["Queue", "Waiting", "Running"], &rows, "No queue has runs.")) }
    };
    Ok(page(&site, "Queues", &body))
}

pub(super) async fn workers(
    Extension(client): Extension<TenantClient>,
    Extension(site): Extension<Site>,
) -> Shown {
    let workers = client.core().0.group.pulse().await?.workers;
    let rows: Vec<_> = workers
        .iter()
        .map(|worker| {
            let is_late = worker.lease_until.is_some_and(|until| until < site.now);
            let word = match worker.ended_at {
                Some(_) => "ended",
                None if is_late => "late",
                None => "running",
            };
            html! { tr {
                td.number { (worker.fence) }
                td { (worker.name) }
                td { (state(word)) }
                td { (worker.version.as_deref().unwrap_or("unknown")) }
                td { (time(&site, worker.enrolled_at)) }
                td { (some_time(&site, worker.lease_until)) }
                td { (some_time(&site, worker.ended_at)) }
            } }
        })
        .collect();
    let heads = ["Number", "Name", "State", "Version", "Enrolled", "Lease until", "Ended"];
    let body = html! {
        h1 { "Workers" }
        p.lead { "The workers that work, and those that have ended and whose work is still to be taken over." }
        div #live { (table(&heads, &rows, "No worker works on this ledger.")) }
    };
    Ok(page(&site, "Workers", &body))
}
