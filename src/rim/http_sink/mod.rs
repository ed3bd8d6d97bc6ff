//! Sinks over HTTP: one request for each event, and the events of one aggregate one after the other. To any service
//! by POST, and to search indexes by PUT with a version.

mod document;

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode};

pub use document::{DocumentSink, IndexDocument};

use super::in_order::by_aggregate;
use crate::exec::outbox::{Event, PublishResult, Sink, SinkError};
use crate::tool::{retry_after, sends_once};

/// Posts each event as JSON to one URL. Feature `sink-http`.
///
/// The body holds `id`, `tenant`, `aggregate`, `seq`, `kind`, `created_at` (microseconds UTC) and `payload`; the
/// headers `Event-Tenant` and `Event-Id` hold the tenant and the id, `Event-Aggregate` and `Event-Sequence` its position. The id
/// is unique within its tenant only, so `Idempotency-Key` is made of both: `acme/order/17/paid`, or a SHA-256 if that is long. Any
/// 2xx accepts the event. 408, 429 and 5xx defer the event, for as long as `Retry-After` says (in seconds); any other
/// answer refuses the event.
///
/// An `https` URL needs the feature `https`, or reqwest 0.13 with a TLS feature among your own dependencies.
///
/// ```
/// # fn engine() -> Result<(), reqwest::Error> {
/// use std::time::Duration;
/// use counterfoil::{Engine, HttpSink};
///
/// let sink = HttpSink::new("http://billing.internal/events", Duration::from_secs(5))?;
/// let engine = Engine::sqlite("agents.db").sink(sink);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct HttpSink {
    client: Client,
    url: String,
}

impl HttpSink {
    /// A sink for this URL. An event without an answer within `timeout` is deferred.
    ///
    /// # Errors
    /// If the client cannot be built.
    pub fn new(url: impl Into<String>, timeout: Duration) -> Result<Self, reqwest::Error> {
        Ok(Self::with(client(timeout)?, url))
    }

    /// A sink with a client of your own, with its proxies, certificates, headers and timeouts.
    pub fn with(client: Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into() }
    }

    async fn post(&self, event: &Event) -> Result<(), SinkError> {
        let request = self.client.post(&self.url).headers(headers(event)?).body(body(event));
        taken(&send(request).await?)
    }
}

impl Sink for HttpSink {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        by_aggregate(batch, |event| Box::pin(self.post(event))).await
    }
}

fn client(timeout: Duration) -> Result<Client, reqwest::Error> {
    sends_once().timeout(timeout).build() // retries are the publisher's task
}

async fn send(request: RequestBuilder) -> Result<Response, SinkError> {
    // The client's error message contains the URL, which may hold a password.
    request.send().await.map_err(|error| SinkError::unavailable(error.without_url().to_string()))
}

/// Fails unless the answer accepts the event.
fn taken(answer: &Response) -> Result<(), SinkError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let error = if puts_off(status) {
        SinkError::unavailable(status.to_string())
    } else {
        SinkError::refused(status.to_string())
    };
    Err(match retry_after(answer.headers()) {
        Some(after) => error.retry_after(after),
        None => error,
    })
}

fn puts_off(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn headers(event: &Event) -> Result<HeaderMap, SinkError> {
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| SinkError::refused(format!("{text:?} cannot stand in a header")))
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", value(&event.global_id())?);
    headers.insert("event-id", value(&event.id)?);
    headers.insert("event-tenant", value(event.tenant.as_str())?);
    headers.insert("event-aggregate", value(&event.aggregate)?);
    headers.insert("event-sequence", HeaderValue::from(event.seq));
    Ok(headers)
}

fn body(event: &Event) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        r#"{{"id":{},"tenant":{},"aggregate":{},"seq":{},"kind":{},"created_at":{},"payload":{}}}"#,
        text(&event.id),
        text(event.tenant.as_str()),
        text(&event.aggregate),
        event.seq,
        text(&event.kind),
        event.created_at.0,
        event.payload.as_str(),
    )
}
