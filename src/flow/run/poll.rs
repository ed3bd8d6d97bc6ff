//! The polling of a run's body.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::flow::failure::Failure;
use crate::flow::live::{Live, Rest, Stop};
use crate::flow::workflow::Body;
use crate::panics::message;
use crate::payload::Payload;
use crate::store::WaitsOn;

/// A run whose waits are all durable keeps its memory for this long, in case one of them ends soon.
const GRACE: Duration = Duration::from_millis(200);
/// The number of times that a body which wakes itself is polled before others get their turn.
const POLLS: usize = 32;

/// The duration of a poll above which the code has blocked its thread.
const BLOCKING: Duration = Duration::from_millis(100);

/// The result of polling the body.
pub(super) enum Polled {
    Finished(Result<Payload, Failure>),
    Panicked(String),
    Quiescent,
    Parkable(Option<Timestamp>, WaitsOn),
    Stopped(Stop),
}

/// Polls the body until there is something to be done about it.
pub(super) async fn poll(live: &Arc<Live>, body: &mut Body) -> Polled {
    let clock = live.core.clock.clone();
    let mut waker = live.waker.fresh();
    let (mut grace, mut limit, mut forced) = (None, None, None);
    let (mut waiting, mut again) = (false, false);
    poll_fn(|cx| {
        live.waker.driven_by(cx.waker());
        for _ in 0..POLLS {
            if let Some(stop) = live.take_stop() {
                return Poll::Ready(Polled::Stopped(stop));
            }
            let by_other = live.waker.take_woken_by_other();
            if std::mem::take(&mut waiting) && by_other && live.waker.note_foreign() {
                tracing::warn!(
                    tenant = %live.tenant, run = %live.id,
                    "run waits for something outside its context, a crash loses that wait"
                );
            }
            let is_again = std::mem::take(&mut again);
            if let Some(over) = poll_once(live, body, &waker) {
                return Poll::Ready(over);
            }
            // A body that woke itself has not come to rest: poll it again before judging it.
            if live.waker.take_woken() {
                continue;
            }
            match live.commanded(clock.now()) {
                Err(stop) => return Poll::Ready(Polled::Stopped(stop)),
                Ok(Some(until)) => {
                    let timer = limit.get_or_insert_with(|| clock.sleep(clock.now().until(until)));
                    if timer.as_mut().poll(cx).is_ready() {
                        limit = None;
                        continue;
                    }
                    forced = Some(until);
                }
                Ok(None) => {}
            }
            match live.rest() {
                Rest::Quiescent => return Poll::Ready(Polled::Quiescent),
                Rest::Working => {
                    grace = None;
                    return Poll::Pending;
                }
                Rest::Waiting { until, on } => {
                    if live.waker.has_foreign() {
                        return Poll::Pending; // parking would drop that wait, which would begin anew with each resume
                    }
                    // Whoever wakes the body from here on shall have come to it by a waker of this rest. Earlier work
                    // that has ended may still wake it, and says nothing about what the body waits for.
                    if !is_again {
                        (waker, again) = (live.waker.fresh(), true);
                        continue;
                    }
                    waiting = true;
                    let until = until.into_iter().chain(forced).min();
                    if until.is_some_and(|at| clock.now().until(at) <= GRACE) {
                        return Poll::Pending; // the wait ends soon
                    }
                    let timer = grace.get_or_insert_with(|| clock.sleep(GRACE));
                    return timer.as_mut().poll(cx).map(|()| Polled::Parkable(until, on));
                }
            }
        }
        // The body waits for something by polling, and that something may need this very thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Polls the body once, and reports a poll that was long. `None` if the body goes on.
fn poll_once(live: &Live, body: &mut Body, waker: &Waker) -> Option<Polled> {
    let begun = live.core.clock.boot();
    let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(&mut Context::from_waker(waker))));
    let took = begun.until(live.core.clock.boot());
    if took > BLOCKING {
        tracing::warn!(
            tenant = %live.tenant, run = %live.id, took_ms = took.as_millis(),
            "run blocked its thread, on which other runs wait"
        );
    }
    match polled {
        Ok(Poll::Ready(result)) => {
            let unmended = live.unmended().map(|failure| Stop::Unmended(Box::new(failure)));
            Some(unmended.map_or_else(|| Polled::Finished(storable(live, result)), Polled::Stopped))
        }
        Err(panic) => Some(Polled::Panicked(message(&*panic))),
        Ok(Poll::Pending) => None,
    }
}

/// The result of a body, if it can be stored. Checked where the body ends: a result over the limit blocks the run like
/// other misuse, because a run that failed with it would be undone.
fn storable(live: &Live, result: Result<Payload, Failure>) -> Result<Payload, Failure> {
    Ok(result?.within(&live.core.limits)?)
}
