//! The contract of a provider: its offer decides the guarantee for a call.

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

/// The seven classes of provider contracts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractClass {
    /// The effect is in the ledger's own database: one transaction with its record.
    Transactional,
    /// The provider takes a key; a duplicate gets the stored result.
    ReplaysKey,
    /// The provider takes a key; a duplicate is refused without the result.
    RejectsKey,
    /// The create is conditional, or the id of the effect is known before sending.
    NaturalKey,
    /// The provider takes no key, but has a strongly consistent lookup by the caller's reference.
    Lookup,
    /// The provider takes no key and has no lookup.
    Blind,
    /// The call is idempotent by nature: it sets something to a value, or removes something that may already be gone.
    /// It may be made again whenever its outcome is unknown, and so it goes out before anything is recorded.
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

    /// True if a second send under the same key collides with the first one at the provider.
    pub const fn collides(self) -> bool {
        matches!(self, Self::ReplaysKey | Self::RejectsKey | Self::NaturalKey)
    }

    /// True if an unknown outcome cannot be settled without a lookup.
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

/// The offer of a provider's lookup: how far its answer can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookupOffer {
    /// The provider has no lookup.
    None,
    /// The lookup may miss an effect for a while, so a miss proves nothing and is never followed by a send.
    Eventual,
    /// The lookup shows every effect that has been applied.
    Strong,
}

/// The sends after which a committed record is looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confirm {
    /// Only sends that followed one of unknown outcome, which may still arrive.
    AfterDoubt,
    /// All sends to a provider that does not recognise copies: the network may have doubled the request.
    Always,
}

/// The contract of a provider, as its tool declares it.
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
    /// The class of the contract.
    pub class: ContractClass,
    /// The offer of the provider's lookup.
    pub lookup: LookupOffer,
    /// The maximum length of a key, in characters.
    pub key_max_len: usize,
    /// The time for which the provider remembers a key, counted from the first byte that may have been sent; `None`
    /// if for ever.
    pub key_window: Option<Duration>,
    /// The settle time: the time for which a request may still be on its way after its sender was fenced. `None`: see
    /// [`settle_time`](Self::settle_time).
    pub settle: Option<Duration>,
    /// The time for which confirming lookups continue. `None`: see [`horizon`](Self::horizon).
    pub confirm_for: Option<Duration>,
    /// The sends after which confirming lookups are made. `None`: [`Confirm::Always`] for payments, notifications and
    /// deletions.
    pub confirm: Option<Confirm>,
    /// True if a request may arrive after its sender has ended; false if the sender itself makes the effect, as with
    /// a local file.
    pub outlives_sender: bool,
    /// The time for which the lookup shows an effect. `None`: for ever.
    pub shown_for: Option<Duration>,
    /// The operations after which the lookup need not show the effect any more.
    pub removed_by: Vec<String>,
    /// The scope of the key at the provider (credential, account, region). A key under a changed scope is *no key*.
    pub scope: Option<String>,
    /// True if a call of unknown outcome is repeated although there is no lookup: an explicit opt-in to duplicates.
    pub repeat_blindly: bool,
    /// True if the first send of a key is preceded by its lookup, for effects that were made before this ledger.
    pub look_first: bool,
    /// The facts that the lookup cannot know, for the guarantee report.
    pub blind_spots: &'static [&'static str],
    /// The longest time from the acceptance of a call by the provider to its completion. `None`: see
    /// [`completion_time`](Self::completion_time).
    pub completes_within: Option<Duration>,
    /// True if a notification may be sent although its arrival cannot be found out.
    pub blind_notices: bool,
    /// True if each call carries a version of its value, and the provider refuses an older version than it has.
    pub versioned: bool,
    /// True if the effects are changes in the ledger's own database, and the record is sealed in their transaction:
    /// until it is sealed, nothing has happened. Only the transaction of a door keeps this: a tool that declares it
    /// is not registered.
    pub sealed_with_effect: bool,
}

/// The settle time, unless the contract sets another one or an attempt may last longer.
const DEFAULT_SETTLE: Duration = Duration::from_mins(1);
/// The longest time to wait for an accepted call, unless the contract sets another one.
const DEFAULT_COMPLETION: Duration = Duration::from_hours(24);

