//! A call in a check whose outcome the run has not recorded.

use std::future::pending;
use std::sync::Arc;

use super::asked::Check;
use super::report::Changed;
use crate::exec::{Answer, Operation};
use crate::flow::live::{Live, Open, Wait};
use crate::ledger::Decision;
use crate::payload::Stored;
use crate::store::Store as _;

/// Answers a recorded call whose outcome this run has not got: from its record, if that has an outcome by now. The call
/// is noted if the engine would have to do something about it, and waits at rest, because the engine would do so then.
pub(crate) async fn undecided(live: &Arc<Live>, check: &Check, open: Open, op: &Operation) -> Answer {
    let core = &live.core;
    let record = core.group.record_find(&live.tenant, &op.key).await.ok().flatten();
    let decision = match &record {
        Some(record) => op.decide(core, Some(record)).await.ok(),
        None => Some(Decision::New),
    };
    match (decision, record) {
        // The engine would look whether the response is within the limit by now.
        (Some(Decision::Duplicate { response: Stored::Oversized(_) }), _) => {
            check.note(|notes| notes.unsettled.push(op.key.to_string()));
        }
        (Some(Decision::Duplicate { response }), Some(record)) => {
            if let Ok(response) = core.load(&live.tenant, &response).await {
                open.close();
                return Answer::replayed(response, record.key, record.id);
            }
        }
        (Some(Decision::Conflict), Some(record)) => check.note(|notes| {
            let why = format!(
                "{}: the same key was asked for with another request (then {:?}, now {:?})",
                op.key, record.request_hash, op.hash
            );
            notes.changed.push(Changed { what: open.identity.to_string(), why });
        }),
        (Some(Decision::Parked { .. }), _) => {
            let _waiting = open.wait(Wait { answer: true, ..Wait::default() });
            return pending().await;
        }
        (Some(Decision::Retry { .. } | Decision::New), _) => check.is_new(&open.identity),
        _ => check.note(|notes| notes.unsettled.push(op.key.to_string())),
    }
    let _resting = open.rest();
    pending().await
}
