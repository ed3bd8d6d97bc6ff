//! The executor: the handle of the host.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::attempt;
use super::builder::ExecutorBuilder;
use super::carry::{Expect, carry_out};
use super::core::Core;
use super::decided::Said;
use super::looks::{self, Audit};
use super::operation::{Asker, Operation, Requested};
use super::outcome::{ExecError, Outcome, sealed, unless_panicked};
use super::questions::{self, Questions};
use super::request::{ToolRequest, Wait};
use super::request_error::RequestError;
use super::resolve::{Answers, GiveAnswer};
use super::shield::to_the_end;
use super::throttle::ThrottleReport;
use super::undo::{self, Compensated};
use crate::clock::Timestamp;
use crate::id::{QuestionId, Tenant};
use crate::ledger::{Key, OperationKey};
use crate::payload::{Payload, PayloadError};
use crate::store::{Labels, QuestionCount, Resolution, Store};
use crate::tool::{
    Once, Prepared, Tool, ToolError, ToolOffer, ToolSpec, canonical, given_or_stable, stable_key,
};

/// Executes tool calls under their records, for an agent loop or a service that has no workflows.
#[derive(Clone)]
pub struct Executor {
    pub(super) core: Arc<Core>,
    /// The executor's engine, if it has one. The engine's runs wait for answers that are given here.
    engine: Option<Arc<dyn Answers>>,
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