impl Contract {
    /// The safety margin at the end of a key window, for clocks that differ and requests that are delayed.
    pub const WINDOW_MARGIN: Duration = Duration::from_mins(1);

    /// A contract of this class with careful defaults: a settle time of 60 s or an attempt's timeout, whichever is
    /// longer; keys of 64 characters, remembered for ever; a strong lookup if the class needs one, and otherwise
    /// none.
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

    /// The contract of calls whose records are sealed in the transactions of their effects.
    #[cfg_attr(not(feature = "_sealed"), allow(dead_code, reason = "the doors declare it"))]
    pub(crate) const fn sealed_with_effect() -> Self {
        let mut contract = Self::new(ContractClass::Transactional);
        contract.sealed_with_effect = true;
        contract
    }

    /// Sets the offer of the lookup.
    #[must_use]
    pub const fn lookup(mut self, lookup: LookupOffer) -> Self {
        self.lookup = lookup;
        self
    }

    /// Takes over the offer, the settle time and the blind spots of a kind of lookup.
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

    /// Sets the settle time. If a send rests on a believed miss, the settle time must not be shorter than the timeout
    /// of an attempt.
    #[must_use]
    pub const fn settle(mut self, settle: Duration) -> Self {
        self.settle = Some(settle);
        self
    }

    /// Sets the time for which confirming lookups continue after a send that followed one of unknown outcome.
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

    /// Sets the sends after which confirming lookups are made.
    #[must_use]
    pub const fn confirm(mut self, confirm: Confirm) -> Self {
        self.confirm = Some(confirm);
        self
    }

    /// Declares that the sender itself makes the effect, as with a local file: no request arrives after its sender
    /// has ended.
    #[must_use]
    pub const fn ends_with_sender(mut self) -> Self {
        self.outlives_sender = false;
        self
    }

    /// Sets the time for which the lookup shows an effect. After that time, a miss opens no question.
    #[must_use]
    pub const fn shown_for(mut self, shown: Duration) -> Self {
        self.shown_for = Some(shown);
        self
    }

    /// Names an operation after which the lookup need not show the effect any more. That operation removes the
    /// effects whose keys have the same [target](super::Key::target) as its own.
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

    /// Sets the time for which the provider remembers a key.
    #[must_use]
    pub const fn key_window(mut self, window: Duration) -> Self {
        self.key_window = Some(window);
        self
    }

    /// Sets the maximum length of a key that the provider takes, in characters.
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

    /// Allows notifications whose arrival cannot be found out: a call of unknown outcome waits for a person. A blind
    /// notification without this permission is not registered. Typed tools have
    /// [`BlindNotice`](crate::tool::contract::BlindNotice).
    #[must_use]
    pub const fn allow_blind_notices(mut self) -> Self {
        self.blind_notices = true;
        self
    }

    /// Opts in to repeating a call whose outcome cannot be found out. Duplicates become possible.
    #[must_use]
    pub const fn repeat_blindly(mut self) -> Self {
        self.repeat_blindly = true;
        self
    }

    /// Declares that each call carries a version of its value, and that the provider refuses an older version than it
    /// has: a call of class [`Idempotent`](ContractClass::Idempotent) that arrives late, or is repeated late,
    /// overwrites no later value.
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

    /// Looks each key up before its first send, as on the first day beside an older system. If a call cannot be
    /// looked up, a person is asked.
    #[must_use]
    pub const fn look_first(mut self) -> Self {
        self.look_first = true;
        self
    }

    /// Sets the longest time from the instant at which the provider [accepts](crate::tool::ToolError::accepted) a
    /// call to its completion. After that a person is asked.
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

    /// The longest time to wait for an accepted call. Default: 24 h, unless it was [set](Self::completes_within).
    pub fn completion_time(&self) -> Duration {
        self.completes_within.unwrap_or(DEFAULT_COMPLETION)
    }

    /// The time for which a request may still be on its way after its sender was fenced. Default: 60 s, or the
    /// timeout of an attempt if that is longer, unless it was [set](Self::settle).
    pub fn settle_time(&self) -> Duration {
        self.settle.unwrap_or(DEFAULT_SETTLE)
    }

    /// The time after a seal for which confirming lookups continue. Default: at least an hour and at least ten settle
    /// times, unless it was [set](Self::confirm_for). If no request outlives its sender, one lookup is made.
    pub fn horizon(&self) -> Duration {
        let settle = self.settle_time();
        match self.confirm_for {
            _ if !self.outlives_sender => settle,
            Some(horizon) => horizon.max(settle),
            None => Duration::from_hours(1).max(settle.saturating_mul(10)),
        }
    }

