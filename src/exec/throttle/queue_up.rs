//! The wait of an attempt at the gates of its tool and its provider, and its payment.

use std::time::Duration;

use super::gate::Entered;
use super::purse::Taken;
use super::{Passed, Turn};
use crate::clock::Timestamp;
use crate::exec::core::Core;
use crate::exec::operation::Operation;
use crate::exec::outcome::{ExecError, unwritten};
use crate::ledger::BudgetExceeded;

impl Operation {
    /// Checks that one more attempt may be made after `attempts` of them.
    pub(in crate::exec) fn afford(&self, attempts: u32, now: Timestamp) -> Result<(), BudgetExceeded> {
        let price = self.tool.spec().quota.price.as_ref();
        price.map_or(Ok(()), |price| price.afford(attempts))?;
        self.purse.as_ref().map_or(Ok(()), |purse| purse.afford(price, now))
    }

    fn take(&self, attempts: u32, now: Timestamp) -> Result<Option<Taken>, BudgetExceeded> {
        let price = self.tool.spec().quota.price.as_ref();
        price.map_or(Ok(()), |price| price.afford(attempts))?;
        self.purse.as_ref().map(|purse| purse.take(price, now)).transpose()
    }

    /// Replaces the reserved price by the real cost that an attempt reports.
    pub(in crate::exec) fn settle_cost(&self, cost: u64) {
        if let Some((purse, price)) = self.purse.as_ref().zip(self.tool.spec().quota.price.as_ref()) {
            purse.settle(price, cost);
        }
    }

    /// True if a budget counts the operation's attempts.
    pub(in crate::exec) fn is_counted(&self) -> bool {
        self.purse.is_some() || self.tool.spec().quota.price.is_some()
    }

    /// True if the operation has no limits and no budget.
    pub(in crate::exec) fn is_unlimited(&self) -> bool {
        self.tool.spec().quota.is_none() && self.purse.is_none()
    }
}

impl Core {
    /// Waits for the turn of an attempt after `attempts` earlier ones, for at most `patience` if there is one, and
    /// reserves its price.
    pub(in crate::exec) async fn turn(
        &self,
        op: &Operation,
        attempts: u32,
        patience: Option<Duration>,
    ) -> Result<Result<Turn, BudgetExceeded>, ExecError> {
        let taken = match op.take(attempts, self.now()) {
            Ok(taken) => taken,
            Err(used_up) => return Ok(Err(used_up)),
        };
        let queued = match self.queue_up(op, patience).await {
            Err(ExecError::Unwritten { key }) if attempts == 0 => Err(ExecError::Closed { key }),
            queued => queued,
        };
        Ok(Ok(match queued? {
            Turn::Go(None) => {
                Turn::Go(taken.map(|taken| Box::new(Passed { taken: Some(taken), ..Passed::default() })))
            }
            Turn::Go(Some(passed)) => Turn::Go(Some(Box::new(Passed { taken, ..*passed }))),
            later @ Turn::Later(_) => later,
        }))
    }

    /// Waits for the turn of a lookup, which costs nothing.
    pub(in crate::exec) async fn queue_up(
        &self,
        op: &Operation,
        patience: Option<Duration>,
    ) -> Result<Turn, ExecError> {
        if !op.tool.spec().quota.holds_back() {
            return Ok(Turn::Go(None));
        }
        let come = self.clock.boot();
        let mut tickets = Vec::new();
        for gate in self.gates.before(op.tool.spec()) {
            let left = patience.map(|patience| patience.saturating_sub(come.until(self.clock.boot())));
            match gate.enter(&op.tenant, left, &*self.clock).await {
                Entered::Through(ticket) => tickets.push(ticket),
                Entered::Later(wait) => return Ok(Turn::Later(wait)),
                Entered::Closed => return Err(unwritten(&op.key)),
            }
        }
        Ok(Turn::Go(Some(Box::new(Passed { tickets, ..Passed::default() }))))
    }
}
