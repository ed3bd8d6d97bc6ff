//! What a caller holds: a tenant's view of the engine, a run to be started, a run to be waited for.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::engine::Inner;
use super::failure::Failure;
use super::queue::Choice;
use super::run::output;
use super::workflow::{Registered, Workflow};
use crate::exec::{Answers as _, ExecError, open_escalations, to_the_end};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::exec::{OwnConnection, inbox};
use crate::id::{EscalationId, IdError, RunId, Tenant};
use crate::ledger::{Diff, RequestHash, diff};
use crate::payload::{DigestKey, Payload, PayloadError, Stored};
use crate::store::{
    Escalation, History, PastCall, PastStep, PastUse, Refusal, Resolution, Run, RunState, Store as _,
    StoreError, Ticket, Turns, Verdict,
};
use crate::tool::canonical;

/// The engine as one tenant sees it.
#[derive(Clone)]
pub struct ForTenant {
    inner: Arc<Inner>,
    tenant: Tenant,
}

/// Why a run has no result (yet).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow returned an error. Effects it had committed are open questions now.
    #[error("{run} failed: {failure}")]
    Failed {
        /// The run.
        run: RunId,
        /// What it returned.
        failure: Failure,
    },
    /// It waits for a decision: see the open escalations.
    #[error("{run} was halted: {message}")]
    Halted {
        /// The run.
        run: RunId,
        /// The question.
        message: String,
    },
    /// The start key was used before with another input: nothing was started.
    #[error(
        "the start key {key:?} belongs to {run}, which has another input: nothing was started; use another key"
    )]
    Conflict {
        /// The key.
        key: String,
        /// The run that has it.
        run: RunId,
        /// What differs.
        diff: Diff,
    },
    /// The start key was used before, and the start was [not to give the existing run](StartRun::reject_duplicate).
    #[error("the start key {key:?} belongs to {run}: nothing was started")]
    Duplicate {
        /// The key.
        key: String,
        /// The run that has it.
        run: RunId,
    },
    /// No queue of that name is declared with this engine.
    #[error(
        "no queue {queue:?} is declared with this engine (there are {declared:?}): nothing was started; add \
         `.queue(Queue::new({queue:?}))`"
    )]
    UnknownQueue {
        /// The name.
        queue: String,
        /// Those that are.
        declared: Vec<String>,
    },
    /// A schedule makes no sense, or was refused.
    #[cfg(feature = "schedule")]
    #[error("the schedule {name:?} was refused: {reason}; nothing was changed")]
    Schedule {
        /// The schedule.
        name: String,
        /// Why.
        reason: String,
    },
    /// There is no schedule of this name.
    #[cfg(feature = "schedule")]
    #[error("there is no schedule {name:?} of this tenant")]
    NoSchedule {
        /// The name.
        name: String,
    },
    /// A queue key or a priority was given, and no queue.
    #[error(
        "a queue key or a priority was given and no queue: nothing was started; choose one by `.queue(name)`"
    )]
    NoQueue,
    /// The function is not registered with this engine.
    #[error(
        "this workflow is not registered with the engine: nothing was started; add `.workflow(name, version, function)`"
    )]
    Unregistered,
    /// There is no such run of this tenant.
    #[error("there is no {run} of this tenant")]
    Unknown {
        /// The run.
        run: RunId,
    },
    /// Input or result have no JSON form, or not the expected type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A write was refused.
    #[error("{run}: {refusal}")]
    Refused {
        /// The run.
        run: RunId,
        /// Why.
        refusal: Refusal,
    },
    /// It has ended, and receives nothing any more.
    #[error("{run} is over: the signal was not sent")]
    Over {
        /// The run.
        run: RunId,
    },
    /// It cannot go on from a step.
    #[error("{run} {why}: it was left as it is; fork it, and the fork goes on from that step")]
    NotRetryable {
        /// The run.
        run: RunId,
        /// Why.
        why: &'static str,
    },
    /// It has recorded no step of this name: nothing was begun.
    #[error("{run} has recorded nothing under {step}: nothing was begun again; see what it did with `turns`")]
    NoSuchStep {
        /// The run.
        run: RunId,
        /// The name.
        step: String,
    },
    /// It has no operation under this key of which it is known what became of it: nothing was begun.
    #[error("{run} has no operation {key} whose outcome is known: nothing was begun again")]
    NoSuchEffect {
        /// The run.
        run: RunId,
        /// The key.
        key: String,
    },
    /// A child that it has begun is under way, and would tell a fork nothing.
    #[error("{run} has a child that is under way, {child}: wait for it or cancel it, then fork")]
    ChildRunning {
        /// The run.
        run: RunId,
        /// Its child.
        child: RunId,
    },
    /// Another command was given under this key: the first one stands.
    #[error(
        "{run} was given another command under the key {key:?}: the first one stands; give this one another key"
    )]
    CommandConflict {
        /// The run.
        run: RunId,
        /// The command's key.
        key: String,
    },
    /// Nobody has paused it, or it goes on already.
    #[error("{run} is not paused: nothing was changed")]
    NotPaused {
        /// The run.
        run: RunId,
    },
    /// The run was sent another signal under this name and id: the first one stands.
    #[error(
        "{run} was sent another signal {name:?} under the id {id:?}: the first one stands; give this one another id"
    )]
    SignalConflict {
        /// The run.
        run: RunId,
        /// The signal's name.
        name: String,
        /// Its id.
        id: String,
    },
    /// A name is empty, too long, or not for users.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The engine is shutting down; the run goes on when one is started on the same store.
    #[error("the engine was shut down before {run} ended: it goes on with the next one")]
    Closed {
        /// The run.
        run: RunId,
    },
    /// The executor failed.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// The inbox.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl ForTenant {
    /// Processes a message of this tenant once: see [`Executor::process_once`](crate::Executor::process_once).
    ///
    /// # Errors
    /// Those after which the message is to be delivered again; it was not processed.
    pub async fn process_once<C, T, E, F>(
        &self,
        consumer: &str,
        message: impl Into<inbox::Message>,
        work: F,
    ) -> Result<inbox::Processed<T>, inbox::InboxError<E>>
    where
        C: OwnConnection,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: std::fmt::Display + Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, E>> + Send,
    {
        inbox::process_once(&self.inner.core, &self.tenant, consumer, message.into(), work).await
    }
}

