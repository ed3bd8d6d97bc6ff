//! The tower layer: from a request to the ledger's decision, and back to a response.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use tower_layer::Layer;
use tower_service::Service;

use super::answer::{failed, in_progress, response};
use super::config::{Config, ConfigError, RequestScope};
use super::fingerprint::Fingerprint;
use super::handling::{Cut, Handling, Progress, collect};
use super::key::idempotency_key;
use super::problem::{Details, Problem};
use super::route::{Routes, spec};
use super::status;
use crate::exec::{ExecError, Executor, Outcome, Wait};
use crate::ledger::Key;
use crate::rim::door::{Decided, DoorDecision};

/// An error of a service or a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a request on its way to the handler: as it came, or read whole.
pub type RequestBody<B> = Either<B, Full<Bytes>>;
/// The body of a response on its way to the client: the handler's, or a whole one.
pub type ResponseBody<R> = Either<R, Full<Bytes>>;

/// A client waits for so long for a handler to be called, unless the host lets it wait longer: another request may be handled, or what
/// became of an earlier one be found out.
const PATIENCE: Duration = Duration::from_secs(10);

/// Guards the write requests of a service: see the [module](super).
#[derive(Clone)]
pub struct IdempotencyLayer {
    guard: Arc<Guard>,
}

/// What all requests share.
struct Guard {
    executor: Executor,
    config: Arc<Config>,
    routes: Routes,
}

impl std::fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyLayer").field("executor", &self.guard.executor).finish_non_exhaustive()
    }
}

impl IdempotencyLayer {
    pub(super) fn of(executor: Executor, config: Config) -> Result<Self, ConfigError> {
        let unnamed = |error: crate::id::IdError| ConfigError::Unsafe { reason: error.to_string() };
        spec(&config, "any route").map_err(unnamed)?.check()?;
        let guard = Guard { executor, config: Arc::new(config), routes: Routes::default() };
        Ok(Self { guard: Arc::new(guard) })
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { inner, guard: self.guard.clone() }
    }
}

/// A service whose write requests are guarded.
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    guard: Arc<Guard>,
}

impl<S: std::fmt::Debug> std::fmt::Debug for IdempotencyService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone may not be ready yet, and the service that is goes with the request.
        let clone = self.inner.clone();
        let mut service = std::mem::replace(&mut self.inner, clone);
        let guard = self.guard.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Some(what) = what(&guard.config, &parts) else {
                let request = Request::from_parts(parts, Either::Left(body));
                return Ok(service.call(request).await?.map(Either::Left));
            };
            let response = Guarded { guard, parts, body, what }.answered(service).await;
            if let Some(decision) = response.extensions().get::<DoorDecision>() {
                decision.log();
            }
            Ok(response.map(|body| Either::Right(Full::new(body))))
        })
    }
}

/// A request that the layer answers.
struct Guarded<B> {
    guard: Arc<Guard>,
    parts: Parts,
    body: B,
    what: What,
}

enum What {
    /// It asks what became of an operation.
    Status(crate::ledger::OperationKey),
    /// It is refused.
    Refused(Details),
    /// It writes, under this key.
    Write(String),
}

/// What is to be done about a request; nothing if it is let through.
fn what(config: &Config, parts: &Parts) -> Option<What> {
    if let Some(key) = status::asked(config, parts) {
        return Some(What::Status(key));
    }
    // They change nothing (RFC 9110, 9.2.1).
    if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE) {
        return None;
    }
    match idempotency_key(&parts.headers) {
        Ok(Some(key)) => Some(What::Write(key)),
        Ok(None) if !config.is_required => None,
        Ok(None) => {
            let detail = "Send an Idempotency-Key header: the id of this operation, the same in each retry. Nothing was done.";
            Some(What::Refused(Details::of(Problem::KeyMissing, detail)))
        }
        Err(error) => {
            Some(What::Refused(Details::of(Problem::KeyMalformed, format!("{error}. Nothing was done."))))
        }
    }
}

impl<B> Guarded<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    async fn answered<S, R>(self, service: S) -> Response<Bytes>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Self { guard, parts, body, what } = self;
        let Guard { executor, config, routes } = &*guard;
        let key = match what {
            What::Status(key) => return status::answer(executor, config, &parts, &key).await,
            What::Refused(details) => return refused(config, None, None, details),
            What::Write(key) => key,
        };
        let Some(scope) = (config.scope)(&parts) else {
            let detail = "Nobody is authenticated for this request. Nothing was done.";
            return refused(config, None, Some(key), Details::of(Problem::Unauthenticated, detail));
        };
        let body = match collect(body, config.max_request).await {
            Ok(body) => body,
            Err(cut) => return refused(config, Some(scope), Some(key), incomplete(config, cut)),
        };
        let name = format!("{} {}", parts.method, scope.route);
        let route = match routes.named(&name, executor, config) {
            Ok(route) => route,
            Err(error) => {
                tracing::error!(route = name, %error, "the route cannot be guarded");
                let details =
                    Details::of(Problem::Misconfigured, "The host's configuration of this route is refused.");
                return refused(config, Some(scope), Some(key), details);
            }
        };
        let operation = Key::given(name, &key).hashed();
        let progress = Arc::<Progress>::default();
        let status_url = status::url(config, &operation);
        let handling = Handling {
            fingerprint: Fingerprint::of(&parts, &body, &config.bound),
            route,
            key: operation.clone(),
            parts,
            body,
            service: Mutex::new(service),
            progress: progress.clone(),
            executor: executor.clone(),
            _body: PhantomData,
        };
        let executing = executor.inline(&scope.tenant, &operation, Arc::new(handling), config.wait);
        let patience = match config.wait {
            Wait::AtMost(wait) => wait.max(PATIENCE),
            Wait::No | Wait::ForOutcome => PATIENCE,
        };
        let outcome = patiently(executor, executing, patience, &progress).await;
        let (decision, effect_id) = match &outcome {
            Ok(Some(outcome)) => (Decided::of(outcome), outcome.answer().map(|answer| answer.record)),
            Ok(None) => (Decided::InProgress, None),
            Err(_) => (Decided::Failed, None),
        };
        let mut response = match outcome {
            Ok(Some(outcome)) => response(config, outcome, progress.take_answer(), status_url.as_deref()),
            Ok(None) => in_progress(config, status_url.as_deref()),
            Err(error) => {
                tracing::error!(tenant = %scope.tenant, idempotency_key = key, %error, "the ledger did not answer");
                failed(config, &error)
            }
        };
        response.extensions_mut().insert(DoorDecision {
            tenant: Some(scope.tenant),
            idempotency_key: Some(key),
            decision,
            effect_id,
            source_type: SOURCE,
            source_id: scope.route,
        });
        response
    }
}

const SOURCE: &str = "http";

/// The outcome, however long the handler takes. `None` if it was not called in time: it is being found out what became of an earlier
/// request.
async fn patiently(
    executor: &Executor,
    executing: impl Future<Output = Result<Outcome, ExecError>>,
    patience: Duration,
    progress: &Progress,
) -> Result<Option<Outcome>, ExecError> {
    let mut executing = pin!(executing);
    let mut patience = executor.clock().sleep(patience);
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
