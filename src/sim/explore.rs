//! Tries every crash window of a workflow, and then some.

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::chance::Seeded;
use super::check::{Rule, Violation};
use super::life::Crossing;
use super::machine::{self, Body, Told, Trial};
use super::question::Question;
use super::report::{Failing, Report};
use super::schedule::{Fault, Incident, Schedule, Stop};
use super::timeline::{Event, Happened, draw};
use super::world::{Effect, World};
use crate::flow::{Engine, EngineBuilder, RunError, Workflow};
use crate::ledger::Record;
use crate::store::{Escalation, Resolution, Run, Use};

type Check = dyn Fn(&End<'_>) -> Result<(), String>;
type Register = dyn Fn(EngineBuilder) -> EngineBuilder;
type Prepare = dyn Fn(EngineBuilder, &World) -> EngineBuilder;
type Ask = dyn Fn(Engine) -> BoxFuture<'static, Option<Told>>;
type Beside = dyn Fn(Engine, World) -> BoxFuture<'static, String>;
type Operator = dyn Fn(&Question<'_>) -> Option<Resolution>;

/// A workflow in a simulated world, to be crashed wherever it can be.
///
/// ```
/// use counterfoil::sim::{Offer, Service, Simulation};
/// use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
/// use counterfoil::{Ctx, Failure, Key, ledger::Finding};
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
///     async fn reconcile(&self, call: &Call, case: &String) -> Result<Finding<Value>, ToolError> {
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
    register: Box<Register>,
    prepare: Vec<Box<Prepare>>,
    asks: Vec<Box<Ask>>,
    beside: Vec<(String, Box<Beside>)>,
    operator: Box<Operator>,
    checks: Vec<(String, Box<Check>)>,
    seed: u64,
    random: u32,
    singles: bool,
    pairs: bool,
}

impl Body for Simulation {
    fn engine(&self, builder: EngineBuilder, world: &World) -> EngineBuilder {
        self.prepare.iter().fold((self.register)(builder), |builder, prepare| prepare(builder, world))
    }

    fn asks(&self) -> usize {
        self.asks.len() + self.beside.len()
    }

    fn ask(&self, place: usize, engine: Engine, world: &World) -> BoxFuture<'static, Option<Told>> {
        world.declare(engine.tools());
        let Some(ask) = self.asks.get(place) else {
            let (who, ask) = &self.beside[place - self.asks.len()];
            let (who, world, asked) = (who.clone(), world.clone(), ask(engine, world.clone()));
            return Box::pin(async move {
                let what = asked.await;
                world.note(Happened::Told { who, what });
                None
            });
        };
        ask(engine)
    }

    fn answer(&self, question: &Question<'_>) -> Option<Resolution> {
        (self.operator)(question)
    }
}

/// Who asks for a run: a tenant, and the run's start key.
struct Caller {
    tenant: String,
    key: String,
}

/// Asks for a run, and tells what its caller was told.
async fn ask<W, I, O>(caller: Caller, workflow: W, input: I, engine: Engine) -> Option<Told>
where
    W: Workflow<I, O>,
    I: Serialize + Send + Sync + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    let tenant = engine.tenant(&caller.tenant).ok()?;
    match tenant.run(workflow, input).key(caller.key).await {
        Ok(output) => serde_json::to_value(&output).ok().map(Told::Succeeded),
        Err(RunError::Failed { failure, .. }) => Some(Told::Failed(failure.to_string())),
        Err(_) => None,
    }
}

/// How a simulation ended: what a check looks at.
pub struct End<'a> {
    trial: &'a Trial,
    asks: usize,
}

