//! The guards: each is a key scheme and a merge rule.

pub(crate) mod approval;
mod approval_alone;
mod approval_of_call;
mod artifact;
mod entries;
mod ingest;
mod memory;
mod memory_pairs;
mod notification;
mod policy_of_call;
