//! The tower layer: from a request to the ledger's decision, and back to a response.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};
use tower_layer::Layer;
use tower_service::Service;

use super::config::{Config, ConfigError};
use super::guard::Guard;
use super::key::idempotency_key;
use super::problem::{Details, Problem};
use super::route::spec;
use super::status;
use crate::exec::Executor;
use crate::ledger::OperationKey;
use crate::rim::body::BoxError;
use crate::rim::door::DoorDecision;
/// The body of a request on its way to the handler: the original, or read as a whole.
pub type RequestBody<B> = Either<B, Full<Bytes>>;
/// The body of a response on its way to the client: the handler's own, or read as a whole.
pub type ResponseBody<R> = Either<R, Full<Bytes>>;

/// Guards the write requests of a service: see the [module](super).
#[derive(Clone)]
pub struct IdempotencyLayer {
    guard: Arc<Guard>,
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
        Ok(Self { guard: Arc::new(Guard::new(executor, config)) })
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

/// A service that handles guarded requests: any service that accepts them, can be cloned, and answers with a body of
/// bytes.
pub trait Handler<B>:
    Service<
        Request<RequestBody<B>>,
        Response = Response<Self::Body>,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The type of the response body.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B, R> Handler<B> for S
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Body = R;
}

impl<S, B> Service<Request<B>> for IdempotencyService<S>
where
    S: Handler<B>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<S::Body>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone may not be ready yet, so the request gets the service that was polled ready.
        let clone = self.inner.clone();
        let mut handler = std::mem::replace(&mut self.inner, clone);
        let guard = self.guard.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Some(what) = what(&guard.config, &parts) else {
                let request = Request::from_parts(parts, Either::Left(body));
                return Ok(handler.call(request).await?.map(Either::Left));
            };
            let response = guard.answer(what, parts, body, handler).await;
            if let Some(decision) = response.extensions().get::<DoorDecision>() {
                decision.log(guard.config.log);
            }
            Ok(response.map(|body| Either::Right(Full::new(body))))
        })
    }
}

/// The treatment of a request that is not let through.
pub(super) enum What {
    /// The request asks for the status of an operation.
    Status(OperationKey),
    /// The request is refused.
    Refused(Details),
    /// The request writes, under this key.
    Write(String),
}

/// The treatment of a request; `None` if the request is let through.
fn what(config: &Config, parts: &Parts) -> Option<What> {
    if let Some(key) = status::asked(config, parts) {
        return Some(What::Status(key));
    }
    // These methods change nothing (RFC 9110, 9.2.1).
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