impl ForTenant {
    pub(super) const fn new(inner: Arc<Inner>, tenant: Tenant) -> Self {
        Self { inner, tenant }
    }

    /// Starts a run of a registered workflow. Await it for its result, or [`StartRun::start`] it for a handle.
    pub fn run<W, I, O>(&self, _workflow: W, input: I) -> StartRun<O>
    where
        W: Workflow<I, O>,
        I: Serialize + Send + Sync + 'static,
    {
        let workflow = self.inner.workflows.of_function::<W>().cloned();
        StartRun {
            inner: self.inner.clone(),
            tenant: self.tenant.clone(),
            workflow,
            input: Box::new(move |key| canonical(&input, key)),
            key: None,
            reject: false,
            choice: Choice::default(),
            _output: PhantomData,
        }
    }

    pub(super) fn parts(&self) -> (Arc<Inner>, Tenant) {
        (self.inner.clone(), self.tenant.clone())
    }

    /// What carries out, and for whom.
    pub(crate) fn core(&self) -> (Arc<crate::exec::Core>, Tenant) {
        (self.inner.core.clone(), self.tenant.clone())
    }

    /// A run that was started before.
    pub fn handle<O>(&self, run: RunId) -> RunHandle<O> {
        RunHandle::of(self.inner.clone(), self.tenant.clone(), run)
    }

    /// The runs of this tenant, from `after` on, at most a thousand.
    pub async fn runs(&self, after: Option<RunId>) -> Result<Vec<Run>, RunError> {
        Ok(self.inner.core.group.run_list(&self.tenant, after.unwrap_or(RunId(i64::MIN)), 1000).await?)
    }