    /// The core of the executor, for guards and doors that have rows of their own.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) const fn alone(core: Arc<Core>) -> Self {
        Self { core, engine: None }
    }

    /// A builder of an executor on a SQLite file.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<std::path::PathBuf>) -> ExecutorBuilder {
        ExecutorBuilder::sqlite(path)
    }

    /// A builder of an executor on a PostgreSQL database, which other workers may share.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> ExecutorBuilder {
        ExecutorBuilder::postgres(url)
    }

    /// A builder of an executor on a PostgreSQL database, with these options instead of the default ones.
    #[cfg(feature = "postgres")]
    pub fn postgres_with(
        url: impl Into<String>,
        options: crate::store::postgres::Options,
    ) -> ExecutorBuilder {
        ExecutorBuilder::postgres_with(url, options)
    }

    /// A builder of an executor in memory, for tests and for trying out. Nothing outlives the process: a crash loses
    /// all records.
    pub fn in_memory() -> ExecutorBuilder {
        ExecutorBuilder::in_memory()
    }

    /// A builder of an executor on any [`Store`].
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn store(store: Arc<dyn Store>) -> ExecutorBuilder {
        ExecutorBuilder::store(store)
    }

    /// Executes one tool call, unless it happened before.
    ///
    /// Dropping the future does not cut the call off: the call goes on, and its outcome is recorded.
    ///
    /// A refused request is an outcome, [`Outcome::Refused`]. Its author, such as a model, is told the reason by
    /// [`for_model`](Outcome::for_model). An error means that the ledger did not answer.
    ///
    /// # Crash
    /// After a crash the same request finds the record, and the provider is asked before anything is sent.
    pub async fn execute(&self, request: ToolRequest) -> Result<Outcome, ExecError> {
        let wait = request.wait;
        let executed = match self.prepare(request).await {
            Ok(op) => self.durable(op, wait).await,
            Err(error) => Err(error),
        };
        match executed {
            Err(ExecError::Request(refused)) => Ok(Outcome::Refused(Box::new(refused))),
            executed => executed,
        }
    }

    /// Executes a typed tool call.
    pub async fn call<T: Tool>(
        &self,
        tenant: &Tenant,
        input: T::Input,
        approval: Option<crate::ledger::Approval>,
    ) -> Result<Outcome, ExecError> {
        let preparing = async {
            let typed =
                self.core.registry.typed::<T>(input).ok_or_else(|| self.core.unknown_tool(T::NAME))?;
            let key = stable_key(&*typed)?.ok_or_else(|| RequestError::NoKey { tool: T::NAME.to_owned() })?;
            let asker = Asker { approval, ..Asker::default() };
            let key = key.render()?;
            Ok::<_, ExecError>(Requested::of(&self.core, tenant, typed).await?.under(key, asker))
        };
        let op: Operation = unless_panicked(T::NAME, preparing).await?;
        self.durable(op, Wait::ForOutcome).await
    }

    /// Runs a plain function at most once under a key. The engine does not know what the function touches. So if its
    /// outcome is unknown (a crash, a panic, an error that does not say "nothing happened"), a person decides.
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

    /// Carries out a call that no registered tool makes.
    pub(crate) async fn inline(
        &self,
        tenant: &Tenant,
        key: &Key,
        tool: Arc<dyn Prepared>,
        wait: Wait,
    ) -> Result<Outcome, ExecError> {
        let tool = self.core.registry.hand_out(tool);
        let requested = Requested::of(&self.core, tenant, tool).await?;
        let op = requested.under(key.render()?, Asker::default());
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

    /// The answered questions of a tenant, the oldest first. They include those that the engine [answered
    /// itself](crate::store::Answer::is_by_engine), for example after it has undone a surplus effect. A question is
    /// kept as long as its record.
    pub fn answered_questions(&self, tenant: &Tenant) -> Questions {
        Questions::of(self.core.clone(), tenant.clone()).answered()
    }

    /// The number of questions of each kind that a tenant has, open and answered.
    pub async fn count_questions(&self, tenant: &Tenant) -> Result<Vec<QuestionCount>, ExecError> {
        questions::count(&self.core, tenant).await
    }

    /// Answers an open question: the call happened with this result, it did not happen, or it is to be abandoned. Runs
    /// of the executor's engine that wait for the answer go on.
    ///
    /// If the call can be looked up, the answer "it did not happen" takes effect once the lookup has answered and shows
    /// nothing. Until then the question stays open and says that an answer [waits](crate::store::Question::waiting).
    ///
    /// # Errors
    /// Among others, [`ExecError::Unanswerable`] if the question is about a blocked run and this executor belongs to no
    /// engine that could let the run go on.
    pub fn answer(
        &self,
        tenant: &Tenant,
        escalation: QuestionId,
        resolution: Resolution,
        by: &str,
    ) -> GiveAnswer {
        self.answer_as(tenant, escalation, Said::new(resolution, by))
    }

    /// Answers an open question with this word.
    pub(crate) fn answer_as(&self, tenant: &Tenant, escalation: QuestionId, said: Said) -> GiveAnswer {
        match &self.engine {
            Some(engine) => GiveAnswer::by_engine(engine.clone(), tenant.clone(), escalation, said),
            None => GiveAnswer::alone(self.core.clone(), tenant.clone(), escalation, said),
        }
    }

    /// Records an effect that is older than this ledger and was made by another system. The request's key is answered
    /// with this outcome from now on, and nothing is sent. The request is bound to the key in the same way as a later
    /// call.
    ///
    /// # Errors
    /// [`ExecError::Recorded`] if the key has a record. Nothing was changed.
    pub async fn import(
        &self,
        request: ToolRequest,
        outcome: crate::tool::Done<serde_json::Value>,
    ) -> Result<(), ExecError> {
        let op = self.prepare(request).await?;
        let output = Payload::of(&outcome.output)?.within(&self.core.limits)?;
        attempt::import(&self.core, &op, output, outcome.external_ref).await
    }

    /// Looks up a tenant's committed records once more that were written at `since` or later, and opens questions about
    /// missing effects and about effects that happened more than once. Call it by hand or on a schedule.
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
        let named = tenant.clone();
        let looking = async move { looks::audit(&core, &tenant, since).await };
        unless_panicked(&named, to_the_end(&self.core.tracker, looking)).await
    }

    /// Undoes an effect on purpose, by its tool's [`Compensate`](crate::tool::Compensate), once its outcome is known.
    /// The tool's policy does not count, except for "never", and an effect that other runs rest on is not undone. The
    /// effect is undone once, however often and in however many processes this is requested.
    ///
    /// # Crash
    /// The compensation has a record of its own, by which the next process finds its outcome.
    pub async fn compensate(&self, tenant: &Tenant, key: &OperationKey) -> Result<Compensated, ExecError> {
        let Some(record) = self.core.find(tenant, key).await? else { return Ok(Compensated::Nothing) };
        let core = self.core.clone();
        let undoing = async move { undo::compensate(&core, record).await };
        unless_panicked(key, to_the_end(&self.core.tracker, undoing)).await
    }

    /// Wakes the publisher after events were [added](super::outbox::add) in a transaction outside of this engine.
    /// Without this call they are found when another event is published, or at the next start; in a shared store within
    /// a heartbeat.
    pub fn notify_publisher(&self) {
        self.core.group.events().notify_one();
    }

    /// The state of the limits of tools and providers that declare a [`Quota`](crate::ledger::Quota): the state of each
    /// breaker, the instant of its last change, and the number of waiting calls. Each worker has its own.
    pub fn throttles(&self) -> Vec<ThrottleReport> {
        self.core.throttles()
    }

    /// The descriptions of the registered tools for a model, by name: the `tools` array of a request to it. They cover
    /// dynamic tools with a [description](crate::tool::DynamicTool::describe), and typed tools that were registered
    /// [for models](ExecutorBuilder::tool_for_model).
    pub fn tools_for_model(&self) -> Vec<ToolOffer> {
        self.core.registry.offers()
    }

    /// The declarations of the registered tools.
    pub fn tools(&self) -> Vec<&ToolSpec> {
        self.core.registry.specs()
    }

    /// Starts no new call, waits at most `drain` for the calls in flight, and writes everything that is queued. Calls
    /// that are still in flight after that stay `started`: their outcome is unknown.
    ///
    /// When this method returns, another process can open a SQLite file, unless a call is still in flight. That call
    /// may still send, so the file stays locked until the call or the process ends. The records can still be read.
    pub async fn shutdown(self, drain: Duration) {
        self.core.close(drain).await;
        tracing::info!(worker = %self.core.fence, "executor shut down");
    }

    /// Prepares the operation of a request. Nothing is recorded or sent.
    async fn prepare(&self, request: ToolRequest) -> Result<Operation, ExecError> {
        let ToolRequest { tenant, tool, input, key, call_id, approval, labels, wait: _ } = request;
        let labels = Labels::from(labels);
        labels.check().map_err(RequestError::Label)?;
        // The tool's own code reads the input and makes the key, and may panic on an input that it has never seen.
        let read = catch_unwind(AssertUnwindSafe(|| self.read(&tool, input, key)));
        let (prepared, key) = read.unwrap_or_else(|_| {
            Err(RequestError::Input { tool, reason: "the tool cannot read it".to_owned() })
        })?;
        let owner = crate::ledger::Owner { call_id, ..Default::default() };
        let asker = Asker { owner, approval, labels, ..Asker::default() };
        let requested = unless_panicked(&key, Requested::of(&self.core, &tenant, prepared)).await;
        let requested = requested.map_err(|error| match error {
            ExecError::Payload(error) => RequestError::Payload(error).into(),
            error => error,
        })?;
        Ok(requested.under(key, asker))
    }

    /// Reads a tool's input, and the key of the call.
    fn read(
        &self,
        tool: &str,
        input: Value,
        key: Option<Key>,
    ) -> Result<(Arc<dyn Prepared>, OperationKey), RequestError> {
        let registry = &self.core.registry;
        let unprepared = registry.known(tool).ok_or_else(|| self.core.unknown_tool(tool))?;
        let misfit = |reason| RequestError::Input { tool: tool.to_owned(), reason };
        let input = match registry.about(tool) {
            Some(about) => about.schema.input(input).map_err(misfit)?,
            None => input,
        };
        let input = Payload::of(&input)?.within(&self.core.limits)?;
        let prepared = registry.untyped(&*unprepared, &input).map_err(|error| match error {
            PayloadError::Mismatch { reason, .. } => misfit(reason),
            error => error.into(),
        })?;
        if prepared.needs_caller() {
            return Err(self.core.unknown_tool(tool)); // an inline effect or the route of a door: its code is its caller's
        }
        let key = given_or_stable(key, &*prepared)?;
        let key = key.ok_or_else(|| RequestError::NoKey { tool: tool.to_owned() })?;
        Ok((prepared, key.render()?))
    }

    /// Carries an operation out and returns its outcome once it is durable.
    pub(super) async fn durable(&self, op: Operation, wait: Wait) -> Result<Outcome, ExecError> {
        let key = op.key.clone();
        let carrying = async {
            let answered = carry_out(&self.core, Arc::new(op), Expect::Anything, wait).await?;
            if let Some(ticket) = answered.ticket {
                sealed(&key, ticket).await?;
            }
            Ok(answered.outcome)
        };
        unless_panicked(&key, carrying).await
    }
}
