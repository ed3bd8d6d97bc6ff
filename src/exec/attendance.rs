//! Calls whose callers keep them and do not poll them: they go on by themselves, or a request would stay halfway for as long as
//! the caller keeps it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::core::Core;
use super::shield::Unattended;

/// A caller that does not poll its call between two looks, although it was woken before the first, is not waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A call whose caller was woken, and how often it had been polled by then.
type Woken = (Weak<dyn Unattended>, u32);

/// The calls whose callers were woken lately.
#[derive(Default)]
pub(super) struct Attendance {
    woken: Mutex<Vec<Woken>>,
    /// Rung when there is one.
    some: Notify,
}

impl Attendance {
    /// A caller was woken.
    pub(super) fn list(&self, work: Weak<dyn Unattended>, polls: u32) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push((work, polls));
        if woken.len() == 1 {
            self.some.notify_one();
        }
    }

    /// Whoever waits for one sees that there is nothing left to do.
    pub(super) fn end(&self) {
        self.some.notify_one();
    }

    fn take(&self) -> Vec<Woken> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Core {
    /// Looks after calls whose callers do not poll them.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.lasting("unattended calls", run);
    }
}

/// Runs until the core is gone or closing. Nothing is looked at while no caller is woken.
async fn run(core: Weak<Core>) {
    let mut before = Vec::new();
    loop {
        let Some(strong) = core.upgrade().filter(|core| !core.is_closing()) else { return };
        let (attendance, clock) = (strong.attendance.clone(), strong.clock.clone());
        drop(strong); // a sleeper must not keep a closed database open
        if before.is_empty() {
            attendance.some.notified().await;
        }
        clock.sleep(LOOK_EVERY).await;
        before = look(&attendance, before);
    }
}

/// Those that were not polled since they were listed go on. The others are listed anew when their callers are woken again.
fn look(attendance: &Attendance, before: Vec<Woken>) -> Vec<Woken> {
    let woken = attendance.take();
    for (work, polls) in before {
        let Some(work) = work.upgrade() else { continue };
        if work.is_kept(polls) {
            work.go_on();
        } else {
            work.unlist();
        }
    }
    woken
}
