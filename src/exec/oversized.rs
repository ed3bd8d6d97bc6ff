//! Responses that were over the limit, of which the record keeps digest and size. Under a higher limit the tool's
//! lookup may bring the response.

use std::sync::Arc;

use super::core::Core;
use super::escalate;
use super::lookup::{Inquiry, look_once, missed};
use super::noting::call;
use super::operation::Operation;
use super::outcome::{ExecError, admitted};
use super::surplus;
use crate::ledger::{Event, LookupResult, Record, apply};
use crate::payload::Oversized;
use crate::store::{Refusal, Verdict};

/// Looks up the response of a committed operation, if it fits by now, and records it as the first result. `false` if
/// the record has no response afterwards: the response does not fit, or the lookup does not show it.
///
/// # Crash
/// Before the response is durable the record keeps digest and size, and the next caller looks again.
pub(super) async fn supplied(
    core: &Arc<Core>,
    op: &Operation,
    record: &Record,
    oversized: Oversized,
) -> Result<bool, ExecError> {
    // Without this check each repeat would ask the provider for a response that cannot be recorded.
    if oversized.bytes > core.limits.max_bytes {
        return Ok(false);
    }
    let bound = core.bound(op, record).await?;
    if !bound.lookup_in_scope {
        return Ok(false);
    }
    let call = call(core, op, &bound.declaration, record);
    let found = look_once(core, Inquiry { op, call: &call, record: Some(record) }, op.patience()).await?;
    let mut change = core.change(None);
    let output = match found {
        Some(Ok(LookupResult::Committed { output, .. })) => Some(output),
        Some(Ok(LookupResult::Duplicated { effects })) => {
            if !escalate::was_asked(core, record).await? {
                change.escalations.push(escalate::duplicated(core, op, record, &effects));
            }
            surplus::first(effects).map(|(output, _)| output)
        }
        shown => {
            log_call!(info, op, error = missed(shown.as_ref()), "lookup did not bring the response");
            None
        }
    };
    let Some(output) = output else { return Ok(false) };
    if output.as_str().len() > core.limits.max_bytes {
        return Ok(false);
    }
    let (response, large) = core.storable(output);
    let Ok(next) = apply(record, Event::Supply { response }, core.fence, core.now()) else { return Ok(true) };
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    match core.group.commit_one(change.record(next)).await {
        Ok(Verdict::Refused(Refusal::Stale)) => Ok(true), // another caller was faster: decide again
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}
