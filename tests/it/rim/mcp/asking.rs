//! The questions that the test server asks its client in the middle of a call.

use serde_json::{Value, json};

use super::server::{next, say};

/// The URL at which the test server lets a user sign in.
pub(super) const SIGN_IN: &str = "https://notes.example/sign-in";

/// The question of this name: its method and its parameters.
fn question(name: &str) -> Option<(&'static str, Value)> {
    Some(match name {
        "elicit" | "elicit_and_cancel" => {
            let schema = json!({ "type": "object", "properties": {} });
            ("elicitation/create", json!({ "message": "Which folder?", "requestedSchema": schema }))
        }
        "elicit_at_url" => {
            let at = json!({ "mode": "url", "message": "Sign in.", "url": SIGN_IN, "elicitationId": "e1" });
            ("elicitation/create", at)
        }
        "sample" => {
            let content = json!({ "type": "text", "text": "Which title?" });
            let messages = json!([{ "role": "user", "content": content }]);
            ("sampling/createMessage", json!({ "messages": messages, "maxTokens": 10 }))
        }
        "roots" => ("roots/list", json!({})),
        _ => return None,
    })
}

/// Asks the question of this name, and answers the call with the client's answer. False if there is no such question.
pub(super) fn asked(name: &str, call: &Value) -> bool {
    let Some((method, params)) = question(name) else { return false };
    say(&json!({ "jsonrpc": "2.0", "id": "q1", "method": method, "params": params }));
    let told = if name == "elicit_and_cancel" {
        cancel();
        "cancelled".to_owned()
    } else {
        let answer = awaited(|message| message["id"] == "q1");
        if name == "elicit_at_url" {
            complete("e1");
        }
        answer.to_string()
    };
    let content = json!([{ "type": "text", "text": told }]);
    say(&json!({ "jsonrpc": "2.0", "id": call, "result": { "content": content } }));
    true
}

/// Asks the client's model, and passes an error of the client on as the call's own, as some servers do.
pub(super) fn asked_in_vain(call: &Value) {
    let (method, params) = question("sample").unwrap();
    say(&json!({ "jsonrpc": "2.0", "id": "q1", "method": method, "params": params }));
    let answer = awaited(|message| message["id"] == "q1");
    say(&json!({ "jsonrpc": "2.0", "id": call, "error": answer["error"] }));
}

/// Says that the user is done at the URL of this elicitation.
pub(super) fn complete(id: &str) {
    let params = json!({ "elicitationId": id });
    say(&json!({ "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": params }));
}

/// Cancels the question when the client asks for the resources: the test knows by then that the question has come.
fn cancel() {
    let list = awaited(|message| message["method"] == "resources/list");
    say(&json!({ "jsonrpc": "2.0", "id": list["id"], "result": { "resources": [] } }));
    let params = json!({ "requestId": "q1", "reason": "it is not needed any more" });
    say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
}

/// The next message of this kind.
pub(super) fn awaited(is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = next().unwrap();
        if is_it(&message) {
            return message;
        }
    }
}
