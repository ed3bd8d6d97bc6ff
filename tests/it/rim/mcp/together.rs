//! Several processes that are started on one ledger's file are one gateway: the real program, killed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use counterfoil::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::client::{Client, first, text};
use super::{TOOLS, one_server, server};

/// A ledger's folder, and the configuration in it.
struct Desk {
    folder: TempDir,
    config: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::at(folder, Path::new(""))
    }

    /// With the ledger in this folder below the desk's.
    fn at(folder: TempDir, below: &Path) -> Self {
        let at = folder.path().join(below);
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join("gateway.yml"), one_server(&at, TOOLS)).unwrap();
        Self { config: at.join("gateway.yml"), folder }
    }

    /// The folder of the notes.
    fn notes(&self) -> &Path {
        self.config.parent().unwrap()
    }

    async fn gateway(&self) -> (Child, Client) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
        command.args(["mcp", "--config"]).arg(&self.config).env_remove("XDG_RUNTIME_DIR");
        command.env("TMPDIR", self.folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let client = Client::of_process(&mut child).await.unwrap();
        (child, client)
    }

    fn effects(&self) -> usize {
        server::effects(self.notes()).len()
    }
}

fn pay(order: &str) -> Value {
    json!({ "title": "Tea", "order": order })
}

#[tokio::test]
async fn two_processes_on_one_file_make_one_order_once_and_the_second_goes_on_when_the_first_is_killed() {
    let desk = Desk::new();
    let (mut one, mut ann) = desk.gateway().await;
    let (_two, mut bob) = desk.gateway().await;
    assert!(first(&ann.call("pay", pay("o1")).await));
    assert!(!first(&bob.call("pay", pay("o1")).await));
    assert!(first(&bob.call("write_blindly", json!({ "title": "Tea" })).await));
    assert!(!first(&ann.call("write_blindly", json!({ "title": "Tea" })).await), "they are one client");
    assert_eq!(desk.effects(), 2);

    one.kill().await.unwrap();
    assert!(!first(&bob.call("pay", pay("o1")).await));
    assert!(first(&bob.call("pay", pay("o2")).await));
    let (_three, mut eve) = desk.gateway().await;
    assert!(!first(&eve.call("pay", pay("o2")).await), "the next one joins the second");
    assert_eq!(desk.effects(), 3);
}

#[tokio::test]
async fn of_three_processes_the_two_that_are_left_are_one_again() {
    let desk = Desk::new();
    let (mut one, _ann) = desk.gateway().await;
    let (_two, mut bob) = desk.gateway().await;
    let (_three, mut eve) = desk.gateway().await;
    one.kill().await.unwrap();
    let (bobs, eves) = tokio::join!(bob.call("pay", pay("o1")), eve.call("pay", pay("o1")));
    assert_eq!(bobs["structuredContent"], eves["structuredContent"], "{bobs} {eves}");
    assert_eq!(desk.effects(), 1);
}

#[tokio::test]
async fn a_call_in_flight_when_the_gateway_is_killed_is_looked_up_and_answered_by_the_next_one() {
    let desk = Desk::new();
    let (mut one, mut ann) = desk.gateway().await;
    let (_two, mut bob) = desk.gateway().await;
    ann.request("tools/list", json!({})).await;
    server::fault(desk.notes(), "slow"); // it reports progress after the effect, and until it is told to end
    let meta = json!({ "progressToken": "mine" });
    let call = json!({ "name": "pay", "arguments": pay("o1"), "_meta": meta });
    let id = bob.send("tools/call", call).await.unwrap();
    bob.told("notifications/progress").await;
    one.kill().await.unwrap();
    let answer = bob.answer(id).await.unwrap();
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(desk.effects(), 1);
}

// The gateway is stopped before it reads the call, and is dead when the window is over.
#[tokio::test]
async fn a_call_that_is_made_again_for_its_client_counts_from_when_the_client_made_it() {
    use rustix::process::{Pid, Signal, kill_process};
    const WINDOW: Duration = Duration::from_secs(3);
    let desk = Desk::new();
    let file = std::fs::read_to_string(&desk.config).unwrap();
    std::fs::write(&desk.config, file.replace("client: tester", "client: tester\nwindow: 3 s")).unwrap();
    let (mut one, mut ann) = desk.gateway().await;
    let (_two, mut bob) = desk.gateway().await;
    let tea = json!({ "name": "write_blindly", "arguments": { "title": "Tea" } });
    assert!(first(&ann.call_with(tea.clone()).await));
    let pid = i32::try_from(one.id().unwrap()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let call = bob.send("tools/call", tea).await.unwrap();
    SystemClock.sleep(WINDOW).await;
    one.kill().await.unwrap();
    let answer = bob.answer(call).await.unwrap();
    assert!(!first(&answer["result"]), "{answer}");
    assert_eq!(desk.effects(), 1);
}

#[tokio::test]
async fn a_process_with_another_configuration_is_refused() {
    let desk = Desk::new();
    let (_one, _ann) = desk.gateway().await;
    let other = desk.folder.path().join("other.yml");
    let file = std::fs::read_to_string(&desk.config).unwrap();
    std::fs::write(&other, file.replace("client: tester", "client: tester\nwindow: 1 min")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let refused = command.args(["mcp", "--config"]).arg(&other).stdin(Stdio::piped()).output().await.unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("another configuration"), "{told}");

    // Another client of the same configuration has calls of its own.
    std::fs::write(&desk.config, file.replace("client: tester", "client: other")).unwrap();
    let (_two, mut bob) = desk.gateway().await;
    assert!(first(&bob.call("write_blindly", json!({ "title": "Tea" })).await));
}

#[tokio::test]
async fn a_path_that_is_too_long_for_a_socket_has_a_short_one_in_the_runtime_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = Desk::at(tempfile::tempdir().unwrap(), Path::new(&"long".repeat(30)));
    let (mut one, mut ann) = desk.gateway().await;
    let (_two, mut bob) = desk.gateway().await;
    assert!(first(&ann.call("pay", pay("o1")).await));
    assert!(!first(&bob.call("pay", pay("o1")).await));
    one.kill().await.unwrap();
    assert!(!first(&bob.call("pay", pay("o1")).await));
    assert!(!desk.notes().join("calls.db.gateway").exists());

    let desk = Desk::new();
    let _one = desk.gateway().await;
    let socket = desk.notes().join("calls.db.gateway").metadata().unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_question_for_the_user_is_asked_again_by_the_next_gateway() {
    let desk = Desk::new();
    let (mut one, _ann) = desk.gateway().await;
    let (_two, mut bob) = desk.gateway().await;
    bob.call("delete_note", json!({ "title": "Tea" })).await;
    one.kill().await.unwrap();
    let again = bob.call("delete_note", json!({ "title": "Tea" })).await;
    assert!(text(&again).contains("approval"), "the review of the first gateway is the second's: {again}");
    assert_eq!(desk.effects(), 0);
}
