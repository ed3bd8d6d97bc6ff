//! Steps: a run's checkpoints.

use serde::Serialize;

use super::cell::{coded, table};
use super::row::{Form, Row};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;

coded! {
    /// The kind of a run's checkpoint.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum StepKind {
        /// The result of a closure.
        Step = 1,
        /// The instant at which a timer is due.
        Timer = 2,
        /// A time, an id or a number drawn for the run.
        Drawn = 3,
        /// The winner of a select.
        Select = 4,
        /// The changes of a closure in the ledger's own database.
        Transaction = 5,
        /// A failure that a call showed to the run.
        CallFailed = 6,
        /// A pending future that the run's code dropped.
        Abandoned = 7,
        /// A recorded effect that the run no longer asks for, and that a person decided to keep.
        Kept = 8,
        /// A signal that the run received.
        Signal = 9,
        /// A child that the run began.
        Child = 10,
        /// A signal that the run sent.
        Sent = 11,
        /// A loop: in a turn, the state that the turn began with; outside, the result of the whole loop.
        Turns = 12,
        /// The input with which the run went on as new. In the turn before, under the name `spent`: what the run had
        /// used up of its budget by then.
        Input = 13,
        /// A new start of the run: the person who ordered it, the reason, and the part of its past that does not
        /// count.
        Again = 14,
        /// The answer of a guard that wrote rows of its own: a memory.
        Guard = 15,
        /// An event that the run emitted.
        Emitted = 16,
        /// The error of a failed run whose effects are being undone.
        Undoing = 17,
        /// The decision of the run about a part of the code that was added later.
        Patch = 18,
        /// A step that was recorded with another input than the present one, which gives the same result.
        Adopted = 19,
        /// A value that the run published.
        Published = 20,
    }
}

impl StepKind {
    /// True if the code of the run asks for the checkpoint, by its name.
    pub(crate) const fn is_asked_for(self) -> bool {
        !matches!(
            self,
            Self::Abandoned | Self::Kept | Self::Input | Self::Again | Self::Undoing | Self::Adopted
        )
    }
}

/// A checkpoint of a run. Its identity inside the run is turn, kind, name and id; nothing depends on positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run: RunId,
    /// The turn, or the run's [base](super::Run::base).
    pub turn: u32,
    /// The kind of the checkpoint.
    pub kind: StepKind,
    /// The name of the checkpoint.
    pub name: String,
    /// The id among the checkpoints of that name: given, or an ordinal.
    pub id: String,
    /// The hash of the input that the checkpoint is bound to.
    pub input_hash: Option<RequestHash>,
    /// The recorded value. `None` only in a transaction that was ended from inside.
    pub value: Option<Stored>,
    /// The instant of the checkpoint.
    pub at: Timestamp,
}

table! { Step in "step", Once by (tenant, run, turn, kind, name, id) {
    tenant, run, turn, kind, name, id, input_hash, value, at
} }

impl Row for Step {
    const FORMS: &'static [Form] = &[&[("turn", "0")]];

    fn has(&self, _: usize) -> bool {
        self.turn == 0
    }

    /// True if the value is the same, at whatever instant.
    fn is_as_written(&self, written: &Self) -> bool {
        *self == Self { at: self.at, ..written.clone() }
    }
}

/// The turns whose history is read: one number, and a range of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The number whose checkpoints are read beside the range.
    pub base: u32,
    /// The first number of the range.
    pub first: u32,
    /// The last number of the range.
    pub last: u32,
}

impl Turns {
    /// The whole history of the run.
    pub const ALL: Self = Self { base: 0, first: 0, last: u32::MAX };

    /// The turns from `first` to `last`.
    pub const fn between(first: u32, last: u32) -> Self {
        Self { base: first, first, last }
    }

    /// True if the checkpoints under this number are included.
    pub const fn contains(&self, turn: u32) -> bool {
        turn == self.base || (self.first <= turn && turn <= self.last)
    }
}

/// A checkpoint as resume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStep {
    /// The number of the turn.
    pub turn: u32,
    /// The kind of the checkpoint.
    pub kind: StepKind,
    /// The name of the checkpoint.
    pub name: String,
    /// The id among the checkpoints of that name.
    pub id: String,
    /// The hash of the input that the checkpoint is bound to.
    pub input_hash: Option<RequestHash>,
    /// The recorded value.
    pub value: Option<Stored>,
    /// The instant: of two checkpoints of a run the later one has the later instant.
    pub at: Timestamp,
}
