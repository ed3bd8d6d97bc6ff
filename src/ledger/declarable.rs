//! The rules that the contract of a registered tool keeps.

use std::time::Duration;

use super::contract::{Contract, ContractClass, LookupOffer};
use super::effect::EffectClass;
use super::guarantee::WorstCase;
use super::key::OperationKey;
use super::retention::Retention;
use super::retry::RetryPolicy;

impl Contract {
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
