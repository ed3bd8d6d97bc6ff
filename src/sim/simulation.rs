//! The configuration of a simulation: a workflow, its input, its tools, other actors, and the checks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::end::End;
use super::machine::{Answered, Body, Caller, Told};
use super::question::OpenQuestion;
use super::schedule::Schedule;
use super::timeline::Happened;
use super::world::World;
use crate::clock::Clock as _;
use crate::exec::StartError;
use crate::flow::{Engine, EngineBuilder, Guarantees, RunError, Workflow, WorkflowFn};
use crate::store::{Model, Resolution};

/// The pause after which a caller asks again that was told that the store is away.
const ASKS_AGAIN: Duration = Duration::from_secs(1);

type Check = dyn Fn(&End<'_>) -> Result<(), String>;
type Prepare = dyn Fn(EngineBuilder, &World) -> EngineBuilder;
type Ask = dyn Fn(Engine, World) -> BoxFuture<'static, Answered>;
type Beside = dyn Fn(Engine, World) -> BoxFuture<'static, String>;
type Operator = dyn Fn(&OpenQuestion<'_>) -> Option<Resolution>;

/// A workflow in a simulated world, to be crashed at every possible point.
///
/// ```
/// use counterfoil::sim::{Offer, Service, Simulation};
/// use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
/// use counterfoil::{Ctx, Failure, Key, ledger::LookupResult};
/// use serde_json::Value;
///
/// struct OpenTicket(Service);
///
/// impl Tool for OpenTicket {
///     const NAME: &'static str = "open_ticket";
///     type Effect = effect::InternalMutation;
///     type Contract = contract::Lookup;
///     type Input = String;
///     type Output = Value;
///     fn key(&self, case: &String) -> Option<Key> {
///         Some(Key::of(Self::NAME).target(case))
///     }
///     async fn call(&self, call: &Call, case: &String) -> Result<Done<Value>, ToolError> {
///         self.0.create(call, case).await
///     }
/// }
///
/// impl Reconcile for OpenTicket {
///     async fn reconcile(&self, call: &Call, case: &String) -> Result<LookupResult<Value>, ToolError> {
///         self.0.find(call, case).await
///     }
/// }
///
/// async fn intake(ctx: Ctx, case: String) -> Result<Value, Failure> {
///     ctx.call::<OpenTicket>(case).await
/// }
///
/// Simulation::of(intake, "c1".to_owned())
///     .engine(|engine, world| engine.tool(OpenTicket(world.service("tickets", Offer::Lookup))))
///     .check("one ticket", |end| end.exactly_once_if_succeeded("tickets", "c1"))
///     .explore()
///     .assert_ok();
/// ```
pub struct Simulation {
    workflow: Box<dyn Fn() -> Workflow + Send + Sync>,
    prepare: Vec<Box<Prepare>>,
    pub(super) asks: Vec<(Caller, Box<Ask>)>,
    beside: Vec<(String, Box<Beside>)>,
    operator: Box<Operator>,
    pub(super) checks: Vec<(String, Box<Check>)>,
    pub(super) seed: u64,
    pub(super) random: u32,
    pub(super) singles: bool,
    pub(super) pairs: bool,
    pub(super) restores: bool,
    pub(super) workers: u32,
    /// The maximum number of turns in one life.
    turns: u32,
    /// The number of runs that fail in the clean run.
    pub(super) fails: usize,
}

impl Body for Simulation {
    fn engine(&self, builder: EngineBuilder, world: &World) -> EngineBuilder {
        self.prepare
            .iter()
            .fold(builder.register((self.workflow)()), |builder, prepare| prepare(builder, world))
    }

    fn workers(&self) -> u32 {
        self.workers
    }

    fn turns(&self) -> u32 {
        self.turns
    }

    fn asks(&self) -> usize {
        self.asks.len() + self.beside.len()
    }

    fn caller(&self, place: usize) -> Option<Caller> {
        self.asks.get(place).map(|(caller, _)| caller.clone())
    }

    fn ask(&self, place: usize, engine: Engine, world: &World) -> BoxFuture<'static, Answered> {
        world.declare(engine.tools());
        let Some((_, ask)) = self.asks.get(place) else {
            let (who, ask) = &self.beside[place - self.asks.len()];
            let (who, world, asked) = (who.clone(), world.clone(), ask(engine, world.clone()));
            return Box::pin(async move {
                let what = asked.await;
                world.note(Happened::Told { who, what });
                Answered::Otherwise
            });
        };
        ask(engine, world.clone())
    }

    fn answer(&self, question: &OpenQuestion<'_>) -> Option<Resolution> {
        (self.operator)(question)
    }
}

/// Asks for a run. Returns the answer that the caller gets. While the store is away, the caller asks again, as a client
/// does.
async fn ask<W, I, O>(caller: Caller, workflow: W, input: I, engine: Engine, world: World) -> Answered
where
    W: WorkflowFn<I, O> + Clone,
    I: Serialize + Clone + Send + Sync + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    let Ok(tenant) = engine.tenant(&caller.tenant) else { return Answered::Otherwise };
    loop {
        let is_away = match tenant.run(workflow.clone(), input.clone()).key(caller.key.clone()).await {
            Ok(output) => {
                return serde_json::to_value(&output)
                    .map_or(Answered::Otherwise, |output| Answered::Told(Told::Succeeded(output)));
            }
            Err(RunError::Failed { failure, .. }) => {
                return Answered::Told(Told::Failed(failure.to_string()));
            }
            Err(RunError::Store(error)) if !error.is_transient() => {
                return Answered::StoreFailed;
            }
            Err(RunError::Store(_)) => true,
            Err(RunError::Exec(error)) => error.is_transient(),
            Err(_) => false,
        };
        if !is_away {
            return Answered::Otherwise;
        }
        world.clock().sleep(ASKS_AGAIN).await;
    }
}

