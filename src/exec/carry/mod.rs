//! The loop that carries an operation out: decide, then do what was decided, until there is an outcome.

mod refused;
mod turn;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::attempt::{self, Again, Ambiguous, Begun, Ended, Permit};
use super::conflict;
use super::core::Core;
use super::dispatch::dispatch;
use super::fate::Fate;
use super::inflight::Slot;
use super::lookup;
use super::operation::{LONG_WAIT, Operation};
use super::outcome::{ExecError, Outcome, admitted, failed, sealed};
use super::oversized;
use super::pending;
use super::reconcile;
use super::recorded;
use super::request::Wait;
use super::retire;
use super::shield::{Shield, Work};
use crate::clock::{Boot, Timestamp};
use crate::ledger::{Basis, Decision, OperationKey, Record, RecordedFailure, State, undoing_looks_first};
use crate::payload::Stored;
use crate::store::{Retired, Ticket};

/// Interval between looks at a call that another worker has in flight.
const ELSEWHERE: Duration = Duration::from_millis(500);

/// The caller's guess about an existing record. It may save a read, and promises nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// No record: the run has not recorded this call yet, so the call is most likely new.
    New,
    /// Unknown: look for a record first.
    Anything,
}

/// An outcome, and the write that it depends on.
pub(crate) struct Answered {
    pub(crate) outcome: Outcome,
    /// The ticket of the write, if the outcome is not durable yet.
    pub(crate) ticket: Option<Ticket>,
    /// The record that existed before, if there was one.
    pub(crate) found: Option<Box<Record>>,
}

/// Carries an operation out: the core of the executor.
pub(crate) async fn carry_out(
    core: &Arc<Core>,
    op: Arc<Operation>,
    expect: Expect,
    wait: Wait,
) -> Result<Answered, ExecError> {
    let slot = core.in_flight.enter(&op.tenant, &op.key, wait, &*core.clock).await;
    let Some(slot) = slot else { return Ok(Answered::of(Outcome::InProgress)) };
    let abandoned = Arc::new(AtomicBool::new(false));
    let carrier =
        Carrier { core: core.clone(), op, abandoned: abandoned.clone(), wait, since: core.clock.boot() };
    let holder = slot.holder();
    let (tracker, attendance) = (core.tracker.clone(), Some(core.attendance.clone()));
    let shield = Shield::attended(carrying(carrier, slot, expect), tracker, abandoned, attendance);
    let work: Weak<Work<_>> = Arc::downgrade(shield.work());
    holder.is(work);
    shield.await
}

/// The future of one call. It is tracked although it runs in its caller's task, so that closing waits for it. It is
/// boxed here, so that its size is not added to every future around it.
fn carrying(carrier: Carrier, slot: Slot, expect: Expect) -> BoxFuture<'static, Result<Answered, ExecError>> {
    let tracker = carrier.core.tracker.clone();
    Box::pin(tracker.track_future(async move {
        // The seal takes the slot along: the next caller must find the operation while its seal is being written.
        let _occupied = carrier.op.occupy(slot);
        carrier.carry(expect).await
    }))
}

/// Finds the outcome of a started operation that nobody has requested, and sends nothing.
pub(crate) async fn look_only(core: &Arc<Core>, record: &Record) -> Result<(), ExecError> {
    let Ok(op) = recorded::recorded(core, record).await? else { return Ok(()) };
    let _slot = core.in_flight.enter(&op.tenant, &op.key, Wait::ForOutcome, &*core.clock).await;
    let found = core.find(&op.tenant, &op.key).await?;
    let Some(record) = found.filter(|r| r.state == State::Started && r.escalation.is_none()) else {
        return Ok(()); // settled while this task waited for the slot
    };
    let is_anothers = core.is_anothers(record.fence).await.map_err(|source| failed(&op.key, source))?;
    if is_anothers && !record.is_left() {
        return Ok(()); // another worker has the operation in flight
    }
    let cut = core.ceased(&record);
    let ambiguous = Ambiguous::new(record, cut);
    match reconcile::reconcile(core, &op, ambiguous, || true).await? {
        Fate::Committed(_, ticket) => admitted(&op.key, ticket.durable().await),
        _ => Ok(()),
    }
}

