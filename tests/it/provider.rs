//! The provider of the examples does what it says: its own tests, which stand beside it.

use crate::sim::case_notice::example::provider as server;

#[path = "../../workflows/provider/tests.rs"]
mod tests;
