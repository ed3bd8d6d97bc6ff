//! ③ One operation, from request to seal, without any workflow.
//!
//! The way of a tool call: [`Executor::execute`] → `operation` (key, hash) → the ledger decides → `attempt`
//! (begin, dispatch, seal) → `reconcile` if its outcome is unknown → `escalate` if nobody can tell.

mod agenda;
pub(crate) mod approval;
mod asked;
mod attempt;
mod attendance;
mod builder;
mod ceased;
mod core;
mod declared;
#[cfg(feature = "_doors")]
mod doors;
mod erase;
mod escalate;
pub mod inbox;
mod inflight;
mod lasting;
mod late;
mod lease;
mod looks;
mod needs;
mod noting;
mod operation;
mod orphans;
pub mod outbox;
mod outcome;
mod peers;
mod pulse;
mod questions;
mod reconcile;
mod recorded;
mod request;
mod resend;
mod resolve;
mod restored;
mod retire;
#[cfg(feature = "_sealed")]
mod sealing;
mod shield;
mod store_clock;
mod throttle;
mod undo;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use attempt::{Ambiguous, Begun, Ended, Permit};
use inflight::Slot;
use reconcile::Fate;
use shield::{Shield, Work};

pub(crate) use self::core::Core;
pub(crate) use agenda::{Due, More, run as run_agenda};
pub(crate) use escalate::{
    Said, answer as answer_escalation, may_undo, note_use, orphaned as escalation_of_orphan, withdrawn,
};
pub(crate) use lasting::last;
pub(crate) use operation::{Asker, Operation};
pub(crate) use orphans::{follow_dropped, take_up_orphans};
pub(crate) use pulse::beat;

pub use crate::store::own::OwnConnection;
pub use approval::Reviewers;
pub use builder::{ExecutorBuilder, StartError};
pub use erase::EraseError;
pub use inflight::Wait;
pub use looks::Audit;
pub use outcome::{Answer, ExecError, Outcome};
pub use questions::Questions;
pub use request::ToolRequest;
pub use resolve::Resolve;
pub(crate) use shield::to_the_end;
pub(crate) use throttle::Purse;
pub use throttle::{BreakerState, GateReport};
pub use undo::Compensated;
pub(crate) use undo::{due_for, undo};

use crate::clock::{Boot, Timestamp};
use crate::id::{EscalationId, Tenant};
use crate::ledger::{
    Basis, Decision, Key, Look, OperationKey, Record, RecordedFailure, State, undoing_looks_first,
};
use crate::payload::Payload;
use crate::store::{Escalation, Evidence, Resolution, Retired, Store as _, Ticket};
use crate::tool::{Once, Prepared, Tool, ToolError, ToolSpec, canonical, given_or_stable, stable_key};

/// In a workflow, a wait longer than this is the run's and not the call's: it holds no memory.
const LONG_WAIT: Duration = Duration::from_secs(5);
/// A call that another worker has in hand is looked at again so much later.
const ELSEWHERE: Duration = Duration::from_millis(500);

/// Executes tool calls under their records, for an agent loop or a service that has no workflows.
#[derive(Clone)]
pub struct Executor {
    core: Arc<Core>,
    /// The engine that it belongs to, if it has one: runs wait for the answers that are given here.
    engine: Option<Arc<dyn Answers>>,
}

/// Takes answers to open questions, and lets go on what waits for them.
pub(crate) trait Answers: Send + Sync {
    /// Answers, to the end: also if this future is dropped.
    fn resolve(
        self: Arc<Self>,
        tenant: Tenant,
        escalation: EscalationId,
        said: Said,
    ) -> BoxFuture<'static, Result<(), ExecError>>;
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Executor {
    pub(crate) fn of(core: Arc<Core>, engine: Arc<dyn Answers>) -> Self {
        Self { core, engine: Some(engine) }
    }

    pub(crate) const fn alone(core: Arc<Core>) -> Self {
        Self { core, engine: None }
    }

    /// An executor on a SQLite file, to be given its tools.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<std::path::PathBuf>) -> ExecutorBuilder {
        ExecutorBuilder::sqlite(path)
    }

