//! The checks of keys: a key must be the same in each try, and must distinguish events.

use super::{Found, PolicyRule, QueuePolicy, WebhookPolicy};
use crate::rim::policy::choice::WebhookScheme;

/// The names of fields and headers whose value changes with each try.
const DRIFTING: [&str; 13] = [
    "webhook-timestamp",
    "x-timestamp",
    "now",
    "sent_at",
    "received_at",
    "delivered_at",
    "attempt",
    "retry_count",
    "random",
    "request_id",
    "x-request-id",
    "trace_id",
    "traceparent",
];

/// The endings of names that may be the time of an event, which is constant, or of its sending, which is not.
const TIMES: [&str; 5] = ["_at", "time", "timestamp", "date", "nonce"];

/// Checks that each part of a key is the same in each try.
pub(super) fn stable(found: &mut Found<'_>, path: &str, parts: &[&str]) {
    for (number, part) in parts.iter().enumerate() {
        let at = format!("{path}.key[{number}]");
        let instead = "what the sender gives the event once: `event_id`, `dedupe_id`, or a pointer to its id";
        if let Some(why) = unstable(part) {
            found.add(
                PolicyRule::KeyOfTimeOrChance,
                &at,
                format!("`{part}` {why}: each try is a new key, and is done again"),
                instead,
            );
        } else if may_drift(part) {
            let why = format!(
                "`{part}` looks like a time: if the sender writes it anew for each try, each try is done again"
            );
            found.add(PolicyRule::KeyMayDrift, &at, why, instead);
        }
    }
}

/// The reason why this part changes with each try; `None` if it is constant.
fn unstable(part: &str) -> Option<&'static str> {
    let name = match part.strip_prefix("header:").or_else(|| part.strip_prefix('/')) {
        Some(rest) => rest.rsplit('/').next().unwrap_or(rest).to_ascii_lowercase(),
        None => {
            return match part {
                "now" | "timestamp" | "received_at" => Some("is a time, and another one in each try"),
                "attempt" | "redelivered" => Some("counts the tries"),
                "random" | "uuid" => Some("is drawn by chance in each try"),
                "sequence" => {
                    Some("is the broker's number, and another one when the message is published again")
                }
                _ => None,
            };
        }
    };
    DRIFTING.contains(&name.as_str()).then_some("is written anew for each try")
}

fn may_drift(part: &str) -> bool {
    let lower = part.to_ascii_lowercase();
    part.starts_with(['/', 'h']) && TIMES.iter().any(|time| lower.ends_with(time))
}

/// Checks that a delivery's key distinguishes two events.
pub(super) fn webhook(found: &mut Found<'_>, path: &str, source: WebhookPolicy<'_>) {
    let parts = source.key();
    let tells_apart =
        |part: &&&str| matches!(**part, "event_id" | "body_digest") || part.starts_with(['/', 'h']);
    let at = format!("{path}.key");
    if parts.iter().find(tells_apart).is_none() {
        let why = "no part of the key tells two events of this sender apart: the second event is taken for the first, and is lost";
        found.add(PolicyRule::KeyWithoutIdentity, &at, why, "key: [provider, event_id, version, action]");
    }
    let has_no_id = source.scheme() == WebhookScheme::Hmac && source.body_window().is_none();
    if has_no_id && source.section.key.is_some() && parts.contains(&"event_id") {
        let why =
            "this scheme has no event id: each delivery is refused, because it lacks that part of the key";
        found.add(PolicyRule::KeyWithoutIdentity, &at, why, "key: [provider, /id]");
    }
    if has_no_id && source.section.key.is_none() {
        let why = "this scheme has no event id, and neither a key nor a window for equal bodies is said: deliveries cannot be told apart";
        found.add(
            PolicyRule::KeyWithoutIdentity,
            &at,
            why,
            "key: [provider, /id], or key: [provider, body_digest] with body_window: 7 days",
        );
    }
    if parts.contains(&"body_digest") && source.body_window().is_none() {
        let why = "equal bodies are one delivery for as long as answers are kept: two equal events on two days are one";
        found.add(PolicyRule::KeyMayDrift, &at, why, "body_window: 4 days, beside the key");
    }
}

/// Checks that a message's key distinguishes two messages.
pub(super) fn queue(found: &mut Found<'_>, path: &str, source: QueuePolicy<'_>) {
    let tells_apart = |part: &&str| {
        matches!(*part, "message_key" | "dedupe_id" | "event_id" | "body_digest")
            || part.starts_with(['/', 'h'])
    };
    if !source.key().iter().any(tells_apart) {
        let why = "no part of the key tells two messages of this topic apart: the second message is taken for the first, and is lost";
        found.add(
            PolicyRule::KeyWithoutIdentity,
            &format!("{path}.key"),
            why,
            "key: [topic, partition, message_key, dedupe_id]",
        );
    }
}
