//! The handling of one request under its key: the handler is called at most once, and its answer is kept as a whole
//! or not at all.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, poll_fn};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{Either, Full};

use super::config::{Config, KeyFate};
use super::fingerprint::Fingerprint;
use super::layer::{Handler, RequestBody};
use super::problem::{Details, Problem};
use super::route::{HandlerCall, Route, outlives};
use super::stored::StoredResponse;
use crate::clock::Timestamp;
use crate::exec::Executor;
use crate::ledger::{ErrorKind, LookupResult, Record, RequestHash};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::rim::body::{BoxError, Cut, collect};
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec, canonical};

/// A mark in the extensions of a handler's response: the request had no effect, whatever its status. The key is free.
#[derive(Clone, Copy, Debug)]
pub struct NothingHappened;

/// A mark in the extensions of a handler's response: the request took effect, whatever its status. The answer is
/// kept.
#[derive(Clone, Copy, Debug)]
pub struct TookEffect;

/// The state of a request that its waiting caller sees besides the outcome.
#[derive(Default)]
pub(super) struct Progress {
    /// True once the handler was called.
    began: AtomicBool,
    /// The handler's answer, with the headers that are not kept.
    answer: Mutex<Option<Response<Bytes>>>,
}

impl Progress {
    pub(super) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Acquire)
    }

    pub(super) fn take_answer(&self) -> Option<Response<Bytes>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn answer(&self, response: Response<Bytes>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
    }
}

/// A request with its handler.
pub(super) struct Handling<S, B> {
    pub(super) route: Arc<Route>,
    pub(super) fingerprint: Fingerprint,
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    pub(super) handler: Mutex<S>,
    pub(super) progress: Arc<Progress>,
    pub(super) executor: Executor,
    pub(super) _body: PhantomData<fn() -> B>,
}

/// A handler's answer, and the fate of its key.
pub(super) struct Handled {
    response: Response<Bytes>,
    /// The answer as it is kept; absent if the request had no effect.
    kept: Option<Payload>,
    /// True if the answer lets its transaction commit.
    commits: bool,
}

impl Handled {
    /// The kept answer, if its transaction is to be committed.
    pub(super) fn kept_in_transaction(&self) -> Option<&Payload> {
        self.kept.as_ref().filter(|_| self.commits)
    }

    /// The answer after its transaction was rolled back.
    pub(super) fn undone(self) -> Self {
        Self { kept: None, ..self }
    }
}

impl<S, B> Handling<S, B>
where
    S: Handler<B>,
    B: Body<Data = Bytes> + Send + 'static,
{
    fn handler(&self) -> S {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn handle(&self, call: &Call) -> Result<Done<Payload>, ToolError> {
        let mut request =
            Request::from_parts(self.parts.clone(), Either::Right(Full::new(self.body.clone())));
        request.extensions_mut().insert(HandlerCall::of(call));
        let config = self.route.config.clone();
        let transaction = config.transactions.as_ref().map(|offers| offers.offer(request.extensions_mut()));
        self.progress.began.store(true, Ordering::Release);
        let handled = Box::pin(handled(self.handler(), request, config));
        let handled = match transaction {
            Some(transaction) => match transaction.carry_out(handled, call, &self.executor).await {
                Err(error) if error.kind == ErrorKind::Validation => {
                    self.progress.answer(rolled_back(&error.message, &self.route.config.types));
                    return Err(error);
                }
                handled => handled?,
            },
            None => handled.await?,
        };
        let Handled { response, kept, .. } = handled;
        let status = response.status();
        self.progress.answer(response);
        let nothing = || {
            ToolError::new(ErrorKind::Validation, format!("the handler answered {status}: nothing happened"))
        };
        kept.map(Done::new).ok_or_else(nothing)
    }
}

/// Calls the handler, and reads its answer to the end.
async fn handled<S, B>(
    mut handler: S,
    request: Request<RequestBody<B>>,
    config: Arc<Config>,
) -> Result<Handled, ToolError>
where
    S: Handler<B>,
    B: Body<Data = Bytes> + Send + 'static,
{
    poll_fn(|cx| handler.poll_ready(cx)).await.map_err(unknown)?;
    let response = handler.call(request).await.map_err(unknown)?;
    let status = response.status();
    let says = says(&response);
    let is_freed = says.unwrap_or_else(|| (config.fate)(status)) == KeyFate::Freed;
    let commits = says.map_or(status.is_success() || status.is_redirection(), |fate| fate == KeyFate::Kept);
    let mut response = match whole(response, config.max_response).await {
        Ok(response) => response,
        Err(why) => not_kept(&why, &config.types),
    };
    if is_freed {
        return Ok(Handled { response, kept: None, commits });
    }
    let kept = |response: &Response<Bytes>| Payload::of(&StoredResponse::of(response, &config.kept));
    let mut stored = kept(&response).map_err(unwritable)?;
    if stored.as_str().len() > config.max_payload {
        let (bytes, max) = (stored.as_str().len(), config.max_payload);
        response = not_kept(&format!("written down it has {bytes} bytes, {max} at most"), &config.types);
        stored = kept(&response).map_err(unwritable)?;
    }
    Ok(Handled { response, kept: Some(stored), commits })
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` has it")]
fn unwritable(error: PayloadError) -> ToolError {
    ToolError::new(ErrorKind::Unknown, format!("the response cannot be recorded: {error}"))
}

fn unknown(error: impl Into<BoxError>) -> ToolError {
    ToolError::new(ErrorKind::Unknown, format!("the handler failed without an answer: {}", error.into()))
}

/// The fate of the key, if the handler has marked its response.
fn says<R>(response: &Response<R>) -> Option<KeyFate> {
    let extensions = response.extensions();
    if extensions.get::<TookEffect>().is_some() {
        return Some(KeyFate::Kept);
    }
    extensions.get::<NothingHappened>().map(|_| KeyFate::Freed)
}

fn rolled_back(why: &str, types: &str) -> Response<Bytes> {
    let detail = format!(
        "Nothing happened: the request's transaction was rolled back ({why}). Send it again with the same key."
    );
    Details::of(Problem::RolledBack, detail).retry_after(1).response(types)
}

fn not_kept(why: &str, types: &str) -> Response<Bytes> {
    let detail = format!("The request took effect. Its response could not be kept and is not given: {why}.");
    Details::of(Problem::ResponseNotKept, detail).response(types)
}

/// The response with its body read to the end, or the reason why it cannot be kept.
async fn whole<R>(response: Response<R>, max: usize) -> Result<Response<Bytes>, String>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let content = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content.starts_with("text/event-stream") || content.starts_with("multipart/x-mixed-replace") {
        return Err("it is a stream".to_owned());
    }
    match collect(body, max).await {
        Ok(body) => Ok(Response::from_parts(parts, body)),
        Err(Cut::TooLong) => Err(format!("it is longer than {max} bytes")),
        Err(Cut::Broken(error)) => Err(format!("it broke off: {error}")),
    }
}

impl<S, B> Prepared for Handling<S, B>
where
    S: Handler<B>,
    B: Body<Data = Bytes> + Send + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.route.spec
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        canonical(&self.fingerprint, key)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(self.handle(call))
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        self.route.reconcile(call, self.request(None).and_then(|(request, _)| request.value()))
    }

    fn outlives(&self, record: &Record, request: &RequestHash, _: Timestamp) -> bool {
        outlives(record, request)
    }
}
