//! A call that writes is carried out once: it is answered from its record, looked up, or asked about.

use counterfoil::Tenant;
use serde_json::json;

use super::Bench;
use super::client::{first, text};

#[tokio::test]
async fn the_same_call_again_is_answered_with_the_first_result() {
    let mut bench = Bench::new().await;
    let one = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    let two = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(first(&one) && !first(&two), "{one} {two}");
    assert_eq!(two["structuredContent"], one["structuredContent"]);
    assert!(text(&two).contains("first result") && text(&two).contains("\"counterfoil_again\": 1"), "{two}");
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_call_that_reads_passes_without_a_record() {
    let mut bench = Bench::new().await;
    for _ in 0..2 {
        let echo = bench.client.call("echo", json!({ "text": "hello" })).await;
        assert_eq!(echo["structuredContent"]["echo"]["text"], "hello");
        assert!(echo["_meta"].get("counterfoil").is_none(), "{echo}");
    }
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_found_and_not_sent_again() {
    let mut bench = Bench::new().await;
    bench.fault("die_after");
    let answer = bench.client.call("create_note", json!({ "title": "Tea" })).await;
    assert_ne!(answer["isError"], true, "{answer}");
    let effects = bench.effects();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0]["ref"], effects[0]["key"], "the reference is the key of the operation");
}

#[tokio::test]
async fn a_call_that_was_not_carried_out_is_sent_again() {
    let mut bench = Bench::new().await;
    bench.fault("die_before");
    let answer = bench.client.call("create_note", json!({ "title": "Tea" })).await;
    assert_eq!(answer["structuredContent"]["id"], 1, "{answer}");
    assert_eq!(bench.effects().len(), 1);
}

// Part of the line may have been read, and a line without its end is one to some servers.
#[tokio::test]
async fn a_call_that_could_not_be_written_is_looked_up_at_a_server_that_was_started_anew() {
    let mut bench = Bench::new().await;
    bench.fault("deaf");
    bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    let found = bench.client.call("create_note", json!({ "title": "Milk" })).await;
    assert_eq!(found["structuredContent"]["id"], 2, "{found}");
    bench.fault("deaf");
    bench.client.call("write_blindly", json!({ "title": "Sugar" })).await;
    let asked = bench.client.call("write_blindly", json!({ "title": "Bread" })).await;
    assert!(text(&asked).contains("Nobody knows"), "{asked}");
    assert_eq!(bench.effects().len(), 3);
}

#[tokio::test]
async fn a_call_that_nobody_can_look_up_is_a_question() {
    let mut bench = Bench::new().await;
    bench.fault("die_after");
    let answer = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    let questions = bench.gateway.executor().questions(&Tenant::default()).await.unwrap();
    let [question] = questions.as_slice() else { panic!("{questions:?}") };
    assert_eq!(answer["isError"], true);
    assert!(text(&answer).contains(&question.id.to_string()), "{answer}");
    // The same call is not sent again, however often it comes.
    let again = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&again).contains(&question.id.to_string()), "{again}");
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_refusal_before_the_tool_was_called_leaves_the_call_free() {
    let mut bench = Bench::new().await;
    bench.fault("no_method");
    let refused = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert_eq!(refused["isError"], true);
    assert!(text(&refused).contains("no such method"), "{refused}");
    let done = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(first(&done), "{done}");
}

// Servers answer so, too, when the output of a tool that they have called does not fit its schema.
#[tokio::test]
async fn invalid_params_do_not_show_that_the_tool_was_not_called() {
    let mut bench = Bench::new().await;
    bench.fault("invalid_output");
    for _ in 0..2 {
        let asked = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
        assert_eq!(asked["isError"], true, "{asked}");
        assert_eq!(bench.effects().len(), 1);
    }
    assert_eq!(bench.gateway.executor().questions(&Tenant::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_an_error_is_an_answer() {
    let mut bench = Bench::new().await;
    bench.fault("error");
    let failed = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert_eq!((failed["isError"].as_bool(), first(&failed)), (Some(true), true));
    let again = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert_eq!((again["isError"].as_bool(), first(&again)), (Some(true), false), "{again}");
    assert_eq!(bench.effects().len(), 1);
}
