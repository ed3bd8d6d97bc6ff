//! The tools of a file: their common part, and the check of all of it.

use super::file::{File, LookupSection, ToolSection};
use super::{command, http};
use crate::ledger::{ApprovalSubject, Contract, EffectClass, RetryPolicy};
use crate::payload::Secret;
use crate::rim::policy::PolicyRule;
use crate::rim::policy::findings::Findings;
use crate::rim::policy::plain::Truth;
use crate::rim::policy::tool_terms::{ApprovalTerms, ContractTerms};
use crate::rim::policy::tool_word::Effect;
use crate::rim::policy::variables::filled;
use crate::rim::policy::word::Pointer;
use crate::tool::{DynamicTool, Registry};

/// The values of environment variables.
pub(super) type Variables<'v> = dyn Fn(&str) -> Option<String> + 'v;

/// A tool of the file, with what its transport is to know.
pub(super) struct Part<'s> {
    /// The path of the tool's section.
    pub(super) path: String,
    pub(super) name: &'s str,
    pub(super) section: &'s ToolSection,
    pub(super) effect: EffectClass,
    pub(super) contract: Contract,
    pub(super) variables: &'s Variables<'s>,
}

/// All tools, each with its path. What is wrong is a finding, and its tool is left out.
pub(super) fn tools(
    findings: &mut Findings,
    file: &File,
    variables: &Variables<'_>,
) -> Vec<(String, DynamicTool)> {
    if file.tools.as_ref().is_none_or(std::collections::BTreeMap::is_empty) {
        let instead = "`tools: { refund: { http: { post: 'https://pay.example/refunds' } } }`";
        findings.finding("tools", "there is no tool", instead);
    }
    #[cfg(all(feature = "mcp", feature = "sqlite"))]
    let servers = super::mcp::servers(findings, file, variables);
    let mut tools = Vec::new();
    for (name, section) in file.tools.iter().flatten() {
        let part = part(findings, name, section, variables);
        let declared = match (&section.http, &section.command, &section.mcp) {
            (Some(declared), None, None) => http::tool(findings, &part, declared),
            (None, Some(declared), None) => command::tool(findings, &part, declared),
            #[cfg(all(feature = "mcp", feature = "sqlite"))]
            (None, None, Some(declared)) => super::mcp::tool(findings, &part, (declared, &servers)),
            #[cfg(not(all(feature = "mcp", feature = "sqlite")))]
            (None, None, Some(_)) => {
                let why = "this program is built without the feature `mcp`";
                findings.finding(&format!("{}.mcp", part.path), why, "`http` or `command`");
                None
            }
            _ => {
                let why = "a tool is one HTTP request, one process or one call of an MCP tool";
                findings.finding(&part.path, why, "one of `http`, `command` and `mcp`");
                None
            }
        };
        tools.extend(declared.map(|tool| (part.path.clone(), finished(findings, &part, tool))));
    }
    tools
}

fn part<'s>(
    findings: &mut Findings,
    name: &'s str,
    section: &'s ToolSection,
    variables: &'s Variables<'s>,
) -> Part<'s> {
    let path = format!("tools.{name}");
    if section.key.as_ref().is_some_and(Vec::is_empty) {
        let why = "an empty key would make all calls one";
        findings.finding(&format!("{path}.key"), why, "`key: [/order]`, or no `key`");
    }
    let effect = section.effect.map_or(EffectClass::InternalMutation, Effect::class);
    let lags = section.lookup.as_ref().map(|lookup| lookup.lags.is_some_and(Truth::is_true));
    let contract = ContractTerms {
        offer: section.contract,
        lags,
        settle: section.settle,
        key_window: section.key_window,
        key_max: section.key_max,
        scope: section.scope.clone(),
    };
    Part { contract: contract.contract(findings, &path), path, name, section, effect, variables }
}

