//! The report of a replay check.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::clock::Timestamp;
use crate::flow::Failure;
use crate::flow::child::lineage::ENDED;
use crate::flow::identity::{Identity, Kind};
use crate::flow::live::Wait;
use crate::id::RunId;
use crate::ledger::EffectClass;
use crate::store::{COMMAND, Run};

/// The findings of a check of one recorded run against edited code.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The id of the checked run.
    pub run: RunId,
    /// The name of the run's workflow.
    pub workflow: String,
    /// The version of the workflow that the run belongs to.
    pub version: u32,
    /// The state of the run: `succeeded`, `waiting` …
    pub state: &'static str,
    /// The answer of the check.
    pub answer: ReplayAnswer,
    /// Steps, calls and waits that the code asks for and the run has not recorded: the engine would do them. The check
    /// does not see what comes behind such an entry in its branch, unless the entry is a timer, a select or a patch, or
    /// a step that [may be run](super::Replayer::run_new_steps).
    pub anew: Vec<ReplayEntry>,
    /// Recorded steps whose input has changed while their result has not: the engine would keep the result and go on.
    pub adopted: Vec<ReplayEntry>,
    /// Recorded effects that the code leaves behind.
    pub orphaned: Vec<LeftBehind>,
    /// Records that no longer fit: their input or type has changed, or they are a child, a signal or an event that is
    /// left behind.
    pub changed: Vec<Changed>,
    /// The keys of recorded calls without an outcome: the engine would find out what became of them.
    pub unsettled: Vec<String>,
    /// The point that the code reached.
    pub outcome: ReplayOutcome,
}

/// The answer of a replay check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayAnswer {
    /// The check saw the code to the end of the run's records, and all of them fit.
    Ok,
    /// The run would be blocked, or leave an effect behind: see `changed`, `orphaned` and `outcome`.
    Breaks,
    /// The code may ask for more of the run's records, where the check could not follow it. It is not known whether
    /// they fit, or are asked for at all.
    CannotTell {
        /// The records that the check did not see being asked for.
        unreached: Vec<ReplayEntry>,
    },
}

/// Something that a run does, such as a step, a call or a timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReplayEntry {
    /// The kind of the entry: `step`, `call`, `timer` …
    pub kind: String,
    /// The name of the entry; for a call, of the tool.
    pub name: String,
    /// The id of the entry among those of its name; for a keyed call, the key.
    pub id: String,
}

/// A recorded effect that the code does not ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeftBehind {
    /// The name of the tool that was called.
    pub tool: String,
    /// The operation key of the call.
    pub key: String,
    /// The class of the effect.
    pub effect: EffectClass,
    /// True if the effect happened. Otherwise it may have happened.
    pub happened: bool,
    /// The engine's reaction to the effect.
    pub consequence: Consequence,
    /// The other key under which the code asks for the same request. The key is not stable then: no part of it may be
    /// drawn.
    pub asked_for_as: Option<String>,
}

/// The engine's reaction to an effect that is left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Consequence {
    /// The engine blocks the run and asks a person, before anything new goes out.
    Blocks,
    /// The engine undoes the effect before anything new goes out, or blocks the run where that needs a person's word.
    Undoes,
    /// The engine lets the run end, and asks a person what to do with the effect.
    Asks,
}

/// A record that no longer fits the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// The thing that was recorded.
    pub what: String,
    /// The difference, in words.
    pub why: String,
}

/// The point that the code reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReplayOutcome {
    /// The code reached its end from the records alone, and returned this.
    Returned(Value),
    /// The code returned an error.
    Failed(Failure),
    /// Every branch of the code waits for something durable.
    Waiting {
        /// The things of which any wakes the run. Empty if the run waits for ever.
        on: Vec<WaitsFor>,
    },
    /// The code stopped at something new, at something that has changed, or at something that is not the context's.
    Stopped,
    /// The code panicked with this message.
    Panicked(String),
}

/// A thing that wakes a waiting run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitsFor {
    /// The clock reaches this instant (UTC).
    Time(Timestamp),
    /// A signal of this name.
    Signal(String),
    /// The end of this child.
    Child(RunId),
    /// The decision about a request for approval.
    Decision,
    /// The command that cancels the run.
    Cancellation,
    /// The answer to an open question about a call.
    Answer,
}

