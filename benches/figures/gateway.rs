//! Rows about the MCP gateway: the time that it adds to a tool call of one client, beside the same client at the server itself.

use std::io::{BufRead as _, Write as _};
use std::pin::Pin;
use std::process::Stdio;
use std::time::Instant;

use counterfoil::mcp::{McpConfig, McpGateway};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines, duplex, split,
};
use tokio::process::Command;

use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::raw;
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::DRAIN;

/// The number of calls in a slice, and of slices in a round.
const CALLS: u32 = 100;
const SLICES: u32 = 5;

/// A round's times in milliseconds: what the gateway adds to a call of each tool, and what two durable inserts take.
struct Round {
    writing: f64,
    reading: f64,
    inserts: f64,
}

pub(crate) fn latency(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let rounds = multi_thread().block_on(rounds(options, &home))?;
    let all = |of: fn(&Round) -> f64| Values::new("ms", rounds.iter().map(of).collect());
    let writing =
        "time that the MCP gateway adds to a tool call that writes ÷ two durable inserts".to_owned();
    let reading = "time that the MCP gateway adds to a tool call that reads".to_owned();
    Ok(vec![
        Finding::ratio("gateway", writing, all(|round| round.writing), all(|round| round.inserts))
            .at_most(3.0, 1.5),
        Finding::absolute("gateway", reading, all(|round| round.reading), None).at_most(1.0, 0.3),
    ])
}

async fn rounds(options: &Options, home: &Home) -> Result<Vec<Round>, String> {
    let ledger = home.place("ledger");
    let gateway = McpGateway::open(config(&ledger)?).await.map_err(|e| e.to_string())?;
    let (mut guarded, mut direct) = (Client::of(&gateway).await, Client::of_server().await);
    let mut raw = raw::open(&home.place("raw")).await;
    let mut rounds = Vec::new();
    for round in 0..=options.rounds {
        let mut took = Round { writing: 0.0, reading: 0.0, inserts: 0.0 };
        for _ in 0..SLICES {
            took.writing += guarded.calls("create").await - direct.calls("create").await;
            took.reading += guarded.calls("list").await - direct.calls("list").await;
            let start = Instant::now();
            raw.inserts(2 * CALLS).await;
            took.inserts += share(start);
        }
        if round > 0 {
            rounds.push(took);
        }
    }
    raw.close().await;
    drop((guarded, direct));
    gateway.shutdown(DRAIN).await;
    Ok(rounds)
}

/// The share of a slice that began then in its round's milliseconds per call.
fn share(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3 / f64::from(CALLS * SLICES)
}

fn config(ledger: &Place) -> Result<McpConfig, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    // `create` is recorded, `list` passes.
    let tools = json!({ "create": {}, "list": { "effect": "read_only" } });
    let server = json!({ "command": program, "args": ["--child", "mcp-server"], "tools": tools });
    let text = json!({ "ledger": ledger.file(), "client": "bench", "servers": { "notes": server } });
    McpConfig::parse(text.to_string()).map_err(|e| e.to_string())
}

/// A client on the lines of a gateway or a server.
struct Client {
    input: Lines<BufReader<Pin<Box<dyn AsyncRead + Send>>>>,
    output: Pin<Box<dyn AsyncWrite + Send>>,
    sent: u64,
}

impl Client {
    /// A client of a gateway in this process.
    async fn of(gateway: &McpGateway) -> Self {
        let (own, other) = duplex(1 << 16);
        let (read, write) = split(other);
        let gateway = gateway.clone();
        drop(tokio::spawn(async move { gateway.serve(read, write).await }));
        let (read, write) = split(own);
        Self::begun(Box::pin(read), Box::pin(write)).await
    }

    /// A client of a server of its own, which ends with the client.
    async fn of_server() -> Self {
        let program = std::env::current_exe().expect("the path of this binary");
        let mut server = Command::new(program);
        server.args(["--child", "mcp-server"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().expect("a server");
        let (read, write) =
            (server.stdout.take().expect("its output"), server.stdin.take().expect("its input"));
        drop(tokio::spawn(async move { server.wait().await }));
        Self::begun(Box::pin(read), Box::pin(write)).await
    }

    async fn begun(read: Pin<Box<dyn AsyncRead + Send>>, write: Pin<Box<dyn AsyncWrite + Send>>) -> Self {
        let mut client = Self { input: BufReader::new(read).lines(), output: write, sent: 0 };
        let info = json!({ "name": "bench", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        client.request("initialize", &params).await;
        client.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        client
    }

    /// Makes a slice of calls one after the other, and returns its share of the round.
    async fn calls(&mut self, tool: &str) -> f64 {
        let start = Instant::now();
        for _ in 0..CALLS {
            // Another title is another operation.
            let arguments = json!({ "title": format!("note {}", self.sent) });
            let answer = self.request("tools/call", &json!({ "name": tool, "arguments": arguments })).await;
            assert!(answer["result"]["content"][0]["text"] == "done", "{answer}");
        }
        share(start)
    }

    async fn request(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        loop {
            let line = self.input.next_line().await.expect("a line").expect("an answer");
            let message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == id {
                return message;
            }
        }
    }

    async fn write(&mut self, message: &Value) {
        self.output.write_all(format!("{message}\n").as_bytes()).await.expect("a reader");
        self.output.flush().await.expect("a reader");
    }
}

/// Serves a client on standard input until it leaves. Its tools do nothing.
pub(crate) fn server() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let schema = json!({ "type": "object", "properties": { "title": { "type": "string" } } });
        let tool = |name: &str| json!({ "name": name, "inputSchema": schema });
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "notes", "version": "1" },
            }),
            Some("tools/list") => json!({ "tools": [tool("create"), tool("list")] }),
            Some("tools/call") => json!({ "content": [{ "type": "text", "text": "done" }] }),
            _ => continue,
        };
        writeln!(out, "{}", json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))?;
        out.flush()?;
    }
    Ok(())
}
