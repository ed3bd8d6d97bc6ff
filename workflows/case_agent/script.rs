//! A model with the habits of models: it calls several tools at once, gets arguments wrong and repairs them, forgets what
//! it did and proposes it again, and finds other words for it.

use counterfoil::agent::{Message, Prompt, Proposal, Reply, Usage};
use serde_json::json;

/// Its reply depends on how often it has spoken.
pub fn reply(prompt: &Prompt) -> Reply {
    let spoken = prompt.messages.iter().filter(|m| matches!(m, Message::Assistant { .. })).count();
    let look_up = || Proposal::new("look_up_case", json!({ "case": "C-17" }));
    let note = |text: &str| Proposal::new("add_note", json!({ "case": "C-17", "text": text }));
    let refund =
        |reason: &str| Proposal::new("refund", json!({ "case": "C-17", "cents": 2000, "reason": reason }));
    let calls = match spoken {
        0 => vec![look_up(), note("taken up"), note("a parcel is missing")],
        1 => vec![
            Proposal::new("refund", json!({ "case": "C-17", "cents": "twenty euros" })),
            note("taken up"),
        ],
        2 => vec![refund("your parcel")],
        3 => vec![refund("for the parcel that never came"), refund("your parcel"), look_up()],
        _ => Vec::new(),
    };
    let reply =
        if calls.is_empty() { Reply::text("You get your 20 euros back.") } else { Reply::calls(calls) };
    // The same call has another id each time it is proposed, and the first of each turn have one in common.
    let calls = reply.calls.into_iter().enumerate().map(|(i, call)| call.id(format!("call_{}", spoken * i)));
    Reply { calls: calls.collect(), ..reply }.usage(Usage::tokens(100, 10))
}
