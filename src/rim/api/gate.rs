//! The gate before each handler: it finds out who calls, and for which tenant, and refuses what the caller's role or tenants do not
//! allow. Behind it a handler finds the [`Caller`] and the tenant's client among the request's extensions.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{Query, RawPathParams, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::MethodRouter;
use http::Uri;

use super::authenticate::Authenticate;
use super::caller::{Caller, Role, TenantScope};
use super::problem::{Failed, Problem};
use super::rates::{Guesses, Rates};
use super::routes::Reach;
use super::token::{Tokens, presented};
use crate::flow::TenantClient;
use crate::id::Tenant;
use crate::rim::events::Streams;

/// The state that all requests share.
pub(in crate::rim) struct Shared {
    pub(in crate::rim) client: TenantClient,
    pub(in crate::rim) auth: Arc<dyn Authenticate>,
    pub(super) rates: Rates,
    pub(super) guesses: Guesses,
    pub(in crate::rim) streams: Arc<Streams>,
}

impl Shared {
    /// The caller of a request; `None` if nobody is authenticated. Guesses of tokens are refused beyond their rate,
    /// before the database is read.
    pub(in crate::rim) async fn caller(
        &self,
        request: &http::request::Parts,
    ) -> Result<Option<Caller>, Failed> {
        let Some(token) = presented(request) else { return Ok(self.auth.caller(request).await?) };
        let clock = self.client.core().0.clock.clone();
        self.guesses.take(&token, clock.boot()).map_err(Failed::too_many_guesses)?;
        let found = self.auth.caller(request).await;
        match &found {
            Ok(Some(_)) => self.guesses.valid(token, clock.boot()),
            Ok(None) => self.guesses.invalid(&token, clock.boot()),
            Err(_) => self.guesses.unknown(&token),
        }
        Ok(found?)
    }
}

/// The gate of one route.
#[derive(Clone)]
pub(in crate::rim) struct Gate {
    pub(in crate::rim) shared: Arc<Shared>,
    pub(in crate::rim) role: Role,
    pub(in crate::rim) reach: Reach,
    /// The query parameters that the route knows. `None`: the query is not looked at.
    pub(in crate::rim) query: Option<&'static [&'static str]>,
}

impl Gate {
    pub(super) fn before(&self, handler: MethodRouter) -> MethodRouter {
        handler.layer(from_fn_with_state(self.clone(), pass))
    }

    /// The caller, if it may use the route.
    pub(in crate::rim) async fn admit(&self, request: &http::request::Parts) -> Result<Caller, Failed> {
        let nobody = || Failed::of(Problem::Unauthenticated, "Send a valid token. Nothing was done.");
        let caller = self.shared.caller(request).await?.ok_or_else(nobody)?;
        let now = self.shared.client.core().0.clock.boot();
        self.shared.rates.take(&caller, now).map_err(Failed::too_many)?;
        if !caller.role.allows(self.role) {
            let detail = format!("This needs the role {}, and the caller has {}.", self.role, caller.role);
            return Err(Failed::of(Problem::Forbidden, detail));
        }
        if self.reach == Reach::Ledger && caller.tenants != TenantScope::All {
            return Err(Failed::of(Problem::Forbidden, "This needs a caller for all tenants."));
        }
        Ok(caller)
    }

    /// Refuses a query parameter that the route does not know: it may be a mistyped filter, without which the caller
    /// would get what it has not asked for.
    fn knows(&self, uri: &Uri) -> Result<(), Failed> {
        let Some(known) = self.query else { return Ok(()) };
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(Failed::malformed)?;
        let Some((name, _)) = pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let short: String = name.chars().take(40).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Failed::malformed(format!("{short:?} is no query parameter of this route. It knows: {known}.")))
    }
}

/// The tenant of a request: the one that its path names, or the caller's only one.
pub(in crate::rim) fn tenant(caller: &Caller, named: Option<&str>) -> Result<Tenant, Failed> {
    match (&caller.tenants, named) {
        (TenantScope::One(own), Some(name)) if own.as_str() != name => {
            Err(Failed::of(Problem::Forbidden, "The caller belongs to another tenant."))
        }
        (TenantScope::One(own), _) => Ok(own.clone()),
        (TenantScope::All, Some(name)) => Ok(Tenant::new(name)?),
        (TenantScope::All, None) => Err(Failed::malformed("Name the tenant: `/tenants/{tenant}/…`.")),
    }
}

async fn pass(
    State(gate): State<Gate>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Result<Response, Failed> {
    let (mut parts, body) = request.into_parts();
    let caller = gate.admit(&parts).await?;
    gate.knows(&parts.uri)?;
    let params = params.map_err(Failed::malformed)?;
    let client = &gate.shared.client;
    if gate.reach == Reach::Tenant {
        let named = params.iter().find_map(|(name, value)| (name == "tenant").then_some(value));
        parts.extensions.insert(client.of_tenant(tenant(&caller, named)?));
    } else {
        parts.extensions.insert(client.clone());
        parts.extensions.insert(Tokens::of(client));
    }
    parts.extensions.insert(caller);
    parts.extensions.insert(gate.shared.clone());
    Ok(next.run(Request::from_parts(parts, body)).await)
}
