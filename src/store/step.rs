//! Steps: a run's checkpoints.

use super::cell::{coded, table};
use super::row::{Form, Row};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;

coded! {
    /// What a run's checkpoint is of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum StepKind {
        /// A closure's result.
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
        /// A recorded effect that the run no longer asks for, and that somebody decided to keep.
        Kept = 8,
        /// A signal that the run received.
        Signal = 9,
        /// A child that the run began.
        Child = 10,
        /// A signal that the run sent.
        Sent = 11,
        /// Of a loop: in a turn the state that the turn began with, outside the result of the whole loop.
        Turns = 12,
        /// The input with which the run went on as new.
        Input = 13,
        /// How the run was begun again: by whom, why, and what of its past does not count.
        Again = 14,
        /// What a guard answered when it wrote rows of its own: a memory.
        Guard = 15,
        /// An event that the run emitted.
        Emitted = 16,
        /// The run has failed, and what it did is being undone: with what it failed.
        Undoing = 17,
        /// Whether the run takes a part of the code that was added later.
        Patch = 18,
        /// A step was recorded with another input than the present one, which gives the same result.
        Adopted = 19,
    }
}

impl StepKind {
    /// The run's code asks for it, by its name.
    pub(crate) const fn is_asked_for(self) -> bool {
        !matches!(
            self,
            Self::Abandoned | Self::Kept | Self::Input | Self::Again | Self::Undoing | Self::Adopted
        )
    }
}

/// A run's checkpoint. Its identity inside the run is turn, kind, name and id; nothing depends on positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose it is.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The turn, or the run's [base](super::Run::base).
    pub turn: u32,
    /// What it is a checkpoint of.
    pub kind: StepKind,
    /// Its name.
    pub name: String,
    /// Which of that name: given, or an ordinal.
    pub id: String,
    /// What its input was bound to.
    pub input_hash: Option<RequestHash>,
    /// What was recorded. Absent only in a transaction that was ended from inside (DESIGN 4.6).
    pub value: Option<Stored>,
    /// When.
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

    /// With the same value, whenever it was.
    fn is_as_written(&self, written: &Self) -> bool {
        *self == Self { at: self.at, ..written.clone() }
    }
}

/// Whose history is read: what was recorded under one number, and under a range of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// This one.
    pub base: u32,
    /// And from this one on.
    pub first: u32,
    /// Up to this one.
    pub last: u32,
}

impl Turns {
    /// Whatever the run has done.
    pub const ALL: Self = Self { base: 0, first: 0, last: u32::MAX };

    /// All from `first` to `last`.
    pub const fn between(first: u32, last: u32) -> Self {
        Self { base: first, first, last }
    }

    /// What was recorded under this number is among it.
    pub const fn contains(&self, turn: u32) -> bool {
        turn == self.base || (self.first <= turn && turn <= self.last)
    }
}

/// A checkpoint as resume needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastStep {
    /// The turn.
    pub turn: u32,
    /// What it is a checkpoint of.
    pub kind: StepKind,
    /// Its name.
    pub name: String,
    /// Which of that name.
    pub id: String,
    /// What its input was bound to.
    pub input_hash: Option<RequestHash>,
    /// What was recorded.
    pub value: Option<Stored>,
    /// When: of two checkpoints of a run the later one has the later instant.
    pub at: Timestamp,
}
