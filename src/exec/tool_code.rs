//! The tool's code beside the call itself: its lookup, the refresh of its credential.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::core::Core;
use crate::ledger::ErrorKind;
use crate::tool::ToolError;

/// Runs code of an operation's tool once, within this time. A panic is an error, also one before the code's first wait.
/// `None` if the tool has no such code.
pub(super) async fn run<'a, T>(
    core: &Core,
    within: Duration,
    too_late: &str,
    begin: impl FnOnce() -> Option<BoxFuture<'a, Result<T, ToolError>>>,
) -> Option<Result<T, ToolError>> {
    let limit = core.clock.sleep(within);
    let running = AssertUnwindSafe(async {
        match begin() {
            Some(running) => Some(running.await),
            None => None,
        }
    });
    tokio::select! {
        biased;
        ended = running.catch_unwind() => ended.unwrap_or_else(|_| Some(Err(ToolError::panicked()))),
        () = limit => Some(Err(ToolError::new(ErrorKind::TimeoutBeforeEffect, too_late))),
    }
}
