//! Steps: a run's checkpoints.

use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::row::{Form, Put, Readable, Row, Take},
    super::table::{Law, Table, bytes, number, text},
};

/// What a run's checkpoint is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StepKind {
    /// A closure's result.
    Step,
    /// The instant at which a timer is due.
    Timer,
    /// A time, an id or a number drawn for the run.
    Drawn,
    /// The winner of a select.
    Select,
    /// The changes of a closure in the ledger's own database.
    Transaction,
    /// A failure that a call showed to the run.
    CallFailed,
    /// A pending future that the run's code dropped.
    Abandoned,
    /// A recorded effect that the run no longer asks for, and that somebody decided to keep.
    Kept,
    /// A signal that the run received.
    Signal,
    /// A child that the run began.
    Child,
    /// A signal that the run sent.
    Sent,
    /// Of a loop: in a turn the state that the turn began with, outside the result of the whole loop.
    Turns,
    /// The input with which the run went on as new.
    Input,
    /// How the run was begun again: by whom, why, and what of its past does not count.
    Again,
    /// What a guard answered when it wrote rows of its own: a memory.
    Guard,
    /// An event that the run emitted.
    Emitted,
    /// The run has failed, and what it did is being undone: with what it failed.
    Undoing,
}

impl StepKind {
    /// All, for reading back.
    pub const ALL: [Self; 17] = [
        Self::Step,
        Self::Timer,
        Self::Drawn,
        Self::Select,
        Self::Transaction,
        Self::CallFailed,
        Self::Abandoned,
        Self::Kept,
        Self::Signal,
        Self::Child,
        Self::Sent,
        Self::Turns,
        Self::Input,
        Self::Again,
        Self::Guard,
        Self::Emitted,
        Self::Undoing,
    ];

    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Step => 1,
            Self::Timer => 2,
            Self::Drawn => 3,
            Self::Select => 4,
            Self::Transaction => 5,
            Self::CallFailed => 6,
            Self::Abandoned => 7,
            Self::Kept => 8,
            Self::Signal => 9,
            Self::Child => 10,
            Self::Sent => 11,
            Self::Turns => 12,
            Self::Input => 13,
            Self::Again => 14,
            Self::Guard => 15,
            Self::Emitted => 16,
            Self::Undoing => 17,
        }
    }

    /// The run's code asks for it, by its name.
    pub(crate) const fn is_asked_for(self) -> bool {
        !matches!(self, Self::Abandoned | Self::Kept | Self::Input | Self::Again | Self::Undoing)
    }

    /// Reads the number back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
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

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Step {
    const TABLE: &'static Table = &Table {
        name: "step",
        key: &["tenant", "run", "turn", "kind", "name", "id"],
        with: &[],
        law: Law::Once,
        columns: &[
            text("tenant"),
            number("run"),
            number("turn"),
            number("kind"),
            text("name"),
            text("id"),
            bytes("input_hash"),
            text("value"),
            number("at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        let (tenant, run) = (values.tenant()?, RunId(values.number()?));
        let PastStep { turn, kind, name, id, input_hash, value, at } = PastStep::take(values)?;
        Ok(Self { tenant, run, turn, kind, name, id, input_hash, value, at })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Step {
    const FORMS: &'static [Form] = &[&[("turn", "0")]];

    fn has(&self, _: usize) -> bool {
        self.turn == 0
    }

    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.run, self.turn, self.kind.code(), &self.name, &self.id)
    }

    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .number(self.run.0)
            .number(self.turn)
            .number(self.kind.code())
            .text(&self.name)
            .text(&self.id)
            .some_bytes(self.input_hash.map(|hash| hash.column()).as_deref())
            .some_shared(self.value.as_ref().map(Stored::column))
            .number(self.at.0);
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

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl PastStep {
    pub(super) fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            turn: values.count()?,
            kind: values.parsed(StepKind::from_code)?,
            name: values.text()?,
            id: values.text()?,
            input_hash: values.some_hash()?,
            value: values.some_parsed_text(Stored::from_column)?,
            at: values.time()?,
        })
    }
}
