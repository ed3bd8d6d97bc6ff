//! The path from a write to the ledger's decision about it, and back to a response.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::Body;

use super::answer::{failed, in_progress, response};
use super::config::{Config, RequestScope};
use super::fingerprint::Fingerprint;
use super::handling::{Handling, Progress};
use super::layer::{Handler, What};
use super::problem::{Details, Problem};
use super::route::{Route, Routes};
use super::status;
use crate::exec::{ExecError, Executor, Outcome, Wait};
use crate::ledger::Key;
use crate::rim::body::{BoxError, Cut, collect};
use crate::rim::door::{Decided, DoorDecision};

/// The time that a client waits for its handler to be called, unless the host sets a longer wait: meanwhile another
/// request is handled, or the outcome of an earlier one is looked up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state that all requests share.
pub(super) struct Guard {
    pub(super) executor: Executor,
    pub(super) config: Arc<Config>,
    routes: Routes,
}

/// A write that the ledger is asked about.
struct Admitted {
    scope: RequestScope,
    key: String,
    body: Bytes,
    route: Arc<Route>,
    operation: Key,
}

impl Guard {
    pub(super) fn new(executor: Executor, config: Config) -> Self {
        Self { executor, config: Arc::new(config), routes: Routes::default() }
    }

    /// Answers a request that is not let through.
    pub(super) async fn answer<S, B>(&self, what: What, parts: Parts, body: B, handler: S) -> Response<Bytes>
    where
        S: Handler<B>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let key = match what {
            What::Status(key) => return status::answer(&self.executor, &self.config, &parts, &key).await,
            What::Refused(details) => return refused(&self.config, None, None, details),
            What::Write(key) => key,
        };
        match self.admit(&parts, body, key).await {
            Ok(admitted) => self.carry_out(admitted, parts, handler).await,
            Err(refused) => refused,
        }
    }

    /// Reads the scope and the body of a request, or refuses it.
    async fn admit<B>(&self, parts: &Parts, body: B, key: String) -> Result<Admitted, Response<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let config = &self.config;
        let Some(scope) = (config.scope)(parts) else {
            let detail = "Nobody is authenticated for this request. Nothing was done.";
            return Err(refused(config, None, Some(key), Details::of(Problem::Unauthenticated, detail)));
        };
        let body = match collect(body, config.max_request).await {
            Ok(body) => body,
            Err(cut) => return Err(refused(config, Some(scope), Some(key), incomplete(config, cut))),
        };
        let name = format!("{} {}", parts.method, scope.route);
        match self.routes.named(&name, &self.executor, config) {
            Ok(route) => {
                let operation = Key::given(name, &key).hashed();
                Ok(Admitted { scope, key, body, route, operation })
            }
            Err(error) => {
                tracing::error!(route = name, %error, "route not guarded, its configuration is refused");
                let detail = "The host's configuration of this route is refused. Nothing was done.";
                let details = Details::of(Problem::Misconfigured, detail);
                Err(refused(config, Some(scope), Some(key), details))
            }
        }
    }

    /// Lets the ledger decide, and the handler answer if the request is the first under its key.
    async fn carry_out<S, B>(&self, admitted: Admitted, parts: Parts, handler: S) -> Response<Bytes>
    where
        S: Handler<B>,
        B: Body<Data = Bytes> + Send + 'static,
    {
        let Self { executor, config, .. } = self;
        let Admitted { scope, key, body, route, operation } = admitted;
        let progress = Arc::<Progress>::default();
        let handling = Handling {
            fingerprint: Fingerprint::of(&parts, &body, &config.bound),
            route,
            parts,
            body,
            handler: Mutex::new(handler),
            progress: progress.clone(),
            executor: executor.clone(),
            _body: PhantomData,
        };
        let executing = executor.inline(&scope.tenant, &operation, Arc::new(handling), config.wait);
        let outcome = self.patiently(executing, &progress).await;
        let (decision, effect_id) = match &outcome {
            Ok(Some(outcome)) => (Decided::of(outcome), outcome.answer().map(|answer| answer.record)),
            Ok(None) => (Decided::InProgress, None),
            Err(_) => (Decided::Failed, None),
        };
        let status_url = status::url(config, &operation);
        let mut response = match outcome {
            Ok(Some(outcome)) => response(config, outcome, progress.take_answer(), status_url.as_deref()),
            Ok(None) => in_progress(config, status_url.as_deref()),
            Err(error) => {
                tracing::error!(tenant = %scope.tenant, idempotency_key = key, %error, "ledger gave no answer, request failed");
                failed(config, &error)
            }
        };
        let (tenant, source_id) = (Some(scope.tenant), scope.route);
        let decision = DoorDecision {
            tenant,
            idempotency_key: Some(key),
            decision,
            effect_id,
            source_type: SOURCE,
            source_id,
        };
        response.extensions_mut().insert(decision);
        response
    }

    /// The outcome, however long the handler takes. `None` if the handler was not called in time: another request is
    /// being handled, or the outcome of an earlier one is being looked up.
    async fn patiently(
        &self,
        executing: impl Future<Output = Result<Outcome, ExecError>>,
        progress: &Progress,
    ) -> Result<Option<Outcome>, ExecError> {
        let patience = match self.config.wait {
            Wait::AtMost(wait) => wait.max(PATIENCE),
            Wait::No | Wait::ForOutcome => PATIENCE,
        };
        let mut executing = pin!(executing);
        let mut patience = self.executor.clock().sleep(patience);
        let mut is_patient = false;
        loop {
            tokio::select! {
                biased;
                outcome = executing.as_mut() => return outcome.map(Some),
                () = patience.as_mut(), if !is_patient => {
                    if !progress.has_begun() {
                        return Ok(None);
                    }
                    is_patient = true;
                }
            }
        }
    }
}

/// The kind of door, as it is logged.
const SOURCE: &str = "http";

fn incomplete(config: &Config, cut: Cut) -> Details {
    match cut {
        Cut::TooLong => {
            let detail =
                format!("A body of at most {} bytes is taken. Nothing was done.", config.max_request);
            Details::of(Problem::RequestTooLarge, detail)
        }
        Cut::Broken(error) => {
            let detail = format!("The request's body broke off ({error}). Nothing was done; send it again.");
            Details::of(Problem::RequestIncomplete, detail)
        }
    }
}

fn refused(
    config: &Config,
    scope: Option<RequestScope>,
    key: Option<String>,
    details: Details,
) -> Response<Bytes> {
    let mut response = details.response(&config.types);
    let (tenant, route) = scope.map(|scope| (scope.tenant, scope.route)).unzip();
    response.extensions_mut().insert(DoorDecision {
        tenant,
        idempotency_key: key,
        decision: Decided::Refused,
        effect_id: None,
        source_type: SOURCE,
        source_id: route.unwrap_or_default(),
    });
    response
}
