//! Budgets: the attempts, the time and the cost that an operation and a run may use up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::retry::{ErrorKind, RecordedFailure};
use crate::payload::MAX_EXACT_INTEGER;

/// The price of an attempt, in a unit that the user names: cents, tokens, pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// The name of the unit.
    pub unit: Cow<'static, str>,
    /// The price of each attempt, in `unit`. It is reserved before the attempt, and counts unless the attempt
    /// [says](crate::tool::Done::cost) its actual cost.
    pub per_attempt: u64,
    /// The maximum cost of one operation, in `unit`. `None`: no limit.
    pub at_most: Option<u64>,
}

impl Price {
    /// A price for each attempt, in a unit.
    pub fn new(per_attempt: u64, unit: impl Into<Cow<'static, str>>) -> Self {
        Self { unit: unit.into(), per_attempt, at_most: None }
    }

    /// Sets the maximum cost of one operation, all its attempts together.
    #[must_use]
    pub fn at_most(self, at_most: u64) -> Self {
        Self { at_most: Some(at_most), ..self }
    }

    fn of(&self, attempts: u32) -> u64 {
        self.per_attempt.saturating_mul(attempts.into())
    }

    /// Checks that an operation may be tried once more after this number of attempts.
    ///
    /// # Errors
    /// [`BudgetExceeded`], which names the budget.
    pub fn afford(&self, attempts: u32) -> Result<(), BudgetExceeded> {
        match self.at_most {
            Some(allowed) if self.of(attempts.saturating_add(1)) > allowed => {
                Err(BudgetExceeded::OperationCost {
                    unit: self.unit.to_string(),
                    allowed,
                    spent: self.of(attempts),
                    asked: self.per_attempt,
                })
            }
            _ => Ok(()),
        }
    }
}

/// The budget of a run. A part that is not set is not limited.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::{Budget, Price, BudgetUsage};
///
/// let budget = Budget::default().attempts(10).cost("cent", 100).timeout(Duration::from_hours(1));
/// let mail = Price::new(40, "cent");
/// let mut spent = BudgetUsage::default();
/// spent.add(2, Some(&mail));
/// let error = budget.afford(&spent, Some(&mail), Duration::ZERO).unwrap_err();
/// assert_eq!(error.budget(), "run.cost");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    attempts: Option<u64>,
    timeout: Option<Duration>,
    cost: BTreeMap<Cow<'static, str>, u64>,
}

impl Budget {
    /// Sets the maximum number of attempts, of all calls of the run together.
    #[must_use]
    pub fn attempts(self, attempts: u64) -> Self {
        Self { attempts: Some(attempts), ..self }
    }

    /// Sets the time after the start of the run within which it may make calls.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The time after the start of the run within which it may make calls.
    pub(crate) const fn time(&self) -> Option<Duration> {
        self.timeout
    }

    /// Sets the maximum cost in this unit.
    #[must_use]
    pub fn cost(mut self, unit: impl Into<Cow<'static, str>>, at_most: u64) -> Self {
        self.cost.insert(unit.into(), at_most);
        self
    }

    /// Checks that one more attempt at this price may be made.
    ///
    /// # Errors
    /// [`BudgetExceeded`], which names the budget.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn afford(
        &self,
        spent: &BudgetUsage,
        price: Option<&Price>,
        elapsed: Duration,
    ) -> Result<(), BudgetExceeded> {
        if let Some(allowed) = self.attempts.filter(|allowed| spent.attempts >= *allowed) {
            return Err(BudgetExceeded::RunAttempts { allowed });
        }
        if let Some(allowed) = self.timeout.filter(|allowed| elapsed >= *allowed) {
            return Err(BudgetExceeded::RunTime { allowed });
        }
        let Some(price) = price else { return Ok(()) };
        let Some(&allowed) = self.cost.get(&price.unit) else { return Ok(()) };
        let spent = spent.cost.get(&price.unit).copied().unwrap_or(0);
        if spent.saturating_add(price.per_attempt) > allowed {
            let (unit, asked) = (price.unit.to_string(), price.per_attempt);
            return Err(BudgetExceeded::RunCost { unit, allowed, spent, asked });
        }
        Ok(())
    }
}

/// The usage of a run, as counted from its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUsage {
    attempts: u64,
    cost: BTreeMap<Cow<'static, str>, u64>,
}

