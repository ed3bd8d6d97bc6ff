//! The bodies of requests: valid ones for each route, and some that are no JSON.

use counterfoil::api::Route;
use serde_json::{Value, json};

use super::draw::Draw;
use super::scene::Scene;

/// The limit of a body, in bytes.
pub(super) const LIMIT: usize = 1024 * 1024;

/// A body that the route takes.
pub(super) fn valid(route: &Route, draw: &mut Draw, scene: &Scene) -> Value {
    match route.path {
        "/runs" => json!({
            "reason": "asked for", "workflow": "wait", "input": { "n": draw.below(3) }, "labels": { "customer": "c-9" },
        }),
        "/runs/{run}/signals" => json!({ "reason": "paid", "name": "went", "body": draw.below(3) }),
        "/erase" => json!({ "reason": "asked for", "name": "customer", "value": "c-8" }),
        "/questions/{question}/answer" => json!({ "reason": "it is so", "answer": draw.of_all(&answers()) }),
        "/approvals/{approval}/decision" => json!({ "reason": "checked", "version": 1, "approve": true }),
        "/guard/begin" => {
            let effects =
                ["internal_mutation", "read_only", "payment", "notification", "deletion", "compensation"];
            let reviewers = draw.of_all(&[json!([]), json!([]), json!(["ann"])]).clone();
            json!({
                "tool": draw.of_all(&["refund", "fetch"]),
                "key": format!("k{}", draw.below(40)),
                "input": { "cents": draw.below(3) },
                "effect": draw.of_all(&effects),
                "lookup": draw.one_in(2),
                "attempt_ms": 60_000,
                "settle_ms": 120_000,
                "reviewers": reviewers,
                "labels": { "customer": "c-9" },
                "without_approval": draw.one_in(4),
                "wait_ms": 0,
            })
        }
        "/guard/seal" => {
            let done = json!({ "done": { "output": { "id": 1 }, "external_ref": "re_1" } });
            let failed = json!({ "failed": { "kind": "server", "message": "as told", "retry_after_ms": 1 } });
            json!({ "permit": draw.of_all(&scene.permits), "outcome": draw.of_all(&[done, failed]), "wait_ms": 0 })
        }
        "/guard/reconcile" => {
            let happened = json!({ "happened": { "output": 1, "external_ref": null } });
            let findings = [happened, json!("not_found"), json!("unknown")];
            json!({ "permit": draw.of_all(&scene.permits), "finding": draw.of_all(&findings), "wait_ms": 0 })
        }
        "/guard/poll" => json!({ "tool": "refund", "wait_ms": 0 }),
        _ => json!({ "reason": "the bank is down" }),
    }
}

fn answers() -> [Value; 9] {
    [
        json!("keep"),
        json!("resume"),
        json!("again"),
        json!("look_now"),
        json!("withdrawn"),
        json!({ "happened": { "id": 17 } }),
        json!({ "undone": null }),
        json!({ "deliver": 7 }),
        json!({ "send_without_looking": { "reason": "the provider says so" } }),
    ]
}

/// A body with some places spoilt. A guarded call waits for nothing all the same, so that the test does not wait, either.
pub(super) fn spoilt(route: &Route, draw: &mut Draw, scene: &Scene) -> Value {
    let mut body = valid(route, draw, scene);
    for _ in 0..=draw.below(3) {
        draw.spoil(&mut body, &scene.genuine);
    }
    if route.path.starts_with("/guard/")
        && let Some(fields) = body.as_object_mut()
        && fields.get("wait_ms").is_none_or(Value::is_u64)
    {
        fields.insert("wait_ms".to_owned(), json!(0));
    }
    body
}

/// A body that is no JSON, or not that of the route.
pub(super) fn unreadable(draw: &mut Draw, valid: &Value) -> Vec<u8> {
    let text = valid.to_string();
    match draw.below(14) {
        0 => Vec::new(),
        1 => b"null".to_vec(),
        2 => b"[]".to_vec(),
        3 => b"\"\"".to_vec(),
        4 => b"\xff\xfe{\x00}\x00".to_vec(),
        5 => text.bytes().flat_map(|byte| [byte, 0]).collect(), // UTF-16
        6 => format!("\u{feff}{text}").into_bytes(),
        7 => text.as_bytes()[..=draw.below(text.len() - 1)].to_vec(),
        8 => format!("{text}{text}").into_bytes(),
        9 => "[".repeat(100_000).into_bytes(),
        10 => format!("{{\"reason\": {}1{}}}", "[".repeat(5000), "]".repeat(5000)).into_bytes(),
        11 => format!("{{\"reason\": \"r\", \"reason\": {text}}}").into_bytes(),
        12 => b"{\"reason\": 123456789012345678901234567890}".to_vec(),
        _ => [text.as_bytes(), b"\0"].concat(),
    }
}
