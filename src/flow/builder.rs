//! An engine to be: which workflows, tools and queues it has, and on what it stands.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(feature = "api")]
use super::catalogue;
use super::driver::carry_out;
use super::engine::Engine;
use super::guarantees::Guarantees;
use super::host_values::HostValues;
use super::inner::{Inner, MAX_RECOVERY_ATTEMPTS};
use super::queue::Queues;
use super::workflow::{Workflow, WorkflowFn, Workflows};
use crate::clock::Clock;
use crate::exec::inbox::MessageRetention;
use crate::exec::{
    Core, Due, ExecutorBuilder, StartError, beat, outbox::Publisher, run_agenda, take_up_orphans,
};
use crate::id::Entropy;
use crate::payload::Limits;
use crate::store::{Queue, Store};
use crate::tool::{DynamicTool, Registry, Tool};

/// An engine to be. Errors of registration are kept and reported by [`start`](Self::start).
#[must_use]
pub struct EngineBuilder {
    executor: ExecutorBuilder,
    workflows: Workflows,
    queues: Queues,
    host_values: HostValues,
    refused: Option<StartError>,
    max_recovery_attempts: u32,
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

    /// An engine in memory: for tests, and for trying out. Nothing outlives the process, so a crash loses what was recorded. It has no
    /// `ctx.transaction`: for that, use [`Engine::sqlite`] on a temporary file.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::{Ctx, Engine, Failure};
    ///
    /// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    ///     ctx.step("greeting", &name, |name| format!("Hello, {name}")).await
    /// }
    ///
    /// let engine = Engine::in_memory().workflow("greet", 1, greet).start().await?;
    /// let greeting = engine.default_tenant().run(greet, "Ann".to_owned()).await?;
    /// assert_eq!(greeting, "Hello, Ann");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_memory() -> EngineBuilder {
        EngineBuilder::on(ExecutorBuilder::in_memory())
    }

    /// An engine on any store. It has no `ctx.transaction`: that needs a store whose connection type is known.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn store(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder::on(ExecutorBuilder::store(store))
    }
}

impl EngineBuilder {
    pub(crate) fn on(executor: ExecutorBuilder) -> Self {
        #[cfg_attr(not(feature = "schedule"), allow(unused_mut, reason = "there is none of its own"))]
        let (workflows, mut queues) = (Workflows::default(), Queues::default());
        #[cfg(feature = "schedule")]
        queues.declare_own(super::schedule::own_queue());
        let (host_values, max_recovery_attempts) = (HostValues::default(), MAX_RECOVERY_ATTEMPTS);
        Self { executor, workflows, queues, host_values, refused: None, max_recovery_attempts }
    }

