//! One binary for all integration tests: a file per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod conformance;
mod differential;
mod group;
mod sqlite;
mod watched;
