//! The guarantee for a call before it is made: the worst possible outcome, and the steps that follow an unknown
//! outcome. Both are derived from [`resolve::next`], which makes the decision at run time, so that the report and the
//! decision cannot differ.

use serde::{Deserialize, Serialize};

use super::contract::{Contract, LookupOffer};
use super::effect::EffectClass;
use super::resolve::{Known, Looked, Next, next};

/// The worst possible outcome of a call, whatever dies in between.
///
/// ```
/// use counterfoil::ledger::{Contract, ContractClass, EffectClass, WorstCase};
///
/// let worst = |class| WorstCase::of(EffectClass::Payment, &Contract::new(class));
/// assert_eq!(worst(ContractClass::ReplaysKey).words(), "no duplicate, resting on the provider's declaration");
/// assert_eq!(worst(ContractClass::Blind), WorstCase::AtMostOnce);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorstCase {
    /// The effect happens once: it is in the ledger's own database, in one transaction with its record.
    ExactlyOnce,
    /// The effect happens at most once. If its outcome is unknown, a person decides: nothing is sent a second time.
    AtMostOnce,
    /// The call is sent again if the provider declares that it recognises a repeat by its key. There is no duplicate
    /// if the declaration is true.
    Declared,
    /// The call is sent again if its effect is missing after the settle time. A request that has arrived by then
    /// makes no duplicate. A request that arrives later makes one, which is looked for until the
    /// [horizon](Contract::horizon), counted and asked about.
    Settled,
    /// `Declared` while the provider remembers the key, then `Settled`.
    DeclaredThenSettled,
    /// The call may happen again without harm: it leaves no mark, or sets the same value in the same version.
    RepeatsHarmlessly,
    /// The call may happen again and sets the same value once more. If the repeat arrives late, it overwrites the
    /// value of a later call, unless calls carry a [version](Contract::versioned).
    MayOverwrite,
    /// The call may happen again: its tool opted in to repeats.
    Repeats,
}

impl WorstCase {
    /// The worst outcome of everything that can be decided about such a call.
    pub fn of(effect: EffectClass, contract: &Contract) -> Self {
        if contract.sealed_with_effect {
            return Self::ExactlyOnce;
        }
        let (mut repeats, mut declared, mut settled) = (false, false, false);
        for known in conceivable(contract) {
            match next(effect, contract, &known) {
                Next::Repeat => repeats = true,
                Next::Resend { .. } => declared = true,
                Next::SendAndConfirm => settled = true,
                Next::Look | Next::Settle | Next::Escalate(_) => {}
            }
        }
        match (repeats, declared, settled) {
            (true, ..) if effect.repeatable() || contract.versioned => Self::RepeatsHarmlessly,
            (true, ..) if effect.may_repeat(contract.class) => Self::MayOverwrite,
            (true, ..) => Self::Repeats,
            (false, true, true) => Self::DeclaredThenSettled,
            (false, true, false) => Self::Declared,
            (false, false, true) => Self::Settled,
            (false, false, false) => Self::AtMostOnce,
        }
    }

    /// The worst case in words for a person.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly once",
            Self::AtMostOnce => "at most once, then a person decides",
            Self::Declared => "no duplicate, resting on the provider's declaration",
            Self::Settled => "no duplicate within the settle time, later found and counted",
            Self::DeclaredThenSettled => {
                "no duplicate, resting on the provider's declaration; once the key has expired, within the settle time"
            }
            Self::RepeatsHarmlessly => "may repeat, harmless",
            Self::MayOverwrite => "may repeat; a late repeat may overwrite a later value",
            Self::Repeats => "may repeat (opted in)",
        }
    }
}

/// All states of knowledge about a call of unknown outcome at a provider with this contract.
fn conceivable(contract: &Contract) -> impl Iterator<Item = Known> {
    let all = [
        Looked::NotYet,
        Looked::MissedEarly,
        Looked::MissedSettled,
        Looked::MissedElsewhere,
        Looked::Unanswered,
    ];
    let made = if contract.lookup == LookupOffer::None { 1 } else { all.len() };
    let expires = contract.key_window.is_some();
    let known = all.into_iter().take(made).flat_map(|looked| {
        (0..32_u8).map(move |bits| Known {
            looked,
            key_honoured: holds(bits, 1),
            settled: holds(bits, 2),
            refused_as_duplicate: holds(bits, 4),
            may_send: holds(bits, 8),
            attempts_left: holds(bits, 16),
            noted: false, // `noted` decides something only for calls that are sealed with their effects
        })
    });
    // A key that does not expire is void only under another scope, and a miss there is `MissedElsewhere`.
    known.filter(move |known| expires || known.key_honoured || known.looked != Looked::MissedSettled)
}

const fn holds(bits: u8, bit: u8) -> bool {
    bits & bit != 0
}

/// The steps for a call of unknown outcome if every lookup shows nothing: up to the step that sends the call again or
/// asks a person. `key_honoured`: the provider still knows the key.
pub fn on_unknown(effect: EffectClass, contract: &Contract, key_honoured: bool) -> Vec<Next> {
    let mut known = Known {
        looked: Looked::NotYet,
        key_honoured,
        settled: contract.settle_time().is_zero(),
        refused_as_duplicate: false,
        may_send: true,
        attempts_left: true,
        noted: false,
    };
    let mut steps = Vec::new();
    loop {
        let step = next(effect, contract, &known);
        steps.push(step);
        match step {
            Next::Look if known.settled => known.looked = Looked::MissedSettled,
            Next::Look => known.looked = Looked::MissedEarly,
            Next::Settle => known.settled = true,
            _ => return steps,
        }
    }
}
