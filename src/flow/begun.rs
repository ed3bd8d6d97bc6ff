//! Futures that begin at their first poll: a call, a child, a wait for a signal.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::failure::{Failure, misuse};

/// The work of such a future.
pub(super) type Begun<T> = BoxFuture<'static, Result<T, Failure>>;

/// Polls the work, and keeps it for the next poll unless it has ended.
pub(super) fn poll<T>(
    mut begun: Begun<T>,
    kept: &mut Option<Begun<T>>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, Failure>> {
    let polled = begun.as_mut().poll(cx);
    if polled.is_pending() {
        *kept = Some(begun);
    }
    polled
}

/// The failure of a future that is polled after its end, when nothing is left to begin.
pub(super) fn polled_again(what: &str) -> Failure {
    misuse(format!("{what} was polled after its end"))
}
