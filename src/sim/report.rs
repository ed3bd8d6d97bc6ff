//! The findings of an exploration: as a table for people, as JSON for programs, and as a panic for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use super::CrashPoint;
use super::check::{Rule, Violation};
use super::end::End;
use super::machine::{Told, Trial};
use super::rest;
use super::schedule::Schedule;
use super::table;
use super::timeline::Event;
use crate::ledger::{Basis, ContractClass, EffectClass, State};

/// The maximum number of failures that are kept, at most one for each rule.
const KEPT: usize = 8;

/// A schedule that breaks a rule, made as small as possible.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The seed of the simulation.
    pub seed: u64,
    /// The incidents of the simulation.
    pub schedule: Schedule,
    /// The violations that were found.
    pub violations: Vec<Violation>,
    /// The events of the simulation, drawn as a timeline.
    pub timeline: String,
    /// All events of the simulation.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub events: Vec<Event>,
}

/// The findings of an exploration. `Display` draws a table of at most 100 columns (timelines are wider), the
/// alternate form `{:#}` in colour; [`json`](Self::json) holds the same data. [`print`](Self::print) uses colour
/// where the terminal allows it.
///
/// Each number is a count over all schedules together. The columns of each tool and its declared class are:
///
/// | word | counts |
/// | --- | --- |
/// | committed: all | calls whose record says that they happened, on any basis |
/// | … lookup | of these, those known by a lookup after the answer was lost |
/// | … word | of these, those that rest on the provider's declaration that it honours keys: sent again, same key |
/// | failed | calls whose record says that they did not happen |
/// | asked | calls with an open question when nothing is left to do |
/// | effects | effects in the world, counted by the world |
/// | duplicates: marked | effects beyond the first of a call, reported by record, question or effect class |
/// | … silent | effects beyond the first of a call, reported by nothing: never more than 0, or a rule is broken |
/// | lost | calls that are recorded as done and did not happen: never more than 0, or a rule is broken |
///
/// Below a tool are the questions about its calls, open and answered, by kind. A compensation of a tool's effects is
/// counted as a tool of its own.
///
/// ```
/// use counterfoil::sim::Simulation;
/// use counterfoil::{Ctx, Failure};
///
/// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
///     ctx.step("greeting", &name, |name| format!("Hello, {name}!")).await
/// }
///
/// let report = Simulation::of(greet, "Ann".to_owned()).explore();
/// assert!(report.is_ok() && !report.ended_early());
/// assert_eq!(report.schedules(), report.planned());
/// assert_eq!(report.json()["schedules"], report.schedules());
/// assert!(report.to_string().contains("no rule is broken"), "{report}");
/// assert!(report.to_string().lines().all(|line| line.chars().count() <= 100), "{report}");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub(super) schedules: u32,
    pub(super) planned: u32,
    /// True until all single incidents were tried: only then the number of pairs is known.
    pub(super) more_planned: bool,
    pub(super) succeeded: u32,
    pub(super) asked: u32,
    pub(super) clean: Option<String>,
    crashed_at: BTreeMap<CrashPoint, u32>,
    crossed: BTreeSet<CrashPoint>,
    /// The kinds of incidents in the schedules that were tried, and those of them that happened.
    tried: BTreeSet<String>,
    happened: BTreeSet<String>,
    pub(super) violated: BTreeMap<Rule, u32>,
    pub(super) tools: BTreeMap<(String, Class), Tally>,
    pub(super) failures: Vec<Failing>,
}

/// The effect class and the contract class of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) effect: &'static str,
    /// The name of the contract class; empty if no engine lived long enough to declare it.
    pub(super) contract: &'static str,
}

/// The outcomes of the calls of one tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) committed: u64,
    pub(super) by_lookup: u64,
    pub(super) on_declaration: u64,
    pub(super) failed: u64,
    pub(super) asked: u64,
    pub(super) effects: u64,
    pub(super) marked: u64,
    pub(super) silent: u64,
    pub(super) lost: u64,
    pub(super) questions: BTreeMap<&'static str, u64>,
}

impl Report {
    /// The number of schedules that were tried.
    pub const fn schedules(&self) -> u32 {
        self.schedules
    }

    /// The number of schedules that were planned. If the exploration [ended early](Self::ended_early), this is a
    /// lower bound: the number of pairs is known only after all single incidents were tried.
    pub const fn planned(&self) -> u32 {
        self.planned
    }

