//! The check over what an application promises of its calls.

use counterfoil::Engine;
use counterfoil::flow::{Guarantees, Workflow};
use counterfoil::ledger::{Contract, ContractClass, EffectClass, LookupOffer, Retention};
use counterfoil::policy::{PolicyRule, check_guarantees};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Ctx, Failure};
use serde_json::{Value, json};

use super::codes;
use super::program::Checked;

/// The rules that are tested here.
pub(super) const RULES: &[PolicyRule] = &[
    PolicyRule::EffectMayRepeat,
    PolicyRule::PaymentLookupLags,
    PolicyRule::PaymentOnDeclaration,
    PolicyRule::CallsUndeclared,
    PolicyRule::PaymentForgotten,
    PolicyRule::PaymentWithoutLookup,
];

async fn shop(_: Ctx, order: String) -> Result<String, Failure> {
    Ok(order)
}

fn pay(contract: Contract) -> DynamicTool {
    DynamicTool::new("pay", EffectClass::Payment, contract)
        .call(|_, input| async move { Ok::<_, ToolError>(Done::new(input)) })
}

/// What a real engine with this tool reports.
fn report(tool: DynamicTool) -> Guarantees {
    let engine =
        Engine::sqlite("nothing-is-opened.db").register(Workflow::new("shop", shop).calls_named("pay"));
    engine.dynamic_tool(tool).guarantees().unwrap()
}

fn found(report: &Guarantees) -> Vec<&'static str> {
    codes(&check_guarantees(&serde_json::to_string(report).unwrap()))
}

#[test]
fn the_report_of_a_real_application_is_checked() {
    let replays = || Contract::new(ContractClass::ReplaysKey);
    assert_eq!(found(&report(pay(replays()))), ["payment-on-declaration"]);
    assert_eq!(
        found(&report(pay(replays().lookup(LookupOffer::Eventual)).reconcile(nothing))),
        ["payment-lookup-lags"]
    );
    assert_eq!(found(&report(pay(replays()).reconcile(nothing))), Vec::<&str>::new());
    let forgets = pay(replays())
        .reconcile(nothing)
        .retention(Retention::forget_after(std::time::Duration::from_hours(48)));
    assert_eq!(found(&report(forgets)), ["payment-forgotten"]);
    let open = Engine::sqlite("nothing-is-opened.db").workflow("shop", 1, shop);
    assert_eq!(
        found(&open.dynamic_tool(pay(replays()).reconcile(nothing)).guarantees().unwrap()),
        ["calls-undeclared"]
    );
}

async fn nothing(
    _: counterfoil::tool::Call,
    _: Value,
) -> Result<counterfoil::ledger::LookupResult<Value>, ToolError> {
    Ok(counterfoil::ledger::LookupResult::NotFound)
}

fn tool(effect: &str, contract: &str, lookup: &str, worst_case: &str) -> Value {
    json!({ "tool": "t", "effect": effect, "contract": contract, "lookup": lookup, "worst_case": worst_case, "retention": "for ever" })
}

/// What an engine of today refuses at registration may stand in the report of another version.
#[test]
fn a_payment_without_a_lookup_and_an_effect_that_repeats_are_refused() {
    let blind = tool("payment", "blind", "none", "at_most_once");
    let repeats = tool("notification", "blind", "none", "repeats");
    let own = tool("payment", "transactional", "none", "exactly_once");
    let reads = tool("read_only", "blind", "none", "repeats_harmlessly");
    let check =
        |tools: Value| codes(&check_guarantees(&json!({ "workflows": [], "tools": tools }).to_string()));
    assert_eq!(check(json!([blind])), ["payment-without-lookup"]);
    assert_eq!(check(json!([repeats])), ["effect-may-repeat"]);
    assert_eq!(check(json!([own, reads])), Vec::<&str>::new());
    let text = serde_json::to_string_pretty(&json!({ "shop": [reads, blind] })).unwrap();
    let found = check_guarantees(&text);
    assert_eq!((found[0].path.as_str(), found[0].rule), ("shop[1].lookup", PolicyRule::PaymentWithoutLookup));
    let line = text.lines().nth(usize::try_from(found[0].line).unwrap() - 1).unwrap();
    assert!(line.contains("\"lookup\": \"none\""), "{line}");
}

#[test]
fn the_program_checks_reports_beside_a_policy_and_alone() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("policy.yml", "http: {orders: {tenant: identity}}");
    write(
        "safe.json",
        &json!({ "workflows": [], "tools": [tool("payment", "lookup", "strong", "settled")] }).to_string(),
    );
    write(
        "unsafe.json",
        &json!({ "workflows": [], "tools": [tool("payment", "blind", "none", "at_most_once")] }).to_string(),
    );
    write("none.json", "{\"tools\": 5}");
    write(
        "later.json",
        &json!({ "workflows": [], "tools": [tool("payment", "lookup", "strong", "a_new_word")] }).to_string(),
    );
    let check = |arguments: &[&str]| Checked::of(folder.path(), arguments);
    assert_eq!(check(&["policy.yml", "--guarantees", "safe.json"]).code, Some(0));
    assert_eq!(check(&["--guarantees", "safe.json"]).code, Some(0));
    let refused = check(&["policy.yml", "--guarantees", "safe.json", "--guarantees", "unsafe.json"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.out.contains("unsafe.json:1:")
            && refused.out.contains("error[payment-without-lookup] tools[0].lookup"),
        "{}",
        refused.out
    );
    let none = check(&["--guarantees", "none.json"]);
    assert!(none.code == Some(1) && none.out.contains("this is no guarantee report"), "{}", none.out);
    let later = check(&["--guarantees", "later.json"]);
    assert!(later.code == Some(1) && later.out.contains("a_new_word"), "{}", later.out);
}

/// What `counterfoil guarantees --json` prints is taken as it is.
#[test]
fn the_reports_that_the_program_prints_are_understood() {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_counterfoil"))
        .args(["guarantees", "--json"])
        .output()
        .unwrap();
    let report = String::from_utf8(program.stdout).unwrap();
    let found = check_guarantees(&report);
    assert!(found.iter().all(|found| found.rule != PolicyRule::WrongValue), "{found:?}");
}
