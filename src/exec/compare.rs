//! The comparison of late answers with the record that a change seals: those of fenced workers, and those that came
//! when a later attempt was under way.

use std::sync::Arc;

use tokio::sync::Notify;

use super::core::Core;
use crate::id::{Fence, Ids};
use crate::ledger::{ContractClass, Record};
use crate::store::Change;

/// True if an earlier attempt may have been answered late: another worker began the operation, or this worker has begun
/// another attempt since.
fn may_have_late_answers(core: &Core, record: &Record) -> bool {
    Ids::giver(record.id.0) != core.fence || record.attempts > 1
}

/// Makes the store compare the late answers with the record that the change seals, except for the answers on which the
/// seal rests. True if the store compares: it does so only for a record that may have late answers.
pub(super) fn compare(
    core: &Core,
    change: &mut Change,
    contract: ContractClass,
    rests_on: Box<[(Fence, u32)]>,
) -> bool {
    let compares = change.record.as_ref().is_some_and(|record| may_have_late_answers(core, record));
    change.contract = Some(contract);
    change.taken_over = compares.then_some(rests_on);
    compares
}

/// A guard that starts a look at the questions when it is dropped, once a seal that the store has compared is durable: the store may have opened a question.
pub(super) struct LookWhenDropped(pub(super) Arc<Notify>);

impl Drop for LookWhenDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
