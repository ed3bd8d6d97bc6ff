//! Calls whose callers keep them and do not poll them. They go on by themselves; otherwise a request would stay halfway
//! for as long as the caller keeps it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;

/// Interval between looks. A caller that was woken before a look and has not polled by the next one is not waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Core {
    /// Looks after calls whose callers do not poll them.
    pub(crate) fn attend(self: &Arc<Self>) {
        self.lasting("unattended calls", run);
    }

    /// Drives the calls that were not polled since the last look, although their callers had been woken.
    fn look_after(&self) {
        self.attendance.begin_look();
        for work in self.in_flight.woken() {
            if work.is_kept() {
                work.go_on();
            } else {
                self.attendance.stir();
            }
        }
    }
}

/// Runs until the core is gone or closing. It makes no looks while no caller is woken.
async fn run(core: Weak<Core>) {
    loop {
        let Some(strong) = core.upgrade().filter(|core| !core.is_closing()) else { return };
        let (attendance, clock) = (strong.attendance.clone(), strong.clock.clone());
        drop(strong); // a sleeper must not keep a closed database open
        attendance.stirred().await;
        clock.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        core.look_after();
    }
}
