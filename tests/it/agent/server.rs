//! A small server that speaks chat completions for real, over HTTP, with a script behind it: it checks what it is sent as
//! strict servers do, and fails as told. Byte by byte, because a cut-off answer is none that an HTTP library would give.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::agent::{Message, Prompt, Proposal, Reply};
use counterfoil::{Clock as _, SystemClock};
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::flow::world::World;
use crate::wire::request;

type Script = fn(&Prompt) -> Reply;

/// What becomes of the next request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A status with headers and a text.
    Status(u16, &'static str, String),
    /// The answer stops in the middle.
    CutOff,
    /// 200, and this instead of a completion.
    Garbage(String),
    /// The connection closes without a word.
    HangUp,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// On the machine's boot clock.
    pub(crate) at: Duration,
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// The server; it ends with this value. It outlives the processes that ask it.
pub(crate) struct Server {
    url: String,
    state: Arc<State>,
    runtime: Option<Runtime>,
}

struct State {
    world: Arc<World>,
    script: Script,
    faults: Mutex<VecDeque<Fault>>,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    pub(crate) fn start(world: &Arc<World>, script: Script) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (faults, seen) = (Mutex::default(), Mutex::default());
        let state = Arc::new(State { world: world.clone(), script, faults, seen });
        let serving = state.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(serving.clone(), stream));
            }
        });
        Self { url, state, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What becomes of the next requests, in this order; those after them are answered well.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.faults.lock().unwrap().extend(faults);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// One request on one connection.
async fn serve(state: Arc<State>, mut stream: TcpStream) {
    let Some((head, body)) = request(&mut stream).await else { return };
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    state.seen.lock().unwrap().push(Seen {
        at: SystemClock.boot().0,
        head: head.clone(),
        body: body.clone(),
    });
    let fault = state.faults.lock().unwrap().pop_front();
    let answer = match prompt(&head, &body) {
        Err(wrong) => response(400, "", &json!({ "error": { "message": wrong } }).to_string()),
        Ok(prompt) => {
            state.world.count("asked");
            let spoken = crate::agent::models::spoken(&prompt);
            state.world.pass(&format!("answer {spoken}")).await;
            response(200, "", &completion(&(state.script)(&prompt)).to_string())
        }
    };
    let answer = match fault {
        None => answer,
        Some(Fault::Status(status, headers, text)) => response(status, headers, &text),
        Some(Fault::CutOff) => answer[..answer.len() - 20].to_owned(),
        Some(Fault::Garbage(text)) => response(200, "", &text),
        Some(Fault::HangUp) => return,
    };
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn response(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// The request as the script sees it, or what a strict server finds wrong with it.
fn prompt(head: &str, body: &Value) -> Result<Prompt, String> {
    if !head.starts_with("POST /v1/chat/completions ") {
        return Err(format!("no such path: {head}"));
    }
    let tools = body["tools"].as_array().into_iter().flatten();
    for tool in tools {
        let function = &tool["function"];
        if tool["type"] != "function"
            || function["parameters"]["type"] != "object"
            || !function["name"].is_string()
        {
            return Err(format!("no function: {tool}"));
        }
    }
    let mut open = Vec::new();
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let messages = messages.iter().map(|message| read(message, &mut open)).collect::<Result<_, _>>()?;
    if !open.is_empty() {
        return Err(format!("calls without a result: {open:?}"));
    }
    Ok(Prompt { messages, tools: Vec::new() })
}

fn read(message: &Value, open: &mut Vec<String>) -> Result<Message, String> {
    let text = message["content"].as_str().unwrap_or_default().to_owned();
    match message["role"].as_str() {
        Some("system") => Ok(Message::System { text }),
        Some("user") => Ok(Message::User { text }),
        Some("assistant") => {
            let mut calls = Vec::new();
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let id = call["id"].as_str().filter(|id| !id.is_empty()).ok_or("a call without an id")?;
                let arguments = call["function"]["arguments"].as_str().ok_or("arguments are text")?;
                serde_json::from_str::<Map<String, Value>>(arguments).map_err(|e| e.to_string())?;
                open.push(id.to_owned());
                calls.push(
                    Proposal::new(call["function"]["name"].as_str().unwrap_or_default(), json!({})).id(id),
                );
            }
            Ok(Message::Assistant { text, calls })
        }
        Some("tool") => {
            let id = message["tool_call_id"].as_str().unwrap_or_default().to_owned();
            let asked = open.iter().position(|open| *open == id).ok_or("a result that nobody asked for")?;
            open.remove(asked);
            Ok(Message::Tool { call_id: id, tool: String::new(), text, failed: false })
        }
        role => Err(format!("no such role: {role:?}")),
    }
}

fn completion(reply: &Reply) -> Value {
    let call = |call: &Proposal| {
        json!({
            "id": call.id,
            "type": "function",
            "function": { "name": call.tool, "arguments": call.arguments },
        })
    };
    let calls: Vec<_> = reply.calls.iter().map(call).collect();
    let mut message = json!({ "role": "assistant", "content": reply.text });
    if !calls.is_empty() {
        message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
            "total_tokens": reply.usage.input_tokens + reply.usage.output_tokens,
        },
    })
}