/// The outcome that a record gives by itself.
pub(super) async fn recorded_outcome(
    core: &Core,
    decision: Decision,
    found: &Record,
) -> Result<Outcome, ExecError> {
    let tenant = &found.tenant;
    Ok(match decision {
        Decision::Duplicate { response } => {
            Outcome::again(core, core.load_response(tenant, &response).await?, found)
        }
        Decision::Compensated { response, compensation } => Outcome::Compensated {
            // A response over the size limit cannot be shown.
            response: core.load_response(tenant, &response).await?.map_or(Ok(Value::Null), |r| r.value())?,
            compensation: core.load(tenant, &compensation).await?.value()?,
        },
        Decision::Parked { question } if pending::is_pending(core, found, question).await? => {
            Outcome::Pending { question }
        }
        Decision::Parked { question } => Outcome::NeedsDecision { question },
        Decision::Abandoned { reason } => Outcome::Abandoned { reason },
        Decision::Gone { was } => Outcome::Expired { was },
        _ => Outcome::InProgress,
    })
}

struct Carrier {
    core: Arc<Core>,
    op: Arc<Operation>,
    abandoned: Arc<AtomicBool>,
    wait: Wait,
    since: Boot,
}

/// The next step of an operation.
enum Step {
    /// The operation has an outcome.
    Answered(Answered),
    /// The operation may be sent.
    Send(Permit),
    /// The record has changed meanwhile: decide again.
    Changed,
}

impl Carrier {
    /// Decides, then does what was decided, until there is an outcome.
    ///
    /// The parts that only an operation with a record needs are boxed: most calls are new, and every call would reserve
    /// the memory for them.
    async fn carry(&self, expect: Expect) -> Result<Answered, ExecError> {
        let Self { core, op, .. } = self;
        let mut record = match expect {
            // A send that may go unrecorded is not stopped by an existing record.
            Expect::New if !(op.is_shared() && op.may_go_unrecorded(core)) => None,
            Expect::New | Expect::Anything => core.find(&op.tenant, &op.key).await?,
        };
        loop {
            let step = match &record {
                None => self.begin().await,
                Some(found) => Box::pin(self.take_up(found)).await,
            };
            let step = match step {
                Err(error) => Box::pin(self.refused(record.as_deref(), error)).await?,
                Ok(step) => step,
            };
            let pursued = match step {
                Step::Answered(answered) => Some(answered),
                Step::Send(permit) => self.pursue(Box::new(permit)).await?,
                Step::Changed => None,
            };
            match pursued {
                // The earlier record is reported although the call went on: a run that continues the call of another
                // run uses that run's effect.
                Some(answered) => return Ok(Answered { found: answered.found.or(record), ..answered }),
                None => record = core.find(&op.tenant, &op.key).await?,
            }
        }
    }

    fn note(&self, decision: &Decision) {
        let (op, decision) = (&self.op, decision.name());
        log_call!(trace, op, decision, "call decided");
        count!(self.core.meter, DECISIONS of &op.tenant, op.name(), decision);
    }

    /// Begins an operation without a record.
    async fn begin(&self) -> Result<Step, ExecError> {
        self.note(&Decision::New);
        if self.is_past_deadline() {
            return Ok(self.until_cancelled());
        }
        if self.is_settled_first(None).await? {
            return Box::pin(self.look_first(None)).await;
        }
        let pass = match self.turn(None).await? {
            Ok(pass) => pass,
            Err(instead) => return Ok(instead),
        };
        let begun = if self.op.may_go_unrecorded(&self.core) {
            Box::pin(attempt::unrecorded(&self.core, &self.op, pass)).await?
        } else {
            attempt::begin(&self.core, &self.op, pass).await?
        };
        match begun {
            Begun::Durable(permit) => Ok(Step::Send(permit)),
            Begun::Changed => Ok(Step::Changed),
            Begun::TooLate => Ok(Step::Answered(Answered::of(Outcome::InProgress))),
        }
    }

    /// True if another party may have done the call: a lost ledger, or a person who undoes the same effect.
    async fn is_settled_first(&self, found: Option<&Record>) -> Result<bool, ExecError> {
        Ok(self.core.looks_first(&self.op, found).await? || self.is_undoing_to_be_settled(found).await?)
    }

    /// Records the call as of unknown outcome and asks the provider before anything is sent.
    async fn look_first(&self, found: Option<&Record>) -> Result<Step, ExecError> {
        let unknown = attempt::unknown(&self.core, &self.op, found, self.core.strangers_ceased()).await?;
        match unknown {
            Some(ambiguous) => self.settle(ambiguous).await,
            None if self.op.is_over() => Ok(Step::Answered(Answered::of(Outcome::InProgress))),
            None => Ok(Step::Changed),
        }
    }