    /// An executor on a PostgreSQL database, beside other workers, to be given its tools.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> ExecutorBuilder {
        ExecutorBuilder::postgres(url)
    }

    /// Executes one tool call: at once, or not at all if it happened before.
    ///
    /// Dropping the future does not cut the call off: it goes on, and its outcome is recorded.
    ///
    /// # Crash
    /// After a crash the same request finds the record, and the outside world is asked before anything is sent.
    pub async fn execute(&self, request: ToolRequest) -> Result<Outcome, ExecError> {
        let wait = request.wait;
        let op = self.prepare(request).await?;
        self.durable(op, wait).await
    }

    /// Executes a typed tool call.
    pub async fn call<T: Tool>(
        &self,
        tenant: &Tenant,
        input: T::Input,
        approval: Option<crate::ledger::Approval>,
    ) -> Result<Outcome, ExecError> {
        let tool = || T::NAME.to_owned();
        let typed =
            self.core.registry.typed::<T>(input).ok_or_else(|| ExecError::UnknownTool { tool: tool() })?;
        let key = stable_key(&*typed)?.ok_or_else(|| ExecError::NoKey { tool: tool() })?;
        let asker = Asker { approval, ..Asker::default() };
        let op = Operation::prepare(&self.core, tenant, typed, key.render()?, asker).await?;
        self.durable(op, Wait::ForOutcome).await
    }

    /// Runs a plain function at most once under a key (REC-7). Nothing is known of what it touches, so when
    /// its outcome is unknown (a crash, a panic, an error that does not say "nothing happened") a person decides.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// use counterfoil::{Executor, Key, Tenant};
    /// let executor = Executor::sqlite(dir.path().join("agents.db")).open().await?;
    /// let tenant = Tenant::new("acme")?;
    /// for _ in 0..2 {
    ///     let key = Key::of("welcome_mail").target("ann").operation("signup");
    ///     let outcome = executor
    ///         .execute_once(&tenant, key, &"Welcome, Ann", || async { Ok(42) })
    ///         .await?;
    ///     assert_eq!(outcome.answer().map(|a| a.decode::<i32>()), Some(Ok(42)));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn execute_once<P, T, F, Fut>(
        &self,
        tenant: &Tenant,
        key: Key,
        payload: &P,
        function: F,
    ) -> Result<Outcome, ExecError>
    where
        P: Serialize + Sync + ?Sized,
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let payload: Result<_, ExecError> = self.core.canonical(tenant, |key| canonical(payload, key)).await;
        let payload = payload?.within(&self.core.limits)?;
        let function = || async move {
            let output = function().await?;
            Payload::of(&output).map_err(|e| ToolError::new(crate::ledger::ErrorKind::Unknown, e.to_string()))
        };
        let once = Arc::new(Once::new(&key, payload, function)?);
        self.inline(tenant, &key, once, Wait::ForOutcome).await
    }

    /// Carries out what no registered tool does.
    pub(crate) async fn inline(
        &self,
        tenant: &Tenant,
        key: &Key,
        tool: Arc<dyn Prepared>,
        wait: Wait,
    ) -> Result<Outcome, ExecError> {
        let tool = self.core.registry.hand_out(tool);
        let op = Operation::prepare(&self.core, tenant, tool, key.render()?, Asker::default()).await?;
        self.durable(op, wait).await
    }

    /// The open questions of a tenant, the oldest first: all of them, or a [page](Questions::limit).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # let dir = tempfile::tempdir()?;
    /// # let executor = counterfoil::Executor::sqlite(dir.path().join("agents.db")).open().await?;
    /// # let acme = counterfoil::Tenant::new("acme")?;
    /// let mut page = executor.questions(&acme).limit(100).await?;
    /// while let Some(last) = page.last().map(|question| question.id) {
    ///     for question in &page {
    ///         println!("{}: {}", question.id, question.question);
    ///     }
    ///     page = executor.questions(&acme).after(last).limit(100).await?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn questions(&self, tenant: &Tenant) -> Questions {
        Questions::of(self.core.clone(), tenant.clone())
    }

    /// All open questions of a tenant, the oldest first: what [`questions`](Self::questions) gives without a limit.
    pub async fn escalations(&self, tenant: &Tenant) -> Result<Vec<Escalation>, ExecError> {
        self.questions(tenant).await
    }

    /// Answers an open question: it happened with this result, it did not happen, or leave it. Runs of the
    /// executor's engine that wait for the answer go on.
    ///
    /// About a call that can be looked up, "it did not happen" takes effect once its lookup has answered and shows nothing. Until then
    /// the question stays open and says that an answer [waits](Escalation::waiting).
    ///
    /// # Errors
    /// Among others, if the question is about a halted run and this executor belongs to no engine that could
    /// let the run go on.
    pub fn resolve(
        &self,
        tenant: &Tenant,
        escalation: EscalationId,
        resolution: Resolution,
        by: &str,
    ) -> Resolve {
        let said = Said::new(resolution, by);
        match &self.engine {
            Some(engine) => Resolve::by_engine(engine.clone(), tenant.clone(), escalation, said),
            None => Resolve::alone(self.core.clone(), tenant.clone(), escalation, said),
        }
    }

    /// The record of an operation, and what fenced workers learned about it: the proof that it happened once.
    pub async fn record(
        &self,
        tenant: &Tenant,
        key: &OperationKey,
    ) -> Result<Option<(Record, Vec<Evidence>)>, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(None) };
        let evidence = self.core.group.record_evidence(tenant, record.id).await;
        let evidence = evidence.map_err(|source| ExecError::Store { key: key.to_string(), source })?;
        Ok(Some((*record, evidence)))
    }

    /// Records what was done before this ledger was, by an older system: the request's key is answered with this outcome from now
    /// on, and nothing is sent. The request is bound to the key as that of a later call will be.
    ///
    /// # Errors
    /// [`ExecError::Refused`] if something is recorded under the key. Nothing was changed.
    pub async fn import(
        &self,
        request: ToolRequest,
        outcome: crate::tool::Done<serde_json::Value>,
    ) -> Result<(), ExecError> {
        let op = self.prepare(request).await?;
        let output = Payload::of(&outcome.output)?.within(&self.core.limits)?;
        attempt::import(&self.core, &op, output, outcome.external_ref).await
    }

    /// Looks committed records of a tenant up once more that were written at `since` or later, and opens questions: about
    /// effects that are not there, and about those that happened more than once. To be called by hand or on a schedule.
    ///
    /// ```no_run
    /// # use counterfoil::{Executor, Tenant, Timestamp};
    /// # async fn nightly(executor: Executor, yesterday: Timestamp) -> Result<(), Box<dyn std::error::Error>> {
    /// let audit = executor.audit(&Tenant::new("acme")?, yesterday).await?;
    /// println!("{} looked up, {} missing, {} duplicated", audit.looked, audit.missing, audit.duplicated);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn audit(&self, tenant: &Tenant, since: Timestamp) -> Result<Audit, ExecError> {
        let (core, tenant) = (self.core.clone(), tenant.clone());
        to_the_end(&self.core.tracker, async move { looks::audit(&core, &tenant, since).await }).await
    }

    /// The next look at the record of an operation, if one is to come.
    pub async fn next_look(&self, tenant: &Tenant, key: &OperationKey) -> Result<Option<Look>, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(None) };
        let look = self.core.group.look_find(tenant, record.id).await;
        look.map_err(|source| ExecError::Store { key: key.to_string(), source })
    }

    /// Undoes an effect on purpose, by its tool's [`Compensate`](crate::tool::Compensate): once its fate is known, whatever its
    /// policy except for "never", and unless other runs rest on it. However often, by whomever and in however many lives
    /// it is asked for, it is undone once.
    ///
    /// # Crash
    /// The compensation has a record of its own: the next process finds out what became of it.
    pub async fn compensate(&self, tenant: &Tenant, key: &OperationKey) -> Result<Compensated, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(Compensated::Nothing) };
        let core = self.core.clone();
        to_the_end(&self.core.tracker, async move { undo::compensate(&core, record).await }).await
    }

    /// Looks whether there is anything to be published: after events were [added](outbox::add) in a transaction that is not
    /// this engine's. Without it they are found when anything else is published, or at the next start; in a shared store
    /// within a heartbeat.
    pub fn publish_soon(&self) {
        self.core.group.events().notify_one();
    }

    /// What stands before the calls of tools and providers that declare a [`Quota`](crate::ledger::Quota): where each breaker
    /// stands, since when, and how many calls wait. Each worker has its own.
    pub fn gates(&self) -> Vec<GateReport> {
        self.core.gate_reports()
    }

    /// What the registered tools declare.
    pub fn tools(&self) -> Vec<&ToolSpec> {
        self.core.registry.specs()
    }

    /// Starts no new call, waits at most `drain` for those under way, and writes what is queued. Calls that are
    /// still under way then stay `started`, which is what they are: ambiguous.
    ///
    /// When this returns, another process can open a SQLite file, unless a call is still under way: it may send
    /// yet, so the file stays locked until the call or the process ends. What is recorded can still be read.
    pub async fn close(self, drain: Duration) {
        self.core.close(drain).await;
    }

    /// The operation that a request means. Nothing is recorded or sent.
    async fn prepare(&self, request: ToolRequest) -> Result<Operation, ExecError> {
        let ToolRequest { tenant, tool, input, key, call_id, approval, wait: _ } = request;
        let unprepared =
            self.core.registry.find(&tool).ok_or_else(|| ExecError::UnknownTool { tool: tool.clone() })?;
        let input = Payload::of(&input)?.within(&self.core.limits)?;
        let prepared = self.core.registry.untyped(unprepared, &input)?;
        let key = given_or_stable(key, &*prepared)?.ok_or(ExecError::NoKey { tool })?;
        let owner = crate::ledger::Owner { call_id, ..Default::default() };
        let asker = Asker { owner, approval, ..Asker::default() };
        Operation::prepare(&self.core, &tenant, prepared, key.render()?, asker).await
    }

    /// Carries an operation out and lets its outcome leave when it is durable (invariant 2).
    async fn durable(&self, op: Operation, wait: Wait) -> Result<Outcome, ExecError> {
        let key = op.key.clone();
        let op = Arc::new(op);
        let answered = carry_out(&self.core, op, Expect::Anything, wait).await?;
        if let Some(ticket) = answered.ticket {
            self::core::admitted(&key, ticket.durable().await)?;
        }
        Ok(answered.outcome)
    }
}