impl BudgetUsage {
    /// Adds this number of attempts at this price.
    pub fn add(&mut self, attempts: u32, price: Option<&Price>) {
        self.attempts = self.attempts.saturating_add(attempts.into());
        if let Some(price) = price {
            let sum = self.cost.entry(price.unit.clone()).or_default();
            *sum = sum.saturating_add(price.of(attempts));
        }
    }

    /// Replaces the price of one attempt that was added by its actual cost.
    pub fn settle(&mut self, price: &Price, cost: u64) {
        let sum = self.cost.entry(price.unit.clone()).or_default();
        *sum = sum.saturating_sub(price.per_attempt).saturating_add(cost);
    }

    /// Removes an attempt that was not made after all.
    pub fn give_back(&mut self, price: Option<&Price>) {
        self.attempts = self.attempts.saturating_sub(1);
        if let Some(sum) = price.and_then(|price| self.cost.get_mut(&price.unit)) {
            *sum = sum.saturating_sub(price.map_or(0, |price| price.per_attempt));
        }
    }

    /// The usage with each count replaced by the other's where that is greater.
    #[must_use]
    pub(crate) fn at_least(self, other: &Self) -> Self {
        self.with(other, u64::max)
    }

    /// The sum of both usages.
    #[must_use]
    pub(crate) fn plus(self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The usage as a checkpoint holds it. A count beyond the integers that JSON holds exactly is held as the greatest
    /// of them.
    #[must_use]
    pub(crate) fn recorded(self) -> Self {
        let limit = |count: u64| count.min(MAX_EXACT_INTEGER);
        let cost = self.cost.into_iter().map(|(unit, sum)| (unit, limit(sum))).collect();
        Self { attempts: limit(self.attempts), cost }
    }

    fn with(mut self, other: &Self, both: impl Fn(u64, u64) -> u64) -> Self {
        self.attempts = both(self.attempts, other.attempts);
        for (unit, cost) in &other.cost {
            let sum = self.cost.entry(unit.clone()).or_default();
            *sum = both(*sum, *cost);
        }
        self
    }
}

/// The budget that is used up. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetExceeded {
    /// The attempts of a run are used up.
    #[error("the run's budget of {allowed} attempts is used up")]
    RunAttempts {
        /// The maximum number of attempts.
        allowed: u64,
    },
    /// The time of a run is used up.
    #[error("the run's time of {allowed:?} is over")]
    RunTime {
        /// The maximum time.
        allowed: Duration,
    },
    /// The cost budget of a run is used up.
    #[error(
        "the run's budget of {allowed} {unit} is used up: {spent} are spent, and this attempt costs {asked}"
    )]
    RunCost {
        /// The unit of the cost.
        unit: String,
        /// The maximum cost.
        allowed: u64,
        /// The cost that is spent.
        spent: u64,
        /// The cost of the attempt.
        asked: u64,
    },
    /// The cost budget of an operation is used up.
    #[error(
        "the operation's budget of {allowed} {unit} is used up: {spent} are spent, and this attempt costs {asked}"
    )]
    OperationCost {
        /// The unit of the cost.
        unit: String,
        /// The maximum cost.
        allowed: u64,
        /// The cost that is spent.
        spent: u64,
        /// The cost of the attempt.
        asked: u64,
    },
    /// The time of an operation is used up: the operation expired while it waited for its turn.
    #[error("the operation's time of {allowed:?} passes before its turn comes: it has expired")]
    OperationTime {
        /// The maximum time.
        allowed: Duration,
    },
}

impl BudgetExceeded {
    /// The name of the budget, for callers that match on it.
    pub const fn budget(&self) -> &'static str {
        match self {
            Self::RunAttempts { .. } => "run.attempts",
            Self::RunTime { .. } => "run.time",
            Self::RunCost { .. } => "run.cost",
            Self::OperationCost { .. } => "operation.cost",
            Self::OperationTime { .. } => "operation.time",
        }
    }

    /// The failure that a record keeps.
    pub fn failure(&self) -> RecordedFailure {
        RecordedFailure {
            kind: ErrorKind::BudgetExceeded,
            message: self.to_string(),
            detail: json!({"budget": self.budget()}),
        }
    }
}
