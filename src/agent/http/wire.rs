//! The wire format of chat completions. Written strictly and read leniently, because servers omit different fields.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::agent::message::{Finish, Message, Proposal, Reply};
use crate::agent::usage::Usage;

/// The JSON form of a conversation.
pub(super) fn messages(messages: &[Message]) -> Value {
    messages.iter().map(message).collect()
}

fn message(message: &Message) -> Value {
    match message {
        Message::System { text } => json!({ "role": "system", "content": text }),
        Message::User { text } => json!({ "role": "user", "content": text }),
        Message::Assistant { text, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": text })
        }
        Message::Assistant { text, calls } => {
            let content = (!text.is_empty()).then_some(text);
            let calls: Vec<_> = calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
        Message::Tool { call_id, text, .. } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": text })
        }
    }
}

fn call(call: &Proposal) -> Value {
    // Servers parse the arguments of their own earlier replies, and fail if these are not an object.
    let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&call.arguments).is_ok();
    let arguments = if is_object { call.arguments.as_str() } else { "{}" };
    let function = json!({ "name": call.tool, "arguments": arguments });
    json!({ "id": call.id, "type": "function", "function": function })
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Choice {
    message: Said,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Called>>,
}

#[derive(Deserialize)]
struct Called {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    /// JSON in a string, or, from some servers, a JSON value.
    arguments: Option<Value>,
}

/// The token counts that the server reports. A value that is not a number counts as 0.
#[derive(Default, Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Value,
    #[serde(default)]
    completion_tokens: Value,
}

/// Parses a chat completion.
pub(super) fn completion(text: &str) -> Result<Reply, String> {
    let Completion { choices, usage } = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let Choice { message, finish_reason } = choices.into_iter().next().ok_or("it has no choices")?;
    let tokens = usage.unwrap_or_default();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    Ok(Reply {
        text: message.content.or(message.refusal).unwrap_or_default(),
        calls: message.tool_calls.into_iter().flatten().map(proposal).collect(),
        finish: match finish_reason.as_deref() {
            Some("length") => Finish::CutOff,
            Some("content_filter") => Finish::Filtered,
            _ => Finish::Done,
        },
        usage: Usage::tokens(number(&tokens.prompt_tokens), number(&tokens.completion_tokens)),
    })
}

fn proposal(called: Called) -> Proposal {
    let Called { id, function: Function { name, arguments } } = called;
    let arguments = match arguments {
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
        None => String::new(),
    };
    Proposal { id: id.unwrap_or_default(), tool: name, arguments, refused: None }
}
