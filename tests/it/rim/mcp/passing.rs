//! What passes through the gateway besides calls that write.

use std::time::Duration;

use counterfoil::Executor;
use counterfoil::mcp::{McpConfig, McpGateway};
use serde_json::{Value, json};

use super::client::{Client, first, text};
use super::server::Notes;
use super::{Bench, one_server};

fn names(tools: &Value) -> Vec<&str> {
    tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_keep_their_names_and_get_an_argument_for_a_repetition_if_they_write() {
    let mut bench = Bench::new().await;
    let tools = bench.client.request("tools/list", json!({})).await;
    assert!(names(&tools).contains(&"create_note"));
    for tool in tools["result"]["tools"].as_array().unwrap() {
        let reads = ["list_notes", "echo"].contains(&tool["name"].as_str().unwrap());
        let offered = tool["inputSchema"]["properties"].get("counterfoil_again").is_some();
        assert_eq!(offered, !reads, "{tool}");
        assert_eq!(tool.get("outputSchema").is_some(), reads, "{tool}");
    }
}

#[tokio::test]
async fn tools_of_two_servers_with_one_name_are_told_apart_by_the_servers_names() {
    let other = tempfile::tempdir().unwrap();
    let read = |folder: &std::path::Path| {
        let Notes { command, args, env } = Notes::started_in(other.path());
        let second = format!("  drafts: {{ command: {command:?}, args: {args}, env: {env} }}\n");
        McpConfig::parse(one_server(folder, "\n      echo: { effect: read_only }\n") + &second).unwrap()
    };
    let mut bench = Bench::with(read, &json!({})).await;
    let tools = bench.client.request("tools/list", json!({})).await;
    let names = names(&tools);
    assert!(names.contains(&"notes_create_note") && names.contains(&"drafts_create_note"), "{names:?}");
    assert!(first(&bench.client.call("drafts_write_blindly", json!({ "title": "Tea" })).await));
    assert!(first(&bench.client.call("notes_write_blindly", json!({ "title": "Tea" })).await));
    assert_eq!((bench.effects().len(), super::server::effects(other.path()).len()), (1, 1));
}

#[tokio::test]
async fn a_name_that_was_called_does_not_reach_another_server_while_its_own_is_down() {
    let folders = ["notes", "drafts", "ledger"].map(|_| tempfile::tempdir().unwrap());
    let config = |up: &str| {
        let servers = ["notes", "drafts"].iter().zip(&folders).map(|(name, folder)| {
            let Notes { command, args, env } = Notes::started_in(folder.path());
            let command = if *name == up { command } else { "/no/such/program".to_owned() };
            format!("  {name}: {{ command: {command:?}, args: {args}, env: {env} }}\n")
        });
        let servers: String = servers.collect();
        McpConfig::parse(format!("ledger: calls.db\nclient: tester\nservers:\n{servers}")).unwrap()
    };
    let effects = || [&folders[0], &folders[1]].map(|folder| super::server::effects(folder.path()).len());
    let on_ledger = async |up: &str| {
        let executor = Executor::sqlite(folders[2].path().join("calls.db"));
        let gateway = McpGateway::open_on(config(up), executor).await.unwrap();
        let mut client = Client::of(&gateway, &json!({})).await;
        client.request("tools/list", json!({})).await;
        (gateway, client)
    };
    let tea = json!({ "title": "Tea" });

    let (gateway, mut client) = on_ledger("notes").await;
    assert!(first(&client.call("write_blindly", tea.clone()).await));
    gateway.shutdown(Duration::ZERO).await;

    let (gateway, mut client) = on_ledger("drafts").await;
    let same = json!({ "name": "write_blindly", "arguments": tea });
    let refused = client.request("tools/call", same).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("no tool"), "{refused}");
    assert_eq!(effects(), [1, 0]);
    assert!(first(&client.call("drafts_write_blindly", tea).await));
    assert_eq!(effects(), [1, 1]);
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn annotations_are_not_believed_unless_the_configuration_says_so() {
    let mut bench = Bench::new().await;
    for _ in 0..2 {
        bench.client.call("claims_to_read", json!({ "title": "Tea" })).await;
    }
    assert_eq!(bench.effects().len(), 1, "a tool that claims to read is recorded all the same");
    bench.fault("die_after");
    let answer = bench.client.call("claims_to_be_idempotent", json!({ "title": "Tea" })).await;
    assert!(text(&answer).contains("Nobody knows"), "{answer}");
    assert_eq!(bench.effects().len(), 2);

    let trusting = |folder: &std::path::Path| {
        let file = one_server(folder, " {}\n") + "    trust: [read_only, idempotent]\n";
        McpConfig::parse(file).unwrap()
    };
    let mut bench = Bench::with(trusting, &json!({})).await;
    for _ in 0..2 {
        bench.client.call("claims_to_read", json!({ "title": "Tea" })).await;
    }
    bench.fault("die_before");
    assert!(first(&bench.client.call("claims_to_be_idempotent", json!({ "title": "Tea" })).await));
    assert_eq!(bench.effects().len(), 3);
}

#[tokio::test]
async fn resources_and_prompts_pass() {
    let mut bench = Bench::new().await;
    let resources = bench.client.request("resources/list", json!({})).await;
    assert_eq!(resources["result"]["resources"][0]["uri"], "notes://all");
    let read = bench.client.request("resources/read", json!({ "uri": "notes://all" })).await;
    assert_eq!(read["result"]["contents"][0]["text"], "0 notes");
    let prompts = bench.client.request("prompts/list", json!({})).await;
    assert_eq!(prompts["result"]["prompts"][0]["name"], "summary");
    let prompt = bench.client.request("prompts/get", json!({ "name": "summary" })).await;
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Summarize.");
    let unknown = bench.client.request("resources/read", json!({ "uri": "notes://none" })).await;
    assert!(unknown.get("error").is_some(), "{unknown}");
}

#[tokio::test]
async fn progress_reaches_the_client_under_its_own_token() {
    let mut bench = Bench::new().await;
    let params = json!({ "name": "echo", "arguments": {}, "_meta": { "progressToken": "mine" } });
    bench.client.call_with(params).await;
    let progress = bench.client.told("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "mine");
}

// A client without a progress token may leave while another one waits for the same operation with its own.
#[tokio::test]
async fn progress_of_a_call_reaches_each_client_that_waits_for_it() {
    let mut bench = Bench::new().await;
    let mut other = Client::of(&bench.gateway, &json!({})).await;
    let mut silent = Client::of(&bench.gateway, &json!({})).await;
    bench.fault("slow");
    let call = |token: &Value| {
        let meta = json!({ "progressToken": token });
        json!({ "name": "write_blindly", "arguments": { "title": "Tea" }, "_meta": meta })
    };
    let first = bench.client.send("tools/call", call(&json!("mine"))).await.unwrap();
    bench.client.told("notifications/progress").await;
    let second = other.send("tools/call", call(&json!("theirs"))).await.unwrap();
    let params = json!({ "name": "write_blindly", "arguments": { "title": "Tea" } });
    let third = silent.send("tools/call", params).await.unwrap();
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": third } });
    silent.write(&cancelled.to_string()).await.unwrap();
    silent.request("ping", json!({})).await;
    // The server reports until it is told to end.
    assert_eq!(other.told("notifications/progress").await["params"]["progressToken"], "theirs");
    bench.client.untold();
    bench.client.told("notifications/progress").await;
    std::fs::write(bench.folder.path().join("enough"), "").unwrap();
    let answers = [bench.client.answer(first).await, other.answer(second).await];
    assert!(
        answers.iter().flatten().all(|answer| answer["result"]["structuredContent"]["id"] == 1),
        "{answers:?}"
    );
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_start_delays_no_calls_of_the_others() {
    let read = |folder: &std::path::Path| {
        let broken = folder.join("broken");
        let starts = folder.join("starts");
        std::fs::write(&broken, format!("#!/bin/sh\necho >> '{}'\nsleep 60\n", starts.display())).unwrap();
        let broken = broken.display();
        let second = format!("  broken: {{ command: sh, args: ['{broken}'], ready_within: 1 s }}\n");
        McpConfig::parse(one_server(folder, " {}\n") + &second).unwrap()
    };
    let mut bench = Bench::with(read, &json!({})).await;
    let tools = bench.client.request("tools/list", json!({})).await;
    assert!(names(&tools).contains(&"write_blindly"), "the others are listed");
    for title in ["Tea", "Milk", "Bread"] {
        assert!(first(&bench.client.call("write_blindly", json!({ "title": title })).await));
        bench.client.request("tools/list", json!({})).await;
    }
    let starts = std::fs::read_to_string(bench.folder.path().join("starts")).unwrap();
    assert!(starts.lines().count() <= 2, "it was started for each call: {}", starts.lines().count());
}

#[tokio::test]
async fn completions_of_prompts_and_resources_pass() {
    let mut bench = Bench::new().await;
    for (of, value) in [
        (json!({ "type": "ref/prompt", "name": "summary" }), "ref/prompt: tea"),
        (json!({ "type": "ref/resource", "uri": "notes://{title}" }), "ref/resource: tea"),
    ] {
        let params = json!({ "ref": of, "argument": { "name": "title", "value": "t" } });
        let completed = bench.client.request("completion/complete", params).await;
        assert_eq!(completed["result"]["completion"]["values"], json!([value]), "{completed}");
    }
}

#[tokio::test]
async fn a_call_that_reads_is_cancelled_at_the_server() {
    let mut bench = Bench::new().await;
    let meta = json!({ "progressToken": "mine" });
    let call = json!({ "name": "echo", "arguments": { "text": "wait" }, "_meta": meta });
    let id = bench.client.send("tools/call", call).await.unwrap();
    bench.client.told("notifications/progress").await; // the server has the call
    bench.client.notify("notifications/cancelled", json!({ "requestId": id })).await;
    let log = bench.client.told("notifications/message").await;
    assert_eq!(log["params"]["data"], "the call was cancelled");
    bench.client.call("echo", json!({ "text": "next" })).await;
}

#[tokio::test]
async fn a_changed_list_of_tools_reaches_the_client() {
    let mut bench = Bench::new().await;
    bench.fault("change_tools");
    bench.client.call("write_blindly", json!({ "title": "Tea" })).await;
    bench.client.told("notifications/tools/list_changed").await;
    let tools = bench.client.request("tools/list", json!({})).await;
    assert!(!names(&tools).contains(&"write_blindly"));
    let gone = bench.client.request("tools/call", json!({ "name": "write_blindly", "arguments": {} })).await;
    assert!(gone["error"]["message"].as_str().unwrap().contains("write_blindly"), "{gone}");
}
