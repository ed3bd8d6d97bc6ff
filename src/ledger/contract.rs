//! The downstream contract: what the other side offers decides what we may promise (DESIGN 4.3).

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effect::EffectClass;
use super::guarantee::WorstCase;
use super::key::OperationKey;
use super::retention::Retention;
use super::retry::RetryPolicy;
use super::sight::Sight;
use crate::clock::Timestamp;

/// The seven classes of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractClass {
    /// The effect is in the ledger's own database: one transaction with its record.
    Transactional,
    /// Takes a key; a duplicate gets the stored result.
    ReplaysKey,
    /// Takes a key; a duplicate is refused without the result.
    RejectsKey,
    /// Conditional create, or an id that we know before sending.
    NaturalKey,
    /// No key, but a strongly consistent lookup by our reference.
    Lookup,
    /// Neither.
    Blind,
    /// Idempotent by nature: the call sets something to a value, or removes what may be gone. It may be made again whenever its outcome
    /// is unknown, so that it goes out before anything is recorded of it.
    Idempotent,
}

impl ContractClass {
    /// All classes, for tables and tests.
    pub const ALL: [Self; 7] = [
        Self::Transactional,
        Self::ReplaysKey,
        Self::RejectsKey,
        Self::NaturalKey,
        Self::Lookup,
        Self::Blind,
        Self::Idempotent,
    ];

    /// A second send under the same key collides with the first at the provider.
    pub const fn collides(self) -> bool {
        matches!(self, Self::ReplaysKey | Self::RejectsKey | Self::NaturalKey)
    }

    /// Cannot be settled without a lookup.
    pub const fn needs_lookup(self) -> bool {
        matches!(self, Self::RejectsKey | Self::Lookup)
    }

    /// The name used in tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transactional => "transactional",
            Self::ReplaysKey => "replays key",
            Self::RejectsKey => "rejects key",
            Self::NaturalKey => "natural key",
            Self::Lookup => "lookup",
            Self::Blind => "blind",
            Self::Idempotent => "idempotent",
        }
    }
}

/// How far a provider's lookup can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookupOffer {
    /// There is none.
    None,
    /// An effect may be missing from it for a while, so a miss proves nothing and is never followed by a send.
    Eventual,
    /// It shows every effect that has been applied.
    Strong,
}

/// After which sends a committed record is looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// Only where the send followed one of unknown fate, which may still arrive.
    AfterDoubt,
    /// After each send to a provider that tells no copies apart: the network may have doubled the request.
    Always,
}

/// What a provider offers, as its tool declares it.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::{Contract, ContractClass, LookupOffer};
/// let stripe_like = Contract::new(ContractClass::ReplaysKey)
///     .key_window(Duration::from_hours(24))
///     .key_max_len(255)
///     .lookup(LookupOffer::Strong);
/// assert!(stripe_like.class.collides());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent promise")]
pub struct Contract {
    /// Which of the seven.
    pub class: ContractClass,
    /// What its lookup is worth.
    pub lookup: LookupOffer,
    /// The longest key it takes, in characters.
    pub key_max_len: usize,
    /// How long it remembers a key; `None` if for ever. Counted from the first byte that may have left.
    pub key_window: Option<Duration>,
    /// How long a request may still be on its way after its sender was fenced. Absent: see
    /// [`settle_time`](Self::settle_time).
    pub settle: Option<Duration>,
    /// For how long confirming lookups go on. Absent: see [`horizon`](Self::horizon).
    pub confirm_for: Option<Duration>,
    /// After which sends they are made. Absent: [`Confirm::Always`] for payments, notifications and deletions.
    pub confirm: Option<Confirm>,
    /// A request may arrive after its sender has ended. Not so where the sender itself makes the effect, as with a local
    /// file.
    pub outlives_sender: bool,
    /// For how long the lookup shows an effect. Absent: for ever.
    pub shown_for: Option<Duration>,
    /// The operations after which the lookup need not show the effect any more.
    pub removed_by: Vec<String>,
    /// What the key is scoped to at the provider (credential, account, region). A changed scope is *no key*.
    pub scope: Option<String>,
    /// Repeat a call of unknown outcome although nothing can be asked: an explicit opt-in.
    pub repeat_blindly: bool,
    /// The first send of a key is preceded by its lookup: what this ledger does not know may have been done before it.
    pub look_first: bool,
    /// What its lookup cannot know, for the guarantee report.
    pub blind_spots: &'static [&'static str],
    /// The longest time from when the provider accepts a call to when it has finished it. Absent: see
    /// [`completion_time`](Self::completion_time).
    pub completes_within: Option<Duration>,
    /// A notification may be sent although nobody can find out whether it arrived.
    pub blind_notices: bool,
    /// Each call carries a version of what it sets, and the provider refuses an older one than it has.
    pub versioned: bool,
    /// Its effects are changes in the ledger's own database, and its record is sealed in their transaction: while that is not sealed,
    /// nothing happened. Only a door's transaction keeps that: a tool that declares it is not registered.
    pub sealed_with_effect: bool,
}

