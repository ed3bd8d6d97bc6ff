//! What a replay check has found.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::clock::Timestamp;
use crate::flow::Failure;
use crate::id::RunId;
use crate::ledger::{Divergence, EffectClass};
use crate::store::Run;

/// How a recorded run would fare with the code that was checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The run.
    pub run: RunId,
    /// The workflow that it is of.
    pub workflow: String,
    /// The version that it belongs to.
    pub version: u32,
    /// Where it stands: `succeeded`, `waiting` …
    pub state: &'static str,
    /// Asked for and not recorded: these would be done. What comes behind them in their branch was not looked at.
    pub anew: Vec<Anew>,
    /// Recorded effects that the code does not ask for.
    pub orphaned: Vec<LeftBehind>,
    /// Recorded effects that were not asked for, and may be behind what was not run.
    pub unreached: Vec<LeftBehind>,
    /// Recorded, and asked for with another input, or with a result that no longer fits its type: these would halt the run,
    /// or fail as a conflict.
    pub changed: Vec<Changed>,
    /// Recorded calls without an outcome, by key: the engine would find out what became of them.
    pub unsettled: Vec<String>,
    /// How far the code came.
    pub outcome: ReplayOutcome,
}

/// Something that the code asks for and the run has not recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Anew {
    /// Of which kind: `step`, `call`, `timer` …
    pub kind: String,
    /// Its name, or the tool's.
    pub name: String,
    /// Which of that name; a keyed call's key.
    pub id: String,
    /// The engine holds it back until it has seen what else is asked for.
    pub held: bool,
}

/// A recorded effect that the code does not ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftBehind {
    /// The tool that was called.
    pub tool: String,
    /// Its key.
    pub key: String,
    /// What it did to the world.
    pub effect: EffectClass,
    /// It happened; otherwise it may have.
    pub happened: bool,
    /// What the engine would do about it, by its tool; nothing is known where the tool is not registered.
    pub policy: Option<Divergence>,
    /// The same request was asked for under this other key, which is not stable then: no part of a key may be drawn.
    pub asked_for_as: Option<String>,
}

/// Something recorded that no longer fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// What.
    pub what: String,
    /// How it differs.
    pub why: String,
}

/// How far the code came.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReplayOutcome {
    /// To its end, from what is recorded alone. This is what it returned.
    Returned(Value),
    /// To an error.
    Failed(Failure),
    /// It waits for something durable.
    Waiting {
        /// Until then; absent if only an answer can wake it.
        until: Option<Timestamp>,
    },
    /// To what it asks anew, to what has changed, or to something that is not the context's.
    Stopped,
    /// Its code panicked.
    Panicked(String),
}

impl ReplayReport {
    pub(super) fn new(run: &Run) -> Self {
        Self {
            run: run.id,
            workflow: run.workflow.to_string(),
            version: run.version,
            state: run.state.name(),
            anew: Vec::new(),
            orphaned: Vec::new(),
            unreached: Vec::new(),
            changed: Vec::new(),
            unsettled: Vec::new(),
            outcome: ReplayOutcome::Stopped,
        }
    }

    /// Nothing that is recorded has changed or is left behind, and the code does not panic. Steps and calls may be new.
    pub fn is_ok(&self) -> bool {
        self.changed.is_empty()
            && self.orphaned.is_empty()
            && !matches!(self.outcome, ReplayOutcome::Panicked(_))
    }

    /// The engine would have gone on where the check stopped: what was not asked for may yet be.
    pub(super) fn is_cut_short(&self) -> bool {
        let stopped = !matches!(self.outcome, ReplayOutcome::Returned(_) | ReplayOutcome::Failed(_));
        stopped && (!self.changed.is_empty() || self.anew.iter().any(|anew| !anew.held))
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, workflow, version, state, .. } = self;
        writeln!(f, "{run} of {workflow} {version}, {state}: {}", self.outcome)?;
        for Anew { kind, name, id, .. } in &self.anew {
            writeln!(f, "  anew       {kind} {name:?} #{id}")?;
        }
        for Changed { what, why } in &self.changed {
            writeln!(f, "  changed    {what}: {why}")?;
        }
        for left in &self.orphaned {
            writeln!(f, "  orphaned   {left}")?;
        }
        for left in &self.unreached {
            writeln!(f, "  unreached  {left}")?;
        }
        for key in &self.unsettled {
            writeln!(f, "  unsettled  {key}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = if self.happened { "happened" } else { "may have happened" };
        write!(f, "{} ({}) {happened}", self.key, self.effect.name())?;
        match (&self.asked_for_as, self.policy) {
            (Some(key), _) => write!(f, "; its key is unstable: it is {key} now"),
            (None, Some(Divergence::Adopt)) => write!(f, "; it would be kept"),
            (None, _) => write!(f, "; the run would halt"),
        }
    }
}

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned(output) => write!(f, "returned {output}"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            Self::Waiting { until: Some(_) } => f.write_str("waits for its time"),
            Self::Waiting { until: None } => f.write_str("waits for an answer"),
            Self::Stopped => f.write_str("stopped where something would be done anew"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
        }
    }
}
