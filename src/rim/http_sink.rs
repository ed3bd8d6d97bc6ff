//! A sink over HTTP: one POST for each event, those of one aggregate one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};

use crate::outbox::{Acked, Event, Sink, SinkError};

/// Posts each event as JSON to one URL. Feature `sink-http`.
///
/// The body holds `id`, `tenant`, `aggregate`, `seq`, `kind`, `created_at` (microseconds UTC) and `payload`; the headers
/// `Idempotency-Key` and `Event-Id` hold the id, `Event-Aggregate` and `Event-Sequence` its place. Any 2xx takes the event.
/// 408, 429 and 5xx put it off, for as long as `Retry-After` says (in seconds); any other answer refuses it.
///
/// Built without TLS: for `https` add reqwest 0.13 with one of its TLS features to your own dependencies.
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
    /// To this URL. An event that is not answered within `timeout` is put off.
    ///
    /// # Errors
    /// If the client cannot be built.
    pub fn new(url: impl Into<String>, timeout: Duration) -> Result<Self, reqwest::Error> {
        // A redirect would turn the POST into a GET, and an event into nothing.
        let client = Client::builder().timeout(timeout).redirect(Policy::none()).build()?;
        Ok(Self::with(client, url))
    }

    /// By a client of your own, with its proxies, certificates, headers and timeouts.
    pub fn with(client: Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into() }
    }

    async fn post(&self, event: &Event) -> Result<(), SinkError> {
        let request = self.client.post(&self.url).headers(headers(event)?).body(body(event));
        // The client's own words name the URL, which may hold a password.
        let answer =
            request.send().await.map_err(|error| SinkError::unavailable(error.without_url().to_string()))?;
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
}

impl Sink for HttpSink {
    async fn publish(&self, batch: &[Event]) -> Result<Acked, SinkError> {
        let mut aggregates = BTreeMap::<_, Vec<_>>::new();
        for (place, event) in batch.iter().enumerate() {
            aggregates.entry((&event.tenant, &event.aggregate)).or_default().push((place, event));
        }
        let posted = join_all(aggregates.into_values().map(async |events| {
            for (done, (place, event)) in events.iter().enumerate() {
                if let Err(error) = self.post(event).await {
                    return (done, Some((*place, error)));
                }
            }
            (events.len(), None)
        }));
        let posted = posted.await;
        // Nobody is there: the sink as a whole is put off, and no event is held against it.
        let nothing = posted
            .iter()
            .all(|(done, failed)| *done == 0 && failed.as_ref().is_some_and(|(_, e)| !e.is_refusal()));
        let mut failed = posted.into_iter().filter_map(|(_, failed)| failed);
        if nothing && let Some((_, error)) = failed.next() {
            return Err(error);
        }
        Ok(failed.fold(Acked::all(), |acked, (place, error)| acked.except(place, error)))
    }
}

fn puts_off(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn headers(event: &Event) -> Result<HeaderMap, SinkError> {
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| SinkError::refused(format!("{text:?} cannot stand in a header")))
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", value(&event.id)?);
    headers.insert("event-id", value(&event.id)?);
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
