//! The world of a program: providers of each kind, who speaks to the run, and what is seen of it in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::flow::{EngineBuilder, RunError};
use counterfoil::ledger::LookupResult;
use counterfoil::payload::Stored;
use counterfoil::sim::{End, Offer, OpenQuestion, Service, Simulation, World, truthful};
use counterfoil::store::{QuestionKind, Resolution, RunState};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Engine, Key};
use serde_json::Value;
use sqlx::Executor as _;

use super::carry_out::{draw_from, program};
use super::draw::Dice;
use super::mutants::Mutation;
use super::tree::Job;
use crate::sim::{Blind, Looks, Natural, Rejects, Replays, ReplaysAndLooks};

/// Two calls of it are two effects.
pub(super) struct Keyless(Service);

impl Tool for Keyless {
    const NAME: &'static str = "Keyless";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = String;
    type Output = Value;

    async fn call(&self, call: &Call, what: &String) -> Result<Done<Value>, ToolError> {
        self.0.create(call, what).await
    }
}

impl Reconcile for Keyless {
    async fn reconcile(&self, call: &Call, what: &String) -> Result<LookupResult<Value>, ToolError> {
        self.0.find(call, what).await
    }
}

/// Its provider wants none of it.
pub(super) struct Refuses;

impl Tool for Refuses {
    const NAME: &'static str = "Refuses";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = Value;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    async fn call(&self, _: &Call, _: &String) -> Result<Done<Value>, ToolError> {
        Err(ToolError::http(422, "no"))
    }
}

/// Only looks.
pub(super) struct Reads;

impl Tool for Reads {
    const NAME: &'static str = "Reads";
    type Effect = effect::ReadOnly;
    type Contract = contract::Blind;
    type Input = String;
    type Output = String;

    async fn call(&self, _: &Call, what: &String) -> Result<Done<String>, ToolError> {
        Ok(Done::new(format!("read {what}")))
    }
}

/// What is seen of a program when nothing is left to do, loose ends apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// How each run ended, by its place in the program.
    pub(super) runs: BTreeMap<String, Vec<String>>,
    /// How often each effect happened.
    pub(super) effects: BTreeMap<String, usize>,
    /// The entries of its transactions.
    pub(super) entries: Vec<String>,
    /// What does not belong to what.
    pub(super) wrong: Vec<String>,
}

impl Seen {
    /// A difference between a run without and one with crashes.
    pub(super) fn differs(&self, crashed: &Self) -> Option<String> {
        if let Some(wrong) = crashed.wrong.first() {
            return Some(wrong.clone());
        }
        let told = |what: &str, clean: &dyn std::fmt::Debug, crashed: &dyn std::fmt::Debug| {
            Some(format!("the {what} differ\n   without a crash: {clean:?}\n   with crashes:    {crashed:?}"))
        };
        if self.runs != crashed.runs {
            let of = |a: &Self, b: &Self| -> Vec<_> {
                a.runs
                    .iter()
                    .filter(|(at, end)| b.runs.get(*at) != Some(*end))
                    .map(|(a, b)| (a.clone(), b.clone()))
                    .collect()
            };
            return told("runs", &of(self, crashed), &of(crashed, self));
        }
        if self.effects != crashed.effects {
            let of = |a: &Self, b: &Self| -> Vec<_> {
                a.effects
                    .iter()
                    .filter(|(at, n)| b.effects.get(*at) != Some(*n))
                    .map(|(a, n)| (a.clone(), *n))
                    .collect()
            };
            return told("effects", &of(self, crashed), &of(crashed, self));
        }
        (self.entries != crashed.entries).then(|| told("entries", &self.entries, &crashed.entries)).flatten()
    }
}

/// Where what was seen is put down.
pub(super) type Sight = Arc<Mutex<Seen>>;

/// The simulation of a program. What is seen at the end of a trial is put down.
pub(super) fn simulation(seed: u64, job: &Job, mutation: Option<Mutation>) -> (Simulation, Sight) {
    draw_from(seed);
    let sight = Sight::default();
    let (shown, speaker, tables) = (sight.clone(), job.clone(), job.has_tables());
    let simulation = Simulation::of(program, job.clone())
        .seed(seed)
        .engine(tools)
        .engine(move |engine, _| match mutation {
            Some(mutation) => mutation.of(engine),
            None => engine,
        })
        .operator(operator)
        .with_actor("world", move |engine, world| speak(seed, speaker.clone(), engine, world))
        .check("seen", move |end| {
            *shown.lock().unwrap() = see(end, tables);
            Ok(())
        });
    (simulation, sight)
}