impl End<'_> {
    /// All workflows returned, and their callers were told.
    pub fn succeeded(&self) -> bool {
        self.results().iter().all(Option::is_some)
    }

    /// What the callers of the runs were told, in their order; nothing where a run has not succeeded.
    pub fn results(&self) -> Vec<Option<Value>> {
        let result = |place: usize| {
            let mut told = self.trial.told.iter().filter_map(|life| life.get(&place));
            told.find_map(|told| match told {
                Told::Succeeded(result) => Some(result.clone()),
                Told::Failed(_) => None,
            })
        };
        (0..self.asks).map(result).collect()
    }

    /// How often something happened in the world.
    pub fn count(&self, system: &str, reference: &str) -> usize {
        self.trial.world.count(system, reference)
    }

    /// Everything that happened in the world.
    pub fn effects(&self) -> Vec<Effect> {
        self.trial.world.effects()
    }

    /// The records.
    pub fn records(&self) -> Vec<Record> {
        self.trial.disk.model.records()
    }

    /// The runs.
    pub fn runs(&self) -> Vec<Run> {
        self.trial.disk.model.runs()
    }

    /// The runs that were answered from another one's record.
    pub fn uses(&self) -> Vec<Use> {
        self.trial.disk.model.uses()
    }

    /// What somebody [beside](Simulation::beside) the run was told, as often as they were told anything.
    pub fn heard(&self, by: &str) -> Vec<&str> {
        let events = self.trial.events.iter();
        let told = events.filter_map(|event| match &event.what {
            Happened::Told { who, what } if who == by => Some(what.as_str()),
            _ => None,
        });
        told.collect()
    }

    /// The questions that are open.
    pub fn questions(&self) -> Vec<Escalation> {
        let mut questions = self.trial.disk.model.escalations();
        questions.retain(|question| question.answer.is_none());
        questions
    }

    /// Looks into your own tables, those of `ctx.transaction`.
    ///
    /// # Errors
    /// With the database's words: also if no transaction ever made these tables.
    #[cfg(feature = "sqlite")]
    pub fn tables<T, F>(&self, read: F) -> Result<T, String>
    where
        F: for<'c> FnOnce(&'c mut sqlx::sqlite::SqliteConnection) -> BoxFuture<'c, Result<T, sqlx::Error>>,
    {
        self.trial.disk.tables.read(&self.trial.disk.model, read)
    }

    /// An effect happened once if the workflow succeeded, and never more than once unless a question says so.
    ///
    /// # Errors
    /// With what was counted.
    pub fn exactly_once_if_succeeded(&self, system: &str, reference: &str) -> Result<(), String> {
        let count = self.count(system, reference);
        let enough = count > 0 || !self.succeeded();
        if enough && (count < 2 || !self.questions().is_empty()) {
            return Ok(());
        }
        Err(format!("{system}: {reference} happened {count} times"))
    }
}

impl Simulation {
    /// Whose run it is, if nothing else is said.
    pub const TENANT: &str = "simulated";
    /// The start key of the run, if nothing else is said.
    pub const KEY: &str = "simulated";