/// The settle time, unless the contract says otherwise or an attempt may last longer.
const DEFAULT_SETTLE: Duration = Duration::from_mins(1);
/// The longest time that an accepted call is waited for, unless the contract says otherwise.
const DEFAULT_COMPLETION: Duration = Duration::from_hours(24);

impl Contract {
    /// Kept back from a key's window, for clocks that differ and requests that dawdle.
    pub const WINDOW_MARGIN: Duration = Duration::from_mins(1);

    /// The class with careful defaults: a settle time of 60 s or an attempt's timeout, whichever is longer, keys of 64
    /// characters remembered for ever, a strong lookup where the class cannot do without one and none elsewhere.
    pub const fn new(class: ContractClass) -> Self {
        Self {
            class,
            lookup: if class.needs_lookup() { LookupOffer::Strong } else { LookupOffer::None },
            key_max_len: 64,
            key_window: None,
            settle: None,
            confirm_for: None,
            confirm: None,
            outlives_sender: true,
            shown_for: None,
            removed_by: Vec::new(),
            scope: None,
            repeat_blindly: false,
            look_first: false,
            blind_spots: &[],
            completes_within: None,
            blind_notices: false,
            versioned: false,
            sealed_with_effect: false,
        }
    }

    /// Of calls whose records are sealed in the transactions of their effects.
    #[cfg_attr(not(feature = "_sealed"), allow(dead_code, reason = "the doors declare it"))]
    pub(crate) const fn sealed_with_effect() -> Self {
        let mut contract = Self::new(ContractClass::Transactional);
        contract.sealed_with_effect = true;
        contract
    }

    /// Sets what the lookup is worth.
    #[must_use]
    pub const fn lookup(mut self, lookup: LookupOffer) -> Self {
        self.lookup = lookup;
        self
    }

    /// Rests on a lookup of this kind: takes over what it is worth, its settle time and its blind spots.
    ///
    /// ```
    /// use counterfoil::ledger::{Contract, ContractClass, LookupOffer};
    /// use counterfoil::tool::lookup::FileAt;
    /// let contract = Contract::new(ContractClass::NaturalKey).sight(&FileAt::SIGHT);
    /// assert_eq!(contract.lookup, LookupOffer::Strong);
    /// assert_eq!(contract.settle, Some(FileAt::SIGHT.settle));
    /// ```
    #[must_use]
    pub const fn sight(mut self, sight: &Sight) -> Self {
        self.lookup = sight.offer;
        self.settle = Some(sight.settle);
        self.outlives_sender = sight.outlives_sender;
        self.blind_spots = sight.blind_spots;
        self
    }

    /// Sets the settle time. Where a send rests on a believed miss, it must not be shorter than the timeout of an attempt.
    #[must_use]
    pub const fn settle(mut self, settle: Duration) -> Self {
        self.settle = Some(settle);
        self
    }

