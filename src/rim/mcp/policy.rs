//! The policy of a tool, with its defaults filled in, and the operation that it declares.

use std::time::Duration;

use super::arguments::{DEFAULTS, given};
use super::check::{Check, checked_window};
use super::file::{Errors, Hint, LookupSection, QuotaSection, ToolSection};
use super::lookup::recognition;
use super::template::{names, names_in};
use crate::ledger::{
    ApprovalSubject, BoundFields, Contract, ContractClass, EffectClass, Quota, Rate, RetryPolicy,
    ReviewPolicy,
};
use crate::rim::policy::plain::{Count, Truth};
use crate::rim::policy::span::Span;
use crate::rim::policy::tool_terms::{ApprovalTerms, ContractTerms};
use crate::rim::policy::tool_word::Effect;
use crate::rim::policy::word::Pointer;
use crate::tool::{Done, DynamicTool, Registry};

/// The longest time that a call may take without a sign of progress.
pub(super) const TIMEOUT: Duration = Duration::from_mins(5);
/// The time for which the client's own user is asked for an approval.
const ELICIT_WITHIN: Duration = Duration::from_mins(5);
/// A server that cannot be started is tried so often before the call fails.
const ATTEMPTS: u32 = 3;

/// The settings of a file, or of a server, that its tools have unless they say otherwise.
#[derive(Clone, Copy)]
pub(super) struct Usual<'a> {
    /// The name of the client.
    pub(super) client: &'a str,
    /// The time within which the same call is one operation.
    pub(super) window: Duration,
}

/// The policy of a tool.
#[derive(Clone, Debug)]
pub(super) struct ToolPolicy {
    /// The name of the operation in the ledger: that of server and tool. A tool keeps it when the file gives it another policy, so
    /// that its earlier calls are known.
    pub(super) operation: String,
    /// The server's own name of the tool.
    pub(super) tool: String,
    /// True if the file has a section for the tool. The tools of a server without one are known when they are called first.
    pub(super) is_written: bool,
    pub(super) effect: EffectClass,
    pub(super) contract: Contract,
    pub(super) timeout: Duration,
    pub(super) key: Vec<String>,
    pub(super) window: Duration,
    pub(super) reference: Option<String>,
    pub(super) id: Option<String>,
    /// The arguments that are not kept.
    pub(super) redact: Vec<String>,
    /// The parts of the answer that are not kept.
    pub(super) redact_output: Vec<String>,
    pub(super) errors: Errors,
    pub(super) review: Option<ReviewPolicy>,
    pub(super) elicit: bool,
    /// The time for which the client's own user is asked for an approval.
    pub(super) elicit_within: Duration,
    pub(super) lookup: Option<LookupSection>,
    pub(super) quota: Quota,
}

impl ToolPolicy {
    /// The policy that a section of the file gives to a tool of a server.
    pub(super) fn of(
        check: &mut Check,
        (server, tool): (&str, &str),
        section: &ToolSection,
        Usual { client, window }: Usual<'_>,
    ) -> Self {
        let path = &format!("servers.{server}.tools.{tool}");
        let usual = Self::usual((server, tool), ContractClass::Blind, window);
        let effect = section.effect.map_or(usual.effect, Effect::class);
        let timeout = section.timeout.map_or(TIMEOUT, Span::duration);
        let window = section.window.map_or(window, Span::duration);
        let policy = Self {
            is_written: true,
            effect,
            contract: contract(section).contract(check, path),
            timeout,
            key: Pointer::texts(section.key.as_ref()),
            redact: Pointer::texts(section.redact.as_ref()),
            redact_output: Pointer::texts(section.redact_output.as_ref()),
            window: checked_window(check, &format!("{path}.window"), window),
            reference: section.reference.as_ref().map(|pointer| pointer.as_str().to_owned()),
            id: section.id.as_ref().map(|pointer| pointer.as_str().to_owned()),
            errors: section.errors.unwrap_or(Errors::Recorded),
            review: approval(section, client).review(check, path),
            elicit: section.elicit.is_some_and(Truth::is_true),
            elicit_within: section.elicit_within.map_or(ELICIT_WITHIN, Span::duration),
            lookup: section.lookup.clone(),
            quota: quota(section.quota.as_ref(), check, path),
            ..usual
        };
        if section.key.as_ref().is_some_and(Vec::is_empty) {
            check.finding(
                &format!("{path}.key"),
                "an empty key would make all calls one",
                "`key: [/order]`, or no `key`",
            );
        }
        if section.elicit_within.is_some() && !policy.elicit {
            let why = "the client's user is not asked, so there is no time for it";
            check.finding(&format!("{path}.elicit_within"), why, "`elicit: true` beside it");
        }
        if let Some(lookup) = &section.lookup {
            check_lookup(check, &format!("{path}.lookup"), (tool, &policy.redact), lookup);
        }
        if let Err(error) = policy.operation().register(&mut Registry::default()) {
            check.finding(path, &error.to_string(), "a `lookup`, or another `contract` or `effect`");
        }
        policy
    }

