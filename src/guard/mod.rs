//! ⑤ Guards: what agents duplicate besides tool calls. Each is a key scheme and a merge rule on the ledger; it may own rows
//! of its domain, and never a second way to know that something was done before.

pub mod approval;
pub mod artifact;
