//! One attempt of a call: the permit without which nothing is sent, and the records that make a send durable first.

use std::time::Duration;

use super::approval::{Cleared, approved};
use super::contact;
use super::core::Core;
use super::declared::Bound;
use super::operation::Operation;
use super::outcome::{ExecError, Outcome, admitted, closed, failed, failed_unsent, refused, unwritten};
use super::throttle::Pass;
use crate::clock::{Boot, Timestamp};
use crate::id::{DeclarationId, QuestionId, RecordId};
use crate::ledger::{Basis, Event, Intent, Record, RecordedFailure, State, apply};
use crate::payload::Payload;
use crate::store::{Refusal, Ticket, Verdict};

/// A permit for one send. It exists only once a `started` record is durable, or for a call that may be repeated. The
/// dispatch takes it by value.
#[must_use]
pub(super) struct Permit {
    pub(super) record: Box<Record>,
    /// The instant at which the sender of an earlier attempt of unknown outcome ceased to send, if there is one.
    pub(super) unsettled: Option<Boot>,
    /// The limits that the attempt has passed.
    pub(super) pass: Pass,
    /// The instant from which the age of the key counts: the first send under the key if nothing but the key prevents a
    /// duplicate, else the beginning of this attempt.
    pub(super) key_since: Timestamp,
    /// The declaration by which the attempt is settled.
    pub(super) bound: Bound,
}

/// The end of an attempt.
pub(super) enum Ended {
    /// The call was done. The ticket is that of its seal, unless the seal is durable already.
    Committed(Outcome, Option<Ticket>),
    /// The call was certainly not done.
    Failed(Box<Record>),
    /// The provider has accepted the call and finishes it by itself. The call waits as this question's row.
    Pending(QuestionId),
    /// The record has changed meanwhile: decide again.
    Changed,
    /// The outcome is unknown.
    Ambiguous(Ambiguous),
}

/// A call of unknown outcome.
pub(super) struct Ambiguous {
    pub(super) record: Box<Record>,
    /// The instant at which the call's sender ceased to send, on the boot clock.
    pub(super) cut: Boot,
    /// True if the provider refused the key because it knows the key.
    pub(super) refused_as_duplicate: bool,
    /// True if the provider would refuse the same request again.
    pub(super) hopeless: bool,
    /// The pause that the provider asked for.
    pub(super) retry_after: Option<Duration>,
}

impl Ambiguous {
    /// An attempt whose sender ceased to send at `cut`, and of which nothing else is known.
    pub(super) const fn new(record: Box<Record>, cut: Boot) -> Self {
        Self { record, cut, refused_as_duplicate: false, hopeless: false, retry_after: None }
    }
}

/// The result of recording an intent.
pub(super) enum Begun {
    /// The intent is durable, or need not be.
    Durable(Permit),
    /// Another caller has recorded the operation first, or the record has changed meanwhile: decide again.
    Changed,
    /// The run's activation has ended; nothing is recorded.
    TooLate,
}

/// Makes the first `started` record durable.
///
/// # Crash
/// Before: nothing happened. After: the call is ambiguous, until it is sealed.
pub(super) async fn begin(core: &Core, op: &Operation, pass: Pass) -> Result<Begun, ExecError> {
    let bound = core.declare(op).await?;
    core.group.room().await;
    let cleared = may_dispatch(core, op, None).await?;
    // Nothing waits between this check and the queue. So the record is either queued ahead of the end of its run, whose
    // row then says that a call may outlive the run, or it is not queued. Nobody would find a later record after a
    // crash.
    if op.is_over() {
        return Ok(Begun::TooLate);
    }
    let (record, ticket) = first(core, op, bound.id, cleared);
    let permit = Permit { key_since: record.created_at, record, unsettled: None, pass, bound };
    Ok(permit.durable(op, ticket).await?.map_or(Begun::Changed, Begun::Durable))
}

/// Lets an operation go out without a durable record.
///
/// # Crash
/// Nothing is known of the call, and the next caller repeats it.
pub(super) async fn unrecorded(core: &Core, op: &Operation, pass: Pass) -> Result<Begun, ExecError> {
    let bound = core.declare(op).await?;
    may_dispatch(core, op, None).await?;
    if op.is_over() {
        return Ok(Begun::TooLate);
    }
    let (intent, _small) = intent(core, op, bound.id);
    let record = Box::new(Record::unwritten(intent, core.now()));
    Ok(Begun::Durable(Permit { key_since: record.created_at, record, unsettled: None, pass, bound }))
}

