//! The example of a proof holds: its own test, which stands in it.

#[path = "../../../workflows/prove.rs"]
#[allow(dead_code, reason = "its program is not what is tested")]
mod example;
