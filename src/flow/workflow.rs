//! Workflows as they are registered: a plain `async fn`, its types forgotten.

use std::any::{TypeId, type_name};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::deadline::Deadline;
use super::failure::Failure;
#[cfg(feature = "api")]
use super::input_schema::InputSchema;
use super::queue::Queues;
use crate::id::{IdError, Name};
use crate::ledger::{Budget, CountedFrom, Retention};
use crate::payload::{Payload, PayloadError};
use crate::store::Run;
use crate::tool::{Registry, Tool};

/// A workflow: any `async fn(Ctx, Input) -> Result<Output, Failure>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    note = "a workflow is an `async fn(ctx: Ctx, input: Input) -> Result<Output, Failure>` whose future is `Send`"
)]
pub trait WorkflowFn<I, O>: Send + Sync + 'static {
    /// Its execution.
    type Run: Future<Output = Result<O, Failure>> + Send + 'static;
    /// Starts it.
    fn start(&self, ctx: Ctx, input: I) -> Self::Run;
}

impl<F, I, O, Fut> WorkflowFn<I, O> for F
where
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    type Run = Fut;
    fn start(&self, ctx: Ctx, input: I) -> Fut {
        self(ctx, input)
    }
}

/// For how long runs are kept once they have ended, unless their workflow says otherwise.
const KEPT: Duration = Duration::from_hours(90 * 24);

/// The future that the engine polls.
pub(super) type Body = BoxFuture<'static, Result<Payload, Failure>>;
type Start = dyn Fn(Ctx, &Payload) -> Result<Body, PayloadError> + Send + Sync;

/// A workflow, its types forgotten.
pub(super) fn erased<W, I, O>(workflow: W) -> Arc<Start>
where
    W: WorkflowFn<I, O>,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
{
    let workflow = Arc::new(workflow);
    Arc::new(move |ctx, input| {
        let (workflow, input) = (workflow.clone(), input.decode()?);
        // Called when it is first polled, where a panic of the run's code is caught.
        Ok(Box::pin(async move { Ok(Payload::of(&workflow.start(ctx, input).await?)?) }))
    })
}

/// The version of a run that a client has started: the worker that takes the run up gives it the newest version that it
/// knows, and the queue and the deadline of its workflow.
pub(super) const UNBOUND: u32 = 0;

/// A version of a workflow, as it is registered.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) name: Name,
    pub(super) version: u32,
    pub(super) start: Arc<Start>,
    /// The versions whose runs it can carry on, as its author says.
    replaces: BTreeSet<u32>,
    /// The tools that it calls, if it says so.
    pub(super) calls: Option<BTreeSet<String>>,
    /// The queue that its runs are put into, unless another one is chosen.
    pub(super) queue: Option<String>,
    /// The budget of each run, if there is one.
    pub(super) budget: Option<Budget>,
    /// The time that each run may take, unless its start says otherwise.
    pub(super) deadline: Option<Deadline>,
    /// The retention of ended runs.
    pub(super) retention: Retention,
    /// The schema of its input, if it has one.
    #[cfg(feature = "api")]
    pub(super) input_schema: Option<Arc<serde_json::Value>>,
}

impl Registered {
    /// A workflow that a client knows by its name only.
    pub(super) fn elsewhere(name: &str) -> Result<Self, IdError> {
        let start = |_, _: &Payload| {
            Err(PayloadError::Mismatch { expected: "code", reason: "a client has none".into() })
        };
        Ok(Self { version: UNBOUND, ..Self::new(Name::new(name)?, Arc::new(start)) })
    }

    fn new(name: Name, start: Arc<Start>) -> Self {
        Self {
            name,
            version: 1,
            start,
            replaces: BTreeSet::new(),
            calls: None,
            queue: None,
            budget: None,
            deadline: None,
            retention: Retention::tombstone_after(KEPT),
            #[cfg(feature = "api")]
            input_schema: None,
        }
    }

    /// The reason why it cannot be registered, if there is one.
    fn objection(&self) -> Option<String> {
        if self.version == UNBOUND {
            return Some("versions begin at 1".to_owned());
        }
        if let Some(not_older) = self.replaces.iter().find(|older| **older >= self.version) {
            return Some(format!("version {} replaces older ones only, not {not_older}", self.version));
        }
        #[cfg(feature = "api")]
        if let Some(Err(reason)) = self.input_schema.as_deref().map(InputSchema::of) {
            return Some(reason);
        }
        (self.retention.from == CountedFrom::LastAccess)
            .then(|| "the retention of a run counts from its end: leave `from_last_access` out".to_owned())
    }

    pub(super) fn may_call(&self, tool: &str) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.contains(tool))
    }
}