    /// What the operations of a run came to whose type is one of these.
    #[cfg(feature = "agent")]
    pub(crate) async fn responses(
        &self,
        run: RunId,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Payload>, RunError> {
        let core = &self.inner.core;
        if core.group.run_find(&self.tenant, run).await?.is_none() {
            return Err(RunError::Unknown { run });
        }
        let mut responses = Vec::new();
        for call in core.group.run_history(&self.tenant, run, Turns::ALL).await?.calls {
            if let Some(response) = call.response.filter(|_| wanted(&call.operation)) {
                responses.push(core.load(&self.tenant, &response).await?);
            }
        }
        Ok(responses)
    }

    /// The open questions, the oldest first.
    pub async fn escalations(&self) -> Result<Vec<Escalation>, RunError> {
        Ok(open_escalations(&self.inner.core, &self.tenant, 1000).await?)
    }

    /// Answers an open question.
    ///
    /// About a call: [`Committed`](Resolution::Committed) with its result, [`NotCommitted`](Resolution::NotCommitted)
    /// to try it again, [`Abandon`](Resolution::Abandon) to let it fail. About a halted run: `NotCommitted` to go
    /// on, `Abandon` to let the run fail. About an effect that nobody owns: `Abandon` to keep it. About one that
    /// happened twice, or perhaps did: `Abandon` when that is dealt with.
    ///
    /// # Crash
    /// The answer and what follows from it are one transaction.
    pub async fn resolve(
        &self,
        escalation: EscalationId,
        resolution: Resolution,
        by: &str,
    ) -> Result<(), RunError> {
        let (inner, tenant) = (self.inner.clone(), self.tenant.clone());
        Ok(inner.resolve(tenant, escalation, resolution, by.to_owned()).await?)
    }
}

pub(super) type Canonical = dyn Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> + Send + Sync;

/// A run to be started. Nothing happens before it is awaited.
#[must_use = "a run does nothing until it is awaited"]
pub struct StartRun<O> {
    inner: Arc<Inner>,
    tenant: Tenant,
    workflow: Option<Registered>,
    input: Box<Canonical>,
    key: Option<String>,
    reject: bool,
    choice: Choice,
    _output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned + 'static> StartRun<O> {
    /// A start key: the same key and input give the same run; another input is a conflict.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// A start whose key was used before is refused with [`RunError::Duplicate`], which names the run. Otherwise it is
    /// given that run, if it has the same input.
    pub fn reject_duplicate(mut self) -> Self {
        self.reject = true;
        self
    }

    /// Puts the run into a queue: it begins when it is its turn there.
    ///
    /// # Crash
    /// The run is durable when the start returns, and begins whoever dies.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.choice.queue = Some(name.into());
        self
    }

    /// What the run is counted under by [`Queue::per_key`](crate::Queue::per_key), beside its tenant.
    pub fn queue_key(mut self, key: impl Into<String>) -> Self {
        self.choice.key = Some(key.into());
        self
    }

    /// Among the queued runs of its tenant a higher one begins first; 0 unless it is said. Of one priority the oldest.
    pub fn priority(mut self, priority: i32) -> Self {
        self.choice.priority = priority;
        self
    }

    /// Starts the run and returns when that is durable.
    pub async fn start(self) -> Result<RunHandle<O>, RunError> {
        self.begun(true).await.map(|(handle, _)| handle)
    }

    /// Dropped between the run's row and its task, the start would leave a run that nobody carries out.
    async fn begun(self, durable: bool) -> Result<(RunHandle<O>, Option<Ticket>), RunError> {
        let tracker = self.inner.core.tracker.clone();
        to_the_end(&tracker, self.begin(durable)).await
    }

