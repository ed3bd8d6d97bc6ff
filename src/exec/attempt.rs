//! One attempt: the permit that makes invariant 1 hold, and the records that say that something may be sent.

use std::time::Duration;

use super::approval::approved;
use super::core::Core;
use super::declared::Bound;
use super::operation::Operation;
use super::outcome::{ExecError, Outcome, admitted, failed, refused};
use super::throttle::Pass;
use crate::clock::{Boot, Timestamp};
use crate::id::{DeclarationId, QuestionId, RecordId};
use crate::ledger::{Basis, Event, Intent, Record, RecordedFailure, State, apply};
use crate::payload::Payload;
use crate::store::{Document, Refusal, Ticket, Verdict};

/// The right to touch the world once. Made only when a `started` record is durable, or for a call that may be repeated; taken by value.
#[must_use]
pub(super) struct Permit {
    pub(super) record: Box<Record>,
    /// What became of an earlier attempt is not known; its sender ceased to send at this instant.
    pub(super) unsettled: Option<Boot>,
    /// What it has passed to get here.
    pub(super) pass: Pass,
    /// From when the age of the key counts: from the first send under it if nothing but the key prevents a duplicate, else from
    /// this attempt's own beginning.
    pub(super) key_since: Timestamp,
    /// By what it is settled.
    pub(super) bound: Bound,
}

/// How an attempt ended.
pub(super) enum Ended {
    /// It happened. The seal is on its way to the disk, unless it is there already.
    Committed(Outcome, Option<Ticket>),
    /// For certain it did not happen.
    Failed(Box<Record>),
    /// The provider has accepted it and finishes it by itself: the row by which it waits.
    Pending(QuestionId),
    /// The record has changed meanwhile: decide anew.
    Changed,
    /// Nobody knows yet.
    Ambiguous(Ambiguous),
}

/// A call of unknown outcome.
pub(super) struct Ambiguous {
    pub(super) record: Box<Record>,
    /// When its sender ceased to send, on the boot clock.
    pub(super) cut: Boot,
    /// The provider refused the key as known.
    pub(super) refused_as_duplicate: bool,
    /// The provider would not take it again as it is.
    pub(super) hopeless: bool,
    /// How long the provider wants to be left alone.
    pub(super) retry_after: Option<Duration>,
}

impl Ambiguous {
    /// An attempt whose sender ceased to send at this instant, and of which no more is known.
    pub(super) const fn new(record: Box<Record>, cut: Boot) -> Self {
        Self { record, cut, refused_as_duplicate: false, hopeless: false, retry_after: None }
    }
}

/// What became of the intent to call.
pub(super) enum Begun {
    /// It is durable, or need not be.
    Durable(Permit),
    /// Somebody else was first.
    Exists,
    /// The run's activation has ended: nothing is recorded.
    TooLate,
}

/// Makes the first `started` record durable.
///
/// # Crash
/// Before: nothing happened. After: the call is ambiguous, until it is sealed.
pub(super) async fn begin(core: &Core, op: &Operation, pass: Pass) -> Result<Begun, ExecError> {
    let bound = core.declare(op).await?;
    core.group.room().await;
    let used = may_dispatch(core, op).await?;
    // Nothing waits between this and the queue. So the record is queued ahead of the end of its run, whose row then says that
    // a call may outlive it, or not at all: a record that comes later would be found by nobody after a crash.
    if op.is_over() {
        return Ok(Begun::TooLate);
    }
    let (record, ticket) = first(core, op, bound.id, used);
    let permit = Permit { key_since: record.created_at, record, unsettled: None, pass, bound };
    Ok(permit.durable(op, ticket).await?.map_or(Begun::Exists, Begun::Durable))
}

/// Lets an operation go out of which nothing is recorded before.
///
/// # Crash
/// Nothing is known of it, and whoever asks again repeats it.
pub(super) async fn unrecorded(core: &Core, op: &Operation, pass: Pass) -> Result<Begun, ExecError> {
    let bound = core.declare(op).await?;
    may_dispatch(core, op).await?;
    if op.is_over() {
        return Ok(Begun::TooLate);
    }
    let (intent, _small) = intent(core, op, bound.id);
    let record = Box::new(Record::unwritten(intent, core.now()));
    Ok(Begun::Durable(Permit { key_since: record.created_at, record, unsettled: None, pass, bound }))
}

/// Makes a record durable of an operation that this ledger has not sent and whose fate it does not know: a ledger that is lost may
/// have sent it, by a worker that has ceased to by `cut`. `None` if somebody else was first.
///
/// # Crash
/// Before: nothing happened. After: it is ambiguous, like any other.
pub(super) async fn unknown(
    core: &Core,
    op: &Operation,
    found: Option<&Record>,
    cut: Boot,
) -> Result<Option<Ambiguous>, ExecError> {
    let declaration = core.declare(op).await?.id;
    core.group.room().await;
    // What the lost ledger has sent may arrive yet: whatever a look shows now, it is looked at again.
    let in_doubt = op.tool.spec().effect.leaves_mark();
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
        let mut change = core.change(op.lane).record(record.clone());
        change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
        (record, core.group.submit(change))
    };
    match ticket.durable().await {
        Ok(Verdict::Refused(Refusal::Exists | Refusal::Stale)) if op.lane.is_none() => Ok(None),
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
        verdict => admitted(&op.key, verdict).map(|()| Some(Ambiguous::new(Box::new(record), cut))),
    }
}

