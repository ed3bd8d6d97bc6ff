//! The next step for a call whose outcome is unknown. The rule decides one step at a time: the executor carries the
//! step out, learns its result, and asks again.

use super::contract::{Contract, ContractClass, LookupOffer};
use super::effect::EffectClass;

/// The result of the last lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// No lookup was made yet.
    NotYet,
    /// The lookup showed nothing and was made before the settle time was over.
    MissedEarly,
    /// The lookup showed nothing and was made after the settle time.
    MissedSettled,
    /// The lookup showed nothing and was made under another scope than the call was sent under.
    MissedElsewhere,
    /// The lookup had no answer or could not be made, as often as its retry policy allows.
    Unanswered,
    /// The lookup showed something that another request has made.
    Foreign,
}

/// The known facts about the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub struct Known {
    /// The result of the last lookup.
    pub looked: Looked,
    /// True if the key is inside the provider's window and its scope is the one that it was first sent under.
    pub key_honoured: bool,
    /// True if the settle time has passed since the old sender was fenced.
    pub settled: bool,
    /// True if a send under the key was refused as a duplicate.
    pub refused_as_duplicate: bool,
    /// True if the approval that the effect needs is valid now, or if the effect needs none.
    pub may_send: bool,
    /// True if attempts are left.
    pub attempts_left: bool,
    /// True if the attempt has noted an external id in its record.
    pub noted: bool,
}

/// The next step for a call of unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Look the call up at the provider.
    Look,
    /// Wait until the settle time is over; a miss is not believed before.
    Settle,
    /// Send again under the same key, which collides with the first send.
    Resend {
        /// True if only the provider's declaration prevents a duplicate: the record is then marked.
        on_declaration: bool,
    },
    /// Send again after a miss that is believed, and look once more one settle time later.
    SendAndConfirm,
    /// Send again: the repeat is harmless by its nature, or the tool opted in to repeats.
    Repeat,
    /// Ask a person, for this reason.
    Escalate(Why),
}

/// The reason why only a person can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The provider can neither be asked nor recognise a repeat.
    Blind,
    /// The provider has forgotten the key by now, or the key's scope has changed, and there is no lookup.
    KeyExpired,
    /// The provider refuses the key as known and shows no effect: a failed request may have used the key up.
    KeyBurned,
    /// The lookup does not answer.
    LookupUnanswered,
    /// The lookup lags, so its miss proves nothing.
    LookupLags,
    /// The lookup was made under another scope (another account, another region) than the call, so its miss proves
    /// nothing.
    OtherScope,
    /// The call would have to be sent again, but its approval is no longer valid.
    ApprovalExpired,
    /// The call would have to be sent again, but an approval or a secret that it needs was lost with its caller.
    CallerGone,
    /// The call would have to be sent again, but the attempts are used up.
    AttemptsUsedUp,
    /// The call would have to be sent again, but its run dropped it and nobody wants the effect any more.
    Unwanted,
    /// This ledger has not sent the call, but this ledger may be older than the world, and there is no other
    /// evidence.
    Restored,
    /// The call itself ended the transaction in which its record was to be sealed.
    EndedInside,
    /// The lookup shows an effect under the key or the name of the call that another request has made.
    Foreign,
    /// The provider has accepted the call and has not finished it within the longest time.
    NeverFinished,
}

impl Next {
    /// The name used in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Look => "lookup",
            Self::Settle => "settle time",
            Self::Resend { .. } => "resend",
            Self::SendAndConfirm => "resend and lookup",
            Self::Repeat => "repeat",
            Self::Escalate(_) => "question",
        }
    }
}

impl Why {
    /// The question in words for a person.
    pub const fn question(self) -> &'static str {
        match self {
            Self::Blind => {
                "The call may have happened. Its provider can neither be asked nor tell a repeat apart. Did it?"
            }
            Self::KeyExpired => {
                "The call may have happened, and the provider no longer remembers its key. Did it?"
            }
            Self::KeyBurned => "The provider refuses the key as known but shows no effect. Did it happen?",
            Self::LookupUnanswered => {
                "The call may have happened, and the provider's lookup does not answer. Did it?"
            }
            Self::LookupLags => "The lookup shows no effect, but it lags behind. Did it happen?",
            Self::OtherScope => {
                "The call may have happened under another account or region than the tool uses now, where the lookup does not see it. Did it?"
            }
            Self::ApprovalExpired => {
                "The call did not happen, and its approval is no longer valid. Send it all the same?"
            }
            Self::CallerGone => {
                "The call may have happened. To send it again takes what its caller had: an approval, a secret. Did it?"
            }
            Self::AttemptsUsedUp => "The call may have happened, and its attempts are used up. Did it?",
            Self::Restored => {
                "This ledger has not sent the call, but it may be older than the world: a restored backup, or a new ledger beside an \
                 older system. Nothing else can tell whether it happened. Did it?"
            }
            Self::EndedInside => {
                "The call ended its transaction itself (COMMIT or ROLLBACK inside). What it committed is durable, and its result is not \
                 recorded. Look by hand at what it has changed. Did it happen?"
            }
            Self::Foreign => {
                "The lookup shows something under the call's key or name that another request has made. Did the call happen?"
            }
            Self::NeverFinished => {
                "The provider has accepted the call, and has not finished it within its longest time. Did it happen?"
            }
            Self::Unwanted => {
                "The call may have happened. Its run dropped it, so it is not sent again, and nothing else can tell. Did it?"
            }
        }
    }
}

