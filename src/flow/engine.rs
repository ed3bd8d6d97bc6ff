//! The engine: starts runs, takes over what an earlier process left, wakes what waits.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::awaited::Awaited;
use super::builder::EngineBuilder;
use super::guarantees::Guarantees;
use super::handle::ForTenant;
use super::live::{Live, Stop};
use super::queue::Queues;
use super::resume;
use super::run::{End, activate, unreadable};
use super::workflow::Workflows;
use crate::clock::Timestamp;
use crate::exec::{Core, Due, ExecError, Executor, ExecutorBuilder, More, last};
use crate::id::{EscalationId, IdError, Name, RunId, Tenant};
use crate::panics::{caught, quietly};
use crate::store::{Escalation, EscalationKind, Lane, Run, RunState, Signal, Store, StoreError, Verdict};
use crate::tool::ToolSpec;

/// Runs that a restart finds are taken over in batches of this size.
pub(super) const CLAIM: u32 = 256;
/// A run whose process died more often is quarantined, unless the builder says otherwise.
pub(super) const MAX_DEATHS: u32 = 10;
/// After a write failed, a run is tried again this much later.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// Workflows on a store, in this process.
#[derive(Clone)]
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

/// What all runs of an engine share.
pub(super) struct Inner {
    pub(super) core: Arc<Core>,
    pub(super) workflows: Workflows,
    pub(super) queues: Queues,
    max_deaths: u32,
    // In their order: a simulation that is repeated does the same again.
    active: Mutex<BTreeMap<RunId, Activity>>,
    pub(super) awaited: Mutex<BTreeMap<RunId, Awaited>>,
    /// Which runs wait for which answer. Only a hint: after a restart they are found by their rows.
    answers: Mutex<BTreeMap<EscalationId, Vec<RunId>>>,
}

/// A run that has a task in this process.
pub(super) struct Activity {
    tenant: Tenant,
    live: Option<Weak<Live>>,
    /// An answer or a signal came while the activation was beginning or ending.
    again: bool,
}

impl Activity {
    /// Hands the run what was said to it, or sees to it that it is read by the next activation.
    pub(super) fn deliver(&mut self, signal: Signal) {
        let live = self.live.as_ref().and_then(Weak::upgrade);
        self.again |= !live.is_some_and(|live| live.deliver(signal));
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("core", &self.inner.core).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine on a SQLite file, to be given its workflows and tools.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<std::path::PathBuf>) -> EngineBuilder {
        EngineBuilder::on(ExecutorBuilder::sqlite(path))
    }

    /// An engine on a PostgreSQL database, beside other workers, to be given its workflows and tools. The URL may name
    /// several hosts, of which one is the primary.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> EngineBuilder {
        EngineBuilder::on(ExecutorBuilder::postgres(url))
    }

    /// The same with other than the default options.
    #[cfg(feature = "postgres")]
    pub fn postgres_with(url: impl Into<String>, options: crate::store::postgres::Options) -> EngineBuilder {
        EngineBuilder::on(ExecutorBuilder::postgres_with(url, options))
    }

    /// An engine on any store. It has no `ctx.transaction`: that needs a store whose connection type is known.
    pub fn store(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder::on(ExecutorBuilder::store(store))
    }

    /// Everything of one tenant.
    pub fn tenant(&self, name: impl AsRef<str>) -> Result<ForTenant, IdError> {
        Ok(ForTenant::new(self.inner.clone(), Tenant::new(name)?))
    }

    /// The executor of this engine, for guarded tool calls outside any workflow. It keeps the engine going.
    pub fn executor(&self) -> Executor {
        Executor::of(self.inner.core.clone(), self.inner.clone())
    }

    /// Resolves when this worker has lost its lease, in a store that several share: it was stopped for too long, or cut
    /// off from the store, and another one has taken its work over. It sends and changes nothing any more.
    /// [Shut it down](Self::shutdown), so that answers which are still to come are kept as evidence; then start another
    /// engine, or end the process.
    pub async fn fenced(&self) {
        self.inner.core.fenced().await;
    }

    /// What the registered tools declare.
    pub fn tools(&self) -> Vec<&ToolSpec> {
        self.inner.core.registry.specs()
    }

    /// What may be promised of the calls of the registered workflows and tools.
    pub fn guarantees(&self) -> Guarantees {
        Guarantees::of(&self.inner.workflows, &self.inner.core.registry)
    }

    /// Starts no new call, waits at most `drain` for those under way, and writes what is queued. Runs go on
    /// where they are when an engine is started on the same store. Calls that are still under way then are
    /// what they are: ambiguous, and reconciled.
    ///
    /// When this returns, another process can open a SQLite file, unless a call is still under way: it may send
    /// yet, so the file stays locked until the call or the process ends. What is recorded can still be read.
    pub async fn shutdown(self, drain: Duration) {
        self.inner.core.begin_closing();
        self.inner.stop_all();
        self.inner.core.close(drain).await;
        self.inner.forget_all_results(); // whoever waits for a run without a task is told, instead of waiting for ever
    }
}