    /// Of a workflow with this input.
    pub fn of<W, I, O>(workflow: W, input: I) -> Self
    where
        W: Workflow<I, O> + Clone,
        I: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let registered = workflow.clone();
        let simulation = Self {
            register: Box::new(move |builder| builder.workflow("simulated", 1, registered.clone())),
            prepare: Vec::new(),
            asks: Vec::new(),
            beside: Vec::new(),
            operator: Box::new(|_| None),
            checks: Vec::new(),
            seed: 0,
            random: 0,
            singles: true,
            pairs: true,
        };
        simulation.also(Self::TENANT, Self::KEY, workflow, input)
    }

    /// Asks for one more run at the same time: of the same workflow, or of one that [`engine`](Self::engine)
    /// registers; by this tenant, under this start key.
    #[must_use]
    pub fn also<W, I, O>(mut self, tenant: &str, key: &str, workflow: W, input: I) -> Self
    where
        W: Workflow<I, O> + Clone,
        I: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        self.asks.push(Box::new(move |engine| {
            let caller = Caller { tenant: tenant.clone(), key: key.clone() };
            Box::pin(ask(caller, workflow.clone(), input.clone(), engine))
        }));
        self
    }

    /// Somebody else who uses the engine at the same time: asks for a run a little later, or for one that must be
    /// refused; answers a question; calls a tool. As a client does, they ask anew in each life of the process, and
    /// when an operator has answered. What this returns is what they were told: [`End::heard`].
    #[must_use]
    pub fn beside<F, A>(mut self, who: &str, ask: F) -> Self
    where
        F: Fn(Engine, World) -> A + 'static,
        A: Future<Output = String> + Send + 'static,
    {
        self.beside.push((who.to_owned(), Box::new(move |engine, world| Box::pin(ask(engine, world)))));
        self
    }

    /// Somebody who answers questions, whenever nothing else is left to do: [`truthful`](super::truthful), or
    /// your own. Without one they stay open.
    #[must_use]
    pub fn operator(self, answer: impl Fn(&Question<'_>) -> Option<Resolution> + 'static) -> Self {
        Self { operator: Box::new(answer), ..self }
    }

    /// Gives the engine its tools. Called for each life of the process; the world is the same in all of them.
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

    /// The seed of all chance in it.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Adds so many random schedules of up to five incidents.
    #[must_use]
    pub fn random(self, schedules: u32) -> Self {
        Self { random: schedules, ..self }
    }

    /// Only one crash at a time, and no fault together with a crash: quicker.
    #[must_use]
    pub fn singles_only(self) -> Self {
        Self { pairs: false, ..self }
    }

    /// So many, or as many as it has by itself, or at least so many.
    pub(super) fn random_or(self, wanted: Option<u32>, least: u32) -> Self {
        let random = wanted.unwrap_or(self.random.max(least));
        Self { random, ..self }
    }

    /// Only what chance adds: for more seeds, when everything else was tried.
    #[must_use]
    pub fn chance_only(self) -> Self {
        Self { singles: false, ..self }
    }

    /// Tries everything: nothing going wrong, each incident alone, each crash at each point of the recovery from
    /// each other crash, each crash under each fault, and what chance adds.
    pub fn explore(&self) -> Report {
        self.explore_while(|_| true)
    }

    /// The same, for as long as you want to go on: until something is found, or your time is up. Nothing going
    /// wrong is tried in any case.
    pub fn explore_while(&self, go_on: impl Fn(&Report) -> bool) -> Report {
        let mut report = Report::default();
        let clean = self.try_one(&Schedule::default(), &mut report);
        report.clean_run_ends(&self.end(&clean), &clean);
        // All that goes wrong once before anything that goes wrong twice: the first failure is a small one.
        let singles = if self.singles { singles(&clean) } else { Vec::new() };
        let mut pairs = Vec::new();
        report.planned = 1 + count(&singles) + self.random;
        report.more_planned = self.pairs && !singles.is_empty();
        for incident in singles {
            if !go_on(&report) {
                return report;
            }
            let schedule = Schedule::new([incident]);
            let trial = self.try_one(&schedule, &mut report);
            if self.pairs {
                let followers = followers(incident, &trial);
                report.planned += count(&followers);
                pairs.extend(followers.into_iter().map(|second| schedule.and(second)));
            }
        }
        report.more_planned = false;
        let chance = Seeded::new(self.seed);
        let mixtures = (0..self.random).map(|_| random(&chance, &clean));
        for schedule in pairs.into_iter().chain(mixtures) {
            if !go_on(&report) {
                return report;
            }
            self.try_one(&schedule, &mut report);
        }
        report
    }

    /// Tries one schedule, and draws what happened.
    pub fn replay(&self, schedule: &Schedule) -> Replay {
        let trial = self.trial(schedule);
        let violations = self.violations(&trial);
        Replay { schedule: schedule.clone(), violations, events: trial.events }
    }

    const fn end<'a>(&self, trial: &'a Trial) -> End<'a> {
        End { trial, asks: self.asks.len() }
    }

    fn trial(&self, schedule: &Schedule) -> Trial {
        machine::run(self, schedule, self.seed)
    }

    fn violations(&self, trial: &Trial) -> Vec<Violation> {
        let mut violations = trial.violations.clone();
        for (name, check) in &self.checks {
            if let Err(what) = check(&self.end(trial)) {
                violations.push(Violation { rule: Rule::Own(name.clone()), what });
            }
        }
        violations
    }

    fn try_one(&self, schedule: &Schedule, report: &mut Report) -> Trial {
        let trial = self.trial(schedule);
        let violations = self.violations(&trial);
        report.count(schedule, &trial, &violations);
        if let Some(violation) = violations.first()
            && report.wants_failure(&violation.rule)
        {
            let schedule = self.shrunk(schedule.clone(), &violation.rule);
            let Replay { violations, events, .. } = self.replay(&schedule);
            let timeline = draw(&events);
            report.add_failure(Failing { seed: self.seed, schedule, violations, timeline });
        }
        trial
    }

    /// The same violation with as little going wrong as possible.
    fn shrunk(&self, mut schedule: Schedule, rule: &Rule) -> Schedule {
        let mut place = 0;
        while place < schedule.incidents().len() {
            let smaller = schedule.without(place);
            if self.violations(&self.trial(&smaller)).iter().any(|violation| violation.rule == *rule) {
                schedule = smaller;
            } else {
                place += 1;
            }
        }
        schedule
    }
}

