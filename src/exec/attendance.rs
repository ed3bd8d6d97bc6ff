//! Whether anybody has to look after calls whose callers do not poll them.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Whether the caller of some call in hand was woken since the last look. The calls themselves are found where they are in hand: a
/// list of those that were woken would keep the memory of each call until the next look.
#[derive(Default)]
pub(super) struct Attendance {
    stirred: AtomicBool,
    /// Rung when it was.
    some: Notify,
}

impl Attendance {
    /// A caller was woken.
    pub(super) fn stir(&self) {
        if !self.stirred.load(Ordering::SeqCst) && !self.stirred.swap(true, Ordering::SeqCst) {
            self.some.notify_one();
        }
    }

    /// A look begins: a caller that is woken behind this stirs again.
    pub(super) fn begin_look(&self) {
        self.stirred.store(false, Ordering::SeqCst);
    }

    /// Waits until a caller was woken.
    pub(super) async fn stirred(&self) {
        self.some.notified().await;
    }

    /// Whoever waits for one sees that there is nothing left to do.
    pub(super) fn end(&self) {
        self.some.notify_one();
    }
}
