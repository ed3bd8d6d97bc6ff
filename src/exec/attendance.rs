//! A signal for the task that drives calls whose callers were woken but do not poll them.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// A flag that the caller of some call in flight was woken since the last look. The calls themselves are found in the
/// in-flight table: a list of woken calls would keep the memory of each call until the next look.
#[derive(Default)]
pub(super) struct Attendance {
    stirred: AtomicBool,
    /// Notified when the flag is set.
    some: Notify,
}

impl Attendance {
    /// Notes that a caller was woken.
    pub(super) fn stir(&self) {
        if !self.stirred.load(Ordering::SeqCst) && !self.stirred.swap(true, Ordering::SeqCst) {
            self.some.notify_one();
        }
    }

    /// Clears the flag at the start of a look. A caller that is woken after this sets the flag again.
    pub(super) fn begin_look(&self) {
        self.stirred.store(false, Ordering::SeqCst);
    }

    /// Waits until a caller was woken.
    pub(super) async fn stirred(&self) {
        self.some.notified().await;
    }

    /// Wakes the waiting task, so that it sees that there is nothing left to do.
    pub(super) fn end(&self) {
        self.some.notify_one();
    }
}
