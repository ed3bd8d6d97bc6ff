//! Tries every crash window of a workflow, and then some.

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::check::{Rule, Violation};
use super::machine::{self, Body, Seeded, Told, Trial};
use super::report::{Failing, Report};
use super::schedule::{Fault, Incident, Schedule};
use super::timeline::{Event, draw};
use super::world::{Effect, World};
use crate::flow::{Engine, EngineBuilder, RunError, Workflow};
use crate::id::Entropy as _;
use crate::ledger::Record;
use crate::store::Escalation;

type Check = dyn Fn(&End<'_>) -> Result<(), String>;
type Register = dyn Fn(EngineBuilder) -> EngineBuilder;
type Prepare = dyn Fn(EngineBuilder, &World) -> EngineBuilder;
type Start = dyn Fn(Engine) -> BoxFuture<'static, Option<Told>>;

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
    start: Box<Start>,
    checks: Vec<(String, Box<Check>)>,
    seed: u64,
    random: u32,
    pairs: bool,
}

impl Body for Simulation {
    fn engine(&self, builder: EngineBuilder, world: &World) -> EngineBuilder {
        self.prepare.iter().fold((self.register)(builder), |builder, prepare| prepare(builder, world))
    }

    fn work(&self, engine: Engine) -> BoxFuture<'static, Option<Told>> {
        (self.start)(engine)
    }
}

/// Asks for the run, and tells what its caller was told.
async fn start<W, I, O>(workflow: W, input: I, engine: Engine) -> Option<Told>
where
    W: Workflow<I, O>,
    I: Serialize + Send + Sync + 'static,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    let tenant = engine.tenant("simulated").ok()?;
    match tenant.run(workflow, input).key("simulated").await {
        Ok(output) => serde_json::to_value(&output).ok().map(Told::Succeeded),
        Err(RunError::Failed { failure, .. }) => Some(Told::Failed(failure.to_string())),
        Err(_) => None,
    }
}

/// How a simulation ended: what a check looks at.
pub struct End<'a> {
    trial: &'a Trial,
}

impl End<'_> {
    /// The workflow returned, and its caller was told.
    pub fn succeeded(&self) -> bool {
        self.trial.told.iter().any(|told| matches!(told, Told::Succeeded(_)))
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
        self.trial.store.records()
    }

    /// The questions that are open.
    pub fn questions(&self) -> Vec<Escalation> {
        let mut questions = self.trial.store.escalations();
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
        self.trial.tables.read(&*self.trial.store, read)
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
    /// Of a workflow with this input.
    pub fn of<W, I, O>(workflow: W, input: I) -> Self
    where
        W: Workflow<I, O> + Clone,
        I: Serialize + DeserializeOwned + Clone + Send + Sync + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let registered = workflow.clone();
        Self {
            register: Box::new(move |builder| builder.workflow("simulated", 1, registered.clone())),
            prepare: Vec::new(),
            start: Box::new(move |engine| Box::pin(start(workflow.clone(), input.clone(), engine))),
            checks: Vec::new(),
            seed: 0,
            random: 0,
            pairs: true,
        }
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

    /// Tries everything: nothing going wrong, each incident alone, each crash at each point of the recovery from
    /// each other crash, each crash under each fault, and what chance adds.
    pub fn explore(&self) -> Report {
        self.explore_while(|_| true)
    }

    /// The same, for as long as you want to go on: until something is found, or your time is up.
    pub fn explore_while(&self, go_on: impl Fn(&Report) -> bool) -> Report {
        let mut report = Report::default();
        let clean = self.try_one(&Schedule::default(), &mut report);
        report.clean_run_ends(&End { trial: &clean }, &clean);
        // All that goes wrong once before anything that goes wrong twice: the first failure is a small one.
        let mut pairs = Vec::new();
        for incident in singles(&clean) {
            if !go_on(&report) {
                return report;
            }
            let schedule = Schedule::new([incident]);
            let trial = self.try_one(&schedule, &mut report);
            if self.pairs {
                pairs.extend(followers(incident, &trial).into_iter().map(|second| schedule.and(second)));
            }
        }
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

    fn trial(&self, schedule: &Schedule) -> Trial {
        machine::run(self, schedule, self.seed)
    }

    fn violations(&self, trial: &Trial) -> Vec<Violation> {
        let mut violations = trial.violations.clone();
        for (name, check) in &self.checks {
            if let Err(what) = check(&End { trial }) {
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
            report.add_failure(Failing { schedule, violations, timeline: draw(&events) });
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

fn count(of: &[super::CrashPoint]) -> u32 {
    u32::try_from(of.len()).unwrap_or(u32::MAX)
}

/// Each incident that can befall a run in which nothing else goes wrong.
fn singles(clean: &Trial) -> Vec<Incident> {
    let crossings = clean.crossed.first().map_or(0, |crossed| count(crossed));
    let crashes = (1..=crossings).map(|crossing| Incident::Crash { life: 1, crossing });
    let faults =
        (1..=clean.requests).flat_map(|request| Fault::ALL.map(|fault| Incident::Fault { request, fault }));
    let fails = (1..=clean.commits).map(|commit| Incident::StoreFails { commit });
    let lost = (1..=clean.commits).map(|commit| Incident::StoreAnswerLost { commit });
    crashes.chain(faults).chain(fails).chain(lost).collect()
}

/// Each crash that can follow: in the recovery from a crash, or anywhere under a fault.
fn followers(first: Incident, trial: &Trial) -> Vec<Incident> {
    let life = if matches!(first, Incident::Crash { .. }) { 2 } else { 1 };
    let crossings = trial.crossed.get(life as usize - 1).map_or(0, |crossed| count(crossed));
    (1..=crossings).map(|crossing| Incident::Crash { life, crossing }).collect()
}

fn random(chance: &Seeded, clean: &Trial) -> Schedule {
    let below = |n: u32| u32::try_from(chance.bits() % u64::from(n.max(1))).unwrap_or(0);
    let crossings = clean.crossed.first().map_or(1, |crossed| count(crossed));
    let incidents = 1 + below(5);
    Schedule::new((0..incidents).map(|_| match below(8) {
        0..4 => Incident::Crash { life: 1 + below(4), crossing: 1 + below(crossings) },
        4 | 5 => {
            let fault = Fault::ALL[below(10) as usize % Fault::ALL.len()];
            Incident::Fault { request: 1 + below(clean.requests + 2), fault }
        }
        6 => match below(2) {
            0 => Incident::StoreFails { commit: 1 + below(clean.commits * 2) },
            _ => Incident::StoreAnswerLost { commit: 1 + below(clean.commits * 2) },
        },
        _ => Incident::ClockJumps { life: 2, seconds: i64::from(below(20_000)) - 10_000 },
    }))
}
