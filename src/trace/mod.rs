//! Traces that survive a crash: a span for each run, step, attempt, lookup and compensation.
//!
//! The identity of a span is derived from what the ledger keeps: the run, the record, the number of the attempt. So a process that
//! takes a run over continues the trace of the process that died, and tells of the attempt that died with it. A host receives the spans
//! by a [`SpanSink`]; the feature `otel` has one for OpenTelemetry. Tools pass the context on by
//! [`Call::traceparent`](crate::tool::Call::traceparent), with or without a sink.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use counterfoil::Engine;
//! use counterfoil::trace::{Span, SpanSink};
//!
//! #[derive(Clone, Default)]
//! struct Kept(Arc<Mutex<Vec<Span>>>);
//!
//! impl SpanSink for Kept {
//!     fn record(&self, span: Span) {
//!         self.0.lock().unwrap().push(span);
//!     }
//! }
//!
//! let engine = Engine::in_memory().spans(Kept::default());
//! ```

mod context;
#[cfg(feature = "otel")]
mod otlp;

use std::fmt;
use std::sync::Arc;

pub use context::{TraceContext, TraceContextError};
#[cfg(feature = "otel")]
pub use otlp::{OpenTelemetry, OtlpError};

use crate::clock::Timestamp;

/// Receives the spans of an engine.
pub trait SpanSink: Send + Sync + 'static {
    /// Takes a span that has ended. The engine calls this in the middle of its work: it must neither block nor panic.
    fn record(&self, span: Span);
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The trace of the span, and its id.
    pub context: TraceContext,
    /// The id of the span within which this one ran. `None` for the first span of a trace.
    pub parent: Option<[u8; 8]>,
    /// The kind of the span.
    pub kind: SpanKind,
    /// The name: of the workflow, the step or the tool.
    pub name: String,
    /// The instant of the beginning (UTC).
    pub began: Timestamp,
    /// The instant of the end (UTC).
    pub ended: Timestamp,
    /// The reason why the work of the span failed, or why its outcome is unknown, as a code: `disconnected`, `worker_lost`.
    pub failure: Option<String>,
    /// The fields of the span, under the names of the events of the log: `tenant`, `run`, `tool`, `key`, `attempt`, `external_ref`.
    pub fields: Vec<(&'static str, String)>,
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpanKind {
    /// A run, from its start to its end.
    Run,
    /// A step of a run.
    Step,
    /// One attempt of a call.
    Attempt,
    /// One lookup of a call at its provider.
    Lookup,
    /// One attempt to undo an effect.
    Compensation,
}

impl SpanKind {
    /// The name of the kind, as traces show it before the name of the span.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Step => "step",
            Self::Attempt => "attempt",
            Self::Lookup => "lookup",
            Self::Compensation => "compensation",
        }
    }
}

/// The place that spans go to, if the host has given one.
#[derive(Clone, Default)]
pub(crate) struct Spans(Option<Arc<dyn SpanSink>>);

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Spans").field(&self.0.is_some()).finish()
    }
}

impl Spans {
    pub(crate) fn to(sink: impl SpanSink) -> Self {
        Self(Some(Arc::new(sink)))
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a span, which is put together only if somebody receives it and its trace is sampled. Nor is its context,
    /// which is a digest, computed if nobody receives it.
    pub(crate) fn record(
        &self,
        context: impl FnOnce() -> TraceContext,
        span: impl FnOnce(TraceContext) -> Span,
    ) {
        let Some(sink) = &self.0 else { return };
        let context = context();
        if context.is_sampled {
            sink.record(span(context));
        }
    }
}
