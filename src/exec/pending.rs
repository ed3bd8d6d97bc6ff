//! Calls that their providers have accepted and finish by themselves. Each waits as a row from then on.

use std::time::Duration;

use super::compare::compare;
use super::completion;
use super::core::Core;
use super::declared::Settling;
use super::escalate::{self, can_look};
use super::outcome::{ExecError, failed};
use crate::id::QuestionId;
use crate::ledger::{Event, Look, Record, apply};
use crate::store::{QuestionKind, Store as _};
use crate::tool::ToolError;

/// The pause before the first lookup, if the provider names none.
pub(super) const PAUSE: Duration = Duration::from_mins(1);

/// The answer of a provider that has accepted a call and finishes it by itself.
pub(super) struct Accepted {
    pub(super) external_ref: Option<String>,
    pub(super) look_again: Duration,
}

impl Accepted {
    /// The provider's acceptance, if the error of an attempt is one.
    pub(super) fn of(error: &ToolError) -> Option<Self> {
        let external_ref = error.accepted.as_ref()?.external_ref.clone();
        Some(Self { external_ref, look_again: error.retry_after.unwrap_or(PAUSE) })
    }
}

/// Makes the call wait as a row. `None` if the record has changed meanwhile, or if the call is completed already:
/// decide again.
///
/// # Crash
/// The provider's id, the record's mark and the look are one transaction. Before it, the call is ambiguous like any
/// other.
pub(super) async fn accept(
    settling: Settling<'_>,
    record: &Record,
    Accepted { external_ref, look_again }: Accepted,
) -> Result<Option<QuestionId>, ExecError> {
    let Settling { core, op, bound } = settling;
    let contract = settling.contract();
    let waiting = escalate::pending(core, record, external_ref.as_deref());
    let id = waiting.id;
    let naming = completion::naming(core, record, external_ref.as_deref()).await?;
    let event = Event::Accept { escalation: id, external_ref };
    let Ok(next) = apply(record, event, core.fence, core.now()) else { return Ok(None) };
    // Without a lookup, the only look is the one at the end of the longest time.
    let pause = if can_look(op, bound) { look_again } else { contract.completion_time() };
    let look = Look::while_pending(&next, pause, contract, core.now());
    log_call!(debug, op, external_ref = next.external_ref.as_deref(), "call accepted by its provider");
    let mut change = core.change(op.lane).record(next.clone()).escalation(waiting.clone()).look(look);
    change.documents.extend(naming);
    change.contacts.extend(op.take_contact());
    // If this worker has been taken over, its answer may tell of a second effect.
    compare(core, &mut change, contract.class, Box::default());
    escalate::open(core, op, id, change).await?;
    if completion::of(core, &next, contract.class).await?.is_none() {
        return Ok(Some(id));
    }
    escalate::withdraw(core, op, &next, waiting).await?;
    Ok(None)
}

/// True if the record waits as this row for its provider to finish the call.
pub(super) async fn is_pending(core: &Core, record: &Record, id: QuestionId) -> Result<bool, ExecError> {
    let found = core.group.escalation_find(&record.tenant, id).await;
    let found = found.map_err(|source| failed(&record.key, source))?;
    Ok(found.is_some_and(|found| found.kind == QuestionKind::Pending))
}
