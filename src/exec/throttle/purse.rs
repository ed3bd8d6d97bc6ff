//! The rest of a run's budget. Records count for ever; this counts while the run is carried out.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::ledger::{Budget, BudgetExceeded, BudgetUsage, Price};

/// The budget of a run that is being carried out.
#[derive(Debug)]
pub(crate) struct Purse {
    budget: Budget,
    since: Timestamp,
    spent: Mutex<BudgetUsage>,
}

impl Purse {
    /// The purse of a run that began at `since` and has used up `spent` by its records.
    pub(crate) fn new(budget: Budget, since: Timestamp, spent: BudgetUsage) -> Arc<Self> {
        Arc::new(Self { budget, since, spent: Mutex::new(spent) })
    }

    /// The usage of the run up to now, attempts under way included.
    pub(crate) fn spent(&self) -> BudgetUsage {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The time after its start for which the run may make calls.
    pub(crate) fn within(&self) -> Option<Duration> {
        self.budget.time()
    }

    /// The instant from which the run makes no more calls.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.within().map(|within| self.since.after(within))
    }

    /// Checks that one more attempt may be made.
    pub(super) fn afford(&self, price: Option<&Price>, now: Timestamp) -> Result<(), BudgetExceeded> {
        let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        self.budget.afford(&spent, price, self.since.until(now))
    }

    /// Replaces the reserved price of an attempt by its real cost.
    pub(super) fn settle(&self, price: &Price, cost: u64) {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).settle(price, cost);
    }

    /// Reserves the price of an attempt, if the budget allows it. Calls that are made at once cannot spend the same
    /// twice.
    pub(super) fn take(
        self: &Arc<Self>,
        price: Option<&Price>,
        now: Timestamp,
    ) -> Result<Taken, BudgetExceeded> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        self.budget.afford(&spent, price, self.since.until(now))?;
        spent.add(1, price);
        drop(spent);
        Ok(Taken { from: Some(self.clone()), price: price.cloned() })
    }
}

/// A price that is reserved in a purse, and given back if the attempt is not made.
#[derive(Debug)]
pub(super) struct Taken {
    from: Option<Arc<Purse>>,
    price: Option<Price>,
}

impl Taken {
    /// Notes that the attempt is durable: its record counts it from now on.
    pub(super) fn is_spent(&mut self) {
        self.from = None;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(purse) = self.from.take() {
            let mut spent = purse.spent.lock().unwrap_or_else(PoisonError::into_inner);
            spent.give_back(self.price.as_ref());
        }
    }
}
