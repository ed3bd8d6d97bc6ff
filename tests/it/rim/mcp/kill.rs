//! The gateway is a process that is killed: no silent duplicate, no silent loss. The server's own file counts the
//! effects.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::mcp::{McpConfig, McpGateway};
use counterfoil::sim::{CrashPoint, KillAt};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::client::{Client, text};
use super::{TOOLS, one_server, server};

const CONFIG: &str = "COUNTERFOIL_TEST_GATEWAY";
const KILL: &str = "COUNTERFOIL_TEST_KILL";

/// Not a test: a gateway, when this program was started as one.
#[tokio::test]
async fn child() {
    let Ok(path) = std::env::var(CONFIG) else { return };
    let config = McpConfig::parse(std::fs::read(path).unwrap()).unwrap();
    let mut executor = Executor::sqlite(config.ledger());
    if let Ok(point) = std::env::var(KILL) {
        executor = executor.watch(Arc::new(point.parse::<KillAt>().unwrap()));
    }
    let gateway = McpGateway::open_on(config, executor).await.unwrap();
    drop(gateway.serve(tokio::io::stdin(), tokio::io::stdout()).await);
    gateway.shutdown(Duration::from_secs(1)).await;
    std::process::exit(0);
}

fn gateway(folder: &Path, kill: Option<String>) -> Child {
    let config = folder.join("gateway.yml");
    std::fs::write(&config, one_server(folder, TOOLS)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["rim::mcp::kill::child", "--exact", "--nocapture"]).env(CONFIG, config).kill_on_drop(true);
    if let Some(point) = kill {
        command.env(KILL, point);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// One life of the gateway: the answer to a call, unless the gateway dies before it.
async fn life(folder: &Path, kill: Option<String>, tool: &str) -> Option<Value> {
    let mut child = gateway(folder, kill);
    let answered = async {
        let mut client = Client::of_process(&mut child).await?;
        let call = json!({ "name": tool, "arguments": { "title": "Tea", "order": "o1" } });
        let answer = client.try_request("tools/call", call).await?;
        Some(answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone())
    };
    let answer = answered.await;
    child.kill().await.unwrap();
    answer
}

/// The points that a call crosses.
const POINTS: [CrashPoint; 6] = [
    CrashPoint::BeforeStarted,
    CrashPoint::AfterStarted,
    CrashPoint::BeforeCall,
    CrashPoint::AfterCall,
    CrashPoint::BeforeSeal,
    CrashPoint::AfterSeal,
];

#[tokio::test]
async fn a_gateway_that_is_killed_at_any_point_of_a_call_meets_the_same_operation_again() {
    for point in POINTS {
        let folder = tempfile::tempdir().unwrap();
        let killed = life(folder.path(), Some(point.to_string()), "create_note").await;
        assert_eq!(killed, None, "{point}: it was not killed");
        let answer = life(folder.path(), None, "create_note").await.unwrap();
        assert_ne!(answer["isError"], true, "{point}: {answer}");
        let same = life(folder.path(), None, "create_note").await.unwrap();
        assert_eq!(same["structuredContent"], answer["structuredContent"], "{point}");
        assert_eq!(server::effects(folder.path()).len(), 1, "{point}");
    }
}

#[tokio::test]
async fn what_nobody_can_look_up_is_a_question_after_a_kill_and_is_never_sent_again() {
    for point in [CrashPoint::BeforeCall, CrashPoint::AfterCall] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(life(folder.path(), Some(point.to_string()), "write_blindly").await, None, "{point}");
        let made = server::effects(folder.path()).len();
        for _ in 0..2 {
            let answer = life(folder.path(), None, "write_blindly").await.unwrap();
            assert!(text(&answer).contains("Nobody knows"), "{point}: {answer}");
        }
        assert_eq!(server::effects(folder.path()).len(), made, "{point}");
    }
}

/// The gateway is killed at moments that nobody chose, and its server dies by itself in between. Each round is a payment of its own.
#[tokio::test]
async fn calls_through_a_gateway_that_is_killed_at_random_are_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let pay = |round: usize| json!({ "name": "pay", "arguments": { "title": "Tea", "order": format!("o{round}") } });
    let delays = [400_u64, 0, 40, 90, 150, 10, 250, 70];
    for (round, delay) in delays.into_iter().enumerate() {
        server::fault(folder.path(), ["die_after", "", "twice"][round % 3]);
        let mut child = gateway(folder.path(), None);
        let mut client = Client::of_process(&mut child).await.unwrap();
        client.send("tools/call", pay(round)).await.unwrap();
        SystemClock.sleep(Duration::from_millis(delay)).await;
        child.kill().await.unwrap();
    }
    server::fault(folder.path(), "");
    let mut child = gateway(folder.path(), None);
    let mut client = Client::of_process(&mut child).await.unwrap();
    for round in 0..delays.len() {
        let answer = client.call("pay", pay(round)["arguments"].clone()).await;
        assert_ne!(answer["isError"], true, "{round}: {answer}");
    }
    child.kill().await.unwrap();
    let mut orders: Vec<_> =
        server::effects(folder.path()).iter().map(|made| made["arguments"]["order"].clone()).collect();
    orders.sort_by_key(ToString::to_string);
    assert_eq!(orders, (0..delays.len()).map(|round| json!(format!("o{round}"))).collect::<Vec<_>>());
    let executor = Executor::sqlite(folder.path().join("calls.db")).open().await.unwrap();
    let questions = executor.questions(&Tenant::default()).await.unwrap();
    assert!(questions.is_empty(), "{questions:?}");
}

#[tokio::test]
async fn the_program_serves_a_client_until_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yml");
    std::fs::write(&config, one_server(folder.path(), TOOLS)).unwrap();
    for first in [true, false] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(["mcp", "--config"]).arg(&config).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut client = Client::of_process(&mut child).await.unwrap();
        let answer = client.call("write_blindly", json!({ "title": "Tea" })).await;
        assert_eq!(super::client::first(&answer), first);
        drop(client);
        assert!(child.wait().await.unwrap().success());
    }
    std::fs::write(&config, "ledger: calls.db\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let refused = command.args(["mcp", "--check", "--config"]).arg(&config).output().await.unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("there is no server"), "{told}");
}