/// What the caller expects to find: a guess that saves a read, never a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// A run that has not recorded this call yet: most likely it is new.
    New,
    /// Look first.
    Anything,
}

/// An outcome, and the write that it depends on.
pub(crate) struct Answered {
    pub(crate) outcome: Outcome,
    /// Present if the outcome is not durable yet.
    pub(crate) ticket: Option<Ticket>,
    /// The record that was there before, if there was one.
    pub(crate) found: Option<Box<Record>>,
}

/// Carries an operation out: the heart of the executor.
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

/// Tracked although it runs in its caller's task: closing waits for it. Boxed here, so that its size is not also
/// that of every future around it.
fn carrying(carrier: Carrier, slot: Slot, expect: Expect) -> BoxFuture<'static, Result<Answered, ExecError>> {
    let tracker = carrier.core.tracker.clone();
    Box::pin(tracker.track_future(async move {
        // A seal takes it along: the next caller must find what is on its way.
        let _occupied = carrier.op.occupy(slot);
        carrier.carry(expect).await
    }))
}

/// Finds out what became of a started operation that nobody has asked for, and sends nothing.
pub(crate) async fn look_only(core: &Arc<Core>, record: &Record) -> Result<(), ExecError> {
    let Ok(op) = recorded::recorded(core, record).await? else { return Ok(()) };
    let _slot = core.in_flight.enter(&op.tenant, &op.key, Wait::ForOutcome, &*core.clock).await;
    let found = core.find(&op.tenant, &op.key).await?;
    let Some(record) = found.filter(|r| r.state == State::Started && r.escalation.is_none()) else {
        return Ok(()); // settled while we waited for whoever had it in hand
    };
    if core.is_anothers(record.fence).await.map_err(|source| self::core::failed(&op.key, source))? {
        return Ok(()); // another worker has it in hand
    }
    let cut = core.ceased(&record);
    let ambiguous = Ambiguous::new(record, cut);
    match reconcile::reconcile(core, &op, ambiguous, || true).await? {
        Fate::Committed(_, ticket) => self::core::admitted(&op.key, ticket.durable().await),
        _ => Ok(()),
    }
}