    /// True if the call undoes an effect, and its lookup shows that the effect is already undone, or has no answer.
    /// Such a call is not sent, but settled like a call of unknown outcome.
    ///
    /// # Race
    /// An undoing by another party between this look and the send is not seen. Only the provider could prevent that.
    async fn is_undoing_to_be_settled(&self, found: Option<&Record>) -> Result<bool, ExecError> {
        let spec = self.op.tool.spec();
        // With this basis the call was looked up before a person's answer took effect, or a person asked to send
        // without a look.
        let is_decided = found.is_some_and(|found| found.basis == Basis::Denial);
        if is_decided || !undoing_looks_first(spec.effect, &spec.contract) {
            return Ok(false);
        }
        // Boxed because this case is rare: every call would reserve its memory.
        let shown = Box::pin(lookup::show_unsent(&self.core, &self.op)).await?;
        log_call!(info, self.op, shown = shown.name(), "effect looked up before its undoing");
        Ok(shown != lookup::Shown::Nothing)
    }

    /// Takes up an operation that has a record.
    async fn take_up(&self, found: &Record) -> Result<Step, ExecError> {
        let Self { core, op, .. } = self;
        if retire::let_go(core, op, found).await? {
            return Ok(Step::Changed);
        }
        let decision = op.decide(core, Some(found)).await?;
        self.note(&decision);
        match decision {
            Decision::New => self.begin().await,
            Decision::Retry { not_before, failure } => self.retry(found, not_before, failure).await,
            Decision::Reconcile => {
                self.settle(Ambiguous::new(Box::new(found.clone()), core.ceased(found))).await
            }
            Decision::InProgress if self.waits() => {
                core.clock.sleep(ELSEWHERE).await; // another worker has the operation in flight
                Ok(Step::Changed)
            }
            Decision::Duplicate { response: Stored::Oversized(oversized) }
                if oversized::supplied(core, op, found, oversized).await? =>
            {
                Ok(Step::Changed)
            }
            Decision::Parked { question } if reconcile::unpark(core, op, found, question).await? => {
                Ok(Step::Changed)
            }
            decision => self.answer(decision, found).await.map(Step::Answered),
        }
    }

    /// Makes the next attempt of an operation that has failed, once its time and its turn have come.
    async fn retry(
        &self,
        found: &Record,
        not_before: Option<Timestamp>,
        failure: RecordedFailure,
    ) -> Result<Step, ExecError> {
        let Self { core, op, .. } = self;
        if self.is_past_deadline() {
            return Ok(self.until_cancelled());
        }
        match not_before.map(|at| (at, core.now().until(at))) {
            Some((until, delay)) if op.lane.is_some() && delay > LONG_WAIT => {
                return Ok(Step::Answered(Answered::of(Outcome::Deferred { until })));
            }
            Some((_, delay)) => core.clock.sleep(delay).await,
            None => {}
        }
        let given_up = || Step::Answered(Answered::of(Outcome::Failed(failure)));
        if self.is_abandoned() {
            return Ok(given_up());
        }
        if self.is_settled_first(Some(found)).await? {
            return self.look_first(Some(found)).await;
        }
        let pass = match self.turn(Some(found)).await? {
            Ok(pass) => pass,
            Err(instead) => return Ok(instead),
        };
        if self.is_abandoned() {
            return Ok(given_up()); // the caller may have gone away during the wait for the turn
        }
        let going = Again { basis: Basis::Answer, unsettled: None, pass };
        Ok(match attempt::again(core, op, found, going).await? {
            Begun::Durable(permit) => Step::Send(permit),
            Begun::Changed => Step::Changed,
            Begun::TooLate => given_up(),
        })
    }

    /// Dispatches until the outcome is known. `None` if the record has changed meanwhile: decide again.
    async fn pursue(&self, mut permit: Box<Permit>) -> Result<Option<Answered>, ExecError> {
        loop {
            match dispatch(&self.core, &self.op, permit).await? {
                Ended::Committed(outcome, ticket) => {
                    return Ok(Some(Answered::committed(outcome, ticket)));
                }
                Ended::Pending(question) => {
                    return Ok(Some(Answered::of(Outcome::Pending { question })));
                }
                Ended::Changed => return Ok(None),
                Ended::Failed(record) if record.not_before.is_some() => return Ok(None),
                Ended::Failed(record) => return Ok(Some(Answered::failed(&record))),
                Ended::Ambiguous(ambiguous) => match self.settle(ambiguous).await? {
                    Step::Answered(answered) => return Ok(Some(answered)),
                    Step::Send(next) => permit = Box::new(next),
                    Step::Changed => return Ok(None),
                },
            }
        }
    }

