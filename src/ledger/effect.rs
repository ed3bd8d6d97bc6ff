//! Effect classes: the kind of mark that a call leaves on the world, and the safety rules that follow.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contract::ContractClass;
use super::retention::Retention;

/// The class of effect that a tool has on the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// The call computes and touches nothing.
    Pure,
    /// The call asks a model: it costs money and changes nothing.
    ModelCall,
    /// The call reads from the world.
    ReadOnly,
    /// The call makes something that nobody is shown yet. A second draft is a duplicate: a draft is never made again
    /// blindly.
    Draft,
    /// The call changes the own system, with an expected version.
    InternalMutation,
    /// The call sends a message to somebody. The message cannot be taken back.
    Notification,
    /// The call moves money.
    Payment,
    /// The call destroys something.
    Deletion,
    /// The call writes to an agent's memory.
    MemoryWrite,
    /// The call undoes another operation. No tool declares this class: it belongs to a tool's `Compensate`.
    Compensation,
}

/// The rule for a recorded effect that a resumed run does not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Divergence {
    /// The effect is kept; a later call with its key is answered from it.
    Adopt,
    /// The effect is undone by the tool's own compensation before anything new goes out. If the tool cannot undo, or
    /// must ask first, the run stops and a person is asked.
    Compensate,
    /// The run stops and a person is asked.
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

    /// True if a repeat is safe by nature: a second call leaves the world as one call does. A draft is not
    /// repeatable: the second call makes a second draft.
    pub const fn repeatable(self) -> bool {
        matches!(self, Self::Pure | Self::ModelCall | Self::ReadOnly)
    }

    /// True if a call of unknown outcome may be made again: by its nature, or because it is idempotent at this
    /// provider.
    pub(crate) const fn may_repeat(self, contract: ContractClass) -> bool {
        self.repeatable() || matches!(contract, ContractClass::Idempotent)
    }

    /// True if effects of this class can be idempotent by nature. A second payment, notice or draft is a second
    /// effect.
    pub const fn can_be_idempotent(self) -> bool {
        !matches!(self, Self::Payment | Self::Notification | Self::Draft)
    }

    /// True if a call of unknown outcome may have left a mark.
    pub const fn leaves_mark(self) -> bool {
        !self.repeatable()
    }

    /// True if somebody must answer for the effect: a question is asked about it if its run does not. A compensation
    /// belongs to the effect that it undoes.
    pub const fn needs_owner(self) -> bool {
        self.leaves_mark() && !matches!(self, Self::Compensation)
    }

    /// True if a call must not be dispatched without the approval of a person, unless its tool declares another
    /// [rule](super::ApprovalRule).
    pub const fn needs_approval(self) -> bool {
        matches!(self, Self::Notification | Self::Deletion)
    }

    /// True if each send is looked up for a copy that the network made, unless the contract says otherwise.
    pub(crate) const fn needs_one_look(self) -> bool {
        matches!(self, Self::Notification | Self::Payment | Self::Deletion)
    }

    /// True if the class needs a lookup, or a provider that itself prevents the duplicate.
    pub const fn needs_reconcile(self) -> bool {
        matches!(self, Self::Payment)
    }

    /// The default retention of records of this class. Effects that may be repeated are forgotten: after a day, and
    /// after a week for the answer of a model, which cost money. A record of an effect that leaves a mark is kept
    /// whole for thirty days; of a notification or deletion for a year; of a payment or compensation for ten years,
    /// as bookkeeping requires. After that, a tombstone keeps the key taken.
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

    /// The default rule for an effect when a resumed run takes another path.
    pub const fn divergence(self) -> Divergence {
        match self {
            Self::Notification | Self::Payment | Self::Deletion => Divergence::Escalate,
            _ => Divergence::Adopt,
        }
    }

    /// The code that rows hold. Never reuse a code.
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

    /// Reads a code back.
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