    /// Sets for how long confirming lookups go on after a send that followed one of unknown fate.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::ledger::{Contract, ContractClass};
    /// let contract = Contract::new(ContractClass::Lookup);
    /// assert_eq!(contract.horizon(), Duration::from_hours(1));
    /// assert_eq!(contract.confirm_for(Duration::from_hours(24)).horizon(), Duration::from_hours(24));
    /// ```
    #[must_use]
    pub const fn confirm_for(mut self, horizon: Duration) -> Self {
        self.confirm_for = Some(horizon);
        self
    }

    /// Sets after which sends confirming lookups are made.
    #[must_use]
    pub const fn confirm(mut self, confirm: Confirm) -> Self {
        self.confirm = Some(confirm);
        self
    }

    /// The sender itself makes the effect, as with a local file: no request arrives after its sender has ended.
    #[must_use]
    pub const fn ends_with_sender(mut self) -> Self {
        self.outlives_sender = false;
        self
    }

    /// Sets for how long the lookup shows an effect. Beyond that, a lookup that shows nothing asks nothing.
    #[must_use]
    pub const fn shown_for(mut self, shown: Duration) -> Self {
        self.shown_for = Some(shown);
        self
    }

    /// Names an operation after which the lookup need not show the effect any more. It removes the effects whose keys have the
    /// same [target](super::Key::target) as its own.
    ///
    /// ```
    /// use counterfoil::ledger::{Contract, ContractClass};
    /// let bookings = Contract::new(ContractClass::Lookup).removed_by("cancel_booking");
    /// # assert_eq!(bookings.removed_by, ["cancel_booking"]);
    /// ```
    #[must_use]
    pub fn removed_by(mut self, operation: impl Into<String>) -> Self {
        self.removed_by.push(operation.into());
        self
    }

    /// Sets how long the provider remembers a key.
    #[must_use]
    pub const fn key_window(mut self, window: Duration) -> Self {
        self.key_window = Some(window);
        self
    }

    /// Sets the longest key that the provider takes.
    #[must_use]
    pub const fn key_max_len(mut self, characters: usize) -> Self {
        self.key_max_len = characters;
        self
    }

    /// Sets the account, credential or region that the provider scopes its keys to.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// A notification may be sent although nobody can find out whether it arrived: a call of unknown outcome waits for a person. A blind
    /// notification that does not say so is not registered. Typed tools have [`BlindNotice`](crate::tool::contract::BlindNotice).
    #[must_use]
    pub const fn allow_blind_notices(mut self) -> Self {
        self.blind_notices = true;
        self
    }

    /// Opts in to repeating a call whose outcome nobody can find out. Duplicates become possible.
    #[must_use]
    pub const fn repeat_blindly(mut self) -> Self {
        self.repeat_blindly = true;
        self
    }

    /// Each call carries a version of what it sets, and the provider refuses an older one than it has: a call of class
    /// [`Idempotent`](ContractClass::Idempotent) that arrives late, or is repeated late, overwrites no later value.
    ///
    /// ```
    /// use counterfoil::ledger::{Contract, ContractClass, EffectClass, WorstCase};
    /// let flag = Contract::new(ContractClass::Idempotent);
    /// assert_eq!(WorstCase::of(EffectClass::InternalMutation, &flag), WorstCase::MayOverwrite);
    /// assert_eq!(WorstCase::of(EffectClass::InternalMutation, &flag.versioned()), WorstCase::RepeatsHarmlessly);
    /// ```
    #[must_use]
    pub const fn versioned(mut self) -> Self {
        self.versioned = true;
        self
    }

    /// Looks up the first send of each key before it is made, as on the first day beside an older system. A call that cannot be
    /// looked up asks a person.
    #[must_use]
    pub const fn look_first(mut self) -> Self {
        self.look_first = true;
        self
    }