/// The tool with its retries, its approval and its description.
fn finished(findings: &mut Findings, part: &Part<'_>, tool: DynamicTool) -> DynamicTool {
    let Part { section, contract, path, effect, .. } = part;
    let approval = ApprovalTerms {
        approver: section.approval,
        is_needed: effect.needs_approval(),
        people: section.reviewers.clone().unwrap_or_default(),
        quorum: section.quorum,
    };
    let mut retry = RetryPolicy::of(contract);
    if let Some(attempts) = section.attempts {
        retry.attempts = attempts.get();
    }
    if let Some(timeout) = section.timeout {
        retry.attempt_timeout = timeout.duration();
    }
    let mut tool = tool
        .retry(retry)
        .redact(Pointer::texts(section.redact.as_ref()))
        .redact_output(Pointer::texts(section.redact_output.as_ref()));
    tool = match approval.review(findings, path) {
        Some(review) => {
            let name = part.name.to_owned();
            tool.review(review).package(move |input| ApprovalSubject::of(&name, input))
        }
        None => tool.without_approval(),
    };
    match (&section.description, &section.input) {
        (Some(description), Some(schema)) => tool.describe(description, schema.clone()),
        (None, None) => tool,
        _ => {
            let why = "a model needs the description of a tool and the schema of its input";
            findings.finding(path, why, "both `description` and `input`, or neither");
            tool
        }
    }
}

/// Finds what a registry refuses.
pub(super) fn register(findings: &mut Findings, tools: Vec<(String, DynamicTool)>) {
    let mut registry = Registry::default();
    for (path, tool) in tools {
        if let Err(error) = tool.register(&mut registry) {
            findings.finding(&path, &error.to_string(), "a `lookup`, or another `contract` or `effect`");
        }
    }
}

impl Part<'_> {
    /// The pointers of the key's fields.
    pub(super) fn key(&self) -> Vec<String> {
        Pointer::texts(self.section.key.as_ref())
    }

    /// A secret of a field: a text with the values of environment variables.
    pub(super) fn secret(
        &self,
        findings: &mut Findings,
        path: &str,
        template: &str,
    ) -> Option<Secret<String>> {
        secret(findings, (path, template), self.variables)
    }

    /// Refuses fields of a lookup that its transport does not have.
    pub(super) fn only(&self, findings: &mut Findings, lookup: &LookupSection, known: &[&str]) {
        let given: [(&str, bool); 10] = [
            ("get", lookup.get.is_some()),
            ("run", lookup.run.is_some()),
            ("tool", lookup.tool.is_some()),
            ("arguments", lookup.arguments.is_some()),
            ("list", lookup.list.is_some()),
            ("missing_exit", lookup.missing_exit.is_some()),
            ("missing_is_error", lookup.missing_is_error.is_some()),
            ("contains", lookup.contains.is_some()),
            ("newest_first", lookup.newest_first.is_some()),
            ("timeout", lookup.timeout.is_some()),
        ];
        for (field, _) in given.into_iter().filter(|(field, is_given)| *is_given && !known.contains(field)) {
            let why = "a lookup of such a tool has no such field";
            let known = known.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(", ");
            findings.finding(&format!("{}.lookup.{field}", self.path), why, &format!("one of {known}"));
        }
    }
}

/// A secret, which must come from an environment variable.
pub(super) fn secret(
    findings: &mut Findings,
    (path, template): (&str, &str),
    variables: &Variables<'_>,
) -> Option<Secret<String>> {
    if !template.contains("${") {
        let why = "a secret comes from an environment variable and is never written here; if this is the secret, it is known to \
                   others now, and is to be replaced";
        findings.of_rule(PolicyRule::SecretInFile, path, (why, "`${PAY_KEY}`"));
        return None;
    }
    match filled(template, variables) {
        Ok(value) => Some(Secret::new(value)),
        Err(why) => {
            findings.finding(path, &why, "`${PAY_KEY}`, with a variable that is set");
            None
        }
    }
}

/// The text of a pointer; empty if there is none.
pub(super) fn pointer(pointer: Option<&Pointer>) -> String {
    pointer.map(|pointer| pointer.as_str().to_owned()).unwrap_or_default()
}