/// Records what was done before this ledger was: nothing is sent, and it is not done again.
///
/// # Crash
/// Before: nothing is known of it. After: it is committed.
pub(super) async fn import(
    core: &Core,
    op: &Operation,
    output: Payload,
    external_ref: Option<String>,
) -> Result<(), ExecError> {
    let (intent, large) = intent(core, op, core.declare(op).await?.id);
    let (response, large_response) = core.storable(output);
    let record = Record { external_ref, ..Record::decided(intent, response, core.now()) };
    let mut change = core.change(None).record(record);
    let payloads = large.into_iter().chain(large_response);
    change.payloads.extend(payloads.map(|payload| (op.tenant.clone(), payload)));
    core.commit(&op.key, change).await
}

/// Records that nothing was sent, and until when it waits if it does. Whether nothing was recorded of it before.
///
/// # Crash
/// Before: nothing happened. After: it has failed, or waits for its next attempt, like any other.
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
        let mut change = core.change(op.lane).record(record);
        change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
        core.group.submit(change)
    };
    match ticket.durable().await {
        Ok(Verdict::Refused(Refusal::Exists)) => Ok(false),
        verdict => admitted(&op.key, verdict).map(|()| true),
    }
}

/// Queues the first `started` record. Not in the future that waits for it, which would hold all of this.
fn first(
    core: &Core,
    op: &Operation,
    declaration: DeclarationId,
    used: Option<Document>,
) -> (Box<Record>, Ticket) {
    let (intent, large) = intent(core, op, declaration);
    let record = Box::new(Record::begin(intent, core.now()));
    let mut change = core.change(op.lane).record(record.clone());
    change.payloads.extend(large.map(|payload| (op.tenant.clone(), payload)));
    change.documents.extend(used);
    (record, core.group.submit(change))
}

/// What the first record of an operation says, and the payload row that it needs if its request is large.
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

/// What another attempt goes out with.
pub(super) struct Again {
    /// What its answer will rest on.
    pub(super) basis: Basis,
    /// When the sender of an attempt of unknown outcome ceased to send, if there is one.
    pub(super) unsettled: Option<Boot>,
    pub(super) pass: Pass,
}

/// Makes another attempt of a known operation durable, with what its answer will rest on: a crash must not
/// forget that. `None` if the record has changed meanwhile.
pub(super) async fn again(
    core: &Core,
    op: &Operation,
    record: &Record,
    Again { basis, unsettled, pass }: Again,
) -> Result<Option<Permit>, ExecError> {
    let bound =
        if record.state == State::Started { core.bound(op, record).await? } else { core.declare(op).await? };
    core.group.room().await;
    let used = may_dispatch(core, op).await?;
    let now = core.now();
    let (declaration, approval, scopes) = (bound.id, op.approved_by(), op.scopes());
    let event = Event::Again { fence: core.fence, basis, declaration, approval, scopes };
    let Ok(mut record) = apply(record, event, core.fence, now).map(Box::new) else { return Ok(None) };
    if bound.contract(op).sealed_with_effect {
        record.in_doubt = false; // of the attempt before it, nothing happened
    }
    let mut change = core.change(op.lane).record(record.clone());
    change.documents.extend(used);
    let ticket = core.group.submit(change);
    let key_since = if basis == Basis::Declaration { record.created_at } else { now };
    Permit { record, unsettled, pass, key_since, bound }.durable(op, ticket).await
}

/// What is to be written with the attempt: that its approval is used up, where it is for one effect.
async fn may_dispatch(core: &Core, op: &Operation) -> Result<Option<Document>, ExecError> {
    if core.is_closing() {
        return Err(ExecError::Closed { key: op.key.to_string() });
    }
    approved(core, op).await
}

impl Permit {
    /// The permit, once its `started` record is durable. `None` if the record has changed meanwhile.
    async fn durable(mut self, op: &Operation, started: Ticket) -> Result<Option<Self>, ExecError> {
        match started.durable().await {
            Ok(Verdict::Admitted) => {
                if let Some(passed) = &mut self.pass {
                    passed.is_spent();
                }
                Ok(Some(self))
            }
            Ok(Verdict::Refused(Refusal::Exists)) => Ok(None),
            // In a lane a stale write stops the run; alone, it only means to decide anew.
            Ok(Verdict::Refused(Refusal::Stale)) if op.lane.is_none() => Ok(None),
            Ok(Verdict::Refused(refusal)) => Err(refused(&op.key, refusal)),
            Err(source) => Err(failed(&op.key, source)),
        }
    }
}
