//! The engine's part of the executor's agenda and heartbeat: it takes up what is due, and what other workers left or
//! wrote.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::claim::CLAIM;
use super::inner::Inner;
use crate::clock::Timestamp;
use crate::exec::{Due, More, Pages};
use crate::store::{Question, Run, Store as _, StoreError};

impl Due for Inner {
    fn take_up(self: Arc<Self>, now: Timestamp) -> BoxFuture<'static, More> {
        Box::pin(async move {
            // First the deadlines: a run that is past its deadline does not go on because its timer is due as well.
            let overdue = self.cancel_overdue(now).await;
            let timers = match self.wake_due(now).await {
                Ok(timers) => timers,
                Err(error) => {
                    log_trouble!(error, "due runs not read, will retry");
                    return More::No;
                }
            };
            #[cfg(feature = "schedule")]
            let ticks = self.tick_due(now).await;
            #[cfg(not(feature = "schedule"))]
            let ticks = More::No;
            if let Err(error) = self.admit_due().await {
                log_trouble!(error, "queues not read, will retry");
            }
            overdue.or(timers).or(ticks)
        })
    }

    fn take_over(self: Arc<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            let runs = self.claim_orphans().await?;
            tracing::info!(worker = %self.core.fence, runs, "work of an ended worker taken over");
            Ok(())
        })
    }

    fn look(self: Arc<Self>, queued: bool, resumable: bool) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            self.look_for_ends().await?;
            self.look_for_signals().await?;
            if resumable {
                self.take_up_answered().await?;
            }
            if queued { self.admit_waiting().await } else { Ok(()) }
        })
    }

    fn answered(self: Arc<Self>, question: Question) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move { self.wake_answered(&question.tenant, &question).await })
    }

    fn stop(&self) {
        self.runs.stop_all();
        self.ends.give_up_all(); // the waiting callers are told: no end is looked for from here on
    }
}

impl Inner {
    /// Wakes the runs whose timers are due at `now`.
    async fn wake_due(self: &Arc<Self>, now: Timestamp) -> Result<More, StoreError> {
        let (mut pages, mut last) = (Pages::default(), None::<Run>);
        loop {
            let runs = self.core.group.run_due(now, last.as_ref(), CLAIM).await?;
            let listed = runs.len();
            last = runs.last().cloned();
            let (asleep, ending) = self.runs.asleep(runs);
            let claimed = match self.claim(asleep, |_| {}).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    log_trouble!(error, "due runs not woken, will retry");
                    return Ok(More::No);
                }
            };
            if let ControlFlow::Break(more) = pages.next(listed, ending + claimed, CLAIM) {
                return Ok(more);
            }
        }
    }
}
