//! What a tool may ask of its provider, as it declares it.

use std::borrow::Cow;
use std::time::Duration;

use super::breaker::Breaker;
use super::budget::Price;
use super::rate::Rate;

/// What holds calls back, so that one sick provider does not turn every run into a storm of retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// At most so many calls in a time.
    pub rate: Option<Rate>,
    /// None for a while after repeated failures.
    pub breaker: Option<Breaker>,
}

impl Throttle {
    /// At most so many calls in a time.
    pub const fn rate(rate: Rate) -> Self {
        Self { rate: Some(rate), breaker: None }
    }

    /// None for a while after repeated failures.
    pub const fn breaker(breaker: Breaker) -> Self {
        Self { rate: None, breaker: Some(breaker) }
    }

    /// Holds nothing back.
    pub const fn is_none(&self) -> bool {
        self.rate.is_none() && self.breaker.is_none()
    }
}

/// What a tool's calls may use up, each and together. What is not said is not limited, and costs nothing.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::{Breaker, Price, Quota, Rate, Throttle};
///
/// let quota = Quota::default()
///     .rate(Rate::per_second(5))
///     .breaker(Breaker::default())
///     .provider("mail.example", Throttle::rate(Rate::per_second(20).burst(5))) // with all tools that name it
///     .timeout(Duration::from_mins(10))
///     .price(Price::new(2, "cent").at_most(6));
/// assert!(!quota.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// What holds back the calls of this tool.
    pub own: Throttle,
    /// What holds back the calls of all tools that name this provider; they must declare it alike.
    pub provider: Option<(Cow<'static, str>, Throttle)>,
    /// An operation that has not had its turn by then has expired: it is not sent any more.
    pub timeout: Option<Duration>,
    /// What an attempt costs.
    pub price: Option<Price>,
}

impl Quota {
    /// At most so many calls in a time.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.own.rate = Some(rate);
        self
    }

    /// None for a while after repeated failures.
    #[must_use]
    pub const fn breaker(mut self, breaker: Breaker) -> Self {
        self.own.breaker = Some(breaker);
        self
    }

    /// Together with all tools that name this provider.
    #[must_use]
    pub fn provider(self, name: impl Into<Cow<'static, str>>, throttle: Throttle) -> Self {
        Self { provider: Some((name.into(), throttle)), ..self }
    }

    /// An operation that has not been sent so long after it was asked for has expired.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// What an attempt costs.
    #[must_use]
    pub fn price(self, price: Price) -> Self {
        Self { price: Some(price), ..self }
    }

    /// Nothing is limited.
    pub const fn is_none(&self) -> bool {
        self.own.is_none() && self.provider.is_none() && self.timeout.is_none() && self.price.is_none()
    }

    /// Something may hold its calls back.
    pub(crate) fn holds_back(&self) -> bool {
        !self.own.is_none() || self.provider.is_some()
    }

    pub(crate) fn has_breaker(&self) -> bool {
        self.own.breaker.is_some() || self.provider.as_ref().is_some_and(|(_, all)| all.breaker.is_some())
    }
}
