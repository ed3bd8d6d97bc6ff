//! What an exploration found: as a table for people, as JSON for programs, and as a panic for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

use super::CrashPoint;
use super::check::{Rule, Violation};
use super::explore::End;
use super::machine::Trial;
use super::schedule::Schedule;
use crate::ledger::{Basis, State};

/// So many failures are kept, one for each rule at first.
const KEPT: usize = 8;

/// A schedule that breaks a rule, as small as it could be made.
#[derive(Clone, Debug)]
pub struct Failing {
    /// What goes wrong.
    pub schedule: Schedule,
    /// What must not happen, and does.
    pub violations: Vec<Violation>,
    /// What happens, drawn.
    pub timeline: String,
}

/// What an exploration found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    schedules: u32,
    succeeded: u32,
    asked: u32,
    clean: Option<String>,
    crashed_at: BTreeSet<CrashPoint>,
    crossed: BTreeSet<CrashPoint>,
    violated: BTreeMap<Rule, u32>,
    tools: BTreeMap<String, Row>,
    failures: Vec<Failing>,
}

#[derive(Clone, Debug, Default)]
struct Row {
    committed: u32,
    looked_up: u32,
    declared: u32,
    failed: u32,
    asked: u32,
    effects: usize,
}

impl Report {
    /// How many schedules were tried.
    pub const fn schedules(&self) -> u32 {
        self.schedules
    }

    /// The smallest schedules that break a rule.
    pub fn failures(&self) -> &[Failing] {
        &self.failures
    }

    /// The crash points at which a process died.
    pub const fn crashed_at(&self) -> &BTreeSet<CrashPoint> {
        &self.crashed_at
    }

    /// The crash points that nothing ever crossed: nothing is proven about them.
    pub fn never_crossed(&self) -> Vec<CrashPoint> {
        CrashPoint::ALL.into_iter().filter(|point| !self.crossed.contains(point)).collect()
    }

    /// In how many schedules a question was left open.
    pub const fn asked(&self) -> u32 {
        self.asked
    }

    /// No rule was broken, and the workflow succeeded when nothing went wrong: a workflow that never succeeds
    /// breaks no rule either.
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

    /// For programs.
    pub fn json(&self) -> Value {
        let names =
            |points: &mut dyn Iterator<Item = CrashPoint>| points.map(CrashPoint::name).collect::<Vec<_>>();
        let tools: BTreeMap<_, _> = self.tools.iter().map(|(tool, row)| (tool, row.json())).collect();
        let failures: Vec<_> = self.failures.iter().map(Failing::json).collect();
        let violated: BTreeMap<_, _> = self.violated.iter().map(|(rule, n)| (rule.to_string(), n)).collect();
        json!({
            "ok": self.is_ok(),
            "schedules": self.schedules,
            "succeeded": self.succeeded,
            "asked": self.asked,
            "crashed_at": names(&mut self.crashed_at.iter().copied()),
            "never_crossed": names(&mut self.never_crossed().into_iter()),
            "violated": violated,
            "clean_run": self.clean,
            "tools": tools,
            "failures": failures,
        })
    }

    pub(super) fn clean_run_ends(&mut self, end: &End<'_>, clean: &Trial) {
        if !end.succeeded() {
            let told: Vec<_> =
                clean.told.iter().flat_map(|life| life.values()).map(ToString::to_string).collect();
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
            let stopped = schedule.stops(life).into_keys().filter_map(|place| crossed.get(place - 1));
            self.crashed_at.extend(stopped.map(|crossing| crossing.point));
        }
        for violation in violations {
            *self.violated.entry(violation.rule.clone()).or_default() += 1;
        }
        let questions = trial.disk.model.escalations();
        self.asked += u32::from(questions.iter().any(|question| question.answer.is_none()));
        let effects = trial.world.effects();
        for record in trial.disk.model.records() {
            let row = self.tools.entry(record.operation.to_string()).or_default();
            let committed = matches!(record.state, State::Committed { .. });
            row.committed += u32::from(committed);
            row.failed += u32::from(matches!(record.state, State::Failed { .. }));
            row.looked_up += u32::from(committed && record.basis == Basis::Lookup);
            row.declared += u32::from(committed && record.basis == Basis::Declaration);
            row.asked +=
                u32::from(questions.iter().any(|q| q.record == Some(record.id) && q.answer.is_none()));
            row.effects += effects.iter().filter(|effect| effect.operation == record.key).count();
        }
    }

    pub(super) fn wants_failure(&self, rule: &Rule) -> bool {
        let known = self.failures.iter().any(|failing| failing.violations.iter().any(|v| v.rule == *rule));
        !known && self.failures.len() < KEPT
    }

    pub(super) fn add_failure(&mut self, failing: Failing) {
        self.failures.push(failing);
    }
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "committed": self.committed, "by_lookup": self.looked_up, "on_declaration": self.declared,
            "failed": self.failed, "asked": self.asked, "effects": self.effects,
        })
    }
}

impl Failing {
    fn json(&self) -> Value {
        let violations: Vec<_> = self.violations.iter().map(ToString::to_string).collect();
        json!({ "schedule": self.schedule.to_string(), "violations": violations, "timeline": self.timeline })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} schedules, {} came to a result, {} left a question open; crashed at {} points",
            self.schedules,
            self.succeeded,
            self.asked,
            self.crashed_at.len()
        )?;
        writeln!(
            f,
            "{:<24} {:>9} {:>9} {:>11} {:>7} {:>7} {:>8}",
            "tool", "committed", "by lookup", "declaration", "failed", "asked", "effects"
        )?;
        for (tool, row) in &self.tools {
            writeln!(
                f,
                "{tool:<24} {:>9} {:>9} {:>11} {:>7} {:>7} {:>8}",
                row.committed, row.looked_up, row.declared, row.failed, row.asked, row.effects
            )?;
        }
        let never: Vec<_> = self.never_crossed().into_iter().map(CrashPoint::name).collect();
        writeln!(f, "never crossed, so nothing is proven about them: {}", never.join(", "))?;
        if let Some(clean) = &self.clean {
            writeln!(f, "\n{clean}")?;
        }
        for (rule, times) in &self.violated {
            writeln!(f, "\nBROKEN in {times} schedules: {rule}")?;
        }
        for failing in &self.failures {
            writeln!(f, "\nthe smallest that breaks it: {}", failing.schedule)?;
            for violation in &failing.violations {
                writeln!(f, "  {violation}")?;
            }
            writeln!(f, "{}", failing.timeline)?;
            writeln!(f, "replay it: simulation.replay(&\"{}\".parse()?)", failing.schedule)?;
        }
        Ok(())
    }
}
