//! A destructive call waits for an approval: that of a person whom the policy names, or of the client's own user.

use counterfoil::Tenant;
use counterfoil::mcp::McpConfig;
use serde_json::{Value, json};

use super::client::{first, text};
use super::{Bench, config, one_server};

const BY_THE_USER: &str = "
      delete_note: { effect: deletion, contract: idempotent, elicit: true }
";
const BY_THE_USER_AT_ONCE: &str = "
      delete_note: { effect: deletion, contract: idempotent, elicit: true, elicit_within: 1 s }
";
const BY_ANN_OR_THE_USER: &str = "
      delete_note: { effect: deletion, contract: idempotent, elicit: true, reviewers: [ann] }
";

#[tokio::test]
async fn the_same_call_is_carried_out_once_it_is_approved() {
    let mut bench = Bench::new().await;
    let arguments = json!({ "title": "Tea" });
    let waiting = bench.client.call("delete_note", arguments.clone()).await;
    assert_eq!(waiting["isError"], true);
    let approvals = bench.gateway.executor().approvals(&Tenant::default());
    let reviews = approvals.reviews(None).await.unwrap();
    let [review] = reviews.as_slice() else { panic!("{reviews:?}") };
    let told = text(&waiting);
    assert!(told.contains(&format!("counterfoil approve '{}'", review.id)) && told.contains("ann"), "{told}");
    assert_eq!(review.review.content, arguments, "the reviewer sees what is to be done");
    assert_eq!(bench.client.call("delete_note", arguments.clone()).await, waiting);
    assert!(bench.effects().is_empty());

    approvals.decide(&review.id, review.version).approve("ann").await.unwrap();
    assert!(first(&bench.client.call("delete_note", arguments.clone()).await));
    assert!(!first(&bench.client.call("delete_note", arguments).await));
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_rejected_call_says_by_whom_and_why() {
    let mut bench = Bench::new().await;
    bench.client.call("delete_note", json!({ "title": "Tea" })).await;
    let approvals = bench.gateway.executor().approvals(&Tenant::default());
    let review = approvals.reviews(None).await.unwrap().pop().unwrap();
    approvals.decide(&review.id, review.version).reject("ann", "it is needed").await.unwrap();
    let rejected = bench.client.call("delete_note", json!({ "title": "Tea" })).await;
    assert!(text(&rejected).contains("ann has rejected it: it is needed"), "{rejected}");
    assert!(bench.effects().is_empty());
}

async fn elicited(tools: &'static str, answer: Value) -> (Bench, Value) {
    let read = |folder: &std::path::Path| McpConfig::parse(one_server(folder, tools)).unwrap();
    let mut bench = Bench::with(read, &json!({ "elicitation": {} })).await;
    bench.client.elicits = answer;
    let answer = bench.client.call("delete_note", json!({ "title": "Tea" })).await;
    (bench, answer)
}

#[tokio::test]
async fn the_clients_user_approves_where_the_policy_says_so() {
    let (bench, answer) = elicited(BY_THE_USER, json!({ "action": "accept", "content": {} })).await;
    assert!(first(&answer), "{answer}");
    let message = bench.client.asked[0]["params"]["message"].as_str().unwrap();
    assert!(message.contains("delete_note") && message.contains("Tea"), "{message}");
    assert_eq!(bench.effects().len(), 1);
    let (bench, declined) = elicited(BY_THE_USER, json!({ "action": "decline" })).await;
    assert!(text(&declined).contains("tester has rejected it"), "{declined}");
    assert!(bench.effects().is_empty());
    // A user who closes the question has not decided.
    let (bench, closed) = elicited(BY_THE_USER, json!({ "action": "cancel" })).await;
    assert!(text(&closed).contains("counterfoil approve"), "{closed}");
    assert!(bench.effects().is_empty());
}

#[tokio::test]
async fn the_clients_user_is_not_asked_where_the_policy_names_somebody_else() {
    let mut bench = Bench::with(config, &json!({ "elicitation": {} })).await;
    bench.client.elicits = json!({ "action": "accept", "content": {} });
    let waiting = bench.client.call("delete_note", json!({ "title": "Tea" })).await;
    assert!(text(&waiting).contains("ann"), "{waiting}");
    assert!(bench.client.asked.is_empty() && bench.effects().is_empty());
}

/// A call that waits for the answer of the client's user, and the question.
async fn asked(tools: &'static str) -> (Bench, u64, Value) {
    let read = |folder: &std::path::Path| McpConfig::parse(one_server(folder, tools)).unwrap();
    let mut bench = Bench::with(read, &json!({ "elicitation": {} })).await;
    let params = json!({ "name": "delete_note", "arguments": { "title": "Tea" } });
    let call = bench.client.send("tools/call", params).await.unwrap();
    let question = bench.client.question().await;
    assert_eq!(question["method"], "elicitation/create");
    (bench, call, question)
}

/// Checks that an answer to this question, which is over, decides nothing.
async fn decides_nothing(bench: &mut Bench, question: &Value) {
    let over = bench.client.told("notifications/cancelled").await;
    assert_eq!(over["params"]["requestId"], question["id"]);
    bench.client.reply(question, &json!({ "action": "accept", "content": {} })).await;
    bench.client.request("ping", json!({})).await; // the gateway has read the answer
    let approvals = bench.gateway.executor().approvals(&Tenant::default());
    let reviews = approvals.reviews(None).await.unwrap();
    assert!(reviews.len() == 1 && reviews[0].review.outcome.is_none(), "{reviews:?}");
    assert!(bench.effects().is_empty());
}

#[tokio::test]
async fn a_user_who_does_not_answer_in_time_has_decided_nothing() {
    let (mut bench, call, question) = asked(BY_THE_USER_AT_ONCE).await;
    decides_nothing(&mut bench, &question).await;
    let answer = bench.client.answer(call).await.unwrap();
    assert!(text(&answer["result"]).contains("counterfoil approve"), "{answer}");
}

#[tokio::test]
async fn a_user_is_asked_no_more_when_the_call_is_cancelled() {
    let (mut bench, call, question) = asked(BY_THE_USER).await;
    bench.client.notify("notifications/cancelled", json!({ "requestId": call })).await;
    decides_nothing(&mut bench, &question).await;
}

#[tokio::test]
async fn a_person_may_decide_while_the_user_is_asked() {
    let (mut bench, call, question) = asked(BY_ANN_OR_THE_USER).await;
    let approvals = bench.gateway.executor().approvals(&Tenant::default());
    let review = approvals.reviews(None).await.unwrap().pop().unwrap();
    approvals.decide(&review.id, review.version).approve("ann").await.unwrap();
    bench.client.reply(&question, &json!({ "action": "cancel" })).await;
    let answer = bench.client.answer(call).await.unwrap();
    assert!(first(&answer["result"]), "{answer}");
    assert_eq!(bench.effects().len(), 1);
}