/// Makes the record of an operation durable that this ledger has not sent and whose outcome is unknown: a lost ledger
/// may have sent it, by a worker that ceased to send by `cut`. `None` if another caller was first, or if the run's
/// activation has ended.
///
/// # Crash
/// Before: nothing happened. After: the call is ambiguous, like any other.
pub(super) async fn unknown(
    core: &Core,
    op: &Operation,
    found: Option<&Record>,
    cut: Boot,
) -> Result<Option<Ambiguous>, ExecError> {
    let declaration = core.declare(op).await?.id;
    core.group.room().await;
    // A request of the lost ledger may still arrive. So the operation is looked up again, whatever a look shows now.
    let in_doubt = op.tool.spec().effect.leaves_mark();
    if op.is_over() {
        return Ok(None); // as in `begin`: nobody would find the record after a crash
    }
    let (record, ticket) = {
        let (record, large) = match found {
            None => {
                let (intent, large) = intent(core, op, declaration);
                (Record { in_doubt, ..Record::unsent(intent, core.now()) }, large)
            }
            Some(found) => {
                let event = Event::Again {
                    fence: core.fence,
                    basis: Basis::Answer,
                    declaration,
                    approval: op.approved_by(),
                    scopes: op.scopes(),
                };
                let Ok(record) = apply(found, event, core.fence, core.now()) else { return Ok(None) };
                (Record { in_doubt, ..record }, None)
            }
        };
        let mut change = op.writes(core, record.clone());
        if let Some(found) = found {
            contact::before_another(op, found, &mut change, core.now());
        }
        change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
        (record, core.group.submit(change))
    };
    match ticket.durable().await {
        Ok(Verdict::Refused(Refusal::Exists | Refusal::Stale)) if op.lane.is_none() => Ok(None),
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
        verdict => admitted(&op.key, verdict).map(|()| Some(Ambiguous::new(Box::new(record), cut))),
    }
}

/// Records an effect that is older than this ledger. Nothing is sent, and the effect is not made again.
///
/// # Crash
/// Before: nothing is known of the effect. After: its record is committed.
pub(super) async fn import(
    core: &Core,
    op: &Operation,
    output: Payload,
    external_ref: Option<String>,
) -> Result<(), ExecError> {
    let (intent, large) = intent(core, op, core.declare(op).await?.id);
    let (response, large_response) = core.storable(output);
    let record = Record { external_ref, ..Record::decided(intent, response, core.now()) };
    let mut change = op.writes(core, record);
    let payloads = large.into_iter().chain(large_response);
    change.payloads.extend(payloads.map(|payload| (op.tenant.clone(), payload)));
    match core.group.commit_one(change).await {
        Ok(Verdict::Refused(Refusal::Exists)) => Err(ExecError::Recorded { key: op.key.to_string() }),
        Err(source) => Err(ExecError::Store { key: op.key.to_string(), source }),
        verdict => admitted(&op.key, verdict),
    }
}

