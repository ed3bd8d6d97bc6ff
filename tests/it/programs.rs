//! Programs as a new user writes them from the guides: each does what it claims.

use std::collections::BTreeMap;
use std::time::Duration;

use counterfoil::sim::truthful;
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, Engine, Failure};
use serde_json::json;

#[path = "../../workflows/agent_loop.rs"]
mod agent_loop;
#[path = "../../workflows/http_tool.rs"]
mod http_tool;
#[path = "../../workflows/operator_bot.rs"]
mod operator_bot;
#[path = "../../workflows/order_with_children.rs"]
mod order_with_children;
#[path = "../../workflows/tenants_service.rs"]
#[allow(dead_code, reason = "tests/kill.rs starts it as a process")]
mod tenants_service;
#[path = "../../workflows/upgrade_check.rs"]
mod upgrade_check;

/// The lines of a file that hold code, without its imports.
fn code(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("use ")).collect()
}

#[tokio::test]
async fn a_tool_over_http_sorts_its_errors_and_charges_once() {
    charges_once(http_tool::show().await.unwrap());
    charges_once(http_tool::show_declared().await.unwrap());
}

fn charges_once((paid, bank): (Vec<http_tool::Paid>, http_tool::Bank)) {
    let receipt = |n| Ok(http_tool::Receipt { id: format!("ch_{n}") });
    let receipts: Vec<_> = paid.into_iter().map(|(_, _, receipt)| receipt).collect();
    assert_eq!(receipts[..3], [receipt(1), receipt(2), receipt(3)]);
    let refused = receipts[3].as_ref().unwrap_err();
    assert!(refused.contains("HTTP 422") && refused.contains("nothing to pay"), "{refused}");
    let (requests, lookups, charges) = bank.counted();
    // A call of unknown outcome is looked up: after the 503, and after the lost answer, which is not sent again.
    assert_eq!((requests, charges), (1 + 3 + 1 + 1, 3));
    assert_eq!(lookups, 2);
}

#[test]
fn a_tool_over_http_has_twenty_lines() {
    let lines = code(include_str!("../../workflows/http_tool/charge.rs"));
    assert!(lines.len() <= 20, "{}: {lines:#?}", lines.len());
}

#[test]
fn a_declared_tool_over_http_has_twelve_lines() {
    let lines = code(include_str!("../../workflows/http_tool/declared.rs"));
    assert!(lines.len() <= 12, "{}: {lines:#?}", lines.len());
}

#[tokio::test]
async fn a_guarded_agent_loop_does_once_what_the_bare_one_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let bare = agent_loop::bare(folder.path()).await.unwrap();
    let guarded = agent_loop::guarded_and_restarted(folder.path()).await.unwrap();
    assert_eq!(bare.entries.len(), 10);
    let done: Vec<_> = guarded.entries.iter().filter_map(|entry| entry.split(' ').next()).collect();
    assert_eq!(done, ["open_ticket", "refund", "order_part"]);
    let told = |n: usize| &guarded.told[n];
    assert_eq!(guarded.told.len(), 12);
    assert!(told(2).contains("open_ticket-1"), "the model is given the first result again: {}", told(2));
    assert!(told(4).contains("9900"), "the model is told how its second refund differs: {}", told(4));
    assert!(told(5).contains("there is no tool"), "{}", told(5));
    assert_eq!(
        told(6).replace("call_", ""),
        told(0).replace("call_", ""),
        "after the restart it is the same"
    );
}

#[test]
fn guarding_a_loop_with_three_tools_adds_few_lines() {
    let mut before = BTreeMap::new();
    for line in code(include_str!("../../workflows/agent_loop/bare.rs")) {
        *before.entry(line).or_insert(0) += 1;
    }
    let mut added = code(include_str!("../../workflows/agent_loop/guarded.rs"));
    added.retain(|line| {
        let known = before.get_mut(line).filter(|left| **left > 0);
        known.map(|left| *left -= 1).is_none()
    });
    let all = include_str!("../../workflows/agent_loop.rs");
    let (_, opened) = all.split_once("let executor = ").unwrap();
    let opened = opened.split_once(';').unwrap().0.lines().count();
    assert!(added.len() + opened <= 25, "{} and {opened}: {added:#?}", added.len());
}

#[test]
fn what_an_order_and_its_children_did_is_undone_wherever_it_is_crashed() {
    order_with_children::simulation().explore().assert_ok();
}

// `.ci/full pairs` found it: the parent of a child that cannot be undone looks for a person's answer each minute, and the
// simulator took that for a run that gets nowhere.
#[test]
fn an_order_that_waits_for_an_answer_about_its_child_comes_to_rest_wherever_it_is_crashed() {
    let alone = order_with_children::simulation();
    let with_a_person = order_with_children::simulation()
        .operator(|asked| truthful(asked).filter(|_| asked.question.kind == QuestionKind::Ambiguous));
    let (mut asked, mut ended) = (0, 0);
    for schedule in (1..100).map(|point| format!("refused@7 crash@1.{point}").parse().unwrap()) {
        let [waits, goes_on] = [&alone, &with_a_person].map(|simulation| {
            let replay = simulation.replay(&schedule);
            assert_eq!(replay.violations, [], "{schedule}: {}", replay.timeline());
            replay.timeline()
        });
        // The last state that is written is that of the run which a person is asked about, or of its parent.
        let [waits, goes_on_waiting] = [waits, goes_on]
            .map(|timeline| timeline.rsplit("the run is ").next().unwrap().starts_with("waiting"));
        asked += u32::from(waits);
        ended += u32::from(waits && !goes_on_waiting);
    }
    assert!(asked > 0 && asked == ended, "{asked} {ended}");
}

