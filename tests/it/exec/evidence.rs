//! The evidence of an operation: each attempt and lookup, whoever made it, and what the outcome rests on.

use std::sync::Arc;

use counterfoil::exec::{Evidence, ExecutorBuilder, PastAttempt, PastLookup};
use counterfoil::ledger::{
    Approval, ApprovalSubject, Contract, ContractClass, EffectClass, ErrorKind, LookupOffer, LookupPolicy,
    RetryPolicy,
};
use counterfoil::store::{ContactResult, Model, Resolution};
use counterfoil::tool::DynamicTool;
use counterfoil::{Client, Executor, Outcome, Tenant};
use serde_json::{Value, json};

use crate::world::{Keys, Look, Process, Reply, TestClock, World, acme, brief, executor, request, settle};

const KEY: &str = "pay_out:c1";

fn looks() -> Contract {
    Contract::new(ContractClass::Lookup).lookup(LookupOffer::Strong)
}

fn tool(world: &Arc<World>, contract: Contract) -> DynamicTool {
    world.tool("pay_out", EffectClass::InternalMutation, contract).retry(brief())
}

async fn evidence(executor: &Executor) -> Evidence {
    executor.evidence(&acme(), KEY).await.unwrap().unwrap()
}

fn assert_shown(evidence: &Evidence, parts: &[&str]) {
    let text = evidence.to_string();
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

type Told<'a> = (u32, Option<ContactResult>, Option<ErrorKind>, Option<&'a str>);

fn told(attempt: &PastAttempt) -> Told<'_> {
    (attempt.number, attempt.result, attempt.error, attempt.external_ref.as_deref())
}

fn shown(lookup: &PastLookup) -> (u32, u32, ContactResult, Option<&str>) {
    (lookup.number, lookup.attempt, lookup.result, lookup.external_ref.as_deref())
}

// The usual call costs nothing: the record itself is the history of its only attempt.
#[tokio::test]
async fn a_call_that_was_sent_once_has_no_rows_and_is_told_of_all_the_same() {
    let world = World::new(Keys::Ignores);
    for (replies, result, error) in [
        (vec![Reply::Answer], ContactResult::Effect, None),
        (vec![Reply::Decline], ContactResult::Failed, Some(ErrorKind::Validation)),
    ] {
        let model = Model::new();
        let store = Arc::new(model);
        let executor = ExecutorBuilder::store(store.clone()).dynamic_tool(tool(&world, looks()));
        let executor = executor.open().await.unwrap();
        world.replies(replies);
        let _ = executor.execute(request("pay_out")).await.unwrap();
        assert_eq!(store.contacts(), []);
        let evidence = evidence(&executor).await;
        let [attempt] = &evidence.history.attempts[..] else { panic!("{evidence}") };
        assert_eq!((attempt.number, attempt.result, attempt.error), (1, Some(result), error));
        assert!(attempt.began.unwrap() <= attempt.ended.unwrap());
        assert_eq!((attempt.worker, evidence.history.lookups.len()), (counterfoil::Fence(1), 0));
    }
}

#[tokio::test]
async fn each_attempt_tells_its_error_and_each_lookup_its_finding() {
    let (dir, clock, world) =
        (tempfile::tempdir().unwrap(), TestClock::breathing(), World::new(Keys::Ignores));
    let process = Process::start(executor(&dir, &clock).dynamic_tool(tool(&world, looks()))).await.unwrap();
    world.replies([Reply::Fail(ErrorKind::RateLimited), Reply::EffectThenFail(ErrorKind::Disconnected)]);
    world.looks([Look::Unknown, Look::Truth]);
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let evidence = evidence(&process.executor()).await;
    let attempts: Vec<_> = evidence.history.attempts.iter().map(told).collect();
    let failed = (1, Some(ContactResult::Failed), Some(ErrorKind::RateLimited), None);
    let unknown = (2, Some(ContactResult::Unknown), Some(ErrorKind::Disconnected), None);
    assert_eq!(attempts, [failed, unknown]);
    assert!(evidence.history.attempts.iter().all(|attempt| attempt.message.as_deref() == Some("as told")));
    let lookups: Vec<_> = evidence.history.lookups.iter().map(shown).collect();
    let id = evidence.outcome.external_ref.as_deref();
    assert!(id.is_some());
    assert_eq!(lookups, [(1, 2, ContactResult::Unknown, None), (2, 2, ContactResult::Effect, id)]);
    assert_eq!(evidence.outcome.basis, Some("a lookup, or a late answer of a worker that had lost the call"));
    assert_shown(&evidence, &["attempt       1 by worker 1", "rate_limited, as told", "lookup        2"]);
}

// A process dies with its call: the next one tells whose attempt it was, and what it did about it.
#[tokio::test]
async fn the_attempt_of_a_dead_worker_is_told_of() {
    let (dir, clock, world) =
        (tempfile::tempdir().unwrap(), TestClock::breathing(), World::new(Keys::Ignores));
    let start = || Process::start(executor(&dir, &clock).dynamic_tool(tool(&world, looks())));
    world.replies([Reply::Hang]);
    let process = start().await.unwrap();
    drop(process.execute(request("pay_out")));
    world.requested(1).await;
    process.kill();
    let process = start().await.unwrap();
    let (outcome, settled) = settle(&clock, process.execute(request("pay_out"))).await;
    assert!(settled && matches!(outcome, Outcome::Done(_)), "{outcome:?}");

    let evidence = evidence(&process.executor()).await;
    let [dead, second] = &evidence.history.attempts[..] else { panic!("{evidence}") };
    assert_eq!((dead.number, dead.result), (1, Some(ContactResult::Lost)));
    assert_eq!((second.number, second.result), (2, Some(ContactResult::Effect)));
    assert!(dead.worker < second.worker && dead.began < second.began, "{evidence}");
    assert_eq!(second.external_ref, evidence.outcome.external_ref);
    let nothing =
        evidence.history.lookups.iter().filter(|look| look.result == ContactResult::Nothing).count();
    assert_eq!(nothing, evidence.history.lookups.len(), "{evidence}");
    assert_eq!(world.lookups().len(), evidence.history.lookups.len());
    // A client beside the engine shows the same, without tools.
    let client = Client::sqlite(dir.path().join("agents.db")).open().await.unwrap();
    let mut same = client.tenant("acme").unwrap().evidence(KEY).await.unwrap().unwrap();
    assert!(same.to_string().contains(&format!("as of         {}", same.as_of)), "{same}");
    same.as_of = evidence.as_of; // each says when the ledger was read
    assert_eq!(same, evidence);
}