    /// True if some planned schedules were not tried.
    pub const fn ended_early(&self) -> bool {
        self.schedules < self.planned || self.more_planned
    }

    /// The smallest schedules that break a rule.
    pub fn failures(&self) -> &[Failing] {
        &self.failures
    }

    /// The crash points at which a process was stopped, each with the number of stops.
    pub const fn crashed_at(&self) -> &BTreeMap<CrashPoint, u32> {
        &self.crashed_at
    }

    /// The crash points that no process crossed: nothing is proven about them.
    pub fn never_crossed(&self) -> Vec<CrashPoint> {
        CrashPoint::ALL.into_iter().filter(|point| !self.crossed.contains(point)).collect()
    }

    /// The kinds of incidents that were tried and happened in no schedule, such as `lookup-down` of a tool without a lookup:
    /// nothing is proven about them.
    pub fn never_happened(&self) -> Vec<String> {
        self.tried.difference(&self.happened).cloned().collect()
    }

    /// The number of schedules in which a question was left open.
    pub const fn asked(&self) -> u32 {
        self.asked
    }

    /// True if no rule was broken, and the workflow succeeded in the clean run: a workflow that never succeeds breaks
    /// no rule either.
    pub fn is_ok(&self) -> bool {
        self.violated.is_empty() && self.clean.is_none()
    }

    /// Panics with the smallest schedule that breaks a rule, and its timeline.
    ///
    /// # Panics
    /// If [`is_ok`](Self::is_ok) is false.
    pub fn assert_ok(&self) {
        assert!(self.is_ok(), "{self}");
    }

    /// Prints the report on standard output; in colour if that is a terminal and `NO_COLOR` is not set.
    pub fn print(&self) {
        table::show(self);
    }

    /// The report as JSON.
    pub fn json(&self) -> Value {
        let never: Vec<_> = self.never_crossed().into_iter().map(CrashPoint::name).collect();
        let crashed_at: BTreeMap<_, _> = self.crashed_at.iter().map(|(point, n)| (point.name(), n)).collect();
        let tools: Vec<_> =
            self.tools.iter().map(|((tool, class), tally)| tally.json(tool, *class)).collect();
        let failures: Vec<_> = self.failures.iter().map(Failing::json).collect();
        let violated: BTreeMap<_, _> = self.violated.iter().map(|(rule, n)| (rule.to_string(), n)).collect();
        json!({
            "ok": self.is_ok(),
            "schedules": self.schedules,
            "planned": self.planned,
            "ended_early": self.ended_early(),
            "succeeded": self.succeeded,
            "asked": self.asked,
            "crashed_at": crashed_at,
            "never_crossed": never,
            "never_happened": self.never_happened(),
            "violated": violated,
            "clean_run": self.clean,
            "tools": tools,
            "failures": failures,
        })
    }

    /// Checks the end of the clean run. `fails` is the number of runs that are expected to fail.
    pub(super) fn clean_run_ends(&mut self, end: &End<'_>, clean: &Trial, fails: usize) {
        let told = || clean.told.iter().flat_map(|life| life.values());
        let failed = told().filter(|told| matches!(told, Told::Failed(_))).count();
        let succeeded = end.results().iter().flatten().count();
        if (failed, succeeded + failed) != (fails, end.results().len()) {
            let told: Vec<_> = told().map(ToString::to_string).collect();
            let told = if told.is_empty() { "nothing".to_owned() } else { told.join(" and ") };
            self.clean =
                Some(format!("when nothing goes wrong, the workflow does not succeed: it says {told}"));
        }
    }

    pub(super) fn count(&mut self, schedule: &Schedule, trial: &Trial, violations: &[Violation]) {
        self.schedules += 1;
        self.succeeded += u32::from(trial.told.iter().any(|life| !life.is_empty()));
        for (life, crossed) in (1..).zip(&trial.crossed) {
            self.crossed.extend(crossed.iter().map(|crossing| crossing.point));
            for crossing in schedule.stops(life).into_keys().filter_map(|place| crossed.get(place - 1)) {
                *self.crashed_at.entry(crossing.point).or_default() += 1;
            }
        }
        for incident in schedule.incidents() {
            self.tried.insert(incident.kind());
            self.happened.extend(trial.has_met(incident).then(|| incident.kind()));
        }
        for violation in violations {
            *self.violated.entry(violation.rule.clone()).or_default() += 1;
        }
        self.count_calls(trial);
    }

