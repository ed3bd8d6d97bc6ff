//! The terms of a tool in a file: its contract, and the people who approve its calls.

use super::findings::Findings;
use super::plain::Count;
use super::span::Span;
use super::tool_word::{Approver, Offer};
use crate::id::Name;
use crate::ledger::{Contract, LookupOffer, ReviewPolicy};

/// The contract of a tool, as its section tells it.
pub(in crate::rim) struct ContractTerms {
    pub(in crate::rim) offer: Option<Offer>,
    /// True if the lookup lags behind the writes. `None` without a lookup.
    pub(in crate::rim) lags: Option<bool>,
    pub(in crate::rim) settle: Option<Span>,
    /// The time for which the provider remembers a key. `None`: for ever.
    pub(in crate::rim) key_window: Option<Span>,
    /// The maximum length of a key, in characters.
    pub(in crate::rim) key_max: Option<Count>,
    /// The scope of the key at the provider.
    pub(in crate::rim) scope: Option<String>,
}

impl ContractTerms {
    pub(in crate::rim) fn contract(self, findings: &mut Findings, path: &str) -> Contract {
        let usual = if self.lags.is_some() { Offer::Lookup } else { Offer::Blind };
        let offer = self.offer.unwrap_or(usual);
        if self.lags.is_none() && offer.class().needs_lookup() {
            let why = "the outcome of such a call is looked up, and there is no lookup";
            findings.finding(&format!("{path}.contract"), why, "a `lookup`, or `contract: blind`");
        }
        let mut contract = Contract::new(offer.class());
        contract.key_window = self.key_window.map(Span::duration);
        if let Some(characters) = self.key_max {
            contract = contract.key_max_len(usize::try_from(characters.get()).unwrap_or(usize::MAX));
        }
        contract.scope = self.scope;
        if let Some(lags) = self.lags {
            contract.lookup = if lags { LookupOffer::Eventual } else { LookupOffer::Strong };
        }
        if self.offer == Some(Offer::Blind) {
            contract = contract.allow_blind_notices();
        }
        match self.settle {
            Some(settle) => contract.settle(settle.duration()),
            None => contract,
        }
    }
}

/// The approval of a tool's calls, as its section tells it.
pub(in crate::rim) struct ApprovalTerms {
    pub(in crate::rim) approver: Option<Approver>,
    /// True if the effect needs an approval where the section names no approver.
    pub(in crate::rim) is_needed: bool,
    pub(in crate::rim) people: Vec<String>,
    pub(in crate::rim) quorum: Option<Count>,
}

impl ApprovalTerms {
    /// The people who approve the calls, if somebody must.
    pub(in crate::rim) fn review(self, findings: &mut Findings, path: &str) -> Option<ReviewPolicy> {
        let usual = if self.is_needed { Approver::Person } else { Approver::Nobody };
        if self.approver.unwrap_or(usual) == Approver::Nobody {
            return None;
        }
        if self.people.is_empty() || self.people.iter().any(|name| Name::new(name).is_err()) {
            let why = "a person must approve each call, and nobody is named who may";
            findings.finding(&format!("{path}.reviewers"), why, "`reviewers: [ann]`, or `approval: nobody`");
        }
        Some(ReviewPolicy::by(self.people).quorum(self.quorum.map_or(1, Count::get)))
    }
}
