//! The spans of calls: each attempt, each lookup, and each attempt to undo an effect.
//!
//! The span of an attempt is derived from its number, so that a process which takes a call over can tell of the attempt that died.

use super::contact;
use super::core::Core;
use super::operation::Operation;
use crate::clock::Timestamp;
use crate::ledger::{LookupResult, Record};
use crate::payload::Payload;
use crate::store::ContactResult;
use crate::tool::{Done, ToolError};
use crate::trace::{Span, SpanKind, TraceContext};

/// The span of an operation's attempt.
pub(super) fn attempt(op: &Operation, number: u32) -> TraceContext {
    op.trace().attempt(op.key.as_str(), number)
}

/// The span of a lookup that begins now.
pub(super) fn lookup(op: &Operation, began: Timestamp) -> TraceContext {
    op.trace().within(&[b"lookup", op.key.as_str().as_bytes(), &began.0.to_be_bytes()])
}

/// Records an attempt of this process that has ended.
pub(super) fn ended(
    core: &Core,
    op: &Operation,
    (number, began): (u32, Timestamp),
    result: &Result<Done<Payload>, ToolError>,
) {
    core.spans.record(
        || attempt(op, number),
        |context| {
            let external_ref = result.as_ref().ok().and_then(|done| done.external_ref.clone());
            let failure = result.as_ref().err().map(|error| error.kind.name().to_owned());
            let span = of_attempt(core, op, (number, began, core.now()));
            Span { context, failure, ..with_ref(span, external_ref) }
        },
    );
}

/// Records the attempt of a worker that is gone, which could not tell of it.
pub(super) fn lost(core: &Core, op: &Operation, record: &Record) {
    if record.fence == core.fence {
        return;
    }
    let Some(lost) = contact::lost(record, core.now()) else { return };
    core.spans.record(
        || attempt(op, lost.number),
        |context| {
            let span = of_attempt(core, op, (lost.number, lost.began.unwrap_or(lost.ended), lost.ended));
            let mut span = Span {
                context,
                failure: Some("worker_lost".to_owned()),
                ..with_ref(span, lost.external_ref)
            };
            for field in span.fields.iter_mut().filter(|(name, _)| *name == "worker") {
                field.1 = lost.worker.to_string();
            }
            span
        },
    );
}

/// Records a lookup that has been answered now.
pub(super) fn looked_up(
    core: &Core,
    op: &Operation,
    began: Timestamp,
    found: &Result<LookupResult<Payload>, ToolError>,
) {
    core.spans.record(
        || lookup(op, began),
        |context| {
            let failure = match found {
                Ok(LookupResult::Unknown) => Some(ContactResult::Unknown.name().to_owned()),
                Ok(_) => None,
                Err(error) => Some(error.kind.name().to_owned()),
            };
            let mut span = span(core, op, SpanKind::Lookup, (began, core.now()));
            span.fields.extend(found.as_ref().ok().map(|found| ("found", found.name().to_owned())));
            Span { context, failure, ..span }
        },
    );
}

fn of_attempt(core: &Core, op: &Operation, (number, began, ended): (u32, Timestamp, Timestamp)) -> Span {
    let kind = if core.registry.undoes(op.name()) { SpanKind::Compensation } else { SpanKind::Attempt };
    let mut span = span(core, op, kind, (began, ended));
    span.fields.push(("attempt", number.to_string()));
    span
}

fn with_ref(mut span: Span, external_ref: Option<String>) -> Span {
    span.fields.extend(external_ref.map(|id| ("external_ref", id)));
    span
}

/// The span of something that is done for an operation, within the span of its run.
fn span(core: &Core, op: &Operation, kind: SpanKind, (began, ended): (Timestamp, Timestamp)) -> Span {
    let mut fields = vec![("tenant", op.tenant.to_string())];
    fields.extend(op.owner.run.map(|run| ("run", run.to_string())));
    fields.push(("tool", op.name().to_owned()));
    fields.push(("key", op.key.to_string()));
    fields.push(("worker", core.fence.to_string()));
    let (context, name) = (op.trace(), op.name().to_owned());
    let parent = op.owner.run.map(|_| context.span);
    Span { context, parent, kind, name, began, ended, failure: None, fields }
}
