//! The policy of a tool, with its defaults filled in, and the operation that it declares.

use std::time::Duration;

use super::check::{Check, checked_window};
use super::file::{Errors, Hint, LookupSection, ToolSection};
use crate::ledger::{ApprovalSubject, Contract, ContractClass, EffectClass, RetryPolicy, ReviewPolicy};
use crate::rim::policy::plain::Truth;
use crate::rim::policy::span::Span;
use crate::rim::policy::tool_terms::{ApprovalTerms, ContractTerms};
use crate::rim::policy::tool_word::Effect;
use crate::rim::policy::word::Pointer;
use crate::tool::{Done, DynamicTool, Registry};

/// The longest time that a call may take without a sign of progress.
const TIMEOUT: Duration = Duration::from_mins(5);
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
    /// The name of the operation in the ledger.
    pub(super) operation: String,
    /// The server's own name of the tool; `None` for a policy of several tools.
    pub(super) tool: Option<String>,
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
    pub(super) lookup: Option<LookupSection>,
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
        let usual = Self::usual(format!("{server}/{tool}"), ContractClass::Blind, window);
        let effect = section.effect.map_or(usual.effect, Effect::class);
        let timeout = section.timeout.map_or(TIMEOUT, Span::duration);
        let window = section.window.map_or(window, Span::duration);
        let policy = Self {
            tool: Some(tool.to_owned()),
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
            lookup: section.lookup.clone(),
            ..usual
        };
        if section.key.as_ref().is_some_and(Vec::is_empty) {
            check.finding(
                &format!("{path}.key"),
                "an empty key would make all calls one",
                "`key: [/order]`, or no `key`",
            );
        }
        if let Some(lookup) = &section.lookup
            && lookup.tool.as_deref().is_none_or(|reads| reads.is_empty() || reads == tool)
        {
            let why = "a lookup is a call of another tool, which reads";
            check.finding(&format!("{path}.lookup.tool"), why, "`tool: find_note`");
        }
        if let Err(error) = policy.operation().register(&mut Registry::default()) {
            check.finding(path, &error.to_string(), "a `lookup`, or another `contract` or `effect`");
        }
        policy
    }

    fn usual(operation: String, class: ContractClass, window: Duration) -> Self {
        Self {
            operation,
            tool: None,
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
            lookup: None,
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
            .redact(self.redact.iter().map(|pointer| format!("/arguments{pointer}")))
            .redact_output(&self.redact_output);
        let operation = self.operation.clone();
        match &self.review {
            Some(review) => declared
                .review(review.clone())
                .package(move |input| ApprovalSubject::of(&operation, &input["arguments"])),
            None => declared.without_approval(),
        }
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

/// The policies of the tools of a server that have none: as careful as they must be for a tool about which nothing is
/// known, and for one that is believed to be idempotent.
pub(super) fn unguarded(server: &str, window: Duration) -> [ToolPolicy; 2] {
    let of = |name: &str, class| ToolPolicy::usual(format!("{server}/{name}"), class, window);
    [of("*", ContractClass::Blind), of("* (idempotent)", ContractClass::Idempotent)]
}

/// True if this hint of the server is believed.
pub(super) fn trusts(trust: Option<&Vec<Hint>>, hint: Hint) -> bool {
    trust.is_some_and(|trust| trust.contains(&hint))
}

/// The contract, as the section tells it.
fn contract(section: &ToolSection) -> ContractTerms {
    let lags = section.lookup.as_ref().map(|lookup| lookup.lags.is_some_and(Truth::is_true));
    ContractTerms { offer: section.contract, lags, settle: section.settle }
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