impl Inner {
    pub(super) fn of(core: Arc<Core>, workflows: Workflows, queues: Queues, max_deaths: u32) -> Self {
        let (active, awaited, answers) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { core, workflows, queues, max_deaths, active, awaited, answers }
    }

    /// One that carries out no runs: they are only looked at.
    pub(super) fn looking_on(core: Arc<Core>, workflows: Workflows) -> Arc<Self> {
        Arc::new(Self::of(core, workflows, Queues::default(), MAX_DEATHS))
    }

    /// Claims what earlier processes left: active runs, and waiting ones whose question has been answered.
    pub(super) async fn claim_orphans(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut killed = BTreeMap::new();
        let mut after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_orphans(after, CLAIM).await?;
            let Some(last) = runs.last() else { break };
            after = last.id;
            for run in &runs {
                if let Entry::Vacant(unknown) = killed.entry(run.fence) {
                    let worker = self.core.group.worker_at(run.fence).await?;
                    unknown.insert(u32::from(worker.is_none_or(|worker| !worker.retired)));
                }
            }
            self.claim(runs, |run| run.deaths += killed.get(&run.fence).unwrap_or(&1)).await?;
        }
        self.take_up_known().await?;
        self.take_up_answered().await
    }

    /// Claims waiting runs whose question has been answered, or that were sent a signal.
    async fn take_up_answered(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_answered(after, CLAIM).await?;
            let Some(last) = runs.last() else { break };
            after = last.id;
            self.claim(runs, |_| {}).await?;
        }
        after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_signalled(after, CLAIM).await?;
            let Some(last) = runs.last() else { return Ok(()) };
            after = last.id;
            self.claim(runs, |_| {}).await?;
        }
    }

    /// Makes runs this worker's. The count of deaths is durable before their code runs again, or a run that
    /// kills its process would never be found out.
    /// Says how many became so.
    async fn claim(
        self: &Arc<Self>,
        mut runs: Vec<Run>,
        note: impl Fn(&mut Run),
    ) -> Result<usize, StoreError> {
        let mut claimed = 0;
        runs.retain(|run| self.may_claim(run));
        for run in &mut runs {
            note(run);
            self.make_active(run);
        }
        let changes: Vec<_> = runs.iter().map(|run| self.core.change(None).run(run.clone())).collect();
        let verdicts = self.core.group.commit(&changes).await;
        if verdicts.is_err() {
            for run in &runs {
                self.perhaps_ours(&run.tenant, run.id);
            }
        }
        for (run, verdict) in runs.into_iter().zip(verdicts?) {
            match verdict {
                Verdict::Admitted => {
                    claimed += 1;
                    self.spawn(Box::new(run), None);
                }
                Verdict::Refused(refusal) => {
                    tracing::warn!(run = %run.id, %refusal, "not taken over");
                    self.perhaps_ours(&run.tenant, run.id);
                }
            }
        }
        Ok(claimed)
    }

    /// Nobody else will see to it: in a shared store others may know its workflow.
    pub(super) fn may_claim(&self, run: &Run) -> bool {
        !self.core.is_shared() || self.workflows.find(run.workflow.as_str(), run.version).is_some()
    }

    /// The next state of a run's row: this worker's, and active.
    pub(super) fn make_active(&self, run: &mut Run) {
        run.fence = self.core.fence;
        run.revision += 1;
        run.updated_at = self.core.now();
        run.state = RunState::Active;
    }

    /// Gives a run a task.
    /// A fresh one has nothing recorded, and its row is on its way in this lane.
    pub(super) fn spawn(self: &Arc<Self>, run: Box<Run>, fresh: Option<Lane>) {
        {
            let mut active = self.active();
            if let Some(ending) = active.get_mut(&run.id) {
                ending.again = true; // its task sees to it
                return;
            }
            active.insert(run.id, Activity { tenant: run.tenant.clone(), live: None, again: false });
        }
        let inner = self.clone();
        self.core.tracker.spawn(async move { inner.drive(run, fresh).await });
    }

    /// Carries a run out until it is over, waits, or is somebody else's. A panic of what an activation calls beside the run's
    /// own code (a clock, a subscriber of the log, a callback) ends that activation; the run goes on from what is durable.
    async fn drive(self: Arc<Self>, run: Box<Run>, fresh: Option<Lane>) {
        let (tenant, id) = (run.tenant.clone(), run.id);
        let queue = run.queue.as_ref().map(|queue| queue.name.clone());
        let (mut first, mut panics) = (Some((run, fresh)), 0);
        loop {
            let driven = Box::pin(self.drive_on(&tenant, id, first.take(), &mut panics));
            let panic = match caught(driven).await {
                Ok(None) => return,
                Ok(Some((end, again))) => {
                    let leaving = || self.leave(&tenant, id, queue.as_ref(), &end, again);
                    return last(&Arc::downgrade(&self.core), "end of a run", leaving).await;
                }
                Err(panic) => panic,
            };
            panics += 1;
            quietly(
                || tracing::error!(%tenant, run = %id, panic, "an activation panicked, and the run is started over"),
            );
            if self.core.is_closing() {
                self.active().remove(&id);
                self.give_up(id);
                return;
            }
            let _ = caught(async { self.core.clock.sleep(RETRY).await }).await; // the clock may be what panics
        }
    }

    /// One activation after the other. `first`: what is known of the run without being read; `panics`: how many of its
    /// activations have panicked, which counts as deaths of its process do. Says how the last one ended and whether something
    /// came for the run meanwhile, if that is still to be told.
    async fn drive_on(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: RunId,
        first: Option<(Box<Run>, Option<Lane>)>,
        panics: &mut u32,
    ) -> Option<(End, bool)> {
        let (mut run, mut fresh) = match first {
            Some((run, fresh)) => (run, fresh),
            None => (self.row_of(tenant, id).await?, None),
        };
        let mut damage = None;
        loop {
            let halting = damage.is_some();
            run.deaths = run.deaths.saturating_add(*panics);
            let end = match damage.take() {
                Some(error) => Box::pin(unreadable(self, run, error)).await,
                None if run.deaths > self.max_deaths => Box::pin(self.quarantine(run)).await,
                None => activate(self, run, fresh).await,
            };
            (fresh, *panics) = (None, 0);
            match end {
                End::Over(_) | End::Parked => {
                    let again = self.active().remove(&id).is_some_and(|activity| activity.again);
                    return Some((end, again));
                }
                End::Again => {}
                End::Failed(error) => {
                    tracing::warn!(%tenant, run = %id, %error, "stopped where it is durable");
                    if self.core.is_closing() || error.is_final() {
                        self.active().remove(&id);
                        self.give_up(id);
                        return None;
                    }
                    match error {
                        // A damaged row does not mend itself: trying again would go on for ever, unasked.
                        ExecError::Store { source: source @ StoreError::Corrupt { .. }, .. } if !halting => {
                            damage = Some(source);
                        }
                        _ => self.core.clock.sleep(RETRY).await,
                    }
                }
            }
            run = self.row_of(tenant, id).await?;
        }
    }

    /// What follows when a run has no task here any more.
    async fn leave(
        self: &Arc<Self>,
        tenant: &Tenant,
        id: RunId,
        queue: Option<&Name>,
        end: &End,
        again: bool,
    ) {
        if let End::Over(state) = end {
            self.deliver(id, state);
            self.tell_starter(id).await;
            if let Some(queue) = queue {
                self.admit_soon(queue.as_str());
            }
        }
        if again {
            Box::pin(self.wake(tenant, id)).await;
        } else if self.core.is_shared() && matches!(end, End::Parked) {
            Box::pin(self.take_up_if_answered(id)).await;
        }
    }

    /// The row of a run that has a task here; nothing, and its task is at its end, if it is over or another worker's.
    async fn row_of(self: &Arc<Self>, tenant: &Tenant, id: RunId) -> Option<Box<Run>> {
        loop {
            match self.core.group.run_find(tenant, id).await {
                // Its end was written, and the answer lost: it is over all the same.
                Ok(Some(run)) if run.state.is_final() => {
                    self.active().remove(&id);
                    self.deliver(id, &run.state);
                    self.tell_starter(id).await;
                    Box::pin(self.tell_parent(&run)).await;
                    return None;
                }
                Ok(Some(run)) if run.fence == self.core.fence => return Some(Box::new(run)),
                Ok(found) => {
                    match found {
                        Some(_) => tracing::warn!(%tenant, run = %id, "taken over by another process"),
                        None => tracing::error!(%tenant, run = %id, "its row is gone"),
                    }
                    self.active().remove(&id);
                    self.give_up(id);
                    return None;
                }
                Err(error) => {
                    tracing::error!(%tenant, run = %id, %error, "cannot be read, tried again later");
                    self.core.clock.sleep(RETRY).await;
                }
            }
        }
    }

    /// A run that kills its process each time is stopped before it does so again (HAZARDS K06).
    async fn quarantine(self: &Arc<Self>, run: Box<Run>) -> End {
        let question = format!(
            "run {}: its process died {} times without the run getting anywhere. Mend the cause and go on, or abandon?",
            run.id, run.deaths
        );
        let live = Live::new(self.clone(), *run, self.core.new_lane(), super::replay::Replay::default());
        resume::halt(&live, EscalationKind::Quarantined, question).await
    }

    /// Starts a run over from its records: an answer has come, or its time.
    pub(super) async fn wake(self: &Arc<Self>, tenant: &Tenant, id: RunId) {
        if let Some(activity) = self.active().get_mut(&id) {
            activity.again = true;
            if let Some(live) = activity.live.as_ref().and_then(Weak::upgrade) {
                live.request_stop(Stop::Bounce);
            }
            return;
        }
        match self.core.group.run_find(tenant, id).await {
            Ok(Some(run)) if run.state == RunState::Active && run.fence == self.core.fence => {
                self.spawn(Box::new(run), None);
            }
            Ok(Some(run)) if matches!(run.state, RunState::Waiting { .. }) => self.wake_from(run).await,
            // Nothing but a command comes before its turn.
            Ok(Some(run)) if run.state == RunState::Queued => self.take_up_if_answered(id).await,
            Ok(_) => {}
            Err(error) => tracing::error!(%tenant, run = %id, %error, "cannot be woken"),
        }
    }

    /// The same of one that waits, by its row.
    pub(super) async fn wake_from(self: &Arc<Self>, row: Run) {
        let (tenant, id) = (row.tenant.clone(), row.id);
        if let Err(error) = self.claim(vec![row], |_| {}).await {
            tracing::error!(%tenant, run = %id, %error, "cannot be woken");
        }
    }

    /// A halted run goes on, in one transaction with the answer that lets it.
    pub(super) fn going_on(&self, run: &Run) -> Run {
        let mut run = run.clone();
        run.give_place_free(); // it queues up again, if it is in a queue
        self.make_active(&mut run);
        run.deaths = 0;
        run
    }

    pub(super) fn active(&self) -> MutexGuard<'_, BTreeMap<RunId, Activity>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The activations of this moment.
    pub(super) fn lives(&self) -> Vec<Arc<Live>> {
        self.active().values().filter_map(|activity| activity.live.as_ref()?.upgrade()).collect()
    }

    /// Ends all activations where they are durable.
    fn stop_all(&self) {
        for live in self.lives() {
            live.request_stop(Stop::Failed(ExecError::Closed { key: live.id.to_string() }));
        }
    }

    /// Makes an activation findable, for as long as the guard lives.
    pub(super) fn list(self: &Arc<Self>, live: &Arc<Live>) -> Listed {
        if let Some(activity) = self.active().get_mut(&live.id) {
            activity.live = Some(Arc::downgrade(live));
            if std::mem::take(&mut activity.again) {
                // The answer is in the records that this activation has yet to read, or has just read too early.
                live.request_stop(Stop::Bounce);
            }
        }
        // One that was begun while the engine shut down was not there to be stopped with the others.
        if self.core.is_closing() {
            live.request_stop(Stop::Failed(ExecError::Closed { key: live.id.to_string() }));
        }
        Listed { inner: self.clone(), id: live.id }
    }

    /// This process is carrying the run out, and it is this tenant's.
    pub(super) fn is_active(&self, tenant: &Tenant, id: RunId) -> bool {
        self.active().get(&id).is_some_and(|activity| activity.tenant == *tenant)
    }

    /// An answer or a signal that was given elsewhere while this run was parking found it neither waiting nor here.
    async fn take_up_if_answered(self: &Arc<Self>, id: RunId) {
        let before = RunId(id.0 - 1);
        let claimed = async {
            let mut runs = self.core.group.run_answered(before, 1).await?;
            runs.extend(self.core.group.run_signalled(before, 1).await?);
            runs.retain(|run| run.id == id);
            runs.truncate(1);
            self.claim(runs, |_| {}).await
        };
        if let Err(error) = claimed.await {
            tracing::error!(run = %id, %error, "whether it was answered while it parked cannot be read");
        }
    }

    pub(super) fn wait_for_answer(&self, escalation: EscalationId, run: RunId) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = answers.entry(escalation).or_default();
        if !runs.contains(&run) {
            runs.push(run);
        }
    }

    pub(super) fn waiting_for(&self, escalation: EscalationId) -> Vec<RunId> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&escalation).unwrap_or_default()
    }
}

