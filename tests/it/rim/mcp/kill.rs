//! The gateway is a process that is killed: no silent duplicate, no silent loss. The server's own file counts the
//! effects.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::mcp::{McpConfig, McpGateway};
use counterfoil::sim::{CrashPoint, KillAt};
use counterfoil::store::postgres::Options;
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::client::{Client, text};
use super::{TOOLS, one_server, server};
use crate::on_both_stores;
use crate::place::Place;

const CONFIG: &str = "COUNTERFOIL_TEST_GATEWAY";
const SCHEMA: &str = "COUNTERFOIL_TEST_SCHEMA";
const KILL: &str = "COUNTERFOIL_TEST_KILL";

/// Not a test: a gateway, when this program was started as one.
#[tokio::test]
async fn child() {
    let Ok(path) = std::env::var(CONFIG) else { return };
    let config = McpConfig::parse(std::fs::read(path).unwrap()).unwrap();
    let mut executor = match std::env::var(SCHEMA) {
        Ok(schema) => {
            let options = Options { schema: Some(schema), ..Options::default() };
            ExecutorBuilder::postgres_with(crate::server::url(), options).lease(crate::server::LEASE)
        }
        Err(_) => Executor::sqlite(config.ledger()),
    };
    if let Ok(point) = std::env::var(KILL) {
        executor = executor.watch(Arc::new(point.parse::<KillAt>().unwrap()));
    }
    let gateway = McpGateway::open_on(config, executor).await.unwrap();
    drop(gateway.serve(tokio::io::stdin(), tokio::io::stdout()).await);
    gateway.shutdown(Duration::from_secs(1)).await;
    std::process::exit(0);
}

/// A gateway as a process of its own, with this configuration.
pub(super) fn gateway(config: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["rim::mcp::kill::child", "--exact", "--nocapture"]).env(CONFIG, config);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// The notes of a server and the ledger of a gateway, which outlive both.
struct Desk {
    folder: TempDir,
    place: Place,
}

impl Desk {
    fn on(place: Place) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.yml"), one_server(folder.path(), TOOLS)).unwrap();
        Self { folder, place }
    }

    fn gateway(&self, kill: Option<CrashPoint>) -> Child {
        let mut command = gateway(&self.folder.path().join("gateway.yml"));
        if let Place::Postgres(schema) = &self.place {
            command.env(SCHEMA, schema.name());
        }
        if let Some(point) = kill {
            command.env(KILL, point.to_string());
        }
        command.spawn().unwrap()
    }

    /// One life of the gateway: the answer to a call, unless the gateway dies before it.
    async fn life(&self, kill: Option<CrashPoint>, tool: &str) -> Option<Value> {
        let mut child = self.gateway(kill);
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

    fn effects(&self) -> Vec<Value> {
        server::effects(self.folder.path())
    }

    fn fault(&self, fault: &str) {
        server::fault(self.folder.path(), fault);
    }

    /// The ledger, beside the gateway or after it.
    fn executor(&self) -> ExecutorBuilder {
        match &self.place {
            Place::Sqlite(_) => Executor::sqlite(self.folder.path().join("calls.db")),
            Place::Postgres(_) => self.place.executor(),
        }
    }
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

/// Without `COUNTERFOIL_FULL` the gateway is killed at so many moments.
const ROUNDS: u64 = 8;

fn rounds() -> u64 {
    if std::env::var_os("COUNTERFOIL_FULL").is_some() { 200 } else { ROUNDS }
}

/// The order of a round.
fn pay(round: u64) -> Value {
    json!({ "title": "Tea", "order": format!("o{round:03}") })
}

on_both_stores! {
    async fn a_gateway_that_is_killed_at_any_point_of_a_call_meets_the_same_operation_again(place) {
        for point in POINTS {
            let desk = Desk::on(place.another());
            let killed = desk.life(Some(point), "create_note").await;
            assert_eq!(killed, None, "{point}: it was not killed");
            let answer = desk.life(None, "create_note").await.unwrap();
            assert_ne!(answer["isError"], true, "{point}: {answer}");
            let same = desk.life(None, "create_note").await.unwrap();
            assert_eq!(same["structuredContent"], answer["structuredContent"], "{point}");
            assert_eq!(desk.effects().len(), 1, "{point}");
        }
    }

    async fn what_nobody_can_look_up_is_a_question_after_a_kill_and_is_never_sent_again(place) {
        for point in [CrashPoint::BeforeCall, CrashPoint::AfterCall] {
            let desk = Desk::on(place.another());
            assert_eq!(desk.life(Some(point), "write_blindly").await, None, "{point}");
            let made = desk.effects().len();
            for _ in 0..2 {
                let answer = desk.life(None, "write_blindly").await.unwrap();
                assert!(text(&answer).contains("Nobody knows"), "{point}: {answer}");
            }
            assert_eq!(desk.effects().len(), made, "{point}");
        }
    }

    // The gateway and its server are killed at moments that nobody chose, and the server dies by itself in between. Each round is a
    // payment of its own.
    async fn calls_through_a_gateway_that_is_killed_at_random_are_made_once(place) {
        let desk = Desk::on(place);
        for (round, fault) in (0..rounds()).zip(["die_after", "", "twice"].into_iter().cycle()) {
            desk.fault(fault);
            server::forget(desk.folder.path());
            let mut child = desk.gateway(None);
            let mut client = Client::of_process(&mut child).await.unwrap();
            client.send("tools/call", json!({ "name": "pay", "arguments": pay(round) })).await.unwrap();
            SystemClock.sleep(Duration::from_millis(round * 67 % 401)).await;
            if round % 2 == 1 {
                server::kill(desk.folder.path());
                SystemClock.sleep(Duration::from_millis(round * 41 % 199)).await;
            }
            child.kill().await.unwrap();
        }
        desk.fault("");
        let mut child = desk.gateway(None);
        let mut client = Client::of_process(&mut child).await.unwrap();
        for round in 0..rounds() {
            let answer = client.call("pay", pay(round)).await;
            assert_ne!(answer["isError"], true, "{round}: {answer}");
        }
        child.kill().await.unwrap();
        let mut orders: Vec<_> =
            desk.effects().iter().map(|made| made["arguments"]["order"].clone()).collect();
        orders.sort_by_key(ToString::to_string);
        assert_eq!(orders, (0..rounds()).map(|round| pay(round)["order"].clone()).collect::<Vec<_>>());
        let executor = desk.executor().open().await.unwrap();
        let questions = executor.questions(&Tenant::default()).await.unwrap();
        assert!(questions.is_empty(), "{questions:?}");
    }
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