    /// The policy of a tool without a section: as careful as it must be for a tool of which no more is known than this class.
    pub(super) fn usual((server, tool): (&str, &str), class: ContractClass, window: Duration) -> Self {
        Self {
            operation: format!("{server}/{tool}"),
            tool: tool.to_owned(),
            is_written: false,
            effect: EffectClass::InternalMutation,
            contract: Contract::new(class),
            timeout: TIMEOUT,
            key: Vec::new(),
            window,
            reference: None,
            id: None,
            redact: Vec::new(),
            redact_output: Vec::new(),
            errors: Errors::Recorded,
            review: None,
            elicit: false,
            elicit_within: ELICIT_WITHIN,
            lookup: None,
            quota: Quota::default(),
        }
    }

    /// True if calls pass without a record.
    pub(super) const fn passes(&self) -> bool {
        matches!(self.effect, EffectClass::ReadOnly)
    }

    /// The declaration of the operation, without the functions that reach the server.
    pub(super) fn declared(&self) -> DynamicTool {
        let mut retry = RetryPolicy::of(&self.contract);
        (retry.attempts, retry.attempt_timeout) = (ATTEMPTS, self.timeout);
        let declared = DynamicTool::new(&self.operation, self.effect, self.contract.clone())
            .retry(retry)
            .quota(self.quota.clone())
            .bound(BoundFields::only(1, ["/tool", "/arguments"]))
            .redact(self.redacted())
            .redact_output(&self.redact_output);
        let operation = self.operation.clone();
        match &self.review {
            Some(review) => declared
                .review(review.clone())
                .package(move |input| ApprovalSubject::of(&operation, &given(input))),
            None => declared.without_approval(),
        }
    }

    /// The fields of an operation's input that are not kept.
    pub(super) fn redacted(&self) -> Vec<String> {
        let within = |part: &'static str| self.redact.iter().map(move |field| format!("/{part}{field}"));
        within("arguments").chain(within(DEFAULTS)).collect()
    }

    /// The declaration with functions that do nothing, for a check.
    fn operation(&self) -> DynamicTool {
        let declared = self.declared().call(|_, input| async move { Ok(Done::new(input)) });
        match self.lookup {
            Some(_) => declared.reconcile(|_, _| async { Ok(crate::ledger::LookupResult::Unknown) }),
            None => declared,
        }
    }
}

/// True if this hint of the server is believed.
pub(super) fn trusts(trust: Option<&Vec<Hint>>, hint: Hint) -> bool {
    trust.is_some_and(|trust| trust.contains(&hint))
}

/// Checks that the lookup of a tool can tell the effect of a call from another answer. `redact`: the arguments of the tool that are not
/// kept.
fn check_lookup(check: &mut Check, path: &str, (tool, redact): (&str, &[String]), lookup: &LookupSection) {
    if lookup.tool.as_deref().is_none_or(|reads| reads.is_empty() || reads == tool) {
        let why = "a lookup is a call of another tool, which reads";
        check.finding(&format!("{path}.tool"), why, "`tool: find_note`");
    }
    if !recognition(lookup).suffices() {
        let why = "any answer would count as the effect, because nothing says how it is recognised";
        check.finding(
            path,
            why,
            "`matches` or `contains` in it, or an argument of the call in its `arguments`",
        );
    }
    let arguments = lookup.arguments.iter().flatten().map(|(_, template)| template);
    let templates = arguments.chain(lookup.matches.iter().flatten().map(|(_, template)| template));
    let mut named = templates.flat_map(names_in).chain(lookup.contains.iter().flat_map(|text| names(text)));
    if named.any(|name| redact.iter().any(|field| is_within(name, field) || is_within(field, name))) {
        let why = "an argument that is not kept is not known any more when the call is looked up";
        check.finding(path, why, "`{key}`, or an argument that `redact` does not name");
    }
}

/// True if a JSON pointer is the other one, or leads to a part of its value.
fn is_within(pointer: &str, other: &str) -> bool {
    pointer.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The limits of calls, as the section tells them.
fn quota(section: Option<&QuotaSection>, check: &mut Check, path: &str) -> Quota {
    let Some(QuotaSection { calls, per, burst }) = section else { return Quota::default() };
    let (Some(calls), Some(per)) = (calls, per) else {
        let why = "a rate is a number of calls within a time";
        check.finding(&format!("{path}.quota"), why, "`quota: { calls: 10, per: 1 min }`");
        return Quota::default();
    };
    let burst = burst.map_or(1, Count::get);
    Quota::default().rate(Rate { calls: calls.get(), per: per.duration(), burst })
}

/// The contract, as the section tells it.
fn contract(section: &ToolSection) -> ContractTerms {
    let lags = section.lookup.as_ref().map(|lookup| lookup.lags.is_some_and(Truth::is_true));
    ContractTerms {
        offer: section.contract,
        lags,
        settle: section.settle,
        key_window: section.key_window,
        key_max: section.key_max,
        scope: section.scope.clone(),
    }
}

/// The approval, as the section tells it.
fn approval(section: &ToolSection, client: &str) -> ApprovalTerms {
    let mut people = section.reviewers.clone().unwrap_or_default();
    if section.elicit.is_some_and(Truth::is_true) {
        people.push(client.to_owned());
    }
    let is_needed = section.effect.is_some_and(|effect| effect.class().needs_approval());
    ApprovalTerms { approver: section.approval, is_needed, people, quorum: section.quorum }
}