/// Records that nothing was sent, and the instant of the next attempt if there will be one. True if the operation had
/// no record before.
///
/// # Crash
/// Before: nothing happened. After: the call has failed, or waits for its next attempt, like any other.
pub(super) async fn unsent(
    core: &Core,
    op: &Operation,
    failure: RecordedFailure,
    not_before: Option<Timestamp>,
) -> Result<bool, ExecError> {
    let declaration = core.declare(op).await?.id;
    core.group.room().await;
    let ticket = {
        let (intent, large) = intent(core, op, declaration);
        let record = Record::failed(intent, failure, not_before, core.now());
        let mut change = op.writes(core, record);
        change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
        core.group.submit(change)
    };
    match ticket.durable().await {
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(false),
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}

/// Queues the first `started` record. Not part of the future that waits for the write, which would grow by all of this.
fn first(
    core: &Core,
    op: &Operation,
    declaration: DeclarationId,
    Cleared { approval, used }: Cleared,
) -> (Box<Record>, Ticket) {
    let (intent, large) = intent(core, op, declaration);
    let record = Box::new(Record::begin(Intent { approval, ..intent }, core.now()));
    let mut change = op.writes(core, record.clone());
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    change.documents.extend(used);
    (record, core.group.submit(change))
}

/// The content of an operation's first record, and a payload row if the request is large.
pub(super) fn intent(core: &Core, op: &Operation, declaration: DeclarationId) -> (Intent, Option<Payload>) {
    let spec = op.tool.spec();
    core.wake_sweeper();
    if spec.effect.leaves_mark() {
        core.raise_count();
    }
    let (request, large) = op.stored_request(core);
    let intent = Intent {
        id: RecordId(core.ids.next()),
        tenant: op.tenant.clone(),
        key: op.key.clone(),
        operation: spec.name.clone(),
        class: spec.effect,
        request,
        request_hash: op.hash,
        declaration,
        owner: op.owner.clone(),
        fence: core.fence,
        retention: spec.retention,
        approval: op.approved_by(),
        scopes: op.scopes(),
    };
    (intent, large)
}

/// The terms of a further attempt.
pub(super) struct Again {
    /// The basis on which the attempt's answer will rest.
    pub(super) basis: Basis,
    /// The instant at which the sender of an attempt of unknown outcome ceased to send, if there is one.
    pub(super) unsettled: Option<Boot>,
    pub(super) pass: Pass,
}

/// Makes a further attempt of a known operation durable, together with the basis of its answer, which has to outlive a
/// crash.
pub(super) async fn again(
    core: &Core,
    op: &Operation,
    record: &Record,
    Again { basis, unsettled, pass }: Again,
) -> Result<Begun, ExecError> {
    let bound =
        if record.state == State::Started { core.bound(op, record).await? } else { core.declare(op).await? };
    core.group.room().await;
    let Cleared { approval, used } = may_dispatch(core, op, Some(record)).await?;
    // As in `begin`. The effect of an attempt that begins after the end of its run is neither undone nor asked about.
    if op.is_over() {
        return Ok(Begun::TooLate);
    }
    let now = core.now();
    let (declaration, scopes) = (bound.id, op.scopes());
    let event = Event::Again { fence: core.fence, basis, declaration, approval, scopes };
    let before = record;
    let Ok(mut record) = apply(before, event, core.fence, now).map(Box::new) else {
        return Ok(Begun::Changed);
    };
    if bound.contract(op).sealed_with_effect {
        record.in_doubt = false; // of the attempt before it, nothing happened
    }
    let mut change = core.change(op.lane).record(record.clone());
    change.documents.extend(used);
    contact::before_another(op, before, &mut change, now);
    let ticket = core.group.submit(change);
    let key_since = if basis == Basis::Declaration { record.created_at } else { now };
    let permit = Permit { record, unsettled, pass, key_since, bound };
    Ok(permit.durable(op, ticket).await?.map_or(Begun::Changed, Begun::Durable))
}

/// Checks that an attempt may go out. The approval that it goes out under is written with the attempt.
async fn may_dispatch(core: &Core, op: &Operation, recorded: Option<&Record>) -> Result<Cleared, ExecError> {
    if core.is_closing() {
        let may_have_happened = recorded.is_some_and(|record| record.state == State::Started);
        return Err(if may_have_happened { unwritten(&op.key) } else { closed(&op.key) });
    }
    approved(core, op, recorded).await
}

impl Permit {
    /// The end of the approval that the attempt goes out under. A policy's verdict has none.
    pub(super) fn approval_until(&self, op: &Operation) -> Option<Timestamp> {
        let is_by_policy = self.record.approval.as_ref().is_some_and(|approval| approval.policy.is_some());
        op.approval.as_ref().filter(|_| !is_by_policy)?.expires_at
    }

    /// Returns the permit once its `started` record is durable. `None` if the record has changed meanwhile.
    async fn durable(mut self, op: &Operation, started: Ticket) -> Result<Option<Self>, ExecError> {
        match started.durable().await {
            Ok(Verdict::Admitted) => {
                if let Some(passed) = &mut self.pass {
                    passed.is_spent();
                }
                Ok(Some(self))
            }
            Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
            // In a lane a stale write stops the run; outside of one it only means to decide again.
            Ok(Verdict::Refused(Refusal::Stale)) if op.lane.is_none() => Ok(None),
            Ok(Verdict::Refused(refusal)) => Err(refused(&op.key, refusal)),
            // An earlier attempt may have happened.
            Err(source) if self.unsettled.is_some() => Err(failed(&op.key, source)),
            Err(source) => Err(failed_unsent(&op.key, source)),
        }
    }
}
