//! The comparison of the late answers of fenced workers with the record that a change seals.

use std::sync::Arc;

use tokio::sync::Notify;

use super::core::Core;
use crate::id::{Fence, Ids};
use crate::ledger::{ContractClass, Record};
use crate::store::Change;

/// True if another worker began the operation and may have had a late answer.
fn is_taken_over(core: &Core, record: &Record) -> bool {
    Ids::giver(record.id.0) != core.fence
}

/// Makes the store compare the late answers of fenced workers with the record that the change seals, except for the
/// answers on which the seal rests. True if the store compares: it does so only for a record that was taken over.
pub(super) fn compare(
    core: &Core,
    change: &mut Change,
    contract: ContractClass,
    rests_on: Box<[(Fence, u32)]>,
) -> bool {
    let taken_over = change.record.as_ref().is_some_and(|record| is_taken_over(core, record));
    change.contract = Some(contract);
    change.taken_over = taken_over.then_some(rests_on);
    taken_over
}

/// A guard that starts a look at the questions when it is dropped, once the seal of a record that was taken over is
/// durable: the store may have opened a question.
pub(super) struct LookWhenDropped(pub(super) Arc<Notify>);

impl Drop for LookWhenDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
