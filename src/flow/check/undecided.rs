//! A call in a check whose outcome the run has not recorded.

use std::future::pending;
use std::sync::Arc;

use super::asked::Check;
use super::report::Changed;
use crate::exec::{Answer, Operation};
use crate::flow::live::{Live, Open};
use crate::ledger::Decision;
use crate::store::Store as _;

/// A recorded call whose outcome this run has not got: answered from its record if that has it by now, and noted if the
/// engine would have to do something about it.
pub(crate) async fn undecided(live: &Arc<Live>, check: &Check, open: Open, op: &Operation) -> Answer {
    let core = &live.core;
    let record = core.group.record_find(&live.tenant, &op.key).await;
    let Ok(Some(record)) = record else { return check.held(&open.identity).await };
    match op.decide(core, Some(&record)).await {
        Ok(Decision::Duplicate { response }) => {
            if let Ok(response) = core.load(&live.tenant, &response).await {
                open.close();
                return Answer::replayed(response, record.id);
            }
        }
        Ok(Decision::Conflict) => check.note(|notes| {
            let why = format!(
                "{}: the same key was asked for with another request (then {:?}, now {:?})",
                op.key, record.request_hash, op.hash
            );
            notes.changed.push(Changed { what: open.identity.to_string(), why });
        }),
        Ok(Decision::Retry { .. } | Decision::New) => return check.held(&open.identity).await,
        _ => check.note(|notes| notes.unsettled.push(op.key.to_string())),
    }
    pending().await
}
