//! Calls whose callers keep them and do not poll them: they go on by themselves, or a request would stay halfway for as long as
//! the caller keeps it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::core::Core;

/// A caller that does not poll its call between two looks, although it was woken before the first, is not waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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

    /// Whoever waits for one sees that there is nothing left to do.
    pub(super) fn end(&self) {
        self.some.notify_one();
    }
}

impl Core {
    /// Looks after calls whose callers do not poll them.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.lasting("unattended calls", run);
    }

    /// Those that were not polled since the last look, although their callers had been woken, go on.
    fn look_after(&self) {
        // Before the look: a caller that is woken behind it stirs again.
        self.attendance.stirred.store(false, Ordering::SeqCst);
        for work in self.in_flight.woken() {
            if work.is_kept() {
                work.go_on();
            } else {
                self.attendance.stir();
            }
        }
    }
}

/// Runs until the core is gone or closing. Nothing is looked at while no caller is woken.
async fn run(core: Weak<Core>) {
    loop {
        let Some(strong) = core.upgrade().filter(|core| !core.is_closing()) else { return };
        let (attendance, clock) = (strong.attendance.clone(), strong.clock.clone());
        drop(strong); // a sleeper must not keep a closed database open
        attendance.some.notified().await;
        clock.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        core.look_after();
    }
}
