//! The events of a simulation, and their drawing as a timeline.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::CrashPoint;
use super::schedule::{Fault, Stop};
use crate::ledger::OperationKey;

/// An event of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time since the machine was started.
    pub at: Duration,
    /// The life of the process, from 1.
    pub life: u32,
    /// The kind of event.
    pub what: Happened,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happened {
    /// A process started.
    Started,
    /// The ledger was restored to an earlier state.
    Restored {
        /// The number of batches of writes in the restored ledger.
        batches: u32,
        /// True if the engine is told of the restore.
        told: bool,
    },
    /// A crash point was crossed.
    Crossed(CrashPoint),
    /// The process was stopped at a crash point.
    Stopped {
        /// The kind of stop.
        stop: Stop,
        /// The crash point.
        point: CrashPoint,
    },
    /// A paused process continues.
    GoesOn,
    /// A write, or the answer of a person, was refused.
    Refused {
        /// The reason of the refusal.
        why: String,
    },
    /// A record was written durably.
    Recorded {
        /// The key of the operation.
        operation: OperationKey,
        /// The name of the record's state.
        state: &'static str,
    },
    /// A run was written durably.
    Run {
        /// The name of the run's state.
        state: &'static str,
    },
    /// A question was opened durably.
    Asked {
        /// The text of the question.
        question: String,
    },
    /// A question was answered durably.
    Answered {
        /// The text of the question.
        question: String,
        /// The name of the person who answered.
        by: String,
    },
    /// A request was sent to a provider.
    Sent {
        /// The key of the operation.
        operation: OperationKey,
        /// The number of the attempt.
        attempt: u32,
        /// The fault of the request, if any.
        fault: Option<Fault>,
    },
    /// An effect happened in the world.
    Effect {
        /// The name of the system.
        system: String,
        /// The reference of the effect, in the words of the business.
        reference: String,
        /// The provider's id for the effect.
        id: String,
        /// The number of the effect among those of its operation, from 1: each beyond the first is a duplicate.
        number: usize,
    },
    /// A lookup was answered.
    LookedUp {
        /// The key of the operation.
        operation: OperationKey,
        /// The number of effects that the lookup showed.
        found: usize,
    },
    /// A lookup got no answer.
    NotLookedUp,
    /// The store failed.
    StoreFailed {
        /// True if the commit was written and only its answer was lost.
        written: bool,
    },
    /// An actor beside the run got a value.
    Told {
        /// The name of the actor.
        who: String,
        /// The value as text.
        what: String,
    },
    /// An audit of all committed records began.
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
            Self::Effect { system, reference, id, .. } => {
                write!(f, "● {system}: {reference} happens as {id}")
            }
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
    /// True for what happens in the world, and not in the process or its records.
    pub(super) const fn is_outside(&self) -> bool {
        matches!(self, Self::Effect { .. } | Self::LookedUp { .. } | Self::NotLookedUp | Self::Sent { .. })
    }
}

/// Draws events: the process and its records on the left, the world on the right.
pub(super) fn draw(events: &[Event]) -> String {
    let mut text = format!("{:>11}  {:<4}  {:<58}  world\n", "time", "life", "process and records");
    for event in events {
        if matches!(event.what, Happened::Crossed(_)) {
            continue; // the records show the crossings
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
