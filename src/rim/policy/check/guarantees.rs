//! The checks of an application's guarantee report, as JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::ledger::{ContractClass, EffectClass, LookupOffer, WorstCase};
use crate::rim::policy::finding::{PolicyFinding, PolicyRule, Written};
use crate::rim::policy::place::{Place, Places};
use crate::rim::policy::read;

/// The fields of a tool in a report that are checked. A report of a later version may have more fields.
#[derive(Deserialize)]
struct Tool {
    #[serde(rename = "tool")]
    name: String,
    effect: EffectClass,
    contract: ContractClass,
    lookup: LookupOffer,
    worst_case: WorstCase,
    retention: String,
}

#[derive(Deserialize)]
struct Workflow {
    name: String,
    version: u32,
    declared: bool,
}

/// The JSON form of [`Guarantees`](crate::flow::Guarantees).
#[derive(Deserialize)]
struct Application {
    workflows: Vec<Workflow>,
    tools: Vec<Tool>,
}

/// The field that distinguishes the two forms of a report.
#[derive(Deserialize)]
struct Kind {
    workflows: Option<IgnoredAny>,
}

/// The output of `counterfoil guarantees --json`: the tools of each simulation.
type Simulations = BTreeMap<String, Vec<Tool>>;

/// The unsafe tools and workflows in the guarantee report of an application: [`Guarantees`](crate::flow::Guarantees)
/// as JSON, or the output of `counterfoil guarantees --json`. A text that is not a report is a finding, too.
///
/// ```
/// use counterfoil::policy::{PolicyRule, check_guarantees};
/// let findings = check_guarantees(r#"{"workflows": [], "tools": [{"tool": "pay", "effect": "payment", "contract": "blind",
///     "lookup": "none", "worst_case": "at_most_once", "retention": "for ever"}]}"#);
/// assert_eq!(findings[0].rule, PolicyRule::PaymentWithoutLookup);
/// ```
pub fn check_guarantees(report: &str) -> Vec<PolicyFinding> {
    let mut found = Reported { places: read::places(report).unwrap_or_default(), findings: Vec::new() };
    let is_application = serde_json::from_str(report).is_ok_and(|Kind { workflows }| workflows.is_some());
    let read = if is_application { found.application(report) } else { found.simulations(report) };
    match read {
        Ok(()) => found.findings,
        Err(error) => vec![no_report(&error)],
    }
}

fn no_report(error: &serde_json::Error) -> PolicyFinding {
    let place = Place { line: error.line().max(1) as u64, column: error.column().max(1) as u64 };
    let why = format!("this is no guarantee report: {error}");
    let instead =
        "what `Engine::guarantees` gives, as JSON, or the output of `counterfoil guarantees --json`";
    PolicyFinding::new(PolicyRule::WrongValue, Written::at(place, ""), &why, instead)
}

struct Reported {
    places: Places,
    findings: Vec<PolicyFinding>,
}

impl Reported {
    fn add(&mut self, rule: PolicyRule, path: &str, why: &str, instead: &str) {
        let place = self.places.find(path);
        self.findings.push(PolicyFinding::new(rule, Written::at(place, path), why, instead));
    }

    fn application(&mut self, report: &str) -> Result<(), serde_json::Error> {
        let Application { workflows, tools } = serde_json::from_str(report)?;
        self.workflows(&workflows);
        self.tools("tools", &tools);
        Ok(())
    }

    fn simulations(&mut self, report: &str) -> Result<(), serde_json::Error> {
        let simulations: Simulations = serde_json::from_str(report)?;
        for (name, tools) in &simulations {
            self.tools(name, tools);
        }
        Ok(())
    }

    fn workflows(&mut self, workflows: &[Workflow]) {
        for (number, workflow) in workflows.iter().enumerate().filter(|(_, workflow)| !workflow.declared) {
            let Workflow { name, version, .. } = workflow;
            let why = format!(
                "the workflow {name:?} {version} does not say which tools it calls, so it may call each, payments included"
            );
            self.add(
                PolicyRule::CallsUndeclared,
                &format!("workflows[{number}]"),
                &why,
                ".calls::<Tool>() of its `Workflow`",
            );
        }
    }

    fn tools(&mut self, list: &str, tools: &[Tool]) {
        for (number, tool) in tools.iter().enumerate() {
            let path = format!("{list}[{number}]");
            self.tool(&path, tool);
        }
    }

    fn tool(&mut self, path: &str, tool: &Tool) {
        let Tool { name, effect, worst_case, .. } = tool;
        if *worst_case == WorstCase::Repeats {
            let why = format!("{name:?} may happen again after a crash, and leaves a mark on the world");
            let at = format!("{path}.worst_case");
            self.add(
                PolicyRule::EffectMayRepeat,
                &at,
                &why,
                "a contract by which a repeat is told: a key, a lookup; or let a person be asked",
            );
        }
        if *effect == EffectClass::Payment && *worst_case != WorstCase::ExactlyOnce {
            self.payment(path, tool);
        }
    }

    fn payment(&mut self, path: &str, tool: &Tool) {
        let name = &tool.name;
        let lookup = format!("{path}.lookup");
        match (tool.lookup, tool.contract) {
            (LookupOffer::None, ContractClass::ReplaysKey | ContractClass::NaturalKey) => {
                let why = format!(
                    "the payment {name:?} rests on its provider's word that a key is known again: nothing shows a duplicate if it is not"
                );
                self.add(
                    PolicyRule::PaymentOnDeclaration,
                    &lookup,
                    &why,
                    "a lookup beside the key: `WithLookup<ReplaysKey>`",
                );
            }
            (LookupOffer::None, _) => {
                let why = format!(
                    "the payment {name:?} cannot be looked up: nobody knows whether it was paid when its process dies"
                );
                self.add(
                    PolicyRule::PaymentWithoutLookup,
                    &lookup,
                    &why,
                    "a contract with a lookup, and `Reconcile` for the tool",
                );
            }
            (LookupOffer::Eventual, _) => {
                let why = format!(
                    "the lookup of the payment {name:?} lags: its miss proves nothing, and a person is asked"
                );
                self.add(
                    PolicyRule::PaymentLookupLags,
                    &lookup,
                    &why,
                    "a lookup that shows each payment at once, by its id",
                );
            }
            (LookupOffer::Strong, _) => {}
        }
        if tool.retention.ends_with("then its key is new") {
            let why = format!(
                "the payment {name:?} is forgotten: a retry that comes later than planned pays again"
            );
            self.add(
                PolicyRule::PaymentForgotten,
                &format!("{path}.retention"),
                &why,
                "Retention::tombstone_after(…)",
            );
        }
    }
}