/// A workflow with everything that is said of it, to be [registered](super::EngineBuilder::register).
///
/// Runs are found again by the name and the version of their workflow: never change the name, and give code whose runs are not to be
/// carried on by its successor a version of its own.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::flow::Workflow;
/// use counterfoil::ledger::Budget;
/// use counterfoil::{Ctx, Engine, Failure};
///
/// async fn research(ctx: Ctx, question: String) -> Result<String, Failure> {
///     ctx.step("answer", &question, |question| format!("nobody knows {question}")).await
/// }
///
/// let research = Workflow::new("research", research)
///     .version(3)
///     .replaces([1, 2])
///     .deadline(Duration::from_hours(48))
///     .budget(Budget::default().attempts(200).cost("cent", 150).timeout(Duration::from_hours(2)));
/// let engine = Engine::sqlite("agents.db").register(research);
/// ```
#[must_use = "a workflow is registered with an engine"]
pub struct Workflow {
    name: String,
    function: (TypeId, &'static str),
    /// Absent where the name is refused.
    registered: Result<Registered, IdError>,
}

impl std::fmt::Debug for Workflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version = self.registered.as_ref().map(|registered| registered.version);
        f.debug_struct("Workflow")
            .field("name", &self.name)
            .field("version", &version)
            .finish_non_exhaustive()
    }
}