/// See [`Inner::list`].
pub(super) struct Listed {
    inner: Arc<Inner>,
    id: RunId,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(activity) = self.inner.active().get_mut(&self.id) {
            activity.live = None;
        }
    }
}

impl Due for Inner {
    fn take_up(self: Arc<Self>, now: Timestamp) -> BoxFuture<'static, More> {
        Box::pin(async move {
            let runs = match self.core.group.run_due(now, CLAIM).await {
                Ok(runs) => runs,
                Err(error) => {
                    tracing::error!(%error, "cannot read which runs are due");
                    return More::No;
                }
            };
            let (mut sleeping, mut taken_up) = (Vec::new(), 0);
            {
                let mut active = self.active();
                for run in runs {
                    match active.get_mut(&run.id) {
                        None => sleeping.push(run),
                        // It has parked this moment: its task sees to it on its way out.
                        Some(ending) => {
                            ending.again = true;
                            taken_up += 1;
                        }
                    }
                }
            }
            match self.claim(sleeping, |_| {}).await {
                Ok(claimed) => taken_up += claimed,
                Err(error) => tracing::error!(%error, "runs whose time has come cannot be woken"),
            }
            #[cfg(feature = "schedule")]
            let ticks = self.tick_due(now).await;
            #[cfg(not(feature = "schedule"))]
            let ticks = More::No;
            if let Err(error) = self.admit_due().await {
                tracing::error!(%error, "whose turn it is cannot be found out");
            }
            if ticks == More::Perhaps { ticks } else { More::after(taken_up, CLAIM) }
        })
    }

    fn take_over(self: Arc<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move { self.claim_orphans().await })
    }

    fn look(self: Arc<Self>, queued: bool) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            self.look_for_ends().await?;
            self.look_for_signals().await?;
            if queued { self.admit_waiting().await } else { Ok(()) }
        })
    }

    fn answered(self: Arc<Self>, question: Escalation) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move { self.wake_waiting(&question.tenant, &question).await })
    }

    fn stop(&self) {
        self.stop_all();
        self.forget_all_results(); // whoever waits is told: nothing is looked at from here any more
    }
}
