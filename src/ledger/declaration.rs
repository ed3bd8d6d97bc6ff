//! The declaration of a tool when its call went out. A record names the declaration by number, so that a later build
//! of the tool settles the call by the earlier promise, not by its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bound::BoundFields;
use super::contract::{Contract, ContractClass, LookupOffer};
use super::effect::EffectClass;
use super::key::OperationKey;
use crate::id::Tenant;

/// A tool's declaration, with the rules by which this build derives the data that goes out.
///
/// Each declaration is written once, when it is new. It decides what may be *sent* for a call of unknown outcome:
/// under which wire key, for how long the provider honours that key, and whether a repeat is harmless. A lookup that
/// only the present build has may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The name of the tool.
    pub tool: String,
    /// The effect class of the call.
    pub effect: EffectClass,
    /// The contract class of the provider.
    pub class: ContractClass,
    /// The offer of the provider's lookup.
    pub lookup: LookupOffer,
    /// The time for which the provider remembers a key; `None` if for ever.
    pub key_window: Option<Duration>,
    /// The settle time: the time for which a request may still be on its way after its sender has stopped.
    pub settle: Duration,
    /// The scope of the key at the provider.
    pub scope: Option<String>,
    /// True if a call of unknown outcome may be repeated although there is no lookup.
    pub repeat_blindly: bool,
    /// The namespace of the deployment, as the wire key holds it.
    pub namespace: String,
    /// The maximum length of a wire key, in characters.
    pub key_max_len: usize,
    /// The rule by which wire keys are made: see [`OperationKey::WIRE_RULE`].
    pub wire_rule: u32,
    /// The version of the tool's input type.
    pub input_version: u32,
    /// The fields of the input that the key is bound to.
    #[serde(default, skip_serializing_if = "BoundFields::is_all")]
    pub bound: BoundFields,
    /// True if the record is sealed in the transaction of its effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed_with_effect: bool,
    /// True if any JSON is a valid result: for a plain function, a route of a door, a tool that was made at run time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_output: bool,
}

/// The terms of a tool's calls, as its code states them.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The effect of a call.
    pub effect: EffectClass,
    /// The promise of the provider.
    pub contract: &'a Contract,
    /// The version of the tool's input type.
    pub input_version: u32,
}

impl Declaration {
    /// The present declaration of a tool in a deployment with this namespace.
    pub fn of(tool: &str, terms: Terms<'_>, namespace: &str) -> Self {
        let Terms { effect, contract, input_version } = terms;
        Self {
            tool: tool.to_owned(),
            effect,
            class: contract.class,
            lookup: contract.lookup,
            key_window: contract.key_window,
            settle: contract.settle_time(),
            scope: contract.scope.clone(),
            repeat_blindly: contract.repeat_blindly,
            namespace: namespace.to_owned(),
            key_max_len: contract.key_max_len,
            wire_rule: OperationKey::WIRE_RULE,
            input_version,
            sealed_with_effect: contract.sealed_with_effect,
            bound: BoundFields::All,
            any_output: false,
        }
    }

    /// True if the tool still declares this now. It copies nothing, because it is checked for each call.
    pub(crate) fn is_still(&self, terms: Terms<'_>, namespace: &str) -> bool {
        let Terms { effect, contract, input_version } = terms;
        self.effect == effect
            && self.class == contract.class
            && self.lookup == contract.lookup
            && self.key_window == contract.key_window
            && self.settle == contract.settle_time()
            && self.scope == contract.scope
            && self.repeat_blindly == contract.repeat_blindly
            && self.namespace == namespace
            && self.key_max_len == contract.key_max_len
            && self.wire_rule == OperationKey::WIRE_RULE
            && self.input_version == input_version
            && self.sealed_with_effect == contract.sealed_with_effect
    }

    /// The wire key: the key as it went to the provider.
    pub fn wire_key(&self, key: &OperationKey, tenant: &Tenant) -> String {
        key.wire_within(&self.namespace, tenant, self.key_max_len)
    }

    /// The contract by which a call that went out under this declaration is settled, while its tool declares `now`.
    /// The weaker promise of the two counts. A lookup that only the present tool has may be asked, but its miss
    /// proves nothing: the earlier request may lack the data by which that lookup searches.
    pub fn binding(&self, now: &Contract) -> Contract {
        let is_idempotent = |class| class == ContractClass::Idempotent;
        let class = match (self.class, now.class) {
            // One build sends no key, and the other one may not repeat.
            (then, now) if is_idempotent(then) != is_idempotent(now) => ContractClass::Blind,
            (then, now) if collisions(now) < collisions(then) => now,
            (then, _) => then,
        };
        let key_window = match (self.key_window, now.key_window) {
            (Some(then), Some(now)) => Some(then.min(now)),
            (then, now) => then.or(now),
        };
        let lookup = match (self.lookup, now.lookup) {
            (_, LookupOffer::None) => LookupOffer::None,
            (LookupOffer::Strong, LookupOffer::Strong) => LookupOffer::Strong,
            _ => LookupOffer::Eventual,
        };
        Contract {
            class,
            lookup,
            key_window,
            settle: Some(self.settle.max(now.settle_time())),
            repeat_blindly: self.repeat_blindly && now.repeat_blindly,
            key_max_len: self.key_max_len,
            sealed_with_effect: self.sealed_with_effect && now.sealed_with_effect,
            ..now.clone()
        }
    }

    /// The effect class by which the call is settled: an effect that left a mark is not repeated because the tool now
    /// says that it leaves none.
    pub const fn binding_effect(&self, now: EffectClass) -> EffectClass {
        if self.effect.leaves_mark() { self.effect } else { now }
    }

    /// The changes, in words, between this declaration and `now` that matter to a call that went out under this
    /// declaration. `None` if there are none.
    pub fn changes(&self, now: &Self) -> Option<String> {
        let mut changes = Vec::new();
        let mut note = |what: &str, then: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug| {
            changes.push(format!("{what} was {then:?} and is {now:?}"));
        };
        if self.effect != now.effect {
            note("the effect class", &self.effect.name(), &now.effect.name());
        }
        if self.class != now.class {
            note("the contract", &self.class.name(), &now.class.name());
        }
        if self.lookup != now.lookup {
            note("the lookup", &self.lookup, &now.lookup);
        }
        if self.key_window != now.key_window {
            note("the time for which keys are remembered", &self.key_window, &now.key_window);
        }
        if self.settle != now.settle {
            note("the settle time", &self.settle, &now.settle);
        }
        if self.scope != now.scope {
            note("the scope", &self.scope, &now.scope);
        }
        if self.repeat_blindly != now.repeat_blindly {
            note("blind repetition", &self.repeat_blindly, &now.repeat_blindly);
        }
        if self.namespace != now.namespace {
            note("the namespace", &self.namespace, &now.namespace);
        }
        if self.key_max_len != now.key_max_len {
            note("the longest key", &self.key_max_len, &now.key_max_len);
        }
        (!changes.is_empty()).then(|| changes.join(", "))
    }
}

/// The rank of a class by its protection against a second effect when a call is sent again: a higher rank protects
/// more.
const fn collisions(class: ContractClass) -> u8 {
    match class {
        // No call of a tool is a change in the ledger's own database, whatever the tool declares.
        ContractClass::Blind | ContractClass::Transactional | ContractClass::Idempotent => 0,
        ContractClass::Lookup => 1,
        ContractClass::RejectsKey | ContractClass::NaturalKey => 2,
        ContractClass::ReplaysKey => 3,
    }
}