impl Workflow {
    /// A workflow of this name, in version 1.
    pub fn new<W, I, O>(name: impl Into<String>, workflow: W) -> Self
    where
        W: WorkflowFn<I, O>,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        let name = name.into();
        let registered = Name::new(&name).map(|name| Registered::new(name, erased(workflow)));
        Self { name, function: (TypeId::of::<W>(), type_name::<W>()), registered }
    }

    fn with(mut self, change: impl FnOnce(&mut Registered)) -> Self {
        if let Ok(registered) = &mut self.registered {
            change(registered);
        }
        self
    }

    /// The version of its code.
    pub fn version(self, version: u32) -> Self {
        self.with(|registered| registered.version = version)
    }

    /// Lets it carry on the runs of older versions that are not registered any more. Say so only of versions whose recorded steps and
    /// calls it asks for under their names: a record that it does not ask for is found before its next effect goes out, and blocks the
    /// run. From then on the run is its own.
    pub fn replaces(self, older: impl IntoIterator<Item = u32>) -> Self {
        self.with(|registered| registered.replaces.extend(older))
    }

    /// The queue of its runs, unless another one is chosen at the start.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|registered| registered.queue = Some(queue.into()))
    }

    /// A tool that it calls. Said once or more, it calls no others, and a call of another is refused. Its table in the
    /// [guarantee report](super::EngineBuilder::guarantees) lists just these.
    pub fn calls<T: Tool>(self) -> Self {
        self.calls_named(T::NAME)
    }

    /// The same of a tool that is known by its name only.
    pub fn calls_named(self, tool: impl Into<String>) -> Self {
        self.with(|registered| {
            registered.calls.get_or_insert_default().insert(tool.into());
        })
    }

    /// The budget of each of its runs: attempts, time and cost, of all its calls together. A call that the run cannot afford is not made,
    /// and fails with [`FailureCode::BudgetExceeded`](super::FailureCode), which names the budget. The records of a run count what it has
    /// used up: a crash gives nothing back, and neither does [`Ctx::continue_as_new`]. Its children have budgets of their own.
    pub fn budget(self, budget: Budget) -> Self {
        self.with(|registered| registered.budget = Some(budget))
    }

    /// The longest time of each of its runs, from its start on, unless the start [says otherwise](super::StartRun::deadline). A run that
    /// has not ended by then is cancelled, whatever it waits for: a call that is under way is followed to its end, and what the run did is
    /// undone as by [`RunHandle::cancel`](super::RunHandle::cancel). Its children end with it.
    pub fn deadline(self, after: Duration) -> Self {
        self.with(|registered| registered.deadline = Some(Deadline::After(after)))
    }

    /// The retention of its runs, counted from their ends: of what they were given, did and returned, and of the signals that they were
    /// sent. Default: 90 days, and then a tombstone: the start key stays taken, and a later start or signal is told
    /// [`RunError::Expired`](super::RunError). Under [`forget_after`](Retention::forget_after) the start key is new afterwards, so the
    /// window must outlast everybody who may start the run again. A child is kept for as long as its parent. The records of the run's calls
    /// have retentions of their own.
    pub fn retention(self, retention: Retention) -> Self {
        self.with(|registered| registered.retention = retention)
    }

    /// The JSON Schema of its input. It is published when an engine is started, and `GET /workflows` of the [API](crate::api) shows it.
    /// `POST /runs` refuses an input that does not fit the schema of the newest version; other ways to start a run do not look at it.
    /// Whatever the schema says, the input is decoded by the worker that takes the run up.
    ///
    /// A schema has at most 64 KiB, refers to its own parts only, and is of the draft that its `$schema` names, or else of 2020-12. An
    /// engine with a malformed one is not started.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// # async fn refund(_: Ctx, _: serde_json::Value) -> Result<(), Failure> { Ok(()) }
    /// use counterfoil::flow::Workflow;
    /// use serde_json::json;
    ///
    /// let refund = Workflow::new("refund", refund).input_schema(json!({
    ///     "type": "object",
    ///     "properties": { "order": { "type": "string" }, "cents": { "type": "integer", "minimum": 1 } },
    ///     "required": ["order", "cents"],
    /// }));
    /// ```
    #[cfg(feature = "api")]
    pub fn input_schema(self, schema: serde_json::Value) -> Self {
        self.with(|registered| registered.input_schema = Some(Arc::new(schema)))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The workflows of an engine, by name and version and by function.
#[derive(Default)]
pub(super) struct Workflows {
    by_name: HashMap<String, BTreeMap<u32, Registered>>,
    by_function: HashMap<TypeId, (String, u32)>,
    functions: HashSet<&'static str>,
}

impl Workflows {
    /// The number of registered workflows, whatever their versions.
    pub(super) fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Adds a version of a workflow, or says why not.
    pub(super) fn add(&mut self, workflow: Workflow) -> Result<(), String> {
        let Workflow { name, function: (id, function), registered } = workflow;
        let registered = registered.map_err(|error| error.to_string())?;
        if let Some(objection) = registered.objection() {
            return Err(objection);
        }
        let version = registered.version;
        let versions = self.by_name.entry(name.clone()).or_default();
        if versions.contains_key(&version) {
            return Err(format!(
                "there is a version {version} of it: their runs could not be told apart; give this one another \
                 version, or rename it"
            ));
        }
        if self.by_function.insert(id, (name, version)).is_some() {
            return Err("the same function is registered under another name or version".into());
        }
        self.functions.insert(function);
        versions.insert(version, registered);
        Ok(())
    }

    /// How long the runs of each workflow are kept: as its newest version says. By name, so that a simulation sweeps in the same order
    /// each time.
    pub(super) fn retentions(&self) -> Vec<(Name, Retention)> {
        let newest: BTreeMap<_, _> =
            self.all().map(|workflow| (workflow.name.clone(), workflow.retention)).collect();
        newest.into_iter().collect()
    }

    /// Every version whose runs can be carried on.
    pub(super) fn carried(&self) -> Vec<(Name, u32)> {
        let versions = |workflow: &Registered| {
            let all = workflow.replaces.iter().copied().chain([workflow.version, UNBOUND]);
            all.map(|version| (workflow.name.clone(), version)).collect::<Vec<_>>()
        };
        self.all().flat_map(versions).collect()
    }

    /// Every tool that a workflow says it calls must be there, and its queue.
    pub(super) fn check(&self, registry: &Registry, queues: &Queues) -> Result<(), (String, String)> {
        for workflow in self.all() {
            if let Some(queue) = workflow.queue.as_ref().filter(|queue| !queues.has(queue)) {
                let reason = format!("its runs go to the queue {queue:?}, which is not declared");
                return Err((workflow.name.to_string(), reason));
            }
            let mut calls = workflow.calls.iter().flatten();
            if let Some(missing) = calls.find(|tool| registry.find(tool).is_none()) {
                let reason = format!("it calls the tool {missing:?}, which is not registered");
                return Err((workflow.name.to_string(), reason));
            }
        }
        Ok(())
    }

    /// All versions of all workflows, by name and version.
    pub(super) fn all(&self) -> impl Iterator<Item = &Registered> {
        let by_name: BTreeMap<_, _> = self.by_name.iter().collect();
        by_name.into_values().flat_map(BTreeMap::values)
    }

    /// What carries on a run that this version began: itself, or else the newest of those that take it over.
    pub(super) fn find(&self, name: &str, version: u32) -> Option<&Registered> {
        if version == UNBOUND {
            return self.newest(name);
        }
        let versions = self.by_name.get(name)?;
        let heir = || versions.values().rev().find(|newer| newer.replaces.contains(&version));
        versions.get(&version).or_else(heir)
    }

    pub(super) fn newest(&self, name: &str) -> Option<&Registered> {
        self.by_name.get(name)?.values().next_back()
    }

    pub(super) fn of_function<W: 'static>(&self) -> Option<&Registered> {
        let (name, version) = self.by_function.get(&TypeId::of::<W>())?;
        self.by_name.get(name)?.get(version)
    }

    /// A function of this type is registered.
    pub(super) fn has_function(&self, type_name: &str) -> bool {
        self.functions.contains(type_name)
    }

    /// Why a run cannot be carried on, as a question.
    pub(super) fn unknown(&self, run: &Run) -> String {
        let (name, begun_by) = (run.workflow.as_str(), run.version);
        let Some(versions) = self.by_name.get(name) else {
            let begun_by =
                if begun_by == UNBOUND { "a version".to_owned() } else { format!("version {begun_by}") };
            return format!(
                "{}: no workflow named {name:?} is registered with this engine. Register {begun_by} of \
                 it, and the run goes on by itself; or abandon it?",
                run.id
            );
        };
        let there: Vec<_> = versions.keys().map(u32::to_string).collect();
        format!(
            "{}: it belongs to version {begun_by} of {name:?}, and of the versions registered with this engine \
             ({}) none takes it over. Register version {begun_by}, or let a newer one take it over \
             (`.replaces([{begun_by}])`), and the run goes on by itself; or abandon it?",
            run.id,
            there.join(", ")
        )
    }
}