/// One simulation, tried again.
#[derive(Debug)]
pub struct Replay {
    /// What went wrong.
    pub schedule: Schedule,
    /// What must not happen, and did.
    pub violations: Vec<Violation>,
    /// Everything that happened.
    pub events: Vec<Event>,
}

impl Replay {
    /// What happened, drawn.
    pub fn timeline(&self) -> String {
        draw(&self.events)
    }
}

fn count(incidents: &[Incident]) -> u32 {
    u32::try_from(incidents.len()).unwrap_or(u32::MAX)
}

/// The crossings of a life, numbered from 1.
fn crossings(trial: &Trial, life: u32) -> impl Iterator<Item = (u32, Crossing)> {
    let crossed = trial.crossed.get(life as usize - 1);
    (1..).zip(crossed.into_iter().flatten().copied())
}

/// Each incident that can befall a run in which nothing else goes wrong.
fn singles(clean: &Trial) -> Vec<Incident> {
    let stops = Stop::ALL.into_iter().flat_map(|stop| {
        // Where nothing is being written, a process that dies and a power failure are the same.
        let differs = move |crossed: &Crossing| stop != Stop::Kill || crossed.writing;
        let stops = crossings(clean, 1).filter(move |(_, crossed)| differs(crossed));
        stops.map(move |(crossing, _)| Incident::Stop { stop, life: 1, crossing })
    });
    let faults =
        (1..=clean.requests).flat_map(|request| Fault::ALL.map(|fault| Incident::Fault { request, fault }));
    let commits = 1..=clean.disk.commits();
    let fails = commits.clone().map(|commit| Incident::StoreFails { commit });
    let lost = commits.map(|commit| Incident::StoreAnswerLost { commit });
    stops.chain(faults).chain(fails).chain(lost).collect()
}

/// Each death that can follow: in the recovery from a stop, or anywhere under a fault.
fn followers(first: Incident, trial: &Trial) -> Vec<Incident> {
    let (life, stop) = match first {
        Incident::Stop { stop: Stop::Pause, .. } => (2, Stop::Kill), // the paused one lives on
        Incident::Stop { .. } => (2, Stop::Crash),
        _ => (1, Stop::Crash),
    };
    crossings(trial, life).map(|(crossing, _)| Incident::Stop { stop, life, crossing }).collect()
}

fn random(chance: &Seeded, clean: &Trial) -> Schedule {
    let points = crossings(clean, 1).map(|(crossing, _)| crossing).max().unwrap_or(1);
    let incidents = 1 + chance.below(5);
    Schedule::new((0..incidents).map(|_| match chance.below(8) {
        0..4 => {
            let stop = Stop::ALL[chance.below(3) as usize];
            Incident::Stop { stop, life: 1 + chance.below(4), crossing: 1 + chance.below(points) }
        }
        4 | 5 => {
            let fault = Fault::ALL[chance.below(11) as usize % Fault::ALL.len()];
            Incident::Fault { request: 1 + chance.below(clean.requests + 2), fault }
        }
        6 => match chance.below(2) {
            0 => Incident::StoreFails { commit: 1 + chance.below(clean.disk.commits() * 2) },
            _ => Incident::StoreAnswerLost { commit: 1 + chance.below(clean.disk.commits() * 2) },
        },
        _ => match chance.below(2) {
            0 => Incident::ClockJumps { life: 2, seconds: i64::from(chance.below(20_000)) - 10_000 },
            _ => Incident::Down { life: 2, seconds: chance.below(100_000) },
        },
    }))
}
