//! What makes two calls one operation.

use std::time::Duration;

use counterfoil::Executor;
use counterfoil::mcp::McpGateway;
use serde_json::json;

use super::client::{Client, first, text};
use super::{Bench, config};
use crate::world::TestClock;

#[tokio::test]
async fn the_key_of_the_request_counts_before_all_else() {
    let mut bench = Bench::new().await;
    let arguments = json!({ "title": "Tea" });
    let meta =
        json!({ "name": "write_blindly", "arguments": arguments, "_meta": { "idempotencyKey": "k1" } });
    let beside = json!({ "name": "write_blindly", "arguments": arguments, "idempotencyKey": "k1" });
    assert!(first(&bench.client.call_with(meta.clone()).await));
    let same = bench.client.call_with(beside).await;
    assert!(!first(&same));
    assert!(!text(&same).contains("counterfoil_again"), "a client that gives a key expects the same answer");
    let other =
        json!({ "name": "write_blindly", "arguments": arguments, "_meta": { "idempotencyKey": "k2" } });
    assert!(first(&bench.client.call_with(other).await));
    assert_eq!(bench.effects().len(), 2);
    // The same key with other arguments is a conflict.
    let mut changed = meta;
    changed["arguments"]["title"] = "Coffee".into();
    let conflict = bench.client.call_with(changed).await;
    assert_eq!(conflict["isError"], true);
    assert!(text(&conflict).contains("title"), "{conflict}");
    assert_eq!(bench.effects().len(), 2);
}

#[tokio::test]
async fn the_arguments_that_the_policy_names_are_the_key() {
    let mut bench = Bench::new().await;
    let arguments = json!({ "title": "Tea", "order": "o1" });
    assert!(first(&bench.client.call("pay", arguments.clone()).await));
    assert!(!first(&bench.client.call("pay", arguments).await));
    let conflict = bench.client.call("pay", json!({ "title": "Coffee", "order": "o1" })).await;
    assert_eq!(conflict["isError"], true, "{conflict}");
    let nameless = bench.client.call("pay", json!({ "title": "Tea" })).await;
    assert!(text(&nameless).contains("`/order`"), "{nameless}");
    assert_eq!(bench.effects().len(), 1);
}

#[tokio::test]
async fn optional_arguments_are_compared_as_the_schema_reads_them() {
    let mut bench = Bench::new().await;
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
    assert!(!first(&bench.client.call("write_blindly", json!({ "body": null, "title": "Tea" })).await));
    assert!(first(&bench.client.call("write_blindly", json!({ "body": "x", "title": "Tea" })).await));
}

#[tokio::test]
async fn a_call_is_made_once_more_when_it_is_asked_for_on_purpose() {
    let mut bench = Bench::new().await;
    for again in [json!(null), json!(1), json!(2)] {
        let arguments = json!({ "title": "Tea", "counterfoil_again": again });
        assert!(first(&bench.client.call("write_blindly", arguments.clone()).await), "{again}");
        assert!(!first(&bench.client.call("write_blindly", arguments).await), "{again}");
    }
    assert_eq!(bench.effects().len(), 3);
    assert!(bench.effects().iter().all(|effect| effect["arguments"].get("counterfoil_again").is_none()));
    let wrong = bench.client.call("write_blindly", json!({ "title": "Tea", "counterfoil_again": "x" })).await;
    assert!(text(&wrong).starts_with("Nothing was done"), "{wrong}");
}

#[tokio::test]
async fn after_its_window_the_same_call_is_another_operation() {
    let folder = tempfile::tempdir().unwrap();
    let clock = TestClock::breathing();
    let executor = Executor::in_memory().clock(clock.clone());
    let gateway = McpGateway::open_on(config(folder.path()), executor).await.unwrap();
    let mut client = Client::of(&gateway, &json!({})).await;
    for round in 1..=4 {
        assert!(first(&client.call("write_blindly", json!({ "title": "Tea" })).await), "{round}");
        clock.advance(Duration::from_mins(9));
        assert!(!first(&client.call("write_blindly", json!({ "title": "Tea" })).await), "{round}");
        clock.advance(Duration::from_mins(1));
        assert_eq!(super::server::effects(folder.path()).len(), round);
    }
}

#[tokio::test]
async fn two_connections_of_one_client_share_an_operation() {
    let mut bench = Bench::new().await;
    let mut other = Client::of(&bench.gateway, &json!({})).await;
    assert!(first(&bench.client.call("write_blindly", json!({ "title": "Tea" })).await));
    assert!(!first(&other.call("write_blindly", json!({ "title": "Tea" })).await));
}
