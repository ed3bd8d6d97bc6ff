//! The sleeper: takes up due looks at records and due timers of waiting runs. One sleeper serves all of them, woken by
//! its own process; it sends no query while nothing is due.
//!
//! Work that could not be taken up (a damaged row, a store that fails) stays due, and is tried again after a pause that
//! grows. Meanwhile it delays nothing else: work that falls due later is found as well.

use std::sync::Weak;
use std::time::Duration;

use super::agenda::{Due, More};
use super::core::Core;
use super::looks;
use crate::clock::Timestamp;
use crate::store::Store as _;

/// The pause before work that could not be taken up is tried again. It doubles with each failure, up to `LATEST`.
const LATER: Duration = Duration::from_secs(5);
const LATEST: Duration = Duration::from_mins(1);

/// Runs until the core is gone or closing.
pub(crate) async fn run(core: Weak<Core>, due: Option<Weak<dyn Due>>) {
    let mut pause = LATER;
    if let Some(core) = core.upgrade() {
        note_next(&core, Timestamp::MIN, &mut pause).await;
    }
    while let Some(strong) = core.upgrade() {
        if strong.is_closing() {
            return; // the next process takes up the work that falls due
        }
        let now = strong.now();
        match strong.agenda.peek() {
            Some(at) if at <= now => {
                // The token is taken before the second check, so that closing waits for it. If closing were faster, the
                // worker would retire, and the results of the lookups could not be written any more.
                let looking = strong.tracker.token();
                if strong.is_closing() {
                    return;
                }
                strong.agenda.take();
                let mut more = looks::take_up(&strong, now).await;
                drop(looking);
                if let Some(due) = due.as_ref().and_then(Weak::upgrade)
                    && due.take_up(now).await == More::Perhaps
                {
                    more = More::Perhaps;
                }
                match more {
                    More::Perhaps => _ = strong.agenda.put(now),
                    More::No => note_next(&strong, now, &mut pause).await,
                }
            }
            next => {
                let sleep = next.map(|at| strong.clock.sleep(now.until(at)));
                // The sleep counts from its own reading of the clock. A clock that was advanced before that would be
                // missed.
                if next.is_some_and(|at| at <= strong.now()) {
                    continue;
                }
                let agenda = strong.agenda.clone();
                drop(strong); // a sleeper must not keep a closed database open
                agenda.sleep(sleep).await;
            }
        }
    }
}

/// Notes the instant of the next look, after all work that was due at `tried` has been tried.
///
/// Work that is still due would be tried at once, again and for ever, so it waits for a pause. It must not hide work
/// that falls due meanwhile, which a query of its own finds.
async fn note_next(core: &Core, tried: Timestamp, pause: &mut Duration) {
    let mut next = core.group.next_due(Timestamp::MIN).await;
    if matches!(next, Ok(Some(at)) if at <= tried) {
        core.agenda.put(core.now().after(lengthened(pause)));
        next = core.group.next_due(tried).await;
    } else if next.is_ok() {
        *pause = LATER;
    }
    match next {
        Ok(Some(at)) => _ = core.agenda.put(at),
        Ok(None) => {}
        Err(error) => {
            log_trouble!(error, "next due instant not read, will retry");
            core.agenda.put(core.now().after(lengthened(pause)));
        }
    }
}

/// The present pause; the next one is twice as long.
fn lengthened(pause: &mut Duration) -> Duration {
    let present = *pause;
    *pause = (present * 2).min(LATEST);
    present
}