fn tools(engine: EngineBuilder, world: &World) -> EngineBuilder {
    engine
        .tool(Replays(world.service("Replays", Offer::ReplaysKey)))
        .tool(ReplaysAndLooks(world.service("ReplaysAndLooks", Offer::ReplaysKeyAndLookup)))
        .tool(Rejects(world.service("Rejects", Offer::RejectsKey)))
        .tool(Natural(world.service("Natural", Offer::NaturalKey)))
        .tool(Looks(world.service("Looks", Offer::Lookup)))
        .tool(Blind(world.service("Blind", Offer::Blind)))
        .tool(Keyless(world.service("Keyless", Offer::Lookup)))
        .tool(Refuses)
        .tool(Reads)
}

/// Nobody lets a run go on that has stopped by mistake: that is seen.
fn operator(question: &OpenQuestion<'_>) -> Option<Resolution> {
    let mistake = matches!(
        question.question.kind,
        QuestionKind::Diverged | QuestionKind::Damaged | QuestionKind::Unregistered
    );
    if mistake { None } else { truthful(question) }
}

/// Asks for the run until it has begun, and says to it what it is to hear, some of it twice.
async fn speak(seed: u64, job: Job, engine: Engine, world: World) -> String {
    let mut dice = Dice::new(seed ^ 0x5eed);
    let tenant = engine.tenant(Simulation::TENANT).unwrap();
    let mut begun = None;
    for _ in 0..20 {
        match tenant.run(program, job.clone()).key(Simulation::KEY).start().await {
            Ok(handle) => begun = Some(handle),
            Err(_) => world.clock().sleep(Duration::from_secs(1)).await,
        }
        if begun.is_some() {
            break;
        }
    }
    let Some(run) = begun else { return "it does not begin".to_owned() };
    for i in 0..job.hears() {
        world.sleep(Duration::from_millis(dice.below(60_000))).await;
        let again = dice.below(3) == 0;
        for _ in 0..20 {
            match run.signal("say", format!("word {i}")).id(format!("word {i}")).await {
                Ok(_) if again => {
                    let _ = run.signal("say", format!("word {i}")).id(format!("word {i}")).await;
                    break;
                }
                Ok(_) | Err(RunError::Over { .. }) => break,
                Err(_) => world.clock().sleep(Duration::from_secs(1)).await,
            }
        }
    }
    "all was said".to_owned()
}

fn see(end: &End<'_>, tables: bool) -> Seen {
    let mut seen = Seen::default();
    let effects = end.effects();
    for effect in &effects {
        let what = effect.reference.split('=').next().unwrap_or_default();
        if !what.contains('?') {
            *seen.effects.entry(format!("{} {what}", effect.system)).or_default() += 1;
        }
    }
    for run in end.rows() {
        let Stored::Inline(input) = &run.input else { continue };
        let at = input.value().unwrap()["at"].as_str().unwrap().to_owned();
        let lines: Vec<String> = match &run.state {
            RunState::Succeeded { output: Stored::Inline(output) } => output.decode().unwrap(),
            RunState::Succeeded { .. } => vec!["something large".to_owned()],
            RunState::Failed { failure } => {
                let failure: counterfoil::Failure = failure.decode().unwrap();
                let mut lines: Vec<_> = failure.message.lines().map(str::to_owned).collect();
                lines.push(format!("failed: {:?}", failure.code));
                lines
            }
            other => vec![format!("{other:?}")],
        };
        if at.contains('?') {
            continue;
        }
        let lines = lines.iter().map(|line| line_of(line, &effects, &mut seen.wrong)).collect();
        if seen.runs.insert(at.clone(), lines).is_some() {
            seen.wrong.push(format!("two runs stand at {at}"));
        }
    }
    if tables {
        seen.entries = entries(end);
    }
    seen
}

/// A line without what is another one in each life: the provider's ids, and what was drawn. That these belong together is
/// checked here.
fn line_of(line: &str, effects: &[counterfoil::sim::Effect], wrong: &mut Vec<String>) -> String {
    if line.contains("never comes") || line.contains("Misuse") || line.contains("Invalid") {
        wrong.push(line.to_owned());
    }
    let Some((what, id)) = line.rsplit_once('#') else { return line.to_owned() };
    let what = what.rsplit(' ').next().unwrap_or_default();
    if !effects.iter().any(|effect| effect.id == id && effect.reference == what) {
        wrong.push(format!("{line}: that effect is about something else"));
    }
    line.split(['=', '#']).next().unwrap_or_default().to_owned()
}

fn entries(end: &End<'_>) -> Vec<String> {
    let read = end.tables(|db| {
        Box::pin(async {
            db.execute("CREATE TABLE IF NOT EXISTS entry (what TEXT NOT NULL)").await?;
            sqlx::query_scalar::<_, String>("SELECT what FROM entry ORDER BY what").fetch_all(db).await
        })
    });
    let mut entries = read.unwrap_or_default();
    entries.retain(|what| !what.contains('?'));
    entries
}