    /// Sets the longest time from when the provider [accepts](crate::tool::ToolError::accepted) a call to when it has finished it.
    /// After that a person is asked.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::ledger::{Contract, ContractClass};
    /// let renders = Contract::new(ContractClass::Lookup).completes_within(Duration::from_hours(2));
    /// assert_eq!(renders.completion_time(), Duration::from_hours(2));
    /// ```
    #[must_use]
    pub const fn completes_within(mut self, longest: Duration) -> Self {
        self.completes_within = Some(longest);
        self
    }

    /// The longest time that an accepted call is waited for: a day, unless it was [set](Self::completes_within).
    pub fn completion_time(&self) -> Duration {
        self.completes_within.unwrap_or(DEFAULT_COMPLETION)
    }

    /// How long a request may still be on its way after its sender was fenced: 60 s, or the timeout of an attempt if that is
    /// longer, unless it was [set](Self::settle).
    pub fn settle_time(&self) -> Duration {
        self.settle.unwrap_or(DEFAULT_SETTLE)
    }

    /// For how long after a seal confirming lookups go on: at least an hour and at least ten settle times, unless it was
    /// [set](Self::confirm_for). One lookup, where no request outlives its sender.
    pub fn horizon(&self) -> Duration {
        let settle = self.settle_time();
        match self.confirm_for {
            _ if !self.outlives_sender => settle,
            Some(horizon) => horizon.max(settle),
            None => Duration::from_hours(1).max(settle.saturating_mul(10)),
        }
    }

    /// The settle time that holds for a tool with this retry policy.
    pub(crate) fn settled_for(mut self, retry: &RetryPolicy) -> Self {
        self.settle = self.settle.or(Some(DEFAULT_SETTLE.max(retry.timeout().unwrap_or_default())));
        self
    }

    /// The provider can be asked, and a copy of a request would be a second effect that it can show.
    pub(crate) fn looks_for_copies(&self, effect: EffectClass) -> bool {
        let wanted = self.confirm.unwrap_or(if effect.needs_one_look() {
            Confirm::Always
        } else {
            Confirm::AfterDoubt
        });
        wanted == Confirm::Always
            && self.lookup != LookupOffer::None
            && matches!(self.class, ContractClass::Lookup | ContractClass::Blind)
            && effect.leaves_mark()
    }

    /// The provider still honours a key first sent at `first_sent`: before its *last safe instant*.
    pub fn key_is_safe(&self, first_sent: Timestamp, now: Timestamp) -> bool {
        // A clock that went backwards says nothing about how long ago the key was sent.
        first_sent != Timestamp::MIN && self.key_safe_from(first_sent).is_none_or(|safe| safe.contains(&now))
    }

    /// From the first send of a key to its last safe instant; `None` if the provider remembers keys for ever.
    pub fn key_safe_from(&self, first_sent: Timestamp) -> Option<Range<Timestamp>> {
        self.key_window.map(|window| {
            let safe = window.saturating_sub(Self::WINDOW_MARGIN.min(window / 10));
            first_sent..first_sent.after(safe)
        })
    }

    /// Checks the declaration against effect class, retries and retention, at registration.
    pub fn check(
        &self,
        effect: EffectClass,
        retry: &RetryPolicy,
        retention: &Retention,
    ) -> Result<(), ContractError> {
        if self.class == ContractClass::Idempotent && !effect.can_be_idempotent() {
            return Err(ContractError::NotIdempotent { effect });
        }
        if effect.needs_reconcile() && self.class == ContractClass::Blind {
            return Err(ContractError::Unreconcilable { effect });
        }
        let is_blind = self.class == ContractClass::Blind && self.lookup == LookupOffer::None;
        if is_blind && effect == EffectClass::Notification && !self.blind_notices {
            return Err(ContractError::BlindNotice);
        }
        if self.class.needs_lookup() && self.lookup == LookupOffer::None {
            return Err(ContractError::NoLookup { class: self.class });
        }
        if self.key_max_len < OperationKey::WIRE_MIN {
            return Err(ContractError::KeyTooShort { characters: self.key_max_len });
        }
        let settle = self.settle_time();
        let rests_on_miss =
            matches!(WorstCase::of(effect, self), WorstCase::Settled | WorstCase::DeclaredThenSettled);
        if rests_on_miss && self.outlives_sender && settle < retry.attempt_timeout {
            return Err(ContractError::SettleBelowTimeout { settle, timeout: retry.attempt_timeout });
        }
        let horizon = retry.horizon();
        if let Some(kept) = retention.shortest()
            && kept < horizon
        {
            return Err(ContractError::RetentionBelowHorizon { kept, horizon });
        }
        let forgotten = retention.shortest().zip(self.key_window.filter(|_| self.class.collides()));
        if let Some((kept, window)) = forgotten.filter(|(kept, window)| kept < window) {
            return Err(ContractError::RetentionBelowKeyWindow { kept, window });
        }
        match self.key_window {
            Some(window) if self.class.collides() && window < horizon && self.lookup == LookupOffer::None => {
                Err(ContractError::WindowBelowHorizon { window, horizon })
            }
            _ => Ok(()),
        }
    }
}

