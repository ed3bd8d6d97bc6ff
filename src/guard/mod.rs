//! ⑤ Guards: protection against what agents duplicate besides tool calls. Each guard is a key scheme and a merge rule
//! on the ledger. It may have rows of its own domain, and never a second record of operations.

pub mod approval;
pub mod artifact;
pub mod entries;
pub mod index;
pub mod ingest;
#[cfg(feature = "memory")]
pub mod memory;
pub mod notification;
mod rows;
