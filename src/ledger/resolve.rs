//! What to do next about a call whose fate is unknown (DESIGN 4.2 and 4.3). One step at a time: the
//! executor carries the step out, learns something, and asks again.

use super::contract::{Contract, ContractClass, LookupOffer};
use super::effect::EffectClass;

/// What the last lookup said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// None was made yet.
    NotYet,
    /// It showed nothing, and was made before the settle time was over.
    MissedEarly,
    /// It showed nothing, and was made after the settle time.
    MissedSettled,
    /// It showed nothing, and was made under another scope than the call was sent under.
    MissedElsewhere,
    /// It could not say, or could not be made, as often as its own policy allows.
    Unanswered,
    /// It showed something that another request has made.
    Foreign,
}

/// What is known about the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub struct Known {
    /// What the last lookup said.
    pub looked: Looked,
    /// The key is inside the provider's window and its scope is the one it was first sent under.
    pub key_honoured: bool,
    /// The settle time has passed since the old sender was fenced.
    pub settled: bool,
    /// A send under the key was refused as a duplicate.
    pub refused_as_duplicate: bool,
    /// The approval that the effect needs is valid now (or none is needed).
    pub may_send: bool,
    /// Attempts are left.
    pub attempts_left: bool,
    /// The attempt has noted something in its record.
    pub noted: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Ask the external system.
    Look,
    /// Wait until the settle time is over; a miss is not believed before.
    Settle,
    /// Send again under the same key, which collides with the first send.
    Resend {
        /// Nothing but the provider's word stands against a duplicate: mark the record.
        on_declaration: bool,
    },
    /// Send again after a miss that is believed; look once more one settle time later.
    SendAndConfirm,
    /// Do it again: harmless by its nature, or opted in to.
    Repeat,
    /// Ask a person.
    Escalate(Why),
}

/// Why only a person can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The provider can neither be asked nor told apart a repeat.
    Blind,
    /// The provider has forgotten the key by now, or its scope changed, and there is no lookup.
    KeyExpired,
    /// The provider refuses the key as known and shows no effect: a failed request may have burned it.
    KeyBurned,
    /// The lookup does not answer.
    LookupUnanswered,
    /// A miss in a lookup that lags proves nothing.
    LookupLags,
    /// Nor does one under another scope (another account, another region) than the call was sent under.
    OtherScope,
    /// It would have to be sent again, but its approval is no longer valid.
    ApprovalExpired,
    /// It would have to be sent again, and what it takes went with its caller: an approval, a secret.
    CallerGone,
    /// It would have to be sent again, but the attempts are used up.
    AttemptsUsedUp,
    /// It would have to be sent again, and nobody wants it any more: its run dropped it.
    Unwanted,
    /// This ledger has not sent it, but may be older than the world, and nothing else can tell.
    Restored,
    /// It ended the transaction by itself in which its record was to be sealed.
    EndedInside,
    /// The lookup shows something under the key or the name of the call that another request has made.
    Foreign,
    /// The provider has accepted the call, and has not finished it within the longest time.
    NeverFinished,
}

impl Why {
    /// The question as a person reads it.
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

/// Decides the next step.
pub fn next(effect: EffectClass, contract: &Contract, known: &Known) -> Next {
    // The provider knows it: sending it again would be refused again, or make a second one.
    if known.refused_as_duplicate {
        return burned(contract, *known);
    }
    if effect.may_repeat(contract.class) {
        return send(*known, Next::Repeat);
    }
    if contract.sealed_with_effect {
        // The mark is the transaction's first write: it is seen if somebody else than the engine has committed.
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
        // Whatever the lookup said, the second send makes no second effect, if the provider does as it says:
        // nothing waits. Only a miss that is believed stands against a duplicate by itself.
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

/// The provider knows the key and does not show the result: look, wait out the lag, look again, then ask.
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

/// Nothing collides: "not found" is believed only after the settle time, and only from a strong lookup.
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

/// A send needs a valid approval and an attempt that is left.
const fn send(known: Known, how: Next) -> Next {
    if !known.may_send {
        Next::Escalate(Why::ApprovalExpired)
    } else if !known.attempts_left {
        Next::Escalate(Why::AttemptsUsedUp)
    } else {
        how
    }
}
