//! The agenda of a worker: the next instant at which something is due, and the parts that take up due work.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use crate::clock::Timestamp;
use crate::store::{Question, StoreError};

/// A part of the process that has due work of its own, such as the engine with its runs.
pub(crate) trait Due: Send + Sync {
    /// Takes up the work that is due at `now`. [`More`] tells if there may be more of it.
    fn take_up(self: Arc<Self>, now: Timestamp) -> BoxFuture<'static, More>;
    /// Takes over the work that ended workers left.
    fn take_over(self: Arc<Self>) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Looks for work that other processes may have finished. If `queued`: for free places in queues. If `resumable`:
    /// for waiting runs that were sent a signal or an answer by a process that could not wake them.
    fn look(self: Arc<Self>, queued: bool, resumable: bool) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Resumes the work that waits for the answer to `question`, which the executor itself has answered.
    fn answered(self: Arc<Self>, question: Question) -> BoxFuture<'static, Result<(), StoreError>>;
    /// Stops all work at its last durable point, because this worker can write nothing any more.
    fn stop(&self);
}

/// The result of taking up a list of due work, which may have been cut off at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum More {
    /// There may be more due work: look again at once.
    Perhaps,
    /// The list was complete, or some of its work could not be taken up.
    No,
}

impl More {
    /// The result for two lists.
    pub(crate) fn or(self, other: Self) -> Self {
        if self == Self::Perhaps { self } else { other }
    }
}

/// The way through a list of due work, page by page. Work that this worker cannot take up stays due at the head of the
/// list, and must not hide the work behind it.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    listed: usize,
    taken_up: usize,
}

impl Pages {
    /// Counts a page with this limit, of which `taken_up` entries were taken up. `Break` ends the reading for now.
    pub(crate) fn next(&mut self, listed: usize, taken_up: usize, limit: u32) -> ControlFlow<More> {
        self.listed += listed;
        self.taken_up += taken_up;
        if listed < limit as usize {
            ControlFlow::Break(More::No) // the end of the list
        } else if self.taken_up >= self.listed {
            ControlFlow::Break(More::Perhaps) // the next page is the head of the list by now
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The next instant at which the sleeper has to look at the clock.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    earliest: Mutex<Option<Timestamp>>,
    sooner: Notify,
}

impl Agenda {
    /// Notes that something is due at this instant. Call this only when its row can be read: a sleeper that looks
    /// earlier finds nothing and does not look again.
    pub(crate) fn note(&self, at: Timestamp) {
        if self.put(at) {
            self.sooner.notify_one();
        }
    }

    /// Notes an instant for the sleeper itself, without waking it: a wake-up would make it sleep twice. True if the
    /// instant is now the earliest.
    pub(super) fn put(&self, at: Timestamp) -> bool {
        let mut earliest = self.earliest.lock().unwrap_or_else(PoisonError::into_inner);
        let sooner = earliest.is_none_or(|known| at < known);
        if sooner {
            *earliest = Some(at);
        }
        sooner
    }

    /// Wakes the sleeper, so that it looks again.
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
                biased; // no random choice, so that a simulation is repeatable
                () = sleep => {}
                () = self.sooner.notified() => {}
            },
        }
    }

    pub(super) fn peek(&self) -> Option<Timestamp> {
        *self.earliest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that notes a due instant on the agenda when it is dropped.
pub(super) struct NoteWhenDropped {
    pub(super) agenda: Arc<Agenda>,
    pub(super) at: Timestamp,
}

impl Drop for NoteWhenDropped {
    fn drop(&mut self) {
        self.agenda.note(self.at);
    }
}
