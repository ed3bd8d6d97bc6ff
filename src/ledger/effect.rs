//! Effect classes: what kind of mark a call leaves on the world, and the safety rules that follow (EXE-1).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contract::ContractClass;
use super::retention::Retention;

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Computes; touches nothing.
    Pure,
    /// Asks a model: costs money, changes nothing.
    ModelCall,
    /// Reads from the world.
    ReadOnly,
    /// Makes something that nobody is shown yet. A second one is a duplicate: a draft is never made again blindly.
    Draft,
    /// Changes the own system, with an expected version.
    InternalMutation,
    /// Tells somebody something. It cannot be unsaid.
    Notification,
    /// Moves money.
    Payment,
    /// Destroys something.
    Deletion,
    /// Writes to an agent's memory.
    MemoryWrite,
    /// Undoes another operation. No tool declares it: it is what a tool's `Compensate` does.
    Compensation,
}

/// What becomes of a recorded effect that the resumed path of a run does not ask for (DESIGN 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Divergence {
    /// Keep it; a later call with its key is answered from it.
    Adopt,
    /// Undo it by the tool's own compensation before anything new goes out; where that is not possible, or not without
    /// asking, stop the run and ask.
    Compensate,
    /// Stop the run and ask.
    Escalate,
}

impl EffectClass {
    /// All classes, for tables and tests.
    pub const ALL: [Self; 10] = [
        Self::Pure,
        Self::ModelCall,
        Self::ReadOnly,
        Self::Draft,
        Self::InternalMutation,
        Self::Notification,
        Self::Payment,
        Self::Deletion,
        Self::MemoryWrite,
        Self::Compensation,
    ];

    /// Safe to repeat by its nature: a second call leaves the world as one call does. A draft is not: the second call
    /// makes a second draft.
    pub const fn repeatable(self) -> bool {
        matches!(self, Self::Pure | Self::ModelCall | Self::ReadOnly)
    }

    /// May be made again whenever the outcome of a call is unknown: by its nature, or because what it does at this provider is idempotent.
    pub(crate) const fn may_repeat(self, contract: ContractClass) -> bool {
        self.repeatable() || matches!(contract, ContractClass::Idempotent)
    }

    /// There are effects of this class that are idempotent by nature. A second payment, notice or draft is a second one.
    pub const fn can_be_idempotent(self) -> bool {
        !matches!(self, Self::Payment | Self::Notification | Self::Draft)
    }

    /// A call of unknown outcome may have left a mark.
    pub const fn leaves_mark(self) -> bool {
        !self.repeatable()
    }

    /// Somebody must answer for it: it is asked about where its run does not. What undoes another effect belongs to that.
    pub const fn needs_owner(self) -> bool {
        self.leaves_mark() && !matches!(self, Self::Compensation)
    }

    /// Must not be dispatched without a valid approval.
    pub const fn needs_approval(self) -> bool {
        matches!(self, Self::Notification | Self::Deletion)
    }

    /// A request that the network doubled is looked for after each send, unless the contract says otherwise.
    pub(crate) const fn needs_one_look(self) -> bool {
        matches!(self, Self::Notification | Self::Payment | Self::Deletion)
    }

    /// Must be reconcilable, or sent where the provider itself prevents the duplicate.
    pub const fn needs_reconcile(self) -> bool {
        matches!(self, Self::Payment)
    }

    /// The retention of its records, unless the tool says otherwise. What may be repeated is forgotten: after a day, and an answer of a
    /// model, which cost money, after a week. Of what leaves a mark the record is kept whole for thirty days; of what was told to
    /// somebody or destroyed, for a year; of payments and of what undoes something, for ten years, as bookkeeping wants it. Then
    /// the key stays taken, by a tombstone.
    pub const fn retention(self) -> Retention {
        const DAY: u64 = 24;
        match self {
            Self::Pure | Self::ReadOnly => Retention::forget_after(Duration::from_hours(DAY)),
            Self::ModelCall => Retention::forget_after(Duration::from_hours(7 * DAY)),
            Self::Draft | Self::InternalMutation | Self::MemoryWrite => {
                Retention::tombstone_after(Duration::from_hours(30 * DAY))
            }
            Self::Notification | Self::Deletion => {
                Retention::tombstone_after(Duration::from_hours(365 * DAY))
            }
            Self::Payment | Self::Compensation => {
                Retention::tombstone_after(Duration::from_hours(10 * 365 * DAY))
            }
        }
    }

    /// What becomes of it when a resumed run takes another path, unless the tool says otherwise.
    pub const fn divergence(self) -> Divergence {
        match self {
            Self::Notification | Self::Payment | Self::Deletion => Divergence::Escalate,
            _ => Divergence::Adopt,
        }
    }

    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Pure => 1,
            Self::ModelCall => 2,
            Self::ReadOnly => 3,
            Self::Draft => 4,
            Self::InternalMutation => 5,
            Self::Notification => 6,
            Self::Payment => 7,
            Self::Deletion => 8,
            Self::MemoryWrite => 9,
            Self::Compensation => 10,
        }
    }

    /// Reads the number back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }

    /// The name used in tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::ModelCall => "model call",
            Self::ReadOnly => "read-only",
            Self::Draft => "draft",
            Self::InternalMutation => "internal mutation",
            Self::Notification => "notification",
            Self::Payment => "payment",
            Self::Deletion => "deletion",
            Self::MemoryWrite => "memory write",
            Self::Compensation => "compensation",
        }
    }
}
