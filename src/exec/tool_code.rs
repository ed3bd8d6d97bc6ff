//! Code of a tool beside the call itself: its lookup, the renewal of its credential.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::core::Core;
use super::operation::Operation;
use crate::ledger::ErrorKind;
use crate::tool::ToolError;

/// Runs code of an operation's tool once, within the time of an attempt. A panic is an error, also one before the code's first wait.
/// `None` where the tool has no such code.
pub(super) async fn run<'a, T>(
    core: &Core,
    op: &Operation,
    too_late: &str,
    begin: impl FnOnce() -> Option<BoxFuture<'a, Result<T, ToolError>>>,
) -> Option<Result<T, ToolError>> {
    let limit = core.clock.sleep(op.tool.spec().retry.attempt_timeout);
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
