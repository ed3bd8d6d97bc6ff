//! A model: here a script with the habits of models. It repeats itself under another call id, changes its mind, and asks for
//! a tool that does not exist.

use serde_json::{Value, json};

pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) input: Value,
}

pub(crate) struct Model;

impl Model {
    /// The next calls, after a conversation; none at its end.
    #[allow(clippy::unused_async, reason = "a real one is over a network")]
    pub(crate) async fn next(&self, _tools: &Value, conversation: &[Value]) -> Vec<ToolCall> {
        let printer = json!({ "case": "C-17", "what": "printer on fire" });
        let calls = match conversation.len() {
            0 => vec![("open_ticket", printer.clone()), ("refund", json!({ "case": "C-17", "cents": 4200 }))],
            2 => vec![("open_ticket", printer), ("order_part", json!({ "case": "C-17", "part": "fuse" }))],
            4 => vec![("refund", json!({ "case": "C-17", "cents": 9900 })), ("call_ann", json!({}))],
            _ => vec![],
        };
        let ids = conversation.len()..;
        let calls = calls.into_iter().zip(ids).map(|((name, input), id)| (name.to_owned(), input, id));
        calls.map(|(name, input, id)| ToolCall { id: format!("call_{id}"), name, input }).collect()
    }
}

/// The `tools` array of a request to a model.
pub(crate) fn tools_array(tools: [(&str, &str); 3]) -> Value {
    let tool = |(name, description)| {
        let function = json!({ "name": name, "description": description });
        json!({ "type": "function", "function": function })
    };
    tools.map(tool).into_iter().collect()
}

/// What the model is told of a call.
pub(crate) fn tool_message(id: &str, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": text })
}
