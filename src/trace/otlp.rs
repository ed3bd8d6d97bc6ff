//! Spans for OpenTelemetry, sent to a collector by OTLP over HTTP.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{self as otel, SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::{Span, SpanKind, SpanSink};
use crate::clock::{Clock as _, SystemClock, Timestamp};

/// The number of spans that wait for the collector at most. More are dropped, and counted in the log.
const WAITING: usize = 8192;
/// The number of spans in one request at most.
const BATCH: usize = 512;
/// The time for which spans are gathered into one request.
const GATHERING: Duration = Duration::from_millis(500);
/// The longest time of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The receiver of an engine's spans that sends them to a collector of OpenTelemetry.
///
/// It holds back nobody: spans that the collector does not take in time are dropped, and the log tells how many.
///
/// ```no_run
/// use counterfoil::Engine;
/// use counterfoil::trace::OpenTelemetry;
///
/// # async fn traced() -> Result<(), Box<dyn std::error::Error>> {
/// let spans = OpenTelemetry::otlp("billing", "http://collector:4318/v1/traces")?;
/// let engine = Engine::sqlite("agents.db").spans(spans.clone()).start().await?;
/// # let _ = engine;
/// spans.flush().await; // before the process ends
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct OpenTelemetry {
    queue: mpsc::Sender<Queued>,
    dropped: Arc<AtomicU64>,
}

impl fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dropped = self.dropped.load(Ordering::Relaxed);
        f.debug_struct("OpenTelemetry").field("dropped", &dropped).finish_non_exhaustive()
    }
}

/// The reason why spans cannot be sent. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The exporter refused its configuration.
    #[error(
        "spans cannot be sent to {endpoint:?}: {reason}. Give the whole URL, such as http://collector:4318/v1/traces [configuration]"
    )]
    Endpoint {
        /// The URL of the collector.
        endpoint: String,
        /// The message of the exporter.
        reason: String,
    },
    /// There is no Tokio runtime that could send.
    #[error("spans are sent in the background: call this inside of a Tokio runtime [configuration]")]
    NoRuntime,
}

/// An entry of the queue.
enum Queued {
    Span(Box<Span>),
    /// Somebody waits until all spans before this entry are sent.
    Flush(oneshot::Sender<()>),
}

impl OpenTelemetry {
    /// Spans of this service for the collector at this URL, such as `http://collector:4318/v1/traces`. An `https` URL needs
    /// the feature `https`, or reqwest 0.13 with a TLS feature among your own dependencies.
    ///
    /// # Errors
    /// [`OtlpError`] if the URL is none, or outside of a Tokio runtime. A collector that is away is no error: the log tells of it.
    pub fn otlp(service: &str, endpoint: &str) -> Result<Self, OtlpError> {
        let runtime = Handle::try_current().map_err(|_| OtlpError::NoRuntime)?;
        let refused = |reason: String| OtlpError::Endpoint { endpoint: endpoint.to_owned(), reason };
        if !endpoint.starts_with("http") {
            return Err(refused("it is no URL".to_owned()));
        }
        let exporter =
            SpanExporter::builder().with_http().with_endpoint(endpoint).with_timeout(TIMEOUT).build();
        let mut exporter = exporter.map_err(|error| refused(error.to_string()))?;
        exporter.set_resource(&Resource::builder().with_service_name(service.to_owned()).build());
        let (queue, queued) = mpsc::channel(WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        runtime.spawn(send(exporter, queued, dropped.clone()));
        Ok(Self { queue, dropped })
    }

    /// Waits until the spans that were recorded before are sent, or were refused by the collector.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Queued::Flush(done)).await.is_ok() {
            let _ = flushed.await; // an error: the runtime is shutting down
        }
    }
}

impl SpanSink for OpenTelemetry {
    fn record(&self, span: Span) {
        if self.queue.try_send(Queued::Span(Box::new(span))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends what is queued, batch by batch, until the last sender is gone.
async fn send(exporter: SpanExporter, mut queued: mpsc::Receiver<Queued>, dropped: Arc<AtomicU64>) {
    while let Some(first) = queued.recv().await {
        let (mut batch, mut flushes) = (Vec::new(), Vec::new());
        take(first, &mut batch, &mut flushes);
        let mut gathered = SystemClock.sleep(GATHERING);
        while flushes.is_empty() && batch.len() < BATCH {
            tokio::select! {
                biased;
                next = queued.recv() => match next {
                    Some(next) => take(next, &mut batch, &mut flushes),
                    None => break,
                },
                () = &mut gathered => break,
            }
        }
        let spans = batch.len();
        let missed = dropped.swap(0, Ordering::Relaxed);
        let sent = if batch.is_empty() { Ok(()) } else { exporter.export(batch).await };
        if let Err(error) = sent {
            tracing::warn!(%error, spans, dropped = missed, "spans not taken by the collector");
        } else if missed > 0 {
            tracing::warn!(dropped = missed, "spans dropped, collector too slow");
        }
        for flushed in flushes {
            let _ = flushed.send(()); // an error: nobody waits any more
        }
    }
}

fn take(next: Queued, batch: &mut Vec<SpanData>, flushes: &mut Vec<oneshot::Sender<()>>) {
    match next {
        Queued::Span(span) => batch.push(data(*span)),
        Queued::Flush(flush) => flushes.push(flush),
    }
}

/// A span in the form of OpenTelemetry. The fields have the prefix `counterfoil.`, because its conventions have no names for them.
fn data(span: Span) -> SpanData {
    let context = SpanContext::new(
        TraceId::from_bytes(span.context.trace),
        SpanId::from_bytes(span.context.span),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    );
    let is_of_provider = matches!(span.kind, SpanKind::Attempt | SpanKind::Lookup | SpanKind::Compensation);
    let attributes =
        span.fields.into_iter().map(|(name, value)| KeyValue::new(format!("counterfoil.{name}"), value));
    SpanData {
        span_context: context,
        parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: span.kind == SpanKind::Run,
        span_kind: if is_of_provider { otel::SpanKind::Client } else { otel::SpanKind::Internal },
        name: format!("{} {}", span.kind.name(), span.name).into(),
        start_time: instant(span.began),
        end_time: instant(span.ended),
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("counterfoil")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
    }
}

fn instant(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(at.0).unwrap_or(0))
}
