//! Work in the background that lasts as long as its engine, or that is done again until the store is there. A panic in a
//! lasting task, in any code, costs only a pause.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use super::outcome::ExecError;
use crate::clock::SharedClock;
use crate::panics::{caught, quietly};
use crate::store::StoreError;

/// The pause before a task is begun again after a panic. It doubles after each further panic, up to `LATEST`.
const SOON: Duration = Duration::from_millis(100);
/// The pause before work is done again because the store was away. It doubles after each further attempt, up to `LATEST`.
const AWAY: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_mins(1);

/// An error of work in which the store has a part.
pub(crate) trait MayPass {
    /// True if the same work may succeed a moment later.
    fn may_pass(&self) -> bool;
}

impl MayPass for StoreError {
    fn may_pass(&self) -> bool {
        self.is_transient()
    }
}

impl MayPass for ExecError {
    fn may_pass(&self) -> bool {
        self.is_transient()
    }
}

impl Core {
    /// Begins a task that ends with this worker, or by itself.
    pub(crate) fn lasting<F>(
        self: &Arc<Self>,
        what: &'static str,
        begin: impl Fn(Weak<Self>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let weak = Arc::downgrade(self);
        tokio::spawn(async move { last(&weak, what, || begin(weak.clone())).await });
    }

    /// Does work in the background that nothing else in this process would do, and does it again at growing pauses while
    /// its error [may pass](MayPass): without that, a store that is away for a moment would leave the work to the next
    /// process. Any other error is handed to `give_up`.
    ///
    /// Closing waits for an attempt that has begun. It does not wait for a pause: the next process does the work.
    pub(crate) fn until_stored<F, E>(
        self: &Arc<Self>,
        attempt: impl Fn(Arc<Self>) -> F + Send + 'static,
        give_up: impl FnOnce(E) + Send + 'static,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: MayPass + Send + 'static,
    {
        let first = self.tracker.track_future(attempt(self.clone()));
        let (core, clock) = (Arc::downgrade(self), self.clock.clone());
        tokio::spawn(async move {
            let done = first.await;
            match done {
                Ok(()) => {}
                Err(error) if error.may_pass() => again(core, clock, attempt, give_up).await,
                Err(error) => give_up(error),
            }
        });
    }

    /// The same, and the first attempt is made after a pause.
    pub(crate) fn until_stored_later<F, E>(
        self: &Arc<Self>,
        attempt: impl Fn(Arc<Self>) -> F + Send + 'static,
        give_up: impl FnOnce(E) + Send + 'static,
    ) where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: MayPass + Send + 'static,
    {
        tokio::spawn(again(Arc::downgrade(self), self.clock.clone(), attempt, give_up));
    }
}

/// Makes attempts, each after a pause, until one succeeds, has an error that does not pass, or this worker closes.
async fn again<F, E>(
    core: Weak<Core>, // a sleeper must not keep a closed database open
    clock: SharedClock,
    attempt: impl Fn(Arc<Core>) -> F,
    give_up: impl FnOnce(E),
) where
    F: Future<Output = Result<(), E>>,
    E: MayPass,
{
    let mut pause = AWAY;
    loop {
        clock.sleep(pause).await;
        let Some(core) = core.upgrade() else { return };
        let attempting = core.tracker.token(); // taken before the closing check, or closing could overtake the attempt
        if core.is_closing() {
            return;
        }
        let done = attempt(core);
        match done.await {
            Ok(()) => return,
            Err(error) if error.may_pass() => pause = (pause * 2).min(LATEST),
            Err(error) => return give_up(error),
        }
        drop(attempting);
    }
}

/// Runs a task, and again after each panic, until the task or this worker ends. `None` if the worker ended first.
pub(crate) async fn last<T, F: Future<Output = T>>(
    core: &Weak<Core>,
    what: &'static str,
    begin: impl Fn() -> F,
) -> Option<T> {
    let mut pause = SOON;
    loop {
        let panic = match caught(begin()).await {
            Ok(ended) => return Some(ended),
            Err(panic) => panic,
        };
        quietly(|| tracing::error!(what, panic, ?pause, "engine task panicked, will restart"));
        let strong = core.upgrade().filter(|core| !core.is_closing())?;
        let clock = strong.clock.clone();
        drop(strong); // a sleeper must not keep a closed database open
        let _ = caught(async { clock.sleep(pause).await }).await; // the clock may be the one that panics
        tokio::task::yield_now().await;
        pause = (pause * 2).min(LATEST);
    }
}