impl ReplayReport {
    pub(super) fn new(run: &Run) -> Self {
        Self {
            run: run.id,
            workflow: run.workflow.to_string(),
            version: run.version,
            state: run.state.name(),
            answer: ReplayAnswer::Ok,
            anew: Vec::new(),
            adopted: Vec::new(),
            orphaned: Vec::new(),
            changed: Vec::new(),
            unsettled: Vec::new(),
            outcome: ReplayOutcome::Stopped,
        }
    }

    /// True if the answer is [`ReplayAnswer::Ok`]: all records of the run were seen, and fit. Steps and calls may be
    /// new.
    pub fn is_ok(&self) -> bool {
        self.answer == ReplayAnswer::Ok
    }

    pub(super) fn is_broken(&self) -> bool {
        !self.changed.is_empty()
            || !self.orphaned.is_empty()
            || matches!(self.outcome, ReplayOutcome::Panicked(_))
    }
}

impl ReplayEntry {
    pub(super) fn of(identity: &Identity) -> Self {
        let Identity { kind, name, id, .. } = identity;
        let (kind, name) = identity.failed_as().unwrap_or((kind.name(), name));
        Self { kind: kind.to_owned(), name: name.to_owned(), id: id.clone() }
    }

    pub(super) fn of_call(tool: &str, id: &str) -> Self {
        Self { kind: Kind::Call.name().to_owned(), name: tool.to_owned(), id: id.to_owned() }
    }
}

impl WaitsFor {
    /// The things that end this wait. The first one does.
    pub(super) fn of(wait: &Wait) -> impl Iterator<Item = Self> + use<> {
        let time = wait.until.map(Self::Time);
        let signal = wait.signal.as_ref().map(|wanted| match wanted.name.as_str() {
            ENDED => {
                let child = wanted.id.as_ref().and_then(|child| child.parse().ok());
                child.map_or_else(|| Self::Signal(ENDED.into()), Self::Child)
            }
            name if name.starts_with(COMMAND) => Self::Cancellation,
            name if name.starts_with('~') => Self::Decision,
            name => Self::Signal(name.to_owned()),
        });
        time.into_iter().chain(signal).chain(wait.answer.then_some(Self::Answer))
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, workflow, version, state, answer, outcome, .. } = self;
        writeln!(f, "{run} of {workflow} {version}, {state}: {answer}; the code {outcome}")?;
        for entry in &self.anew {
            writeln!(f, "  anew       {entry}")?;
        }
        for entry in &self.adopted {
            writeln!(f, "  adopted    {entry}")?;
        }
        for Changed { what, why } in &self.changed {
            writeln!(f, "  changed    {what}: {why}")?;
        }
        for left in &self.orphaned {
            writeln!(f, "  orphaned   {left}")?;
        }
        if let ReplayAnswer::CannotTell { unreached } = answer {
            for entry in unreached {
                writeln!(f, "  unreached  {entry}")?;
            }
        }
        for key in &self.unsettled {
            writeln!(f, "  unsettled  {key}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ReplayAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Breaks => "breaks",
            Self::CannotTell { .. } => "cannot tell",
        })
    }
}

impl fmt::Display for ReplayEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, id } = self;
        write!(f, "{kind} {name:?} #{id}")
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = if self.happened { "happened" } else { "may have happened" };
        write!(f, "{} ({}) {happened}; ", self.key, self.effect.name())?;
        match (&self.asked_for_as, self.consequence) {
            (Some(key), _) => write!(f, "its key is unstable: it is {key} now"),
            (None, Consequence::Blocks) => f.write_str("the run would be blocked"),
            (None, Consequence::Undoes) => f.write_str("it would be undone"),
            (None, Consequence::Asks) => f.write_str("a person would be asked about it"),
        }
    }
}

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned(output) => write!(f, "returned {output}"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            Self::Waiting { on } if on.is_empty() => f.write_str("waits for ever"),
            Self::Waiting { on } => {
                let on: Vec<_> = on.iter().map(WaitsFor::to_string).collect();
                write!(f, "waits for {}", on.join(" or "))
            }
            Self::Stopped => f.write_str("stopped where something would be done anew"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
        }
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(_) => f.write_str("its time"),
            Self::Signal(name) => write!(f, "the signal {name:?}"),
            Self::Child(child) => write!(f, "the child {child}"),
            Self::Decision => f.write_str("the decision about an approval"),
            Self::Cancellation => f.write_str("its cancellation"),
            Self::Answer => f.write_str("the answer to an open question"),
        }
    }
}
