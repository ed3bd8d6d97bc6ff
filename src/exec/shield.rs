//! Shields a call from its caller: a dropped future must not cut a request off halfway (HAZARDS A13).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;

/// Runs in its caller's task, without a hop, as long as the caller polls it. When the caller drops it
/// unfinished, the rest goes on in a task of its own, so that its outcome is still recorded.
pub(crate) struct Shield<T: Send + 'static> {
    rest: Option<BoxFuture<'static, T>>,
    tracker: TaskTracker,
    abandoned: Arc<AtomicBool>,
}

impl<T: Send + 'static> Shield<T> {
    pub(crate) fn new(rest: BoxFuture<'static, T>, tracker: TaskTracker, abandoned: Arc<AtomicBool>) -> Self {
        Self { rest: Some(rest), tracker, abandoned }
    }
}

/// Does the rest when its caller goes away: for a write that something must follow.
pub(crate) fn to_the_end<T, F>(tracker: &TaskTracker, work: F) -> Shield<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    Shield::new(Box::pin(work), tracker.clone(), Arc::default())
}

impl<T: Send + 'static> Future for Shield<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: what has panicked must not be polled again by the task that does the rest.
        let Some(mut rest) = self.rest.take() else { return Poll::Pending };
        let polled = rest.as_mut().poll(cx);
        if polled.is_pending() {
            self.rest = Some(rest);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Shield<T> {
    fn drop(&mut self) {
        // Without a runtime the process is ending: the record stays `started`, which means ambiguous.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), tokio::runtime::Handle::try_current()) {
            self.abandoned.store(true, Ordering::Release);
            self.tracker.spawn_on(rest, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::panic::AssertUnwindSafe;
    use std::sync::atomic::AtomicU32;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_future_that_has_panicked_is_not_polled_again() {
        let (tracker, polls) = (TaskTracker::new(), Arc::new(AtomicU32::new(0)));
        let counted = polls.clone();
        let panics = poll_fn(move |_| -> Poll<()> {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("as told")
        });
        let shield = Shield::new(Box::pin(panics), tracker.clone(), Arc::default());
        assert!(AssertUnwindSafe(shield).catch_unwind().await.is_err());
        tracker.close();
        tracker.wait().await;
        assert_eq!(polls.load(Ordering::Relaxed), 1);
    }
}