/// Why a declaration is unsafe. The tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// A tool's calls are no changes in the ledger's own database.
    #[error(
        "a tool's record cannot be sealed in the transaction of its effect: use `ctx.transaction`, or a transactional HTTP route"
    )]
    SealedWithEffect,
    /// Nobody could find out what became of a payment.
    #[error("a {} cannot be sent to a blind provider: nobody could find out what became of it; \
             declare a key, a natural key or a lookup", effect.name())]
    Unreconcilable {
        /// The tool's effect class.
        effect: EffectClass,
    },
    /// Nobody could find out whether a notice arrived, and its tool does not say that this is meant.
    #[error(
        "a notification to a blind provider: nobody could find out whether it arrived; declare a key, a natural key or a lookup, or \
         say that it is meant, by `allow_blind_notices()` or the contract type `BlindNotice`"
    )]
    BlindNotice,
    /// A second notice is a second notice.
    #[error(
        "a {} is not idempotent by nature: a second one is a second effect; declare a key, a natural key or a lookup",
        effect.name()
    )]
    NotIdempotent {
        /// The tool's effect class.
        effect: EffectClass,
    },
    /// The class stands and falls with a lookup, and there is none.
    #[error("the contract class `{}` needs a lookup: give the tool a `reconcile`", class.name())]
    NoLookup {
        /// The declared class.
        class: ContractClass,
    },
    /// A miss would be believed while the request may still be sent.
    #[error(
        "a miss is believed after {settle:?}, but an attempt may last {timeout:?}: make the settle time at least as long, \
         or the attempt's timeout shorter"
    )]
    SettleBelowTimeout {
        /// The settle time.
        settle: Duration,
        /// The timeout of an attempt.
        timeout: Duration,
    },
    /// Too few characters for a key that cannot collide.
    #[error("keys of {characters} characters cannot be unique: the provider must allow at least 25")]
    KeyTooShort {
        /// What was declared.
        characters: usize,
    },
    /// The record would be forgotten while retries may still come (invariant 9).
    #[error(
        "the record is kept for {kept:?}, but retries may come for {horizon:?}: keep it longer or retry less"
    )]
    RetentionBelowHorizon {
        /// The retention.
        kept: Duration,
        /// The longest that retries may take.
        horizon: Duration,
    },
    /// The record would be forgotten while the provider still answers for its key.
    #[error(
        "the record is forgotten after {kept:?}, but the provider keeps its key for {window:?}: keep the record for as long, or leave a \
         tombstone"
    )]
    RetentionBelowKeyWindow {
        /// The retention.
        kept: Duration,
        /// The provider's window.
        window: Duration,
    },
    /// The provider would have forgotten the key while we still retry under it.
    #[error(
        "the provider keeps keys for {window:?}, but retries may come for {horizon:?}: retry less, or give a lookup"
    )]
    WindowBelowHorizon {
        /// The provider's window.
        window: Duration,
        /// The longest that retries may take.
        horizon: Duration,
    },
}