impl Simulation {
    /// The guarantee report for the calls of the tools, without a run.
    ///
    /// # Errors
    /// If a tool or a workflow is refused.
    pub fn guarantees(&self) -> Result<Guarantees, StartError> {
        let world = World::new(super::SimClock::default(), &Schedule::default());
        self.engine(Engine::store(Arc::new(Model::new())), &world).guarantees()
    }

    /// The tenant of the run that [`of`](Self::of) adds.
    pub const TENANT: &str = "simulated";
    /// The start key of the run that [`of`](Self::of) adds.
    pub const KEY: &str = "simulated";

    /// A simulation of a workflow with this input.
    pub fn of<W, I, O>(workflow: W, input: I) -> Self
    where
        W: WorkflowFn<I, O> + Clone,
        I: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let registered = workflow.clone();
        let simulation = Self {
            workflow: Box::new(move || Workflow::new("simulated", registered.clone())),
            prepare: Vec::new(),
            asks: Vec::new(),
            beside: Vec::new(),
            operator: Box::new(|_| None),
            checks: Vec::new(),
            seed: 0,
            random: 0,
            singles: true,
            pairs: true,
            restores: false,
            workers: 1,
            turns: 20_000,
            fails: 0,
        };
        simulation.with_run(Self::TENANT, Self::KEY, workflow, input)
    }

    /// Says more of the simulated workflow: its budget, its deadline, its queue, the tools that it calls.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use counterfoil::sim::Simulation;
    /// # async fn pay(_: counterfoil::Ctx, _: String) -> Result<(), counterfoil::Failure> { Ok(()) }
    /// let simulation = Simulation::of(pay, "order 17".to_owned())
    ///     .workflow(|workflow| workflow.deadline(Duration::from_hours(1)));
    /// ```
    #[must_use]
    pub fn workflow(mut self, said: impl Fn(Workflow) -> Workflow + Send + Sync + 'static) -> Self {
        let workflow = self.workflow;
        self.workflow = Box::new(move || said(workflow()));
        self
    }

    /// Adds a concurrent run: of the same workflow, or of one that [`engine`](Self::engine) registers; by this
    /// tenant, under this start key.
    #[must_use]
    pub fn with_run<W, I, O>(mut self, tenant: &str, key: &str, workflow: W, input: I) -> Self
    where
        W: WorkflowFn<I, O> + Clone,
        I: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let caller = Caller { tenant: tenant.to_owned(), key: key.to_owned() };
        let asking = caller.clone();
        let ask: Box<Ask> = Box::new(move |engine, world| {
            Box::pin(ask(asking.clone(), workflow.clone(), input.clone(), engine, world))
        });
        self.asks.push((caller, ask));
        self
    }

    /// Adds another user of the engine, who acts concurrently: asks for a run a little later, or for one that must be
    /// refused; answers a question; calls a tool. As a client does, the actor asks again in each life of the process,
    /// and after an operator has answered. The result of `ask` is the value that the actor got: [`End::heard`].
    #[must_use]
    pub fn with_actor<F, A>(mut self, who: &str, ask: F) -> Self
    where
        F: Fn(Engine, World) -> A + 'static,
        A: Future<Output = String> + Send + 'static,
    {
        self.beside.push((who.to_owned(), Box::new(move |engine, world| Box::pin(ask(engine, world)))));
        self
    }

    /// Sets an operator who answers questions whenever nothing else is left to do: [`truthful`](super::truthful), or
    /// your own. Without an operator, questions stay open.
    #[must_use]
    pub fn operator(self, answer: impl Fn(&OpenQuestion<'_>) -> Option<Resolution> + 'static) -> Self {
        Self { operator: Box::new(answer), ..self }
    }

    /// Registers the tools. Called for each life of the process; the world is the same in all of them. A simulation leaves
    /// encryption out, because its rules read the rows.
    #[must_use]
    pub fn engine(mut self, prepare: impl Fn(EngineBuilder, &World) -> EngineBuilder + 'static) -> Self {
        self.prepare.push(Box::new(prepare));
        self
    }

    /// Adds a rule of your own, checked when nothing is left to do.
    #[must_use]
    pub fn check(mut self, name: &str, check: impl Fn(&End<'_>) -> Result<(), String> + 'static) -> Self {
        self.checks.push((name.to_owned(), Box::new(check)));
        self
    }

    /// Sets the seed of all random numbers. Default: 0.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the number of runs that fail in the clean run, if failure is the subject of the simulation: their effects
    /// are undone. Default: 0; a workflow that fails in the clean run is then reported, because its simulation proves
    /// little.
    #[must_use]
    pub fn fails(self, runs: usize) -> Self {
        Self { fails: runs, ..self }
    }

    /// Sets the number of random schedules of up to five incidents. Default: 0.
    #[must_use]
    pub fn random(self, schedules: u32) -> Self {
        Self { random: schedules, ..self }
    }

    /// Omits pairs of incidents: only one crash at a time, and no fault together with a crash. This is quicker.
    #[must_use]
    pub fn single_crashes(self) -> Self {
        Self { pairs: false, ..self }
    }

    /// True if all callers ask again while the store is away. Of an actor only its own closure knows what it does then.
    pub(super) fn outlasts_the_store(&self) -> bool {
        self.beside.is_empty()
    }

    /// Tries the pairs that [`single_crashes`](Self::single_crashes) leaves out.
    pub(super) fn with_pairs(self) -> Self {
        Self { pairs: true, ..self }
    }

    /// Sets the number of concurrent processes. They share the ledger as they would share a PostgreSQL: each is asked
    /// for every run, and the one that began a run carries it out. When one dies or is paused, another one takes its
    /// work over as soon as its lease of two minutes expires. A new process starts when none is left. Not together
    /// with [`restores`](Self::restores).
    #[must_use]
    pub fn workers(self, workers: u32) -> Self {
        Self { workers: workers.max(1), ..self }
    }

    /// Sets the maximum number of turns in the life of one process: each is a timer that was due, or a request that
    /// arrived. A process that takes more is taken for one that is busy for ever; so is one that takes 2000 turns
    /// without progress. Default: 20 000, which are about 3500 calls.
    #[must_use]
    pub fn turns(self, turns: u32) -> Self {
        Self { turns, ..self }
    }

    /// Also restores each backup that could have been made in the clean run: detected by the engine, and told to it.
    /// For a workflow without tables of its own, whose checks accept the loss that a restore causes: results of
    /// callers, answers, signals and published events.
    #[must_use]
    pub fn restores(self) -> Self {
        Self { restores: true, ..self }
    }

    /// Sets the number of random schedules to `wanted`, or else to the present number, but at least `least`.
    pub(super) fn random_or(self, wanted: Option<u32>, least: u32) -> Self {
        let random = wanted.unwrap_or(self.random.max(least));
        Self { random, ..self }
    }

    /// Omits all but the random schedules: for more seeds, when everything else was tried.
    #[must_use]
    pub fn random_only(self) -> Self {
        Self { singles: false, ..self }
    }
}
