//! The turn of an attempt: it has to be paid for from its budgets and to pass the limits before it. In a workflow, an
//! attempt that has to wait for long is deferred, so that its run can be parked. An attempt whose time is over fails.

use std::time::Duration;

use super::{Answered, Carrier, Step};
use crate::exec::attempt::unsent;
use crate::exec::operation::LONG_WAIT;
use crate::exec::outcome::{ExecError, Outcome};
use crate::exec::request::Wait;
use crate::exec::seal::give_up;
use crate::exec::throttle::{Pass, Turn};
use crate::ledger::{BudgetExceeded, ErrorKind, Record, RecordedFailure};

impl Carrier {
    /// Waits for the turn of an attempt. If the turn does not come, returns the step to take instead.
    pub(super) async fn turn(&self, found: Option<&Record>) -> Result<Result<Pass, Step>, ExecError> {
        if self.op.is_unlimited() {
            return Ok(Ok(None));
        }
        // Boxed because this case is rare: every call would reserve its memory.
        Box::pin(self.limited(found)).await
    }

    async fn limited(&self, found: Option<&Record>) -> Result<Result<Pass, Step>, ExecError> {
        let Self { core, op, .. } = self;
        let timeout = op.tool.spec().quota.timeout;
        let left = timeout.map(|timeout| timeout.saturating_sub(self.waited(found)));
        let expired = || BudgetExceeded::OperationTime { allowed: timeout.unwrap_or_default() };
        if left.is_some_and(|left| left.is_zero()) {
            return self.used_up(found, &expired()).await.map(Err);
        }
        let patience = match (self.patience(), left) {
            (Some(patience), Some(left)) => Some(patience.min(left)),
            (patience, left) => patience.or(left),
        };
        match core.turn(op, found.map_or(0, |record| record.attempts), patience).await? {
            Ok(Turn::Go(mut pass)) => {
                if timeout.is_some() {
                    let left = timeout.unwrap_or_default().saturating_sub(self.waited(found));
                    pass.get_or_insert_default().deadline = Some(core.now().after(left));
                }
                Ok(Ok(pass))
            }
            Ok(Turn::Later(wait)) if left.is_some_and(|left| wait > left) => {
                self.used_up(found, &expired()).await.map(Err)
            }
            Ok(Turn::Later(wait)) => self.later(found, wait).await.map(Err),
            Err(used_up) => self.used_up(found, &used_up).await.map(Err),
        }
    }

    /// The time that the operation has waited. In a workflow the run may have been parked meanwhile, so the record's
    /// creation counts; any other caller has waited here. Waits of an earlier execution do not count.
    fn waited(&self, found: Option<&Record>) -> Duration {
        match found {
            Some(record) if self.op.lane.is_some() && record.spent == 0 && record.not_before.is_some() => {
                record.created_at.until(self.core.now())
            }
            _ => self.since.until(self.core.clock.boot()),
        }
    }

    fn patience(&self) -> Option<Duration> {
        if self.op.lane.is_some() {
            return Some(LONG_WAIT);
        }
        match self.wait {
            Wait::No => Some(Duration::ZERO),
            Wait::AtMost(at_most) => Some(at_most.saturating_sub(self.since.until(self.core.clock.boot()))),
            Wait::ForOutcome => None,
        }
    }

    /// Defers the attempt. If the operation's time is limited, a record keeps the instant at which the wait began.
    async fn later(&self, found: Option<&Record>, wait: Duration) -> Result<Step, ExecError> {
        let until = self.core.now().after(wait);
        if found.is_none() && self.op.lane.is_some() && self.op.tool.spec().quota.timeout.is_some() {
            let message = "it waits for its turn; nothing was sent yet".to_owned();
            let failure =
                RecordedFailure { kind: ErrorKind::RateLimited, message, detail: serde_json::Value::Null };
            if !unsent(&self.core, &self.op, failure, Some(until)).await? {
                return Ok(Step::Changed);
            }
        }
        Ok(Step::Answered(Answered::of(Outcome::Deferred { until })))
    }

    /// Fails this execution because a budget is used up; nothing is sent. If the operation's time is over, a record
    /// remains.
    async fn used_up(&self, found: Option<&Record>, used_up: &BudgetExceeded) -> Result<Step, ExecError> {
        let (core, op, failure) = (&self.core, &self.op, used_up.failure());
        log_call!(info, op, budget = used_up.budget(), "budget used up, nothing sent");
        count!(core.meter, CALLS_WITHHELD of &op.tenant, op.name(), "budget");
        let is_as_it_was = match found {
            Some(record) if record.not_before.is_some() => {
                give_up(core, op, record, failure.clone()).await?.is_some()
            }
            None if matches!(used_up, BudgetExceeded::OperationTime { .. }) => {
                unsent(core, op, failure.clone(), None).await?
            }
            _ => true,
        };
        Ok(if is_as_it_was { Step::Answered(Answered::of(Outcome::Failed(failure))) } else { Step::Changed })
    }
}
