//! The gateway between MCP clients and MCP servers.

mod approval;
mod asking;
mod calls;
mod client;
mod config;
mod hostile;
mod http;
mod identity;
mod kill;
mod passing;
mod questions;
mod redact;
mod remote;
pub(in crate::rim) mod server;
mod settings;
mod together;
mod tool;

use std::path::Path;

use counterfoil::Executor;
use counterfoil::exec::ExecutorBuilder;
use counterfoil::mcp::{McpConfig, McpGateway};
use serde_json::{Value, json};

use client::Client;
use server::Notes;

/// The policies of the test server's tools.
const TOOLS: &str = "
      list_notes: { effect: read_only }
      echo: { effect: read_only }
      create_note:
        reference: /ref
        id: /id
        timeout: 5 s
        settle: 5 s
        lookup: { tool: list_notes, arguments: { ref: '{key}' }, at: /notes, matches: { /ref: '{key}' }, id: /id }
      write_blindly: {}
      pay:
        key: [/order]
        effect: payment
        reference: /ref
        timeout: 5 s
        settle: 5 s
        lookup: { tool: list_notes, at: /notes, matches: { /ref: '{key}' }, id: /id }
      delete_note: { effect: deletion, contract: idempotent, reviewers: [ann] }
";

/// A configuration with one server, `notes`, on the notes in this folder.
fn one_server(folder: &Path, tools: &str) -> String {
    let Notes { command, args, env } = Notes::started_in(folder);
    let ledger = folder.join("calls.db");
    let server =
        format!("    command: {command:?}\n    args: {args}\n    env: {env}\n    ready_within: 20 s\n");
    let ledger = ledger.display();
    format!("ledger: {ledger}\nclient: tester\nservers:\n  notes:\n{server}    tools:{tools}")
}

fn config(folder: &Path) -> McpConfig {
    McpConfig::parse(one_server(folder, TOOLS)).unwrap()
}

/// A gateway in this process, and its client.
struct Bench {
    folder: tempfile::TempDir,
    gateway: McpGateway,
    client: Client,
}

impl Bench {
    async fn new() -> Self {
        Self::with(config, &json!({})).await
    }

    async fn with(config: impl FnOnce(&Path) -> McpConfig, capabilities: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        Self::on(folder, config, Executor::in_memory(), capabilities).await
    }

    async fn on(
        folder: tempfile::TempDir,
        config: McpConfig,
        executor: ExecutorBuilder,
        capabilities: &Value,
    ) -> Self {
        let gateway = McpGateway::open_on(config, executor).await.unwrap();
        let client = Client::of(&gateway, capabilities).await;
        Self { folder, gateway, client }
    }

    /// The effects that the server has made.
    fn effects(&self) -> Vec<Value> {
        server::effects(self.folder.path())
    }

    /// Lets the server do this at its next call.
    fn fault(&self, fault: &str) {
        server::fault(self.folder.path(), fault);
    }
}
