//! The engine's own command for runs whose deadline has passed: it cancels them, and is one whichever worker gives it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{Command, GRACE, Order, Verb};
use crate::clock::Timestamp;
use crate::exec::{More, Pages};
use crate::flow::claim::CLAIM;
use crate::flow::error::RunError;
use crate::flow::inner::Inner;
use crate::store::{DEADLINE, Run, Store as _};

impl Inner {
    /// Cancels the runs whose deadline has passed at `now`. A run whose workflow this worker does not know is left to the
    /// workers that know it.
    ///
    /// # Crash
    /// The command is durable before it has any effect. A blocked run is listed again until it has ended.
    pub(in crate::flow) async fn cancel_overdue(self: &Arc<Self>, now: Timestamp) -> More {
        let (mut pages, mut last) = (Pages::default(), None::<Run>);
        loop {
            let overdue = match self.core.group.run_overdue(now, last.as_ref(), CLAIM).await {
                Ok(overdue) => overdue,
                Err(error) => {
                    log_trouble!(error, "overdue runs not read, will retry");
                    return More::No;
                }
            };
            let mut told = 0;
            for run in &overdue {
                if !self.may_claim(run) {
                    continue;
                }
                match self.command(past_deadline(run, now)).await {
                    Ok(_) | Err(RunError::Over { .. }) => told += 1,
                    Err(error) => {
                        let (tenant, id) = (&run.tenant, run.id);
                        tracing::error!(%tenant, run = %id, workflow = %run.workflow, %error, "overdue run not cancelled, will retry");
                    }
                }
            }
            if let ControlFlow::Break(more) = pages.next(overdue.len(), told, CLAIM) {
                return more;
            }
            last = overdue.last().cloned();
        }
    }
}

fn past_deadline(run: &Run, now: Timestamp) -> Order {
    let allowed = run.created_at.until(run.deadline.unwrap_or(now));
    let reason = format!("its deadline, {allowed:?} after its start, has passed");
    let command = Command { by: "the engine".to_owned(), reason, until: Some(now.after(GRACE)) };
    let (tenant, id) = (run.tenant.clone(), DEADLINE.to_owned());
    Order { tenant, run: run.id, verb: Verb::Cancel, id, command }
}