    fn count_calls(&mut self, trial: &Trial) {
        let questions = trial.questions();
        self.asked += u32::from(questions.iter().any(|question| question.answer.is_none()));
        let counts = rest::counts(&trial.world);
        for record in trial.disk.model.records() {
            let contract = trial.world.contract(record.operation.as_str()).map_or("", ContractClass::name);
            let class = Class { effect: EffectClass::name(record.class), contract };
            let tally = self.tools.entry((record.operation.to_string(), class)).or_default();
            let place = (record.tenant.clone(), record.key.clone());
            let count = counts.get(&place).copied().unwrap_or(0);
            if matches!(record.state, State::Committed { .. }) {
                tally.committed += 1;
                tally.by_lookup += u64::from(record.basis == Basis::Lookup);
                tally.on_declaration += u64::from(record.basis == Basis::Declaration);
            }
            tally.failed += u64::from(matches!(record.state, State::Failed { .. }));
            tally.effects += count as u64;
            let surplus = count.saturating_sub(1) as u64;
            if rest::is_marked(&trial.world, &record, &questions) {
                tally.marked += surplus;
            } else {
                tally.silent += surplus;
            }
            tally.lost += u64::from(rest::is_lost(&trial.world, &record, count));
            let about = questions.iter().filter(|question| question.record == Some(record.id));
            tally.asked += u64::from(about.clone().any(|question| question.answer.is_none()));
            for question in about {
                *tally.questions.entry(question.kind.name()).or_default() += 1;
            }
        }
    }

    pub(super) fn wants_failure(&self, rule: &Rule) -> bool {
        let known = self.failures.iter().any(|failing| failing.violations.iter().any(|v| v.rule == *rule));
        !known && self.failures.len() < KEPT
    }

    pub(super) fn add_failure(&mut self, failing: Failing) {
        self.failures.push(failing);
    }

    /// Adds the findings under another seed. The schedules of the first seed are the plan; those of later seeds are
    /// as many as time allows, and count as planned.
    pub(super) fn add(&mut self, other: Self) {
        let is_first = self.schedules == 0;
        self.planned += if is_first { other.planned } else { other.schedules };
        self.more_planned |= is_first && other.more_planned;
        self.schedules += other.schedules;
        self.succeeded += other.succeeded;
        self.asked += other.asked;
        self.clean = self.clean.take().or(other.clean);
        self.crossed.extend(other.crossed);
        self.tried.extend(other.tried);
        self.happened.extend(other.happened);
        for (point, times) in other.crashed_at {
            *self.crashed_at.entry(point).or_default() += times;
        }
        for (rule, times) in other.violated {
            *self.violated.entry(rule).or_default() += times;
        }
        for (tool, tally) in other.tools {
            self.tools.entry(tool).or_default().add(&tally);
        }
        for failing in other.failures {
            if failing.violations.iter().all(|violation| self.wants_failure(&violation.rule)) {
                self.failures.push(failing);
            }
        }
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.by_lookup += other.by_lookup;
        self.on_declaration += other.on_declaration;
        self.failed += other.failed;
        self.asked += other.asked;
        self.effects += other.effects;
        self.marked += other.marked;
        self.silent += other.silent;
        self.lost += other.lost;
        for (kind, times) in &other.questions {
            *self.questions.entry(kind).or_default() += times;
        }
    }

    fn json(&self, tool: &str, class: Class) -> Value {
        json!({
            "tool": tool, "effect_class": class.effect, "class": class.contract,
            "committed": self.committed, "by_lookup": self.by_lookup, "on_declaration": self.on_declaration,
            "failed": self.failed, "asked": self.asked, "effects": self.effects,
            "duplicates_marked": self.marked, "duplicates_silent": self.silent, "lost": self.lost,
            "questions": self.questions,
        })
    }
}

impl Failing {
    fn json(&self) -> Value {
        let violations: Vec<_> = self.violations.iter().map(ToString::to_string).collect();
        json!({
            "seed": self.seed, "schedule": self.schedule.to_string(), "violations": violations,
            "timeline": self.timeline,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table::draw(self, f.alternate()))
    }
}
