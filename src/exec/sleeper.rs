//! What is due later: looks at records, and the timers of waiting runs. One sleeper for all of them, woken
//! by its own process; it asks the database nothing while nothing is due.
//!
//! What could not be taken up (a damaged row, a store that fails) stays due, and is tried again after a pause
//! that grows. Meanwhile it holds up nothing else: what falls due later is found behind it.

use std::sync::Weak;
use std::time::Duration;

use super::agenda::{Due, More};
use super::core::Core;
use super::looks;
use crate::clock::Timestamp;
use crate::store::Store as _;

/// What could not be taken up is tried again after so long, then after twice as long, and so on up to a limit.
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
            return; // the next process takes up what falls due
        }
        let now = strong.now();
        match strong.agenda.peek() {
            Some(at) if at <= now => {
                // Taken before it is asked once more: closing waits for it. Were closing to overtake, the worker
                // would retire, and what the lookups find could not be written any more.
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
                // The sleep counts from its own reading of the clock. What was advanced before it would be slept past.
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

/// Notes when to look again, after everything that was due at `tried` has been tried.
///
/// What is due all the same would be tried at once, again and for ever: it waits out a pause. It must not hide
/// what falls due meanwhile, which is asked for by itself.
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
            tracing::error!(%error, "cannot read what is due next, asking again later");
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
