//! When something is due next, and who else has things that become due.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::clock::Timestamp;
use crate::store::{Question, StoreError};

/// Whoever else has things that become due.
pub(crate) trait Due: Send + Sync {
    /// Takes up what is due at `now`, and says whether there may be more.
    fn take_up(self: Arc<Self>, now: Timestamp) -> BoxFuture<'static, More>;
    /// Takes over what ended workers left.
    fn take_over(self: Arc<Self>) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Looks after what other workers may have brought to its end, and after queues if any run is queued.
    fn look(self: Arc<Self>, queued: bool) -> BoxFuture<'static, Result<(), StoreError>>;
    /// A question was answered by the executor itself: what waits for the answer goes on.
    fn answered(self: Arc<Self>, question: Question) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Stops where it is durable: this worker can write nothing any more.
    fn stop(&self);
}

/// Whether a list of due things was cut off at its limit, and what was on it was taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// There may be more: look again at once.
    Perhaps,
    /// What is still due could not be taken up.
    No,
}

impl More {
    /// Of a list with this limit, so many were taken up.
    pub(crate) fn after(taken_up: usize, limit: u32) -> Self {
        if u32::try_from(taken_up).is_ok_and(|taken_up| taken_up < limit) { Self::No } else { Self::Perhaps }
    }
}

/// When to look at the clock again.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    earliest: Mutex<Option<Timestamp>>,
    sooner: Notify,
}

impl Agenda {
    /// Something is due at this instant. To be said when it can be read: who looks before finds nothing, and
    /// does not look again.
    pub(crate) fn note(&self, at: Timestamp) {
        if self.put(at) {
            self.sooner.notify_one();
        }
    }

    /// The same, by the sleeper itself, which needs no waking: it would lie down twice. Whether it is the earliest.
    pub(super) fn put(&self, at: Timestamp) -> bool {
        let mut earliest = self.earliest.lock().unwrap_or_else(PoisonError::into_inner);
        let sooner = earliest.is_none_or(|known| at < known);
        if sooner {
            *earliest = Some(at);
        }
        sooner
    }

    /// Makes the sleeper look again.
    pub(crate) fn wake(&self) {
        self.sooner.notify_one();
    }

    pub(super) fn take(&self) -> Option<Timestamp> {
        self.earliest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) async fn sleep(&self, sleep: Option<BoxFuture<'static, ()>>) {
        match sleep {
            None => self.sooner.notified().await,
            Some(sleep) => tokio::select! {
                biased; // chance is drawn in one place only, or no simulation could be repeated
                () = sleep => {}
                () = self.sooner.notified() => {}
            },
        }
    }

    pub(super) fn peek(&self) -> Option<Timestamp> {
        *self.earliest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes on an agenda, when it is dropped, that something is due.
pub(super) struct NoteWhenDropped {
    pub(super) agenda: Arc<Agenda>,
    pub(super) at: Timestamp,
}

impl Drop for NoteWhenDropped {
    fn drop(&mut self) {
        self.agenda.note(self.at);
    }
}
