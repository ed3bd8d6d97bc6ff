//! Tasks that last as long as their engine. A panic in one of them, in any code, costs only a pause.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use crate::panics::{caught, quietly};

/// The pause before a task is begun again after a panic. It doubles after each further panic, up to `LATEST`.
const SOON: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_mins(1);

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
}

/// Runs a task, and again after each panic, until the task or this worker ends.
pub(crate) async fn last<F: Future<Output = ()>>(
    core: &Weak<Core>,
    what: &'static str,
    begin: impl Fn() -> F,
) {
    let mut pause = SOON;
    while let Err(panic) = caught(begin()).await {
        quietly(|| tracing::error!(what, panic, ?pause, "engine task panicked, will restart"));
        let Some(strong) = core.upgrade().filter(|core| !core.is_closing()) else { return };
        let clock = strong.clock.clone();
        drop(strong); // a sleeper must not keep a closed database open
        let _ = caught(async { clock.sleep(pause).await }).await; // the clock may be the one that panics
        tokio::task::yield_now().await;
        pause = (pause * 2).min(LATEST);
    }
}
