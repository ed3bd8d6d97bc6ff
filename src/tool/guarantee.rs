//! A tool's line in the guarantee report: the guarantees for its calls, as they follow from its declaration.

use std::fmt;

use serde::Serialize;

use super::{Registry, ToolSpec};
use crate::ledger::resolve::Next;
use crate::ledger::{
    Compensation, Contract, ContractClass, EffectClass, LookupOffer, WorstCase, on_unknown, span,
};

/// The guarantees for a tool's calls.
///
/// As text: a line of the table, a line with the steps after an unknown outcome, and a line with the rule of
/// approval if there is one or its class has one. As JSON: an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Guarantee {
    /// The name of the tool.
    pub tool: String,
    /// The class of the tool's effect on the world.
    pub effect: EffectClass,
    /// The rule by which the calls are approved, in words: `none`, `by a person`, `by policy transactional-mail, version 1`.
    pub approval: String,
    /// The class of the provider's contract.
    pub contract: ContractClass,
    /// The trust that the tool's lookup deserves.
    pub lookup: LookupOffer,
    /// The worst outcome that a call can have.
    pub worst_case: WorstCase,
    /// The worst outcome in words.
    pub worst_case_words: String,
    /// The steps of the engine after an unknown outcome, in words.
    pub on_unknown: String,
    /// The facts that the tool's lookup cannot know.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub blind_spots: &'static [&'static str],
    /// The retention of the tool's records, in words.
    pub retention: String,
    /// The compensation of the tool's effects, in words.
    pub compensation: String,
}

impl Guarantee {
    /// The guarantees that follow from a tool's declaration.
    pub fn of(spec: &ToolSpec) -> Self {
        let worst_case = spec.worst_case();
        Self {
            tool: spec.name.to_string(),
            effect: spec.effect,
            approval: spec.approval.words(),
            contract: spec.contract.class,
            lookup: spec.contract.lookup,
            worst_case,
            worst_case_words: worst_case.words().to_owned(),
            on_unknown: in_words(spec.effect, &spec.contract),
            blind_spots: spec.contract.blind_spots,
            retention: spec.retention.to_string(),
            compensation: spec
                .compensation
                .as_ref()
                .map_or_else(|| "none declared".to_owned(), Compensation::words),
        }
    }

    /// The head of the table. [`Display`](fmt::Display) writes a row of it.
    pub fn head() -> String {
        row(["tool", "effect", "contract", "worst case", "retention", "compensation"])
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contract = match self.lookup {
            LookupOffer::None => self.contract.name().to_owned(),
            LookupOffer::Strong if self.contract == ContractClass::Lookup => self.contract.name().to_owned(),
            LookupOffer::Strong => format!("{} + lookup", self.contract.name()),
            LookupOffer::Eventual => format!("{} + lagging lookup", self.contract.name()),
        };
        let cells = [
            &self.tool,
            self.effect.name(),
            &contract,
            &self.worst_case_words,
            &self.retention,
            &self.compensation,
        ];
        writeln!(f, "{}", row(cells))?;
        write!(f, "    on unknown: {}", self.on_unknown)?;
        if self.approval != "none" || self.effect.needs_approval() {
            write!(f, "\n    approval: {}", self.approval)?;
        }
        self.blind_spots.iter().try_for_each(|spot| write!(f, "\n    cannot know: {spot}"))
    }
}

fn row(cells: [&str; 6]) -> String {
    let [tool, effect, contract, worst, retention, compensation] = cells;
    let row = format!("{tool:<18} {effect:<17} {contract:<22} {worst:<60} {retention:<42} {compensation}");
    row.trim_end().to_owned()
}

impl Registry {
    /// The guarantees for the calls of all tools, by name.
    pub fn guarantees(&self) -> Vec<Guarantee> {
        self.specs().into_iter().map(Guarantee::of).collect()
    }
}

/// The steps in words. If a key expires, the steps after that as well.
fn in_words(effect: EffectClass, contract: &Contract) -> String {
    let steps = |key_honoured| told(&on_unknown(effect, contract, key_honoured), contract);
    let one_look = if contract.looks_for_copies(effect) {
        format!("; after a single send: one look {} later", span(contract.settle_time()))
    } else {
        String::new()
    };
    let steps_in_words = match contract.key_window {
        Some(window) if steps(true) != steps(false) => {
            format!("{} (key of at most {}); older: {}", steps(true), span(window), steps(false))
        }
        _ => steps(true),
    };
    steps_in_words + &one_look
}

fn told(steps: &[Next], contract: &Contract) -> String {
    let settle = span(contract.settle_time());
    let mut looked = false;
    let step = |step: &Next| match step {
        Next::Look if std::mem::replace(&mut looked, true) => "look again".to_owned(),
        Next::Look => "look it up".to_owned(),
        Next::Settle => format!("wait until {settle} are over"),
        Next::Resend { .. } => "send again under the same key".to_owned(),
        Next::SendAndConfirm => {
            format!("send again, look {settle} later and on for {}", span(contract.horizon()))
        }
        Next::Repeat => "do it again".to_owned(),
        Next::Escalate(_) => "ask a person".to_owned(),
    };
    let steps: Vec<_> = steps.iter().map(step).collect();
    steps.join("; not there: ").replacen("over; not there: ", "over, ", 1)
}
