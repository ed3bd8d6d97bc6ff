//! The provider of the examples does what it says: its own tests, which stand beside it.

#[path = "../../workflows/provider/main.rs"]
#[allow(dead_code, reason = "its program is not what is tested")]
mod program;
