//! The words of a tool's policy: its effect, its contract, its approver.

use crate::ledger::{ContractClass, EffectClass};

/// The words that a field may have.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $word:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub(in crate::rim) enum $name {
            $($(#[$doc])* $word,)*
        }
    };
}
pub(in crate::rim) use words;

words! {
    /// The effect of a tool on the world.
    Effect {
        /// It reads. Its calls pass without a record.
        ReadOnly,
        /// It makes something that nobody is shown yet.
        Draft,
        /// It changes data of its own system.
        InternalMutation,
        /// It sends a message to somebody.
        Notification,
        /// It moves money.
        Payment,
        /// It destroys something.
        Deletion,
        /// It writes to an agent's memory.
        MemoryWrite,
    }
}

impl Effect {
    pub(in crate::rim) const fn class(self) -> EffectClass {
        match self {
            Self::ReadOnly => EffectClass::ReadOnly,
            Self::Draft => EffectClass::Draft,
            Self::InternalMutation => EffectClass::InternalMutation,
            Self::Notification => EffectClass::Notification,
            Self::Payment => EffectClass::Payment,
            Self::Deletion => EffectClass::Deletion,
            Self::MemoryWrite => EffectClass::MemoryWrite,
        }
    }
}

words! {
    /// What a server offers for a call of unknown outcome.
    Offer {
        /// A repeat with the same `_meta.idempotencyKey` or reference gives the first answer again.
        ReplaysKey,
        /// A repeat with the same `_meta.idempotencyKey` or reference is refused.
        RejectsKey,
        /// The effect has a name that the arguments give, and cannot exist twice.
        NaturalKey,
        /// The effect can be looked up by the reference.
        Lookup,
        /// Nothing.
        Blind,
        /// A repeat leaves the world as one call does.
        Idempotent,
    }
}

impl Offer {
    pub(in crate::rim) const fn class(self) -> ContractClass {
        match self {
            Self::ReplaysKey => ContractClass::ReplaysKey,
            Self::RejectsKey => ContractClass::RejectsKey,
            Self::NaturalKey => ContractClass::NaturalKey,
            Self::Lookup => ContractClass::Lookup,
            Self::Blind => ContractClass::Blind,
            Self::Idempotent => ContractClass::Idempotent,
        }
    }
}

words! {
    /// Who approves a call.
    Approver {
        /// A person.
        Person,
        /// Nobody: the call goes out without an approval.
        Nobody,
    }
}