    /// Registers a workflow under a name and version; what else is to be said of it, a [`Workflow`] says. Runs are found again by both: never change the name, and give
    /// code whose runs are not to be carried on by its successor a version of its own.
    ///
    /// Several versions of one name may be registered. A run stays with the version that began it for as long as that
    /// one is registered; without it, a newer version that [takes it over](Workflow::replaces) goes on with it. If there
    /// is none, the run waits: as an open question that names the versions there are, withdrawn by the engine when
    /// the version is here again; in a store that several workers share, for a worker that knows it.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Engine, Failure};
    /// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    ///     ctx.step("greeting", &name, |name| format!("Hello, {name}")).await
    /// }
    /// async fn greet_by_day(ctx: Ctx, name: String) -> Result<String, Failure> {
    ///     let day = ctx.now().await?;
    ///     ctx.step("greeting", &name, |name| format!("Hello, {name}, it is {}", day.0)).await
    /// }
    /// # async fn start() -> Result<(), counterfoil::exec::StartError> {
    /// let engine = Engine::sqlite("agents.db")
    ///     .workflow("greet", 1, greet) // until its last run is over
    ///     .workflow("greet", 2, greet_by_day)
    ///     .start()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn workflow<W, I, O>(self, name: &str, version: u32, workflow: W) -> Self
    where
        W: WorkflowFn<I, O>,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        self.register(Workflow::new(name, workflow).version(version))
    }

    /// Registers a workflow with everything that is said of it: see [`Workflow`].
    pub fn register(mut self, workflow: Workflow) -> Self {
        let name = workflow.name().to_owned();
        if let Err(reason) = self.workflows.add(workflow) {
            self.refused.get_or_insert(StartError::Workflow { name, reason });
        }
        self
    }

    /// Hands the workflows a value, by its type: a connection pool, a client, settings. A workflow gets it by
    /// [`Ctx::state`](crate::Ctx::state), so that it needs to be no closure. There is one value of each type: of several, the last counts.
    pub fn state<S: Send + Sync + 'static>(mut self, state: S) -> Self {
        self.host_values.add(state);
        self
    }

    /// Declares a queue: runs can be [put into it](super::StartRun::queue), and this worker carries out what is its
    /// turn. Every worker of a database should declare a queue alike: the limits of whoever admits a run hold.
    pub fn queue(mut self, queue: Queue) -> Self {
        let name = queue.name().to_owned();
        if let Err(reason) = self.queues.declare(queue) {
            self.refused.get_or_insert(StartError::Queue { name, reason });
        }
        self
    }

    /// The guarantees of the calls of the workflows and tools that are registered so far. Nothing is started.
    ///
    /// # Errors
    /// What [`start`](Self::start) would say about a workflow or a tool.
    pub fn guarantees(&self) -> Result<Guarantees, StartError> {
        Ok(Guarantees::of(&self.workflows, self.checked()?))
    }

    pub(super) fn into_parts(self) -> (ExecutorBuilder, Workflows) {
        (self.executor, self.workflows)
    }

    /// The registrations, if none of them was refused.
    pub(super) fn checked(&self) -> Result<&Registry, StartError> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let registry = self.executor.registry()?;
        let missing = self.workflows.check(registry, &self.queues);
        missing.map_err(|(name, reason)| StartError::Workflow { name, reason })?;
        Ok(registry)
    }

    /// Registers a typed tool. Of one whose effect is [`Undoable`](crate::tool::effect::Undoable), what it did is undone when a run
    /// fails or is cancelled, by the tool's policy, the last effect first; the run ends when that is done. What stands all the
    /// same is asked about; [`Failure::effects`](super::Failure::effects) says what became of each.
    pub fn tool<T: Tool>(self, tool: T) -> Self {
        self.with(|executor| executor.tool(tool))
    }

    /// Registers a typed tool, and tells models of it: see [`ExecutorBuilder::tool_for_model`](crate::exec::ExecutorBuilder::tool_for_model).
    #[cfg(feature = "agent")]
    pub fn tool_for_model<T: Tool<Input: schemars::JsonSchema>>(self, tool: T) -> Self {
        self.with(|executor| executor.tool_for_model(tool))
    }

    /// Registers a tool that is known only at run time.
    pub fn dynamic_tool(self, tool: DynamicTool) -> Self {
        self.with(|executor| executor.dynamic_tool(tool))
    }

    /// Registers tools that are known only at run time, such as those of a file.
    pub fn dynamic_tools(self, tools: impl IntoIterator<Item = DynamicTool>) -> Self {
        tools.into_iter().fold(self, Self::dynamic_tool)
    }

    /// Puts something between the queue and the store: a simulator's crash points, say. What was put there
    /// before stays, behind it.
    #[cfg(feature = "unstable-core")]
    pub fn wrap_store(self, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send + 'static) -> Self {
        self.with(|executor| executor.wrap_store(wrap))
    }

    /// Encrypts payloads, texts and digests before they are stored, as
    /// [`ExecutorBuilder::encrypted`](crate::exec::ExecutorBuilder::encrypted) says.
    #[cfg(feature = "encryption")]
    pub fn encrypted(self, keys: impl crate::store::encryption::EncryptionKeys) -> Self {
        self.with(|executor| executor.encrypted(keys))
    }

    /// Gives changes links of a chain of evidence, as
    /// [`ExecutorBuilder::evidence_chain`](crate::exec::ExecutorBuilder::evidence_chain) says.
    pub fn evidence_chain(self, key: crate::store::chain::ChainKey) -> Self {
        self.with(|executor| executor.evidence_chain(key))
    }

    /// Another clock than the machine's. In a shared store the database's wall time counts instead of this clock's.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        self.with(|executor| executor.clock(clock))
    }

    /// Another source of chance than the machine's.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn entropy(self, entropy: impl Entropy + 'static) -> Self {
        self.with(|executor| executor.entropy(entropy))
    }

    /// Who may decide about approvals, asked when they decide and directly before the effect; unless it is said, those whom a
    /// review names.
    pub fn reviewers(self, reviewers: impl crate::exec::Reviewers) -> Self {
        self.with(|executor| executor.reviewers(reviewers))
    }

    /// The size limits of payloads.
    pub fn limits(self, limits: Limits) -> Self {
        self.with(|executor| executor.limits(limits))
    }

    /// Keeps the keys of two deployments that share a provider account apart. A change holds for calls that begin after it: one of
    /// unknown outcome is settled under the key that went out.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.with(|executor| executor.namespace(namespace))
    }

    /// In a store that several workers share: how long one that says nothing is taken for alive; 10 s unless it is
    /// said. So long after its death, at the latest, its work is taken over.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|executor| executor.lease(lease))
    }

    /// Gives this worker a name. See [`ExecutorBuilder::worker_name`](crate::exec::ExecutorBuilder::worker_name).
    pub fn worker_name(self, name: impl AsRef<str>) -> Self {
        self.with(|executor| executor.worker_name(name))
    }

    /// Publishes what is in the [outbox](crate::outbox): to a [`Sink`](crate::outbox::Sink), or by a [`Publisher`] that says
    /// how. Of several workers one publishes at a time; give all of them the same sink.
    pub fn sink(self, sink: impl Into<Publisher>) -> Self {
        self.with(|executor| executor.sink(sink))
    }

    /// Chooses if this worker retires the records, runs and messages whose time is over, by the [`Retention`](crate::ledger::Retention) of
    /// their tools, workflows and consumers, a few at a time. It does, unless it is told not to. Where no worker does, everything is kept.
    /// A simulation retires nothing unless it is told to.
    pub fn sweep(self, sweeps: bool) -> Self {
        self.with(|executor| executor.sweep(sweeps))
    }

    /// For how long the processed messages of a consumer are known. See
    /// [`ExecutorBuilder::messages`](crate::exec::ExecutorBuilder::messages).
    pub fn messages(self, consumer: impl Into<String>, retention: MessageRetention) -> Self {
        self.with(|executor| executor.messages(consumer, retention))
    }

    /// Sets the receiver of the spans of runs, steps and calls. Without it no spans are made, and tools still pass the trace on. See
    /// [`crate::trace`].
    pub fn spans(self, sink: impl crate::trace::SpanSink) -> Self {
        self.with(|executor| executor.spans(sink))
    }

    /// Sets the recorder of metrics, and their labels. Without it no metrics are recorded. See [`crate::metrics`].
    #[cfg(feature = "metrics")]
    pub fn metrics(self, metrics: crate::metrics::Metrics) -> Self {
        self.with(|executor| executor.metrics(metrics))
    }

    /// Says that the ledger may be older than the world: restored from a backup of this instant, or new beside an older system. See
    /// [`ExecutorBuilder::restored`](crate::exec::ExecutorBuilder::restored).
    pub fn restored(self, as_of: Option<crate::clock::Timestamp>) -> Self {
        self.with(|executor| executor.restored(as_of))
    }

    /// A run whose process died more often than this, without the run getting anywhere in between, is quarantined.
    pub fn max_recovery_attempts(mut self, deaths: u32) -> Self {
        self.max_recovery_attempts = deaths;
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(ExecutorBuilder) -> ExecutorBuilder) -> Self {
        self.executor = change(self.executor);
        self
    }

    /// Opens the store, fences whoever wrote before, and takes over every run that was left active: at once,
    /// because the store's lock says that the former process is dead.
    ///
    /// # Errors
    /// If a workflow, a tool or the database was refused. Nothing was changed.
    pub async fn start(mut self) -> Result<Engine, StartError> {
        self.checked()?;
        let (publisher, sweeps) = (self.executor.take_publisher(), self.executor.sweeps());
        let (store, workflows) = (self.executor.kind(), self.workflows.count());
        let core = Core::enrol(self.executor.open_store().await?).await?;
        let mut inner = Inner::of(core.clone(), self.workflows, self.queues, carry_out);
        inner.max_recovery_attempts = self.max_recovery_attempts;
        inner.host_values = self.host_values;
        let inner = Arc::new(inner);
        #[cfg(feature = "api")]
        Box::pin(catalogue::publish(&core, &inner.workflows)).await?;
        inner.cancel_overdue(core.now()).await; // before such a run goes on
        let runs = inner.claim_orphans().await?;
        inner.tell_of_unknown_queues().await?;
        inner.admit_waiting().await?;
        take_up_orphans(&core).await?;
        let due: Weak<dyn Due> = Arc::downgrade(&(inner.clone() as Arc<dyn Due>));
        let engine = due.clone();
        core.belongs_to(due.clone());
        core.lasting("agenda", move |core| run_agenda(core, Some(engine.clone())));
        core.lasting("heartbeat", move |core| beat(core, Some(due.clone())));
        core.watch_late_answers();
        #[cfg(feature = "metrics")]
        core.begin_gauging();
        core.attend();
        core.begin_publishing(publisher);
        core.begin_sweeping(sweeps, inner.workflows.retentions());
        let tools = core.registry.specs().len();
        let name = core.name.as_deref();
        tracing::info!(store, worker = %core.fence, name, workflows, tools, runs, "engine started");
        Ok(Engine { inner })
    }
}
