//! An attempt waits before the gates of its tool and its provider, and is paid for.

use std::time::Duration;

use super::gate::Entered;
use super::purse::Taken;
use super::{Passed, Turn};
use crate::clock::Timestamp;
use crate::exec::core::Core;
use crate::exec::operation::Operation;
use crate::exec::outcome::ExecError;
use crate::ledger::BudgetExceeded;

impl Operation {
    /// Whether one more attempt may be made after so many.
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

    /// An attempt says what it has really cost: its price was reserved before.
    pub(in crate::exec) fn settle_cost(&self, cost: u64) {
        if let Some((purse, price)) = self.purse.as_ref().zip(self.tool.spec().quota.price.as_ref()) {
            purse.settle(price, cost);
        }
    }

    /// A budget counts its attempts.
    pub(in crate::exec) fn is_counted(&self) -> bool {
        self.purse.is_some() || self.tool.spec().quota.price.is_some()
    }

    /// Nothing is declared that could hold it back.
    pub(in crate::exec) fn is_unlimited(&self) -> bool {
        self.tool.spec().quota.is_none() && self.purse.is_none()
    }
}

impl Core {
    /// Waits for the turn of an attempt after so many, at most so long if that is said, and pays for it.
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
        Ok(Ok(match self.queue_up(op, patience).await? {
            Turn::Go(None) => {
                Turn::Go(taken.map(|taken| Box::new(Passed { taken: Some(taken), ..Passed::default() })))
            }
            Turn::Go(Some(passed)) => Turn::Go(Some(Box::new(Passed { taken, ..*passed }))),
            later @ Turn::Later(_) => later,
        }))
    }

    /// The same for what costs nothing: a lookup.
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
                Entered::Closed => return Err(ExecError::Closed { key: op.key.to_string() }),
            }
        }
        Ok(Turn::Go(Some(Box::new(Passed { tickets, ..Passed::default() }))))
    }
}
