//! The guards: each is a key scheme and a merge rule.

mod approval;
mod artifact;
mod entries;
mod ingest;
mod memory;
mod memory_pairs;
