//! The engine's part of the executor's agenda and heartbeat: it takes up what is due, and what other workers left or
//! wrote.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::claim::CLAIM;
use super::inner::Inner;
use crate::clock::Timestamp;
use crate::exec::{Due, More};
use crate::store::{Question, Store as _, StoreError};

impl Due for Inner {
    fn take_up(self: Arc<Self>, now: Timestamp) -> BoxFuture<'static, More> {
        Box::pin(async move {
            // First the deadlines: a run that is past its deadline does not go on because its timer is due as well.
            let mut taken_up = self.cancel_overdue(now).await;
            let runs = match self.core.group.run_due(now, CLAIM).await {
                Ok(runs) => runs,
                Err(error) => {
                    log_trouble!(error, "due runs not read, will retry");
                    return More::No;
                }
            };
            let (asleep, ending) = self.runs.asleep(runs);
            taken_up += ending;
            match self.claim(asleep, |_| {}).await {
                Ok(claimed) => taken_up += claimed,
                Err(error) => log_trouble!(error, "due runs not woken, will retry"),
            }
            #[cfg(feature = "schedule")]
            let ticks = self.tick_due(now).await;
            #[cfg(not(feature = "schedule"))]
            let ticks = More::No;
            if let Err(error) = self.admit_due().await {
                log_trouble!(error, "queues not read, will retry");
            }
            if ticks == More::Perhaps { ticks } else { More::after(taken_up, CLAIM) }
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
        Box::pin(async move { self.wake_waiting(&question.tenant, &question).await })
    }

    fn stop(&self) {
        self.runs.stop_all();
        self.ends.give_up_all(); // the waiting callers are told: no end is looked for from here on
    }
}
