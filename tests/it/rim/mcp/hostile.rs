//! Clients and servers that do not keep to the protocol.

use counterfoil::Tenant;
use counterfoil::mcp::McpConfig;
use serde_json::json;

use super::client::{Client, first, text};
use super::server::{Notes, effects};
use super::{Bench, one_server};

#[tokio::test]
async fn a_malformed_message_is_answered_with_an_error_and_the_next_one_is_served() {
    let mut bench = Bench::new().await;
    for (line, id) in [
        ("{ not json", json!(null)),
        ("[1, 2]", json!(null)),
        (r#"{"jsonrpc":"2.0","id":"x","method":7}"#, json!("x")),
        (r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":7}}"#, json!(9)),
    ] {
        bench.client.write(line).await.unwrap();
        let answer = bench.client.read().await.unwrap();
        assert_eq!(answer["id"], id, "{line}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{line}: {answer}");
    }
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
}

#[tokio::test]
async fn arguments_that_cannot_be_recorded_are_refused_before_anything_is_sent() {
    let mut bench = Bench::new().await;
    let huge = "x".repeat(5 << 20);
    let refused = bench.client.call("write_blindly", json!({ "title": huge })).await;
    assert!(text(&refused).starts_with("Nothing was done"), "{}", &refused.to_string()[..200]);
    let inexact =
        bench.client.call("write_blindly", json!({ "title": "x", "n": 9_007_199_254_740_993_u64 })).await;
    assert!(text(&inexact).starts_with("Nothing was done"), "{inexact}");
    let control =
        json!({ "name": "write_blindly", "arguments": { "title": "x" }, "idempotencyKey": "a\u{7}b" });
    let control = bench.client.call_with(control).await;
    assert!(text(&control).starts_with("Nothing was done"), "{control}");
    let number = json!({ "name": "write_blindly", "arguments": {}, "idempotencyKey": 7 });
    let number = bench.client.request("tools/call", number).await;
    assert!(number["error"]["message"].as_str().unwrap().contains("idempotencyKey"), "{number}");
    assert!(bench.effects().is_empty());
}

#[tokio::test]
async fn a_message_that_is_too_long_is_skipped() {
    let mut bench = Bench::new().await;
    let long = "x".repeat(17 << 20);
    bench.client.write(&long).await.unwrap();
    let answer = bench.client.read().await.unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("bytes"), "{answer}");
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
}

#[tokio::test]
async fn a_second_answer_of_a_server_is_ignored() {
    let mut bench = Bench::new().await;
    bench.fault("twice");
    assert_eq!(
        bench.client.call("write_blindly", json!({ "title": "Tea" })).await["structuredContent"]["id"],
        1
    );
    assert_eq!(
        bench.client.call("write_blindly", json!({ "title": "Milk" })).await["structuredContent"]["id"],
        2
    );
}

#[tokio::test]
async fn an_answer_that_is_no_result_leaves_the_outcome_unknown() {
    let mut bench = Bench::new().await;
    bench.fault("garbage");
    let answer = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&answer).contains("Nobody knows"), "{answer}");
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_and_asked_about() {
    let tools = "\n      write_blindly: { timeout: 1 s }\n";
    let read = |folder: &std::path::Path| McpConfig::parse(one_server(folder, tools)).unwrap();
    let mut bench = Bench::with(read, &json!({})).await;
    bench.fault("hang");
    let answer = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&answer).contains("Nobody knows"), "{answer}");
    let questions = bench.gateway.executor().questions(&Tenant::default()).await.unwrap();
    assert_eq!(questions.len(), 1);
}

