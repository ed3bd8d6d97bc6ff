//! The statements that are the same for both databases.

pub(in crate::store) mod ask;
pub(in crate::store) mod columns;
pub(in crate::store) mod erase;
mod escalation;
mod figures;
pub(in crate::store) mod history;
pub(in crate::store) mod inbox;
pub(in crate::store) mod judge;
pub(in crate::store) mod outbox;
pub(in crate::store) mod own;
pub(in crate::store) mod payload;
mod queried;
pub(in crate::store) mod queue;
pub(super) mod reads;
pub(in crate::store) mod retention;
pub(in crate::store) mod run_page;
mod survey;
pub(in crate::store) mod worker;
pub(in crate::store) mod write;

pub use queried::Queried;
