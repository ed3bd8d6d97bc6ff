//! The context of a trace: pure.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::payload::{hex, unhex};

/// The place of a span in a trace, as W3C Trace Context defines it (<https://www.w3.org/TR/trace-context/>, version 00): the id of the
/// trace, the id of the span, and whether the trace is sampled.
///
/// ```
/// use counterfoil::trace::TraceContext;
/// let context: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
/// assert_eq!(context.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
/// assert!("00-00000000000000000000000000000000-00f067aa0ba902b7-01".parse::<TraceContext>().is_err());
/// # Ok::<(), counterfoil::trace::TraceContextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The id of the trace.
    pub trace: [u8; 16],
    /// The id of the span.
    pub span: [u8; 8],
    /// True if the trace is recorded. Nothing is recorded of a run whose caller does not record its trace.
    pub is_sampled: bool,
}

/// The text is not a `traceparent` of W3C Trace Context. The run was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no traceparent: pass the header of the caller's request as it came, or leave it out [input]"
)]
pub struct TraceContextError {
    /// The beginning of the text.
    text: String,
}

impl FromStr for TraceContext {
    type Err = TraceContextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let mut parts = text.split('-');
            let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
            let [version]: [u8; 1] = lower(version)?;
            // A later version may append parts. This one has four.
            if version == 0xff || (version == 0 && parts.next().is_some()) {
                return None;
            }
            let (trace, span, [flags]): ([u8; 16], [u8; 8], [u8; 1]) =
                (lower(trace)?, lower(span)?, lower(flags)?);
            let is_valid = trace != [0; 16] && span != [0; 8];
            is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
        };
        read().ok_or_else(|| TraceContextError { text: text.chars().take(80).collect() })
    }
}

/// Reads digits, of which the specification allows the lower case only.
fn lower<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) { None } else { unhex(text) }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), u8::from(self.is_sampled))
    }
}

impl TraceContext {
    /// The first span of a trace that is about what these parts name.
    pub(crate) fn first(parts: &[&[u8]]) -> Self {
        let digest = digest(parts);
        let (trace, rest) = digest.split_first_chunk().unwrap_or((&[1; 16], &[]));
        let span = rest.first_chunk().unwrap_or(&[1; 8]);
        Self { trace: *trace, span: *span, is_sampled: true }
    }

    /// The context that stands for an operation outside of runs.
    pub(crate) fn of_operation(tenant: &str, key: &str) -> Self {
        Self::first(&[tenant.as_bytes(), key.as_bytes()])
    }

    /// The span of an attempt of the operation under this key.
    pub(crate) fn attempt(self, key: &str, number: u32) -> Self {
        self.within(&[b"attempt", key.as_bytes(), &number.to_be_bytes()])
    }

    /// A span of the same trace, about what these parts name.
    pub(crate) fn within(self, parts: &[&[u8]]) -> Self {
        let all: Vec<_> =
            [&self.trace[..], &self.span[..]].into_iter().chain(parts.iter().copied()).collect();
        Self { span: Self::first(&all).span, ..self }
    }
}

/// A digest of parts, each with its length in front.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(trace in any::<[u8; 16]>(), span in any::<[u8; 8]>(), is_sampled: bool) {
            prop_assume!(trace != [0; 16] && span != [0; 8]);
            let context = TraceContext { trace, span, is_sampled };
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = text.parse::<TraceContext>();
        }
    }

    #[test]
    fn what_the_specification_forbids_is_refused() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(good.parse::<TraceContext>().is_ok());
        assert!(good.replacen("00", "cc", 1).parse::<TraceContext>().is_ok(), "a later version");
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert!(bad.parse::<TraceContext>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_of_one_trace_differ_by_what_they_are_about() {
        let run = TraceContext::first(&[b"acme", b"7"]);
        let (first, second) = (run.within(&[b"key", b"1"]), run.within(&[b"key", b"2"]));
        assert_eq!((first.trace, second.trace), (run.trace, run.trace));
        assert_ne!(first.span, second.span);
        assert_eq!(
            first,
            TraceContext::first(&[b"acme", b"7"]).within(&[b"key", b"1"]),
            "in each process the same"
        );
        assert_ne!(
            run.within(&[b"ke", b"y1"]).span,
            run.within(&[b"key", b"1"]).span,
            "parts are kept apart"
        );
    }
}
