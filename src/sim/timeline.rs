//! What happened in a simulation, event by event, and how that is drawn.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::CrashPoint;
use super::schedule::{Fault, Stop};
use crate::ledger::OperationKey;

/// Something that happened, at an instant since the machine was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Duration,
    /// In which life of the process, from 1.
    pub life: u32,
    /// What.
    pub what: Happened,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happened {
    /// A process started.
    Started,
    /// The ledger was put back to an earlier state.
    Restored {
        /// So many writes it holds.
        batches: u32,
        /// The engine is told.
        told: bool,
    },
    /// A crash point was crossed.
    Crossed(CrashPoint),
    /// The process was stopped there.
    Stopped {
        /// How.
        stop: Stop,
        /// Where.
        point: CrashPoint,
    },
    /// A paused process goes on.
    GoesOn,
    /// A write was refused.
    Refused {
        /// Why.
        why: String,
    },
    /// A record was written: it is durable.
    Recorded {
        /// Which.
        operation: OperationKey,
        /// What it says.
        state: &'static str,
    },
    /// A run was written: it is durable.
    Run {
        /// What it says.
        state: &'static str,
    },
    /// A question was opened: it is durable.
    Asked {
        /// What.
        question: String,
    },
    /// A question was answered: that is durable.
    Answered {
        /// What.
        question: String,
        /// By whom.
        by: String,
    },
    /// A request was sent.
    Sent {
        /// For which operation.
        operation: OperationKey,
        /// Which attempt.
        attempt: u32,
        /// What becomes of it.
        fault: Option<Fault>,
    },
    /// It happened in the world.
    Effect {
        /// Where.
        system: String,
        /// About what.
        reference: String,
        /// The provider's id.
        id: String,
    },
    /// The world was asked.
    LookedUp {
        /// About which operation.
        operation: OperationKey,
        /// How many effects it showed.
        found: usize,
    },
    /// The world was asked, and had no answer.
    NotLookedUp,
    /// The store failed.
    StoreFailed {
        /// Nothing was written, or only the answer was lost.
        written: bool,
    },
    /// Somebody beside the run was told something.
    Told {
        /// Who.
        who: String,
        /// What.
        what: String,
    },
    /// Whoever runs it lets all that is recorded as done be looked up once more.
    Audited,
    /// Nothing is left to do.
    AtRest,
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("the process starts"),
            Self::Restored { batches, told } => {
                let said = if *told { "and the engine is told" } else { "and says so itself" };
                write!(f, "✗ the ledger is put back to its write {batches}, {said}")
            }
            Self::Crossed(point) => write!(f, "· {point}"),
            Self::Stopped { stop: Stop::Crash, point } => write!(f, "✗ the power fails at {point}"),
            Self::Stopped { stop: Stop::Torn { reached }, point } => {
                write!(
                    f,
                    "✗ the power fails at {point}, part of what was under way is written (bits {reached:b})"
                )
            }
            Self::Stopped { stop: Stop::Kill, point } => write!(f, "✗ dies at {point}"),
            Self::Stopped { stop: Stop::Pause, point } => write!(f, "✗ is paused at {point}"),
            Self::Stopped { stop: Stop::PauseFor { seconds }, point } => {
                write!(f, "✗ is paused for {seconds} s at {point}")
            }
            Self::GoesOn => f.write_str("goes on"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::Recorded { operation, state } => write!(f, "{operation} is {state}"),
            Self::Run { state } => write!(f, "the run is {state}"),
            Self::Asked { question } => write!(f, "asks: {question}"),
            Self::Answered { question, by } => write!(f, "{by} answers: {question}"),
            Self::Sent { operation, attempt, fault: None } => {
                write!(f, "{operation} sent, attempt {attempt}")
            }
            Self::Sent { operation, attempt, fault: Some(fault) } => {
                write!(f, "{operation} sent, attempt {attempt}: {}", fault.name())
            }
            Self::Effect { system, reference, id } => write!(f, "● {system}: {reference} happens as {id}"),
            Self::LookedUp { operation, found } => write!(f, "{operation} looked up: {found}"),
            Self::NotLookedUp => f.write_str("a lookup has no answer"),
            Self::StoreFailed { written: true } => f.write_str("the store writes, its answer is lost"),
            Self::StoreFailed { written: false } => f.write_str("the store fails, nothing is written"),
            Self::Told { who, what } => write!(f, "{who} is told: {what}"),
            Self::Audited => f.write_str("an audit begins"),
            Self::AtRest => f.write_str("nothing is left to do"),
        }
    }
}

impl Happened {
    const fn is_outside(&self) -> bool {
        matches!(self, Self::Effect { .. } | Self::LookedUp { .. } | Self::NotLookedUp | Self::Sent { .. })
    }
}

/// Draws events: the process and its records on the left, the world on the right.
pub(super) fn draw(events: &[Event]) -> String {
    let mut text = format!("{:>11}  {:<4}  {:<58}  world\n", "time", "life", "process and records");
    for event in events {
        if matches!(event.what, Happened::Crossed(_)) {
            continue; // the records say it
        }
        let what = event.what.to_string();
        let (inside, outside) =
            if event.what.is_outside() { ("", what.as_str()) } else { (what.as_str(), "") };
        let at = format!("{:.3} s", event.at.as_secs_f64());
        let line = format!("{at:>11}  {:<4}  {inside:<58}  {outside}", event.life);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