    /// The run, and the write that it depends on, if it is not durable yet.
    async fn begin(self, durable: bool) -> Result<(RunHandle<O>, Option<Ticket>), RunError> {
        let Self { inner, tenant, workflow, input, key, reject, choice, .. } = self;
        let workflow = workflow.ok_or(RunError::Unregistered)?;
        let queue = inner.in_queue(&workflow, choice)?;
        let input: Result<_, RunError> = inner.core.canonical(&tenant, &*input).await;
        let input = input?.within(&inner.core.limits)?;
        let input_hash = RequestHash::of(workflow.name.as_str(), &input);
        let core = &inner.core;
        let awaited = durable || key.is_some() || queue.is_some();
        let lane = core.new_lane();
        core.group.room().await;
        // Not in this future, which would hold all of it while it waits.
        let submit = || {
            let now = core.now();
            let (stored, large) = core.storable(input.clone());
            let run = Box::new(Run {
                id: RunId(core.ids.next()),
                tenant: tenant.clone(),
                workflow: workflow.name.clone(),
                version: workflow.version,
                key: key.clone(),
                parent: None,
                input: stored,
                input_hash,
                state: if queue.is_some() { RunState::Queued } else { RunState::Active },
                queue: queue.clone(),
                fence: core.fence,
                revision: 1,
                deaths: 0,
                unsettled: false,
                base: 0,
                turn: 1,
                created_at: now,
                updated_at: now,
            });
            // If nobody waits for its row: nothing of the run leaves the engine before its first awaited write, which
            // comes behind this one. In the lane of its first activation: should its row be refused, nothing of the
            // run goes out behind it.
            let mut change = core.change((!awaited).then_some(lane)).run(run.clone());
            change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
            (run, core.group.submit(change))
        };
        let (run, ticket) = submit();
        let id = run.id;
        let handle =
            |id| RunHandle { inner: inner.clone(), tenant: tenant.clone(), id, _output: PhantomData };
        if !awaited {
            inner.spawn(run, Some(lane));
            return Ok((handle(id), Some(ticket)));
        }
        let verdict = ticket.durable().await;
        if verdict.is_err() {
            inner.perhaps_ours(&run.tenant, id);
        }
        match (verdict?, key) {
            (Verdict::Admitted, _) => {
                match queue {
                    Some(queue) => inner.queued(queue.name.as_str()).await,
                    None => inner.spawn(run, Some(lane)),
                }
                Ok((handle(id), None))
            }
            (Verdict::Refused(Refusal::Exists), Some(key)) => {
                // Boxed because it is rare.
                let first = Box::pin(inner.first_under(&run, &key, &input)).await?;
                if first == id {
                    inner.spawn(run, None); // this very write took place, its answer was lost, and it was tried again
                } else if reject {
                    return Err(RunError::Duplicate { key, run: first });
                }
                Ok((handle(first), None))
            }
            (Verdict::Refused(refusal), _) => Err(RunError::Refused { run: id, refusal }),
        }
    }
}

impl<O: DeserializeOwned + Send + 'static> IntoFuture for StartRun<O> {
    type Output = Result<O, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (handle, begun) = self.begun(false).await?;
            match (handle.result().await, begun) {
                // Perhaps it never began.
                (Err(gone @ (RunError::Closed { .. } | RunError::Unknown { .. })), Some(begun)) => {
                    match begun.durable().await? {
                        Verdict::Admitted => Err(gone),
                        Verdict::Refused(refusal) => Err(RunError::Refused { run: handle.id, refusal }),
                    }
                }
                (result, _) => result,
            }
        })
    }
}

/// A run.
#[derive(Clone)]
pub struct RunHandle<O> {
    pub(super) inner: Arc<Inner>,
    pub(super) tenant: Tenant,
    pub(super) id: RunId,
    _output: PhantomData<fn() -> O>,
}

impl<O> RunHandle<O> {
    pub(super) const fn of(inner: Arc<Inner>, tenant: Tenant, id: RunId) -> Self {
        Self { inner, tenant, id, _output: PhantomData }
    }

    /// Its name.
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Its row.
    pub async fn status(&self) -> Result<Run, RunError> {
        let run = self.inner.core.group.run_find(&self.tenant, self.id).await?;
        run.ok_or(RunError::Unknown { run: self.id })
    }
}

/// So many turns are shown at once.
const TURNS: u32 = 100;

impl<O> RunHandle<O> {
    /// What the run did turn by turn, from the turn behind `after` on, at most a hundred turns; none when there are no
    /// more. The last may be under way. What it did outside of loops is shown as turn 0; since it
    /// [went on as new](crate::Ctx::continue_as_new), under the number that its history began with then.
    ///
    /// A turn whose steps were [deleted](crate::flow::Loop::keep_turns) still has its calls.
    pub async fn turns(&self, after: Option<u32>) -> Result<Vec<PastTurn>, RunError> {
        let last = self.status().await?.turn;
        let mut first = after.map_or(0, |after| after.saturating_add(1));
        let mut turns = BTreeMap::new();
        while turns.is_empty() && first <= last {
            let page = Turns::between(first, first.saturating_add(TURNS - 1));
            let history = self.inner.core.group.run_history(&self.tenant, self.id, page).await?;
            turns = by_turn(history);
            first = first.saturating_add(TURNS);
        }
        Ok(turns.into_values().collect())
    }