    /// The contract with the settle time that applies to a tool with this retry policy.
    pub(crate) fn settled_for(mut self, retry: &RetryPolicy) -> Self {
        self.settle = self.settle.or(Some(DEFAULT_SETTLE.max(retry.timeout().unwrap_or_default())));
        self
    }

    /// True if a committed record is looked up for copies of its request: the provider can be asked, and a copy would
    /// be a second effect that the lookup can show.
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

    /// True if the provider still honours a key that was first sent at `first_sent`: before its *last safe instant*.
    pub fn key_is_safe(&self, first_sent: Timestamp, now: Timestamp) -> bool {
        // A clock that went backwards does not tell how long ago the key was sent.
        first_sent != Timestamp::MIN && self.key_safe_from(first_sent).is_none_or(|safe| safe.contains(&now))
    }

    /// The range from the first send of a key to its last safe instant; `None` if the provider remembers keys for
    /// ever.
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

/// The reason why a declaration is unsafe. The tool was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The calls of a tool are not changes in the ledger's own database.
    #[error(
        "a tool's record cannot be sealed in the transaction of its effect: use `ctx.transaction`, or a transactional HTTP route [contract]"
    )]
    SealedWithEffect,
    /// The outcome of a payment could not be found out.
    #[error("a {} cannot be sent to a blind provider: nobody could find out what became of it; \
             declare a key, a natural key or a lookup [contract]", effect.name())]
    Unreconcilable {
        /// The tool's effect class.
        effect: EffectClass,
    },
    /// The arrival of a notice could not be found out, and its tool does not allow that.
    #[error(
        "a notification to a blind provider: nobody could find out whether it arrived; declare a key, a natural key or a lookup, or \
         say that it is meant, by `allow_blind_notices()` or the contract type `BlindNotice` [contract]"
    )]
    BlindNotice,
    /// The effect class is not idempotent: a second payment, notice or draft is a second effect.
    #[error(
        "a {} is not idempotent by nature: a second one is a second effect; declare a key, a natural key or a lookup [contract]",
        effect.name()
    )]
    NotIdempotent {
        /// The tool's effect class.
        effect: EffectClass,
    },
    /// The class depends on a lookup, and there is none.
    #[error("the contract class `{}` needs a lookup: give the tool a `reconcile` [contract]", class.name())]
    NoLookup {
        /// The declared contract class.
        class: ContractClass,
    },
    /// A miss would be believed while the request may still be sent.
    #[error(
        "a miss is believed after {settle:?}, but an attempt may last {timeout:?}: make the settle time at least as long, \
         or the attempt's timeout shorter [contract]"
    )]
    SettleBelowTimeout {
        /// The settle time.
        settle: Duration,
        /// The timeout of an attempt.
        timeout: Duration,
    },
    /// The provider takes too few characters for a key that cannot collide.
    #[error(
        "keys of {characters} characters cannot be unique: the provider must allow at least 25 [contract]"
    )]
    KeyTooShort {
        /// The declared maximum length, in characters.
        characters: usize,
    },
    /// The record would be forgotten while retries may still come.
    #[error(
        "the record is kept for {kept:?}, but retries may come for {horizon:?}: keep it longer or retry less [contract]"
    )]
    RetentionBelowHorizon {
        /// The retention of the record.
        kept: Duration,
        /// The longest time that retries may take.
        horizon: Duration,
    },
    /// The record would be forgotten while the provider still answers for its key.
    #[error(
        "the record is forgotten after {kept:?}, but the provider keeps its key for {window:?}: keep the record for as long, or leave a \
         tombstone [contract]"
    )]
    RetentionBelowKeyWindow {
        /// The retention of the record.
        kept: Duration,
        /// The key window of the provider.
        window: Duration,
    },
    /// The provider would forget the key while retries still use it.
    #[error(
        "the provider keeps keys for {window:?}, but retries may come for {horizon:?}: retry less, or give a lookup [contract]"
    )]
    WindowBelowHorizon {
        /// The key window of the provider.
        window: Duration,
        /// The longest time that retries may take.
        horizon: Duration,
    },
}
