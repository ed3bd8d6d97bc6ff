//! ⑤ Guards: what agents duplicate besides tool calls. Each is a key scheme and a merge rule on the ledger; it may own
//! rows of its domain, never a second way to tell what was done before.

pub mod approval;
pub mod artifact;
pub mod entries;
pub mod index;
pub mod ingest;
#[cfg(feature = "memory")]
pub mod memory;
pub mod notification;
mod rows;