// A question shows what was tried, and the evidence keeps who answered it and why; foreign text moves no cursor.
#[tokio::test]
async fn the_answer_of_a_person_is_kept_with_its_reason() {
    let world = World::new(Keys::Ignores);
    let executor = Executor::in_memory().dynamic_tool(tool(&world, Contract::new(ContractClass::Blind)));
    let executor = executor.open().await.unwrap();
    world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
    let Outcome::NeedsDecision { question } = executor.execute(request("pay_out")).await.unwrap() else {
        panic!()
    };
    let view = executor.question(&acme(), question).await.unwrap().unwrap();
    let attempt = &view.call.as_ref().unwrap().history.attempts[0];
    assert_eq!((attempt.error, attempt.message.as_deref()), (Some(ErrorKind::Disconnected), Some("as told")));
    assert!(view.to_string().contains("unknown, disconnected, as told"), "{view}");
    let answer = executor.answer(&acme(), question, Resolution::Happened(json!({ "id": "e-1" })), "ann");
    answer.because("seen\u{1b}[2J in\nthe portal").await.unwrap();

    let evidence = evidence(&executor).await;
    let [asked] = &evidence.questions[..] else { panic!("{evidence}") };
    let answer = asked.answer.as_ref().unwrap();
    assert_eq!((asked.id, answer.by.as_str()), (question, "ann"));
    assert_eq!(
        (evidence.outcome.state, evidence.outcome.basis),
        ("committed", Some("the answer of a person"))
    );
    assert_shown(&evidence, &["happened by ann: seen\\u{1b}[2J in\\nthe portal", "kept          "]);
    let shown: Value = serde_json::to_value(&evidence).unwrap();
    assert_eq!(shown["attempts"][0]["error"], "disconnected");
    assert!(shown["asked_by"]["at"].as_str().unwrap().ends_with('Z'), "{shown}");
    assert_eq!(shown["questions"][0]["answer"]["because"], "seen\u{1b}[2J in\nthe portal");
    assert!(executor.evidence(&Tenant::default(), KEY).await.unwrap().is_none(), "another tenant's");
    assert!(executor.evidence(&acme(), "pay_out:c2").await.unwrap().is_none());
}

// However often a call is tried and looked up, its history is bounded, and says how many it does not show.
#[tokio::test]
async fn a_long_history_keeps_its_beginning_and_its_end() {
    let (dir, clock, world) =
        (tempfile::tempdir().unwrap(), TestClock::breathing(), World::new(Keys::Ignores));
    let often = RetryPolicy { attempts: 60, ..brief() };
    let looks_often = LookupPolicy { attempts: 40, ..LookupPolicy::default() };
    let tool = tool(&world, looks()).retry(often).lookups(looks_often);
    let process = Process::start(executor(&dir, &clock).dynamic_tool(tool)).await.unwrap();
    let mut replies = vec![Reply::Fail(ErrorKind::RateLimited); 49];
    replies.push(Reply::EffectThenFail(ErrorKind::Disconnected));
    world.replies(replies);
    world.looks([Look::Unknown; 40]);
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");

    let evidence = evidence(&process.executor()).await;
    let attempts: Vec<_> = evidence.history.attempts.iter().map(|attempt| attempt.number).collect();
    let lookups: Vec<_> = evidence.history.lookups.iter().map(|lookup| lookup.number).collect();
    assert_eq!(attempts, (1..=10).chain(35..=50).collect::<Vec<_>>());
    assert_eq!(lookups, (1..=10).chain(26..=40).collect::<Vec<_>>());
    assert_eq!((evidence.history.attempts_left_out, evidence.history.lookups_left_out), (24, 15));
    assert_shown(&evidence, &["not kept      24 attempts", "not kept      15 lookups"]);
    assert_eq!((world.requests(), world.lookups().len()), (50, 40));
}

#[tokio::test]
async fn the_approval_of_a_call_is_part_of_its_evidence() {
    let world = World::new(Keys::Ignores);
    let tool = tool(&world, looks()).package(|input| ApprovalSubject::of("pay_out", input));
    let executor = Executor::in_memory().dynamic_tool(tool).open().await.unwrap();
    let input = json!({ "case": "c1" });
    let approval = Approval::of("ann", &ApprovalSubject::of("pay_out", &input)).unwrap();
    let outcome = executor.execute(request("pay_out").approved_by(&approval)).await.unwrap();
    let evidence = evidence(&executor).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let approved = evidence.approval.as_ref().unwrap();
    assert_eq!(
        (approved.by.as_str(), &approved.package, approved.votes.len()),
        ("ann", &approval.package, 0)
    );
    assert_shown(&evidence, &["approved      by ann"]);
}
