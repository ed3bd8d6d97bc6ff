//! Limits on one reply of a model. The engine cuts the excess before it records the reply: a runaway or manipulated
//! model costs a turn, not the run.

use std::collections::HashSet;

use super::message::{Proposal, Reply};

/// The maximum size of a reply's text, in bytes.
const TEXT: usize = 256 * 1024;
/// The maximum number of calls in a reply.
const CALLS: usize = 64;
/// The maximum size of one call's arguments, in bytes.
const ARGUMENTS: usize = 64 * 1024;
/// The maximum size of all arguments in a reply, in bytes.
const ALL_ARGUMENTS: usize = 1024 * 1024;
/// The maximum size of a tool's name, and of the model's id for a call, in bytes.
const NAME: usize = 128;
/// The maximum size of a tool result that is shown to a model, in bytes.
pub(super) const RESULT: usize = 64 * 1024;
/// The maximum size of an error message that is shown to a model, in bytes.
pub(super) const ERROR: usize = 2 * 1024;

/// Cuts a reply to the limits of a record.
pub(super) fn bounded(mut reply: Reply) -> Reply {
    reply.text = cut(reply.text, TEXT);
    if reply.calls.len() > CALLS {
        let asked = reply.calls.len();
        reply.calls.truncate(CALLS);
        if let Some(last) = reply.calls.last_mut() {
            refuse(
                last,
                format!(
                    "{asked} calls in one turn, {CALLS} at most: this one and those after it were not made"
                ),
            );
        }
    }
    let mut left = ALL_ARGUMENTS;
    for call in &mut reply.calls {
        call.tool = cut(std::mem::take(&mut call.tool), NAME);
        call.id = cut(std::mem::take(&mut call.id), NAME);
        let bytes = call.arguments.len();
        if bytes > ARGUMENTS.min(left) {
            refuse(call, format!("the arguments have {bytes} bytes, {} at most", ARGUMENTS.min(left)));
        }
        left -= call.arguments.len();
    }
    tell_apart(&mut reply.calls);
    reply.usage = reply.usage.of_one_call();
    reply
}

/// Gives another id to each call whose id is empty, or that of an earlier call: providers tell results apart by the id,
/// and refuse a conversation with two results under one id, or attach both to one call.
fn tell_apart(calls: &mut [Proposal]) {
    let given: HashSet<String> = calls.iter().map(|call| call.id.clone()).collect();
    let mut used = HashSet::new();
    let mut free = (0..).map(|n| format!("call_{n}")).filter(|id| !given.contains(id));
    for call in calls {
        let is_new = !call.id.is_empty() && used.insert(call.id.clone());
        if !is_new && let Some(id) = free.next() {
            call.id = id;
        }
    }
}

fn refuse(call: &mut Proposal, why: String) {
    call.arguments = String::new();
    call.refused = Some(why);
}

/// Cuts a text to at most `max` bytes, and marks the cut with the total size.
pub(super) fn cut(text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let kept = text.floor_char_boundary(max);
    format!("{}… [cut: {} bytes in all]", &text[..kept], text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Usage;
    use super::*;

    #[test]
    fn a_wild_reply_becomes_one_that_can_be_recorded() {
        let huge = "x".repeat(3 * ALL_ARGUMENTS);
        let mut calls =
            vec![Proposal::new("a", json!({ "text": huge })), Proposal::new(huge.clone(), json!({}))];
        calls.extend((0..1000).map(|_| Proposal::new("b", json!({ "text": "y".repeat(60_000) }))));
        let usage = Usage { calls: 7, input_tokens: u64::MAX, output_tokens: 1, cost_micros: 2 };
        let reply = bounded(Reply { text: huge, calls, usage, ..Reply::default() });

        assert!(crate::payload::Payload::of(&reply).unwrap().as_str().len() < 2 * ALL_ARGUMENTS);
        assert_eq!(reply.calls.len(), CALLS);
        assert!(reply.calls[0].refused.as_ref().unwrap().contains("at most"));
        assert!(reply.calls[CALLS - 1].refused.as_ref().unwrap().contains("1002 calls"));
        assert_eq!((reply.usage.calls, reply.usage.output_tokens), (1, 1));
    }

    #[test]
    fn no_two_calls_of_a_reply_have_one_id() {
        let long = |end: &str| format!("{}{end}", "p".repeat(200));
        let given =
            ["x".to_owned(), "x".to_owned(), String::new(), "call_0".to_owned(), long("a"), long("b")];
        let calls = given.map(|id| Proposal::new("a", json!({})).id(id));
        let reply = bounded(Reply::calls(calls));
        let ids: Vec<_> = reply.calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!((ids[0], ids[1], ids[2], ids[3]), ("x", "call_1", "call_2", "call_0"));
        assert_eq!(ids[5], "call_3", "the first one of two that were cut to one keeps what is left of it");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn what_is_cut_is_cut_between_characters() {
        assert_eq!(cut("äöü".to_owned(), 3), "ä… [cut: 6 bytes in all]");
        assert_eq!(cut("äöü".to_owned(), 6), "äöü");
    }
}