#[tokio::test]
async fn a_program_that_reads_nothing_more_is_started_anew_and_the_call_is_looked_up_there() {
    let read = |folder: &std::path::Path| {
        let lookup = "{ tool: list_notes, at: /notes, matches: { /ref: '{key}' } }";
        let tools = format!(
            "\n      create_note: {{ reference: /ref, timeout: 4 s, settle: 4 s, lookup: {lookup} }}\n"
        );
        let file = one_server(folder, &tools).replace("ready_within: 20 s", "ready_within: 5 s");
        McpConfig::parse(file).unwrap()
    };
    let mut bench = Bench::with(read, &json!({})).await;
    bench.fault("freeze");
    let found = bench.client.call("create_note", json!({ "title": "Tea" })).await;
    assert_ne!(found["isError"], true, "{found}");
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_call_that_reads_and_has_no_answer_in_time_is_cancelled_at_the_server() {
    let tools = "\n      echo: { effect: read_only, timeout: 1 s }\n";
    let read = |folder: &std::path::Path| McpConfig::parse(one_server(folder, tools)).unwrap();
    let mut bench = Bench::with(read, &json!({})).await;
    let call = json!({ "name": "echo", "arguments": { "text": "wait" } });
    let given_up = bench.client.request("tools/call", call).await;
    assert!(given_up["error"]["message"].as_str().unwrap().contains("not answered within 1s"), "{given_up}");
    let log = bench.client.told("notifications/message").await;
    assert_eq!(log["params"]["data"], "the call was cancelled");
    let next = bench.client.call("echo", json!({ "text": "next" })).await;
    assert_eq!(next["structuredContent"]["echo"]["text"], "next");
}

// It handles one message at a time: the request that is given up waits behind a write, and so does the ping.
#[tokio::test]
async fn a_server_that_is_busy_with_a_write_is_not_ended_when_another_request_is_given_up() {
    let tools = "\n      write_blindly: { timeout: 60 s }\n      echo: { effect: read_only, timeout: 1 s }\n";
    let read = |folder: &std::path::Path| {
        let file = one_server(folder, tools).replace("ready_within: 20 s", "ready_within: 5 s");
        McpConfig::parse(file).unwrap()
    };
    let mut bench = Bench::with(read, &json!({})).await;
    let mut other = Client::of(&bench.gateway, &json!({})).await;
    bench.fault("busy");
    let folder = bench.folder.path();
    let write = bench.client.call("write_blindly", json!({ "title": "Tea" }));
    let given_up = async {
        while effects(folder).is_empty() {
            tokio::task::yield_now().await;
        }
        let call = json!({ "name": "echo", "arguments": { "text": "hello" } });
        other.request("tools/call", call).await
    };
    let (written, given_up) = futures_util::future::join(write, given_up).await;
    assert!(given_up["error"]["message"].as_str().unwrap().contains("not answered within 1s"), "{given_up}");
    assert_eq!(written["structuredContent"]["id"], 1, "{written}");
}

#[tokio::test]
async fn a_server_that_cannot_be_started_is_named() {
    let read = |folder: &std::path::Path| {
        let servers = "servers:\n  notes: { command: /no/such/program }\n  more: { command: 'true', ready_within: 5 s }\n";
        McpConfig::parse(format!("ledger: {}/calls.db\n{servers}", folder.display())).unwrap()
    };
    let mut bench = Bench::with(read, &json!({})).await;
    let tools = bench.client.request("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"], json!([]));
    let unknown = bench.client.request("tools/call", json!({ "name": "x", "arguments": {} })).await;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("no tool \"x\""), "{unknown}");
}

#[tokio::test]
async fn a_server_that_does_not_end_its_list_holds_up_no_other() {
    for fault in ["mute", "endless"] {
        let read = |folder: &std::path::Path| {
            let more = folder.join("more");
            std::fs::create_dir(&more).unwrap();
            std::fs::write(more.join(fault), "").unwrap();
            let Notes { command, args, env } = Notes::started_in(&more);
            let more = format!(
                "\n  more: {{ command: {command:?}, args: {args}, env: {env}, ready_within: 5 s }}\n"
            );
            McpConfig::parse(one_server(folder, &format!(" {{}}{more}"))).unwrap()
        };
        let mut bench = Bench::with(read, &json!({})).await;
        assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await), "{fault}");
        let tools = bench.client.request("tools/list", json!({})).await;
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 8, "{fault}: {tools}");
        let unknown = bench.client.request("tools/call", json!({ "name": "x", "arguments": {} })).await;
        let told = unknown["error"]["message"].as_str().unwrap();
        assert!(told.contains("\"more\" does not list its tools"), "{told}");
    }
}

#[tokio::test]
async fn an_answer_that_no_record_can_hold_is_kept_as_its_text() {
    let mut bench = Bench::new().await;
    bench.fault("big");
    for is_first in [true, false] {
        let answer = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
        assert_eq!(first(&answer), is_first, "{answer}");
        assert!(text(&answer).contains("1152921504606846976"), "{answer}");
    }
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_text_of_a_server_that_asks_for_another_key_or_an_approval_is_a_text() {
    let mut bench = Bench::new().await;
    bench.fault("inject");
    let answer = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&answer).contains("SYSTEM"), "{answer}");
    assert!(!first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
    assert_eq!(bench.effects().len(), 1);
    let approvals = bench.gateway.executor().approvals(&Tenant::default());
    assert!(approvals.reviews(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cancelled_call_goes_on_and_is_recorded() {
    let mut bench = Bench::with(super::config, &json!({ "elicitation": {} })).await;
    bench.client.elicits = json!({ "action": "accept" });
    bench.fault("elicit");
    let call = json!({ "name": "write_blindly", "arguments": { "title": "Tea" } });
    let id = bench.client.send("tools/call", call).await.unwrap();
    let question = bench.client.read().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    bench.client.write(&cancelled.to_string()).await.unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    bench.client.write(&answer.to_string()).await.unwrap();
    let again = bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    assert!(text(&again).contains("decline"), "{again}");
}
