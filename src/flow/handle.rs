//! What a caller holds: a tenant's view of the engine, and a run to be waited for.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::engine::Inner;
use super::error::RunError;
use super::failure::Failure;
use super::queue::Choice;
use super::run::output;
use super::start::StartRun;
use super::workflow::Workflow;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::exec::{OwnConnection, inbox};
use crate::exec::{Questions, Resolve, Said};
use crate::id::{EscalationId, RunId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::{
    Escalation, History, PastCall, PastStep, PastUse, Resolution, Run, RunState, Store as _, Turns,
};
use crate::tool::canonical;

/// The engine as one tenant sees it.
#[derive(Clone)]
pub struct ForTenant {
    inner: Arc<Inner>,
    tenant: Tenant,
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
        F: for<'c> FnOnce(&'c mut C) -> futures_util::future::BoxFuture<'c, Result<T, E>> + Send,
    {
        let core = &self.inner.core;
        let delivery = inbox::delivery(core, &self.tenant, consumer, message.into())?;
        inbox::process_once(core, delivery, work).await
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

    /// The run that was started under this [key](StartRun::key), if there is one.
    ///
    /// ```no_run
    /// # async fn order(ctx: counterfoil::Ctx, order: String) -> Result<(), counterfoil::Failure> { Ok(()) }
    /// # async fn paid(engine: counterfoil::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(run) = engine.tenant("acme")?.keyed(order, "order/9").await? {
    ///     run.signal("paid", 4200).id("evt_1QzR").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn keyed<W, I, O>(&self, _workflow: W, key: &str) -> Result<Option<RunHandle<O>>, RunError>
    where
        W: Workflow<I, O>,
    {
        let workflow = self.inner.workflows.of_function::<W>().ok_or(RunError::Unregistered)?;
        let found = self.inner.core.group.run_keyed(&self.tenant, workflow.name.as_str(), key).await?;
        Ok(found.map(|run| self.handle(run.id)))
    }

    /// The runs of this tenant, from behind `after` on: a page of at most a thousand. An empty page is the end.
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

    /// The open questions, the oldest first: all of them, or a [page](Questions::limit).
    pub fn questions(&self) -> Questions<RunError> {
        Questions::of(self.inner.core.clone(), self.tenant.clone())
    }

    /// All open questions, the oldest first: what [`questions`](Self::questions) gives without a limit.
    pub async fn escalations(&self) -> Result<Vec<Escalation>, RunError> {
        self.questions().await
    }

    /// Answers an open question.
    ///
    /// About a call: [`Committed`](Resolution::Committed) with its result, [`NotCommitted`](Resolution::NotCommitted)
    /// to try it again, [`Abandon`](Resolution::Abandon) to let it fail. About a halted run: `NotCommitted` to go
    /// on, `Abandon` to let the run fail. About an effect that nobody owns: `Abandon` to keep it. About one that
    /// happened twice, or perhaps did: `Abandon` when that is dealt with.
    ///
    /// About a call that can be looked up, `NotCommitted` takes effect once its lookup has answered and shows nothing. Until then
    /// the question stays open and says that an answer [waits](Escalation::waiting).
    ///
    /// # Crash
    /// The answer and what follows from it are one transaction.
    pub fn resolve(&self, escalation: EscalationId, resolution: Resolution, by: &str) -> Resolve<RunError> {
        let said = Said::new(resolution, by);
        Resolve::by_engine(self.inner.clone(), self.tenant.clone(), escalation, said)
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