/// Decides the next step for a call of unknown outcome.
pub fn next(effect: EffectClass, contract: &Contract, known: &Known) -> Next {
    // The provider knows the key: another send would be refused again, or make a second effect.
    if known.refused_as_duplicate {
        return burned(contract, *known);
    }
    if effect.may_repeat(contract.class) {
        return send(*known, Next::Repeat);
    }
    if contract.sealed_with_effect {
        // The mark is the first write of the transaction. A visible mark means that something other than the engine
        // has committed.
        let ended_inside = known.noted;
        return if ended_inside {
            Next::Escalate(Why::EndedInside)
        } else {
            send(*known, Next::Resend { on_declaration: false })
        };
    }
    let can_look = contract.lookup != LookupOffer::None;
    if can_look && known.looked == Looked::NotYet {
        return Next::Look;
    }
    if can_look && known.looked == Looked::Foreign {
        return Next::Escalate(Why::Foreign);
    }
    let collides = contract.class.collides() && known.key_honoured;
    if collides {
        // The second send makes no second effect, whatever the lookup said, if the provider keeps its declaration: no
        // wait is needed. Only a miss that is believed prevents a duplicate by itself.
        let missed = contract.lookup == LookupOffer::Strong && known.looked == Looked::MissedSettled;
        return send(*known, Next::Resend { on_declaration: !missed });
    }
    match contract.class {
        ContractClass::Blind | ContractClass::Transactional | ContractClass::Idempotent if !can_look => {
            blind(contract, *known)
        }
        _ if !can_look => Next::Escalate(Why::KeyExpired),
        _ => by_lookup(contract, *known),
    }
}

/// The next step if the provider knows the key and does not show the result: look, wait out the lag, look again, then
/// ask a person.
fn burned(contract: &Contract, known: Known) -> Next {
    match known.looked {
        _ if contract.lookup == LookupOffer::None => Next::Escalate(Why::KeyBurned),
        Looked::NotYet => Next::Look,
        Looked::MissedEarly if known.settled => Next::Look,
        Looked::MissedEarly => Next::Settle,
        Looked::MissedSettled => Next::Escalate(Why::KeyBurned),
        Looked::MissedElsewhere => Next::Escalate(Why::OtherScope),
        Looked::Unanswered => Next::Escalate(Why::LookupUnanswered),
        Looked::Foreign => Next::Escalate(Why::Foreign),
    }
}

/// The next step if no key collides: a miss is believed only after the settle time, and only from a strong lookup.
fn by_lookup(contract: &Contract, known: Known) -> Next {
    match known.looked {
        Looked::NotYet => Next::Look,
        Looked::MissedEarly if known.settled => Next::Look,
        Looked::MissedEarly => Next::Settle,
        Looked::MissedSettled if contract.lookup == LookupOffer::Eventual => Next::Escalate(Why::LookupLags),
        Looked::MissedSettled => send(known, Next::SendAndConfirm),
        Looked::MissedElsewhere => Next::Escalate(Why::OtherScope),
        Looked::Unanswered => Next::Escalate(Why::LookupUnanswered),
        Looked::Foreign => Next::Escalate(Why::Foreign),
    }
}

fn blind(contract: &Contract, known: Known) -> Next {
    if contract.repeat_blindly { send(known, Next::Repeat) } else { Next::Escalate(Why::Blind) }
}

/// The next step `how` if a valid approval and an attempt are left; otherwise a person is asked.
const fn send(known: Known, how: Next) -> Next {
    if !known.may_send {
        Next::Escalate(Why::ApprovalExpired)
    } else if !known.attempts_left {
        Next::Escalate(Why::AttemptsUsedUp)
    } else {
        how
    }
}
