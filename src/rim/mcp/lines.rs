//! A client on a stream: one JSON-RPC message a line. A line that is none is answered with an error.

use std::io;
use std::sync::Arc;

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ServerJsonRpcMessage};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
    BufReader,
};
use tokio::sync::{Mutex, mpsc};

use super::call::KEY;

/// The longest message, in bytes. The ledger takes smaller ones, and says so by itself.
pub(super) const LONGEST: usize = 16 * 1024 * 1024;
/// The number of messages that are read ahead.
pub(super) const AHEAD: usize = 64;

type Output = Arc<Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>>;

/// A client on a stream.
pub(super) struct Lines {
    messages: mpsc::Receiver<ClientJsonRpcMessage>,
    output: Output,
}

impl Lines {
    pub(super) fn new(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let output: Output = Arc::new(Mutex::new(Some(Box::new(output))));
        let (read, messages) = mpsc::channel(AHEAD);
        // Reading must not be cut off in the middle of a line, which `receive` may be.
        drop(tokio::spawn(read_all(input, read, output.clone())));
        Self { messages, output }
    }
}

async fn read_all(
    input: impl AsyncRead + Send + Unpin,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
    output: Output,
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    while let Some(line) = next_line(&mut input).await? {
        let parsed = match line {
            Line::Of(line) => message(&line),
            Line::TooLong => Err(too_long()),
        };
        match parsed {
            Ok(message) => {
                if messages.send(message).await.is_err() {
                    return Ok(());
                }
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "message of an MCP client refused");
                write(&output, &refusal).await?;
            }
        }
    }
    Ok(())
}

/// A line of a client.
pub(super) enum Line {
    /// The line, which is not blank.
    Of(Vec<u8>),
    /// A line that has more than [`LONGEST`] bytes, and was skipped.
    TooLong,
}

/// The next line that is not blank. `None` at the end. What was read is lost if the future is dropped.
pub(super) async fn next_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Line>> {
    loop {
        let mut line = Vec::new();
        if (&mut *input).take(LONGEST as u64).read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        if line.len() == LONGEST && line.last() != Some(&b'\n') {
            skip_line(input).await?;
            return Ok(Some(Line::TooLong));
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(Line::Of(line)));
        }
    }
}

/// The answer to a line that is too long.
pub(super) fn too_long() -> Value {
    refusal(&Value::Null, &format!("the message has more than {LONGEST} bytes"))
}

fn refusal(id: &Value, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": ErrorCode::INVALID_REQUEST.0, "message": why } })
}

async fn skip_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
    loop {
        let available = input.fill_buf().await?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let (consumed, ends) = end.map_or((available.len(), available.is_empty()), |at| (at + 1, true));
        input.consume(consumed);
        if ends {
            return Ok(());
        }
    }
}

/// Moves a key that stands beside the parameters of a call, as the proposal has it, to the place where requests have
/// their metadata. False if there is none. Where another key is there already, both are put there, which is no key: nobody knows which
/// call is meant, and the call is refused.
pub(super) fn key_into_meta(message: &mut Value) -> bool {
    if message["method"] == "tools/call"
        && let Some(params) = message.get_mut("params").and_then(Value::as_object_mut)
        && let Some(key) = params.remove(KEY)
    {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if meta.is_null() {
            *meta = json!({}); // some clients write absent fields as null
        }
        // With `_meta` of another form the message is malformed, and is refused as that.
        if let Some(meta) = meta.as_object_mut()
            && !key.is_null()
        {
            let key = match meta.remove(KEY) {
                Some(other) if !other.is_null() && other != key => json!([other, key]),
                _ => key,
            };
            meta.insert(KEY.to_owned(), key);
        }
        return true;
    }
    false
}

/// The message of a line.
///
/// # Errors
/// The answer to a line that is no message.
fn message(line: &[u8]) -> Result<ClientJsonRpcMessage, Value> {
    let mut message: Value = serde_json::from_slice(line)
        .map_err(|error| refusal(&Value::Null, &format!("the message is no JSON: {error}")))?;
    let id = message.get("id").cloned().unwrap_or_default();
    key_into_meta(&mut message);
    serde_json::from_value(message).map_err(|_| refusal(&id, "the message is not as JSON-RPC and MCP say"))
}

async fn write<T: serde::Serialize + Sync>(output: &Output, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    let output = output.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
    output.write_all(&line).await?;
    output.flush().await
}

impl Transport<RoleServer> for Lines {
    type Error = io::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = self.output.clone();
        async move { write(&output, &item).await }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output.lock().await.take();
        Ok(())
    }
}
