//! Questions of a server to a client: sampling, roots and elicitation.

use counterfoil::Tenant;
use serde_json::{Value, json};

use super::asking::SIGN_IN;
use super::client::{Client, first, text};
use super::{Bench, config};

async fn bench(abilities: &Value) -> Bench {
    Bench::with(config, abilities).await
}

fn tea() -> Value {
    json!({ "title": "Tea" })
}

#[tokio::test]
async fn sampling_and_roots_reach_the_client_and_its_answers_the_server() {
    let content = json!({ "type": "text", "text": "Green tea" });
    for (ability, question, method, answer, told) in [
        (
            "sampling",
            "sample",
            "sampling/createMessage",
            json!({ "role": "assistant", "content": content, "model": "m" }),
            "Green tea",
        ),
        ("roots", "roots", "roots/list", json!({ "roots": [{ "uri": "file:///notes" }] }), "file:///notes"),
    ] {
        let mut bench = bench(&json!({ ability: {} })).await;
        bench.client.elicits = answer;
        bench.fault(question);
        let called = bench.client.call("write_blindly", tea()).await;
        assert!(text(&called).contains(told), "{called}");
        assert_eq!(bench.client.asked[0]["method"], method);
        let shows_the_text = bench.client.asked[0].to_string().contains("Which title?");
        assert_eq!(shows_the_text, ability == "sampling", "{:?}", bench.client.asked);
    }
}

#[tokio::test]
async fn a_client_is_not_asked_for_what_it_has_not_declared() {
    for (question, abilities, code) in [
        ("sample", json!({ "roots": {}, "elicitation": {} }), "-32601"),
        ("roots", json!({ "sampling": {}, "elicitation": {} }), "-32601"),
        ("elicit", json!({ "sampling": {}, "roots": {} }), "-32601"),
        ("elicit", json!({ "elicitation": { "url": {} } }), "-32602"),
        ("elicit_at_url", json!({ "elicitation": {} }), "-32602"),
    ] {
        let mut bench = bench(&abilities).await;
        bench.fault(question);
        let called = bench.client.call("write_blindly", tea()).await;
        assert!(text(&called).contains(code), "{question}: {called}");
        assert!(bench.client.asked.is_empty(), "{question}: {:?}", bench.client.asked);
    }
}

// `method not found` is no sign of a call that was not made, if it is the client's answer to a question in the middle of the call.
#[tokio::test]
async fn a_call_in_which_a_question_was_refused_is_not_made_again() {
    let mut bench = bench(&json!({})).await;
    bench.fault("ask_in_vain");
    for _ in 0..2 {
        let lost = bench.client.call("write_blindly", tea()).await;
        assert_eq!(lost["isError"], true, "{lost}");
        assert_eq!(bench.effects().len(), 1);
    }
    let questions = bench.gateway.executor().questions(&Tenant::default()).await.unwrap();
    assert_eq!(questions.len(), 1);
}

#[tokio::test]
async fn a_change_of_the_roots_reaches_the_server_and_its_log_message_the_client() {
    let mut bench = bench(&json!({ "roots": { "listChanged": true } })).await;
    bench.client.notify("notifications/roots/list_changed", json!({})).await;
    let log = bench.client.told("notifications/message").await;
    assert_eq!(log["params"]["level"], "info", "{log}");
    assert_eq!(log["params"]["data"], "the roots have changed", "{log}");
}

#[tokio::test]
async fn a_question_of_a_server_reaches_the_clients_user() {
    let mut bench = bench(&json!({ "elicitation": {} })).await;
    bench.client.elicits = json!({ "action": "accept", "content": { "folder": "inbox" } });
    bench.fault("elicit");
    let answer = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&answer).contains("inbox"), "{answer}");
    assert_eq!(bench.client.asked[0]["params"]["message"], "Which folder?");
}

#[tokio::test]
async fn a_question_in_a_call_reaches_the_client_whose_call_it_is() {
    let mut bench = bench(&json!({ "elicitation": {} })).await;
    let mut other = Client::of(&bench.gateway, &json!({ "elicitation": {} })).await; // it came last
    bench.client.elicits = json!({ "action": "accept", "content": {} });
    bench.fault("elicit");
    bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    other.request("ping", json!({})).await;
    assert_eq!((bench.client.asked.len(), other.asked.len()), (1, 0));
}

#[tokio::test]
async fn a_question_that_the_server_cancels_is_cancelled_at_the_client() {
    let mut bench = bench(&json!({ "elicitation": {} })).await;
    bench.fault("elicit_and_cancel");
    let params = json!({ "name": "write_blindly", "arguments": tea() });
    let call = bench.client.send("tools/call", params).await.unwrap();
    let question = bench.client.question().await;
    bench.client.send("resources/list", json!({})).await.unwrap(); // the server cancels its question at that
    let cancelled = bench.client.told("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    bench.client.reply(&question, &json!({ "action": "accept", "content": {} })).await; // too late
    let answer = bench.client.answer(call).await.unwrap();
    assert_eq!(text(&answer["result"]), "cancelled", "{answer}");
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Milk" })).await));
}

#[tokio::test]
async fn an_elicitation_at_a_url_is_completed_for_the_client_that_was_sent_there() {
    let abilities = json!({ "elicitation": { "url": {} } });
    let mut bench = bench(&abilities).await;
    let mut sent_there = Client::of(&bench.gateway, &abilities).await;
    sent_there.elicits = json!({ "action": "accept" });
    bench.fault("elicit_at_url");
    sent_there.call("write_blindly", tea()).await;
    assert_eq!(sent_there.asked[0]["params"]["url"], SIGN_IN);
    let completed = sent_there.told("notifications/elicitation/complete").await;
    assert_eq!(completed["params"]["elicitationId"], "e1");
    bench.client.request("ping", json!({})).await; // it is told before the others if all are told
    assert!(!bench.client.was_told("notifications/elicitation/complete"));

    // The gateway does not know who has opened the URL of an answer.
    bench.fault("complete");
    sent_there.call("write_blindly", json!({ "title": "Milk" })).await;
    let completed = bench.client.told("notifications/elicitation/complete").await;
    assert_eq!(completed["params"]["elicitationId"], "e2");
}
