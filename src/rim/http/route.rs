//! A guarded route as a tool of the ledger: its declaration, and its requests after their callers are gone.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::config::Config;
use super::stored::StoredResponse;
use crate::clock::Timestamp;
use crate::exec::Executor;
use crate::id::{IdError, Name, Tenant};
use crate::ledger::{Backoff, ErrorKind, LookupResult, Record, RequestHash, RetryPolicy, State};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::tool::{Call, Done, Prepared, RegisterError, ToolError, ToolSpec, Unprepared};

/// The call that a handler carries out, among the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerCall {
    /// The tenant that owns the request.
    pub tenant: Tenant,
    /// The key for downstream calls: the same in every attempt, for the provider's own idempotency key or client
    /// reference.
    pub key: String,
    /// The readable key in the ledger, made of method, route and the client's key.
    pub operation_key: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl HandlerCall {
    pub(super) fn of(call: &Call) -> Self {
        Self {
            tenant: call.tenant().clone(),
            key: call.key().to_owned(),
            operation_key: call.operation_key().to_string(),
            attempt: call.attempt(),
        }
    }
}

/// The maximum number of routes. A host that exceeds it passes paths instead of templates.
const MOST: usize = 1000;

/// The routes of the requests so far.
#[derive(Default)]
pub(super) struct Routes(RwLock<HashMap<String, Arc<Route>>>);

/// The reason why a request's route cannot be guarded.
#[derive(Debug, thiserror::Error)]
pub(super) enum RouteError {
    #[error(transparent)]
    Name(#[from] IdError),
    #[error(transparent)]
    Refused(#[from] RegisterError),
    #[error(
        "there are more than {MOST} routes: the host gives paths where it is to give templates, `/orders/{{id}}`"
    )]
    TooMany,
}

impl Routes {
    /// The route of this name. From its first request on, the executor reconciles the route's records.
    pub(super) fn named(
        &self,
        name: &str,
        executor: &Executor,
        config: &Arc<Config>,
    ) -> Result<Arc<Route>, RouteError> {
        if let Some(route) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(route.clone());
        }
        let mut routes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if routes.len() >= MOST {
            return Err(RouteError::TooMany);
        }
        let route = Arc::new(Route { config: config.clone(), spec: Arc::new(spec(config, name)?) });
        executor.meet(Arc::new(Met(route.clone())))?;
        Ok(routes.entry(name.to_owned()).or_insert(route).clone())
    }
}

/// A route with its method. The ledger holds the route, so the route must not hold the ledger.
pub(super) struct Route {
    pub(super) config: Arc<Config>,
    pub(super) spec: Arc<ToolSpec>,
}

impl Route {
    /// The outcome of a request, by the host's lookup.
    pub(super) fn reconcile<'a>(
        &self,
        call: &Call,
        request: Result<Value, PayloadError>,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let reconcile = self.config.reconcile.as_ref()?;
        let unreadable = |error: PayloadError| ToolError::new(ErrorKind::Unknown, error.to_string());
        let finding = match request {
            Ok(request) => reconcile(HandlerCall::of(call), request),
            Err(error) => return Some(Box::pin(async move { Err(unreadable(error)) })),
        };
        let kept = self.config.kept.clone();
        Some(Box::pin(async move {
            let stored = |response| Payload::of(&StoredResponse::of(&response, &kept));
            finding.await?.try_map(stored).map_err(unreadable)
        }))
    }
}

/// The declaration of a route with this configuration.
pub(super) fn spec(config: &Config, name: &str) -> Result<ToolSpec, IdError> {
    let pause = Duration::from_secs(1);
    let retry = RetryPolicy {
        attempts: 5, // further attempts are made only after a lookup has shown that nothing happened
        backoff: Backoff { base: pause, cap: pause },
        attempt_timeout: config.timeout,
        retry_after_cap: pause,
    };
    let contract = config.contract.clone().settled_for(&retry);
    let spec = ToolSpec::of(Name::new(name)?, config.effect, contract, retry);
    Ok(ToolSpec { retention: config.retention, ..spec })
}

/// True if the request was freed and differs: a freed key is bound no longer, and a later request may bring another
/// body.
pub(super) fn outlives(record: &Record, request: &RequestHash) -> bool {
    matches!(record.state, State::Failed { .. }) && record.request_hash != *request
}

/// A route as the ledger knows it.
struct Met(Arc<Route>);

impl Unprepared for Met {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        Ok(Arc::new(Left { route: self.0.clone(), request: input.clone() }))
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// A request whose caller is gone: it can be looked up, and not be handled.
struct Left {
    route: Arc<Route>,
    request: Payload,
}

impl Prepared for Left {
    fn spec(&self) -> &ToolSpec {
        &self.route.spec
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((self.request.clone(), false))
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async { Err(ToolError::new(ErrorKind::Validation, "its caller is gone: nothing was done")) })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        self.route.reconcile(call, self.request.value())
    }

    fn needs_caller(&self) -> bool {
        true
    }

    fn outlives(&self, record: &Record, request: &RequestHash, _: Timestamp) -> bool {
        outlives(record, request)
    }
}