    /// A value of a [past turn](Self::turns): a large one is not read before it is asked for.
    pub async fn value(&self, stored: &Stored) -> Result<Payload, RunError> {
        Ok(self.inner.core.load(&self.tenant, stored).await?)
    }
}

/// What a run did in one of its turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastTurn {
    /// Its number.
    pub turn: u32,
    /// Its checkpoints.
    pub steps: Vec<PastStep>,
    /// The operations that it asked for first.
    pub calls: Vec<PastCall>,
    /// The operations of others that answered it.
    pub uses: Vec<PastUse>,
}

fn by_turn(history: History) -> BTreeMap<u32, PastTurn> {
    let mut turns = BTreeMap::new();
    let History { steps, calls, uses, .. } = history;
    for step in steps {
        of_turn(&mut turns, step.turn).steps.push(step);
    }
    for call in calls {
        of_turn(&mut turns, call.turn).calls.push(call);
    }
    for used in uses {
        of_turn(&mut turns, used.turn).uses.push(used);
    }
    turns
}

fn of_turn(turns: &mut BTreeMap<u32, PastTurn>, turn: u32) -> &mut PastTurn {
    turns.entry(turn).or_insert_with(|| PastTurn { turn, ..PastTurn::default() })
}

impl<O: DeserializeOwned> RunHandle<O> {
    /// Waits until the run is over, however long that takes, and returns what it returned.
    ///
    /// # Errors
    /// [`RunError::Failed`] if it failed, [`RunError::Halted`] if it waits for a decision about itself.
    pub async fn result(&self) -> Result<O, RunError> {
        // Asked for before the row is read, so that an end in between is not missed.
        let ended = self.inner.result_of(&self.tenant, self.id);
        let state = match self.inner.ended_state(&self.tenant, self.id).await {
            // Once the engine is closing, only a run that still has its task is sure to be told about.
            Ok(None) if !self.inner.core.is_closing() || self.inner.is_active(&self.tenant, self.id) => {
                Some(ended.await.map_err(|_| RunError::Closed { run: self.id })?)
            }
            known => {
                drop(ended);
                self.inner.forget_result(self.id);
                known?
            }
        };
        self.read(state).await
    }

    async fn read(&self, state: Option<RunState>) -> Result<O, RunError> {
        let state = state.ok_or(RunError::Closed { run: self.id })?;
        if let Some(stored) = output(&state) {
            return Ok(self.inner.core.load(&self.tenant, stored).await?.decode()?);
        }
        match state {
            RunState::Failed { failure } => Err(RunError::Failed {
                run: self.id,
                failure: failure.decode().unwrap_or_else(Failure::from),
            }),
            RunState::Halted { failure } => {
                let message = failure.value()?["message"].as_str().unwrap_or_default().to_owned();
                Err(RunError::Halted { run: self.id, message })
            }
            _ => Err(RunError::Closed { run: self.id }),
        }
    }
}

impl Inner {
    /// The run that has the start key of this one, which was refused; a conflict if it has another input.
    async fn first_under(&self, refused: &Run, key: &str, input: &Payload) -> Result<RunId, RunError> {
        let Run { id, tenant, workflow, input_hash, .. } = refused;
        let first = self.core.group.run_keyed(tenant, workflow.as_str(), key).await?;
        let first = first.ok_or(RunError::Refused { run: *id, refusal: Refusal::Exists })?;
        if first.input_hash != *input_hash {
            let recorded = self.core.load(tenant, &first.input).await?;
            let diff = diff(&recorded, input)?;
            return Err(RunError::Conflict { key: key.to_owned(), run: first.id, diff });
        }
        Ok(first.id)
    }

    /// The state of a run that is over or halted. A run that this process is carrying out is not read: it
    /// will say so itself.
    async fn ended_state(&self, tenant: &Tenant, id: RunId) -> Result<Option<RunState>, RunError> {
        if self.is_active(tenant, id) {
            return Ok(None);
        }
        let run = self.core.group.run_find(tenant, id).await?.ok_or(RunError::Unknown { run: id })?;
        let ended = run.state.is_final() || matches!(run.state, RunState::Halted { .. });
        Ok(ended.then_some(run.state))
    }
}
