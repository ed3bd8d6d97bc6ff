//! An MCP client, written by hand, so that the gateway is tested on what is on the wire.

use std::pin::Pin;
use std::time::Duration;

use counterfoil::mcp::McpGateway;
use counterfoil::{Clock as _, SystemClock};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::Child;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Input = Pin<Box<dyn AsyncRead + Send>>;

/// A client of a gateway.
pub(super) struct Client {
    input: Lines<BufReader<Input>>,
    output: Pin<Box<dyn AsyncWrite + Send>>,
    next: u64,
    /// The notifications so far, and answers that nobody has waited for yet.
    told: Vec<Value>,
    /// The questions of servers and the gateway so far.
    pub(super) asked: Vec<Value>,
    /// The answer to an elicitation.
    pub(super) elicits: Value,
}

impl Client {
    /// A client of a gateway in this process, after its handshake.
    pub(super) async fn of(gateway: &McpGateway, capabilities: &Value) -> Self {
        let (own, other) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(other);
        let gateway = gateway.clone();
        drop(tokio::spawn(async move { gateway.serve(read, write).await }));
        let (read, write) = tokio::io::split(own);
        Self::on(Box::pin(read), Box::pin(write)).begun(capabilities).await.unwrap()
    }

    /// A client of a gateway that is a process, after its handshake. `None` if the process has died meanwhile.
    pub(super) async fn of_process(child: &mut Child) -> Option<Self> {
        let (read, write) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        Self::on(Box::pin(read), Box::pin(write)).begun(&json!({})).await
    }

    fn on(input: Input, output: Pin<Box<dyn AsyncWrite + Send>>) -> Self {
        let input = BufReader::new(input).lines();
        Self { input, output, next: 0, told: Vec::new(), asked: Vec::new(), elicits: Value::Null }
    }

    async fn begun(mut self, capabilities: &Value) -> Option<Self> {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client });
        let answer = self.try_request("initialize", params).await?;
        assert_eq!(answer["result"]["serverInfo"]["name"], "counterfoil", "{answer}");
        self.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string()).await?;
        Some(self)
    }

    /// Writes a line. `None` if nobody reads it.
    pub(super) async fn write(&mut self, line: &str) -> Option<()> {
        self.output.write_all(format!("{line}\n").as_bytes()).await.ok()?;
        self.output.flush().await.ok()
    }

    /// The next message. `None` if the gateway is gone. Lines that are no JSON are the test harness's.
    pub(super) async fn read(&mut self) -> Option<Value> {
        loop {
            let line = tokio::select! {
                biased;
                line = self.input.next_line() => line,
                () = SystemClock.sleep(PATIENCE) => panic!("no answer"),
            };
            if let Ok(message) = serde_json::from_str(&line.ok()??) {
                return Some(message);
            }
        }
    }

    /// The answer to a request. `None` if the gateway is gone.
    pub(super) async fn try_request(&mut self, method: &str, params: Value) -> Option<Value> {
        let id = self.send(method, params).await?;
        self.answer(id).await
    }

    /// Sends a request without waiting for its answer.
    pub(super) async fn send(&mut self, method: &str, params: Value) -> Option<u64> {
        self.next += 1;
        let id = self.next;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&request.to_string()).await.map(|()| id)
    }

    /// Waits for the answer to a request, and answers questions meanwhile.
    pub(super) async fn answer(&mut self, id: u64) -> Option<Value> {
        let is_it = |told: &Value| told.get("method").is_none() && told["id"] == id;
        if let Some(at) = self.told.iter().position(is_it) {
            return Some(self.told.remove(at)); // it came while something else was waited for
        }
        loop {
            let message = self.read().await?;
            match (message.get("method"), message.get("id")) {
                (None, Some(answered)) if *answered == id => return Some(message),
                (Some(_), Some(question)) => {
                    let answer = json!({ "jsonrpc": "2.0", "id": question, "result": self.elicits });
                    self.asked.push(message);
                    self.write(&answer.to_string()).await?;
                }
                _ => self.told.push(message),
            }
        }
    }

    /// The next question, which is not answered yet.
    pub(super) async fn question(&mut self) -> Value {
        loop {
            let message = self.read().await.expect("the gateway is gone");
            if message.get("method").is_some() && message.get("id").is_some() {
                return message;
            }
            self.told.push(message);
        }
    }

    /// Answers a question.
    pub(super) async fn reply(&mut self, question: &Value, result: &Value) {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        self.write(&answer.to_string()).await.expect("the gateway is gone");
    }

    /// Sends a notification.
    pub(super) async fn notify(&mut self, method: &str, params: Value) {
        let notification = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(&notification.to_string()).await.expect("the gateway is gone");
    }

    /// True if a notification of this method was read so far.
    pub(super) fn was_told(&self, method: &str) -> bool {
        self.told.iter().any(|told| told["method"] == method)
    }

    /// Forgets the notifications so far.
    pub(super) fn untold(&mut self) {
        self.told.clear();
    }

    /// The notification of this method, once it has come.
    pub(super) async fn told(&mut self, method: &str) -> Value {
        loop {
            if let Some(told) = self.told.iter().find(|told| told["method"] == method) {
                return told.clone();
            }
            let next = self.read().await.expect("the gateway is gone");
            self.told.push(next);
        }
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Value {
        self.try_request(method, params).await.expect("the gateway is gone")
    }

    /// The result of a tool call.
    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.call_with(json!({ "name": tool, "arguments": arguments })).await
    }

    /// The result of a tool call with these parameters.
    pub(super) async fn call_with(&mut self, params: Value) -> Value {
        let answer = self.request("tools/call", params).await;
        answer.get("result").unwrap_or_else(|| panic!("{answer}")).clone()
    }
}

/// The texts of an answer.
pub(super) fn text(answer: &Value) -> String {
    let blocks = answer["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// True if the answer is that of an operation which was carried out now.
pub(super) fn first(answer: &Value) -> bool {
    let first = &answer["_meta"]["counterfoil"]["first"];
    first.as_bool().unwrap_or_else(|| panic!("{answer}"))
}
