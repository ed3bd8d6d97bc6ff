//! The operation of a tool: its call and its lookup, at the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::ServiceError;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject, ServerResult};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::arguments::given;
use super::file::{Errors, LookupSection};
use super::lookup::{Sought, arguments, as_answer, content, found, text};
use super::policy::ToolPolicy;
use super::progress::Heard;
use super::template::Values;
use super::upstream::{Unanswered, Upstream};
use crate::ledger::{ErrorKind, LookupResult};
use crate::payload::Payload;
use crate::tool::declared::id_at;
use crate::tool::{Call, Done, DynamicTool, ToolError};

/// The field of a request's `_meta` that names the operation.
pub(super) const KEY: &str = "idempotencyKey";

/// The tool that carries out the operations of a policy.
pub(super) fn operation(policy: &Arc<ToolPolicy>, server: &Arc<Upstream>) -> DynamicTool {
    let (calling, at) = (policy.clone(), server.clone());
    let declared = policy.declared().call(move |call, input| {
        let (policy, server) = (calling.clone(), at.clone());
        async move { carried_out(&policy, &server, call, &input).await }
    });
    let Some(section) = policy.lookup.clone() else { return declared };
    let (section, at) = (Arc::new(section), server.clone());
    declared.reconcile(move |call, input| {
        let (section, server) = (section.clone(), at.clone());
        async move { looked_up(&section, &server, &call, &input).await }
    })
}

/// Calls the tool at its server, once.
async fn carried_out(
    policy: &ToolPolicy,
    server: &Upstream,
    call: Call,
    input: &Value,
) -> Result<Done<Value>, ToolError> {
    let mut arguments = given(input);
    if let Some(reference) = &policy.reference {
        put(&mut arguments, reference, call.key())?;
    }
    let not_done = policy.errors == Errors::NotDone;
    let answer = written(server, request(input, arguments, Some(call.key())), &call, not_done).await?;
    if answer["isError"] == true && policy.errors != Errors::Recorded {
        let kind = if not_done { ErrorKind::Validation } else { ErrorKind::Unknown };
        return Err(ToolError::new(kind, text(&answer)));
    }
    let content = content(&answer).unwrap_or_default();
    let external = policy.id.as_ref().and_then(|pointer| id_at(&content, pointer));
    Ok(Done::found(recordable(answer), external))
}

/// The answer as it can be recorded. An answer with what no record can hold, such as an integer beyond 2^53, is kept as its texts:
/// the call was made all the same.
fn recordable(answer: Value) -> Value {
    if Payload::of(&answer).is_ok() {
        return answer;
    }
    let text = match text(&answer) {
        text if text.is_empty() => content(&answer).unwrap_or_default().to_string(),
        text => text,
    };
    let is_error = answer["isError"] == true;
    serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}

/// Sends the request of a call, once. `not_done`: an error of the server says that nothing was done.
pub(super) async fn written(
    server: &Upstream,
    request: ClientRequest,
    call: &Call,
    not_done: bool,
) -> Result<Value, ToolError> {
    let heard = Heard { call: Some(call.clone()), ..Heard::default() };
    let has_asked = heard.has_asked.clone();
    let answer = server.request(request, heard, &CancellationToken::new()).await;
    let error = |unanswered| error(unanswered, not_done, has_asked.load(Ordering::Acquire));
    answer.map_err(error).and_then(complete)
}

async fn looked_up(
    section: &LookupSection,
    server: &Upstream,
    call: &Call,
    input: &Value,
) -> Result<LookupResult<Value>, ToolError> {
    let values = Values { key: call.key(), arguments: &given(input) };
    let Some(sought) = Sought::of(section, &values) else { return Ok(LookupResult::Unknown) };
    let tool = section.tool.as_deref().unwrap_or_default();
    match read(server, tool, arguments(section, &values)).await? {
        Some(answer) => Ok(found(&sought, &answer, as_answer)),
        None => Ok(LookupResult::Unknown),
    }
}

/// The answer of a tool that reads. `None` if there is none.
pub(super) async fn read(
    server: &Upstream,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<Option<Value>, ToolError> {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = Some(arguments);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    match server.request(request, Heard::default(), &CancellationToken::new()).await {
        Ok(answer) => complete(answer).map(Some),
        Err(unanswered) => {
            tracing::debug!(server = server.name(), error = %unanswered, "lookup not answered");
            Ok(None)
        }
    }
}

/// The request of a tool call, as the gateway records it: the tool and its arguments.
pub(super) fn request(input: &Value, arguments: Value, key: Option<&str>) -> ClientRequest {
    let mut params = CallToolRequestParams::new(input["tool"].as_str().unwrap_or_default().to_owned());
    if let Value::Object(arguments) = arguments {
        params.arguments = Some(arguments);
    }
    if let Some(key) = key {
        let mut meta = RequestMetaObject::new();
        meta.0.insert(KEY.to_owned(), key.into());
        params.meta = Some(meta);
    }
    ClientRequest::CallToolRequest(CallToolRequest::new(params))
}

/// Puts the reference of the operation into the arguments, at a place whose parent exists.
pub(super) fn put(arguments: &mut Value, pointer: &str, key: &str) -> Result<(), ToolError> {
    let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
    let name = name.replace("~1", "/").replace("~0", "~");
    if arguments.is_null() {
        *arguments = Map::new().into();
    }
    match arguments.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.insert(name, key.into());
            Ok(())
        }
        _ => Err(ToolError::refused(format!("the arguments have no place `{pointer}` for the reference"))),
    }
}

/// A complete answer, as it is recorded.
fn complete(answer: ServerResult) -> Result<Value, ToolError> {
    let unreadable =
        || ToolError::unknown("the server has answered with something that is no result of a tool");
    match answer {
        ServerResult::CallToolResult(result) => serde_json::to_value(result).map_err(|_| unreadable()),
        ServerResult::EmptyResult(_) => Ok(serde_json::json!({ "content": [] })),
        _ => Err(unreadable()),
    }
}

/// The state of a call that has no answer. `has_asked`: the server may have asked a question in the middle of it.
fn error(unanswered: Unanswered, not_done: bool, has_asked: bool) -> ToolError {
    let error = match unanswered {
        Unanswered::NotReady(why) => return ToolError::not_sent(why),
        unanswered @ (Unanswered::Cancelled | Unanswered::Silent(_)) => {
            return ToolError::unknown(unanswered.to_string());
        }
        Unanswered::Service(error) => error,
    };
    let text = error.to_string();
    #[cfg(feature = "mcp-http")]
    if let ServiceError::TransportSend(failed) = &error
        && let Some(kind) = super::remote::kind(&*failed.error)
    {
        return ToolError::new(kind, super::remote::in_full(&*failed.error));
    }
    let kind = match error {
        // Method not found, invalid request, no JSON: the server has not called the tool. "Invalid params" (-32602) does not say so:
        // servers of the TypeScript SDK also answer it when the output of a tool does not fit its schema. A server that has asked may
        // pass the client's error on as its own, in the middle of the call.
        ServiceError::McpError(error) if !has_asked && matches!(error.code.0, -32601 | -32600 | -32700) => {
            ErrorKind::Validation
        }
        ServiceError::McpError(_) if not_done => ErrorKind::Validation,
        ServiceError::McpError(_) => ErrorKind::Server,
        // A request whose line was not written to its end may have been carried out: what is missing may be the line's end alone,
        // and servers also read a last line without one.
        ServiceError::TransportSend(_) | ServiceError::TransportClosed => ErrorKind::Disconnected,
        _ => ErrorKind::Unknown,
    };
    ToolError::new(kind, text)
}