/// What a record says by itself.
async fn recorded_outcome(core: &Core, decision: Decision, found: &Record) -> Result<Outcome, ExecError> {
    let tenant = &found.tenant;
    Ok(match decision {
        Decision::Duplicate { response } => Outcome::Done(Answer {
            response: core.load(tenant, &response).await?,
            external_ref: found.external_ref.clone(),
            first: false,
            basis: found.basis,
            record: found.id,
        }),
        Decision::Compensated { response, compensation } => Outcome::Compensated {
            response: core.load(tenant, &response).await?.value()?,
            compensation: core.load(tenant, &compensation).await?.value()?,
        },
        Decision::Parked { escalation } => Outcome::Parked { escalation },
        Decision::Abandoned { reason } => Outcome::Abandoned { reason },
        Decision::Gone { was } => Outcome::Gone { was },
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

/// What is to be done next.
enum Step {
    /// It has an outcome.
    Answered(Answered),
    /// It may be sent.
    Send(Permit),
    /// The record has changed meanwhile: decide anew.
    Changed,
}

impl Carrier {
    /// Decide, then do what was decided, until there is an outcome.
    ///
    /// What only an operation with a record needs is boxed: most calls are new, and each would have to carry the
    /// room for it.
    async fn carry(&self, expect: Expect) -> Result<Answered, ExecError> {
        let Self { core, op, .. } = self;
        let mut record = match expect {
            Expect::New => None,
            Expect::Anything => core.find(&op.tenant, &op.key).await?,
        };
        loop {
            let step = match &record {
                None => self.begin().await?,
                Some(found) => Box::pin(self.take_up(found)).await?,
            };
            let pursued = match step {
                Step::Answered(answered) => Some(answered),
                Step::Send(permit) => self.pursue(Box::new(permit)).await?,
                Step::Changed => None,
            };
            match pursued {
                // What was there before is told although it was carried on: whoever carries on what another run
                // began uses its effect.
                Some(answered) => return Ok(Answered { found: answered.found.or(record), ..answered }),
                None => record = core.find(&op.tenant, &op.key).await?,
            }
        }
    }

    /// Nothing is recorded of it.
    async fn begin(&self) -> Result<Step, ExecError> {
        tracing::trace!(tenant = %self.op.tenant, key = %self.op.key, "new");
        if self.is_settled_first(None).await? {
            return Box::pin(self.look_first(None)).await;
        }
        let pass = match self.turn(None).await? {
            Ok(pass) => pass,
            Err(instead) => return Ok(instead),
        };
        match attempt::begin(&self.core, &self.op, pass).await? {
            Begun::Durable(permit) => Ok(Step::Send(permit)),
            Begun::Exists => Ok(Step::Changed),
            Begun::TooLate => Ok(Step::Answered(Answered::of(Outcome::InProgress))),
        }
    }

    /// Somebody else may have done it: a ledger that is lost, or whoever undoes the effect as well.
    async fn is_settled_first(&self, found: Option<&Record>) -> Result<bool, ExecError> {
        Ok(self.core.looks_first(&self.op, found).await? || self.is_undoing_to_be_settled(found).await?)
    }

    /// It may have been done by somebody else: the world is asked before anything is sent.
    async fn look_first(&self, found: Option<&Record>) -> Result<Step, ExecError> {
        let unknown = attempt::unknown(&self.core, &self.op, found, self.core.strangers_ceased()).await?;
        match unknown {
            Some(ambiguous) => self.settle(ambiguous).await,
            None => Ok(Step::Changed),
        }
    }

    /// It is an undoing, and its lookup shows that somebody else has undone the effect, or does not answer: then it is not sent, but
    /// settled like a call of unknown outcome.
    ///
    /// # Race
    /// Whoever undoes the effect between this look and the send is not seen. The provider alone could prevent that.
    async fn is_undoing_to_be_settled(&self, found: Option<&Record>) -> Result<bool, ExecError> {
        let spec = self.op.tool.spec();
        // Looked up before a person's word was believed, or it is to be sent without a look.
        let is_decided = found.is_some_and(|found| found.basis == Basis::Denial);
        if is_decided || !undoing_looks_first(spec.effect, &spec.contract) {
            return Ok(false);
        }
        // Boxed because it is rare: every call would have to carry the room for it.
        let shown = Box::pin(reconcile::show_unsent(&self.core, &self.op)).await?;
        tracing::info!(tenant = %self.op.tenant, key = %self.op.key, ?shown, "looked up before it is undone");
        Ok(shown != reconcile::Shown::Nothing)
    }

    /// There is a record.
    async fn take_up(&self, found: &Record) -> Result<Step, ExecError> {
        let Self { core, op, .. } = self;
        if retire::let_go(core, op, found).await? {
            return Ok(Step::Changed);
        }
        let decision = op.decide(core, Some(found)).await?;
        tracing::trace!(tenant = %op.tenant, key = %op.key, ?decision, "decided");
        match decision {
            Decision::New => self.begin().await,
            Decision::Retry { not_before, failure } => {
                match not_before.map(|at| (at, core.now().until(at))) {
                    Some((until, delay)) if op.lane.is_some() && delay > LONG_WAIT => {
                        return Ok(Step::Answered(Answered::of(Outcome::Later { until })));
                    }
                    Some((_, delay)) => core.clock.sleep(delay).await,
                    None => {}
                }
                if self.is_abandoned() {
                    return Ok(Step::Answered(Answered::of(Outcome::Failed(failure))));
                }
                if self.is_settled_first(Some(found)).await? {
                    return self.look_first(Some(found)).await;
                }
                let pass = match self.turn(Some(found)).await? {
                    Ok(pass) => pass,
                    Err(instead) => return Ok(instead),
                };
                let permit = attempt::again(core, op, found, Basis::Answer, None, pass).await?;
                Ok(permit.map_or(Step::Changed, Step::Send))
            }
            Decision::Reconcile => {
                self.settle(Ambiguous::new(Box::new(found.clone()), core.ceased(found))).await
            }
            Decision::InProgress if self.waits() => {
                core.clock.sleep(ELSEWHERE).await; // another worker has it in hand
                Ok(Step::Changed)
            }
            Decision::Parked { escalation } if reconcile::unpark(core, op, found, escalation).await? => {
                Ok(Step::Changed)
            }
            decision => self.answer(decision, found).await.map(Step::Answered),
        }
    }

    /// Dispatches until the outcome is known. `None`: the record has changed meanwhile, decide anew.
    async fn pursue(&self, mut permit: Box<Permit>) -> Result<Option<Answered>, ExecError> {
        loop {
            match attempt::dispatch(&self.core, &self.op, permit).await? {
                Ended::Committed(answer, ticket) => {
                    return Ok(Some(Answered::committed(answer, ticket)));
                }
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
        // Boxed because it is large and rare: every call would have to carry the room for it.
        let reconciling =
            Box::pin(reconcile::reconcile(&self.core, &self.op, ambiguous, || self.is_abandoned()));
        let fate = reconciling.await?;
        Ok(match fate {
            Fate::Committed(answer, ticket) => Step::Answered(Answered::committed(answer, Some(ticket))),
            Fate::Send(permit) => Step::Send(permit),
            Fate::Changed => Step::Changed,
            Fate::Parked(escalation) => Step::Answered(Answered::of(Outcome::Parked { escalation })),
            Fate::Later(wait) => {
                let until = self.core.now().after(wait);
                Step::Answered(Answered::of(Outcome::Later { until }))
            }
            Fate::Left(..) => Step::Answered(Answered::of(Outcome::InProgress)),
        })
    }

    /// Answers from a record that was there before.
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
                Outcome::Conflict(crate::ledger::diff(&first, &op.request)?)
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

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire) || self.op.is_over()
    }
}

impl Answered {
    const fn of(outcome: Outcome) -> Self {
        Self { outcome, ticket: None, found: None }
    }

    const fn committed(answer: Answer, ticket: Option<Ticket>) -> Self {
        Self { outcome: Outcome::Done(answer), ticket, found: None }
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