    async fn settle(&self, ambiguous: Ambiguous) -> Result<Step, ExecError> {
        // Boxed because it is large and rare: every call would reserve the memory for it.
        let reconciling = Box::pin(reconcile::reconcile(&self.core, &self.op, ambiguous, || {
            self.is_abandoned() || self.is_past_deadline()
        }));
        let fate = reconciling.await?;
        Ok(match fate {
            Fate::Committed(outcome, ticket) => Step::Answered(Answered::committed(outcome, Some(ticket))),
            Fate::Failed(record) => Step::Answered(Answered::failed(&record)),
            Fate::Send(permit) => Step::Send(permit),
            Fate::Changed => Step::Changed,
            Fate::Parked(question) => Step::Answered(Answered::of(Outcome::NeedsDecision { question })),
            Fate::Pending(question) => Step::Answered(Answered::of(Outcome::Pending { question })),
            Fate::Later(wait) => {
                let until = self.core.now().after(wait);
                Step::Answered(Answered::of(Outcome::Deferred { until }))
            }
            Fate::Left(..) if self.is_past_deadline() => self.until_cancelled(),
            Fate::Left(..) => Step::Answered(Answered::of(Outcome::InProgress)),
        })
    }

    /// Answers from a record that existed before.
    async fn answer(&self, decision: Decision, found: &Record) -> Result<Answered, ExecError> {
        let Self { core, op, .. } = self;
        let outcome = match decision {
            Decision::Duplicate { response } => {
                if let Some(touched) = op.tool.spec().retention.touched(found, core.now()) {
                    let mut change = core.change(None);
                    change.retired.push(Retired::of(found, Some(touched)));
                    change.beside = true;
                    core.commit(&op.key, change).await?;
                }
                recorded_outcome(core, Decision::Duplicate { response }, found).await?
            }
            Decision::Conflict => {
                let first = core.load(&op.tenant, &found.request).await?;
                let diff = crate::ledger::diff(&first, &op.request)?;
                observe!(f64::from(diff.changes()); core.meter, CONFLICT_CHANGES of &op.tenant, op.name());
                Box::pin(conflict::note(core, found)).await;
                Outcome::Conflict(diff)
            }
            decision => recorded_outcome(core, decision, found).await?,
        };
        Ok(Answered { outcome, ticket: None, found: Some(Box::new(found.clone())) })
    }

    fn waits(&self) -> bool {
        let waited = self.since.until(self.core.clock.boot());
        !self.is_abandoned()
            && match self.wait {
                Wait::No => false,
                Wait::AtMost(at_most) => waited < at_most,
                Wait::ForOutcome => true,
            }
    }

    fn is_past_deadline(&self) -> bool {
        self.op.is_past_deadline(self.core.now())
    }

    /// The step of a call whose run is about to be cancelled: the call waits for that, without an outcome for the code.
    fn until_cancelled(&self) -> Step {
        Step::Answered(Answered::of(Outcome::Deferred { until: self.core.now().after(LONG_WAIT) }))
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire) || self.op.is_over()
    }
}

impl Answered {
    /// Waits until the outcome is durable. Without that wait nobody would see a seal that fails, and the record would stay
    /// `started`.
    pub(super) async fn durable(self, key: &OperationKey) -> Result<(), ExecError> {
        match self.ticket {
            Some(seal) => sealed(key, seal).await,
            None => Ok(()),
        }
    }

    const fn of(outcome: Outcome) -> Self {
        Self { outcome, ticket: None, found: None }
    }

    const fn committed(outcome: Outcome, ticket: Option<Ticket>) -> Self {
        Self { outcome, ticket, found: None }
    }

    fn failed(record: &Record) -> Self {
        let failure = match &record.state {
            State::Failed { failure } => failure.clone(),
            state => RecordedFailure {
                kind: crate::ledger::ErrorKind::Unknown,
                message: state.name().to_owned(),
                detail: serde_json::Value::Null,
            },
        };
        Self::of(Outcome::Failed(failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F: Future>(_: impl FnOnce(Carrier, Slot) -> F) -> usize {
        size_of::<F>()
    }

    /// The size limit comes from glibc, which allocates up to 1,032 bytes from a thread's own cache. Every call has one
    /// such future.
    #[test]
    fn the_future_of_a_call_fits_into_the_cache() {
        let bytes = size(|carrier, slot| async move {
            let _occupied = carrier.op.occupy(slot);
            carrier.carry(Expect::New).await
        });
        assert!(bytes <= 1_032, "{bytes} bytes");
    }
}