#[test]
fn two_tenants_with_one_order_id_have_an_entry_each_wherever_a_worker_dies() {
    tenants_service::simulated::simulation().explore().assert_ok();
}

/// The service with tenants, with its books in this folder, and its address.
async fn orders_over_http(folder: &tempfile::TempDir) -> (Engine, String) {
    let books = tenants_service::books::Books::File(folder.path().join("books.txt"));
    let engine = tenants_service::engine(Engine::in_memory(), books).start().await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = axum::serve(listener, tenants_service::routes(&engine));
    tokio::spawn(async move { serving.await });
    (engine, url)
}

#[tokio::test]
async fn a_service_that_closes_is_live_and_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, url) = orders_over_http(&folder).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let probe = async |path: &str| {
        let answer = http.get(format!("{url}{path}")).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(probe("/healthz").await.0, 200);
    assert_eq!(probe("/readyz").await, (200, "ready".to_owned()));
    engine.shutdown(Duration::ZERO).await;
    let (status, reason) = probe("/readyz").await;
    assert!(status == 503 && reason.starts_with("not ready"), "{status} {reason}");
    assert_eq!(probe("/healthz").await.0, 200, "an orchestrator lets it end by itself");
}

// A client sends again what is answered 503. Such an answer to what is refused for ever would make it do so for ever.
#[tokio::test]
async fn what_an_order_refuses_for_ever_is_not_answered_503() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, url) = orders_over_http(&folder).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |path: &str, body: serde_json::Value| {
        let request = http.post(format!("{url}/orders/{path}")).bearer_auth("token-of-acme");
        request.json(&body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(post("o-1/paid", json!("evt_1")).await, 404);
    assert_eq!(post("o-1", json!({ "cents": 4200 })).await, 202);
    assert_eq!(post("o-1", json!({ "cents": 1 })).await, 409);
    assert_eq!(post("o-1/paid", json!("evt_1")).await, 202);
    let order = engine.tenant("acme").unwrap().run_of(tenants_service::order, "o-1");
    assert_eq!(order.result().await.unwrap(), 1);
    assert_eq!(post("o-1/paid", json!("evt_2")).await, 410, "the order is over");
    engine.shutdown(Duration::ZERO).await;
    assert_eq!(post("o-2", json!({ "cents": 4200 })).await, 503, "another process takes it");
}

#[tokio::test]
async fn the_check_of_an_upgrade_tells_by_its_exit_code_what_breaks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.db");
    upgrade_check::record(&file).await.unwrap();
    let mut codes = Vec::new();
    for (candidate, run_new_steps) in upgrade_check::CANDIDATES {
        let reports = upgrade_check::check(&file, candidate, run_new_steps).await.unwrap();
        assert_eq!(reports.len(), 2, "{candidate}");
        codes.push((candidate, upgrade_check::exit_code(&reports)));
    }
    assert_eq!(codes, [("patched", 0), ("unpatched", 1), ("titled", 0), ("titled", 2)]);
}

#[tokio::test]
async fn a_bot_answers_what_its_rule_covers_and_leaves_the_rest_to_people() {
    let (report, results, logged) = operator_bot::show().await.unwrap();
    let answers: Vec<_> = report.answered.iter().map(|(_, answer, _)| *answer).collect();
    assert_eq!(answers, ["happened", "did_not_happen"]);
    assert_eq!(report.left.len(), 1);
    assert_eq!(report.left[0].call.as_ref().unwrap().request.as_ref().unwrap()["guest"], json!("eve"));
    assert!(results.iter().all(|ordered| ordered["ordered as"].is_string()), "{results:?}");
    assert!(
        logged.len() == 2 && logged.iter().all(|line| line.contains("by taxi-bot: the portal")),
        "{logged:?}"
    );
}

#[tokio::test]
async fn an_error_that_main_returns_says_what_to_do() {
    async fn fails(_: Ctx, _input: ()) -> Result<(), Failure> {
        Err(Failure::new("the card is declined"))
    }
    let folder = tempfile::tempdir().unwrap();
    let refused = Engine::sqlite(folder.path().join("missing/agents.db")).start().await.unwrap_err();
    assert!(format!("{refused:?}").starts_with(&refused.to_string()), "{refused:?}");
    let engine = Engine::in_memory().workflow("fails", 1, fails).start().await.unwrap();
    let failed = engine.default_tenant().run(fails, ()).await.unwrap_err();
    let said = format!("{failed:?}");
    assert!(said.contains("failed: ") && said.ends_with("the card is declined [workflow]"), "{said}");
}
