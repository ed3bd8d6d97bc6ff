//! The ledger as a whole, over all tenants: tenants, what is stuck, queues, throttles, workers and tokens.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::caller::{Caller, Role, TenantScope};
use super::inspect::Listed;
use super::page::{Asked, At, Page, Paged, Prefix, Window};
use super::problem::{Failed, Problem};
use super::token::{IssuedToken, Tokens};
use super::write::{Bare, Write};
use crate::clock::Timestamp;
use crate::exec::{BreakerState, ThrottleReport};
use crate::flow::TenantClient;
use crate::id::{QuestionId, Tenant, some_text, text};
use crate::store::{Question, QuestionKind, QueueLoad, Store as _, Worker};

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

/// The limits of a tool or a provider in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedThrottle {
    /// The name of the tool or of the provider
    name: String,
    /// True if the limits are a provider's, shared by all tools that name it
    is_provider: bool,
    /// The state of the breaker
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    state: BreakerState,
    /// The instant of the last change of the state (UTC)
    #[serde(serialize_with = "text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    since: Timestamp,
    /// The instant at which the next call may go ahead (UTC), if the breaker is open
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    until: Option<Timestamp>,
    /// The number of failures that the breaker remembers
    failures: u32,
    /// The number of waiting calls
    waiting: usize,
}

impl ListedThrottle {
    /// The place in the list: a tool and a provider may have the same name.
    fn place(&self) -> String {
        format!("{}:{}", self.name, if self.is_provider { "provider" } else { "tool" })
    }
}

impl From<ThrottleReport> for ListedThrottle {
    fn from(report: ThrottleReport) -> Self {
        let ThrottleReport { name, is_provider, state, since, until, failures, waiting } = report;
        Self { name, is_provider, state, since, until, failures, waiting }
    }
}

/// A queue in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedQueue {
    name: String,
    /// The number of runs that wait for a place
    queued: u64,
    /// The number of runs that have a place
    running: u64,
}

impl From<QueueLoad> for ListedQueue {
    fn from(QueueLoad { queue, queued, running }: QueueLoad) -> Self {
        Self { name: queue, queued, running }
    }
}

/// A worker in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedWorker {
    number: i64,
    name: String,
    /// The version of counterfoil that the worker runs
    version: Option<String>,
    #[serde(serialize_with = "text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    enrolled_at: Timestamp,
    /// The end of the lease (UTC), if the worker has one
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    lease_until: Option<Timestamp>,
    /// The instant since which the writes of the worker are void (UTC)
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    ended_at: Option<Timestamp>,
}

impl From<Worker> for ListedWorker {
    fn from(worker: Worker) -> Self {
        let Worker { fence, name, enrolled_at, lease_until, ended_at, version, .. } = worker;
        Self { number: fence.0, name, version, enrolled_at, lease_until, ended_at }
    }
}

/// The open questions of all tenants to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct WhichStuck {
    /// Only questions of this tenant
    tenant: Option<String>,
    /// Only questions of this kind, such as `ambiguous` or `unknown_tool`
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    kind: Option<QuestionKind>,
}

/// The tokens to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct WhichTokens {
    /// Only tokens of callers of this tenant; `*`: of callers for all tenants
    tenant: Option<String>,
    /// Only tokens of this role
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    role: Option<Role>,
}

impl WhichTokens {
    fn take(&self, caller: &Caller) -> bool {
        let of = match &caller.tenants {
            TenantScope::One(tenant) => tenant.as_str(),
            TenantScope::All => "*",
        };
        self.tenant.as_ref().is_none_or(|tenant| tenant == of)
            && self.role.is_none_or(|role| caller.role == role)
    }
}

/// The tenants that have rows, by their names, without the ledger's own rows.
pub(super) async fn tenants(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(beginning): Asked<Prefix>,
) -> Paged<ListedTenant> {
    let after = window.after()?.unwrap_or_default();
    let looked_at = window.looked_at(beginning.is_narrow());
    let rows = client.core().0.group.tenant_list(after, looked_at).await?;
    let takes = |name: &Tenant| *name != Tenant::ledger() && beginning.takes(name.as_str());
    let page = Page::sifted(rows, (looked_at, window.limit()), |tenant| tenant.as_str().to_owned(), takes);
    Ok(Json(page.map(|name| ListedTenant { name })))
}

/// The open questions of all tenants, the oldest first. Each run that is blocked has one.
pub(super) async fn stuck(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(which): Asked<WhichStuck>,
) -> Paged<Stuck> {
    let after = window.after_id()?.unwrap_or(QuestionId(i64::MIN));
    let looked_at = window.looked_at(which.tenant.is_some() || which.kind.is_some());
    let rows = client.core().0.group.escalation_open_everywhere(after, looked_at).await?;
    let takes = |asked: &Question| {
        which.tenant.as_ref().is_none_or(|tenant| asked.tenant.as_str() == tenant)
            && which.kind.is_none_or(|kind| asked.kind == kind)
    };
    let page = Page::sifted(rows, (looked_at, window.limit()), |asked| asked.id.to_string(), takes);
    Ok(Json(page.map(|asked| Stuck { tenant: asked.tenant.clone(), question: Listed::from(asked) })))
}

/// The limits of tools and providers, as the engine beside this API has them, by name.
pub(super) async fn throttles(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<ListedThrottle> {
    let after = window.after()?.unwrap_or_default();
    let reports = client.core().0.throttles().into_iter();
    let mut all: Vec<_> = reports.map(ListedThrottle::from).collect();
    all.sort_by_cached_key(ListedThrottle::place);
    Ok(Page::of_all(all, window.limit(), ListedThrottle::place, |listed| listed.place().as_str() > after))
}

/// The queues in which runs wait or have a place, by name.
pub(super) async fn queues(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<ListedQueue> {
    let after = window.after()?.unwrap_or_default();
    let loads = client.core().0.group.queue_load().await?.into_iter();
    let mut all: Vec<_> = loads.map(ListedQueue::from).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Page::of_all(all, window.limit(), |queue| queue.name.clone(), |queue| queue.name.as_str() > after))
}

/// The workers that work, and those whose work is still to be taken over, by number.
pub(super) async fn workers(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
) -> Paged<ListedWorker> {
    let after = window.after_id::<i64>()?.unwrap_or(i64::MIN);
    let workers = client.core().0.group.pulse().await?.workers.into_iter();
    let mut all: Vec<_> = workers.map(ListedWorker::from).collect();
    all.sort_by_key(|worker| worker.number);
    Ok(Page::of_all(all, window.limit(), |worker| worker.number.to_string(), |worker| worker.number > after))
}

pub(super) async fn tokens(
    Extension(tokens): Extension<Tokens>,
    Asked(window): Asked<Window>,
    Asked(which): Asked<WhichTokens>,
) -> Paged<IssuedToken> {
    let looked_at = window.looked_at(which.tenant.is_some() || which.role.is_some());
    let rows = tokens.list(window.after()?, looked_at).await?;
    let takes = |token: &IssuedToken| which.take(&token.caller);
    Ok(Json(Page::sifted(rows, (looked_at, window.limit()), |token| token.id.clone(), takes)))
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
