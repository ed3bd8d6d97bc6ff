//! The limits and the price of a tool's calls, as the tool declares them.

use std::borrow::Cow;
use std::time::Duration;

use super::breaker::Breaker;
use super::budget::Price;
use super::rate::Rate;

/// The limits that hold calls back, so that one failing provider does not cause a storm of retries in every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// The maximum rate of calls. `None`: no limit.
    pub rate: Option<Rate>,
    /// The circuit breaker, which stops calls for a while after repeated failures. `None`: no breaker.
    pub breaker: Option<Breaker>,
}

impl Throttle {
    /// A throttle with a maximum rate of calls.
    pub const fn rate(rate: Rate) -> Self {
        Self { rate: Some(rate), breaker: None }
    }

    /// A throttle with a circuit breaker, which stops calls for a while after repeated failures.
    pub const fn breaker(breaker: Breaker) -> Self {
        Self { rate: None, breaker: Some(breaker) }
    }

    /// True if the throttle holds nothing back.
    pub const fn is_none(&self) -> bool {
        self.rate.is_none() && self.breaker.is_none()
    }
}

/// The limits of a tool's calls, for each call and for all together. A field that is not set limits nothing and costs
/// nothing.
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
    /// The throttle for the calls of this tool alone.
    pub own: Throttle,
    /// The throttle for the calls of all tools that name this provider; these tools must declare it alike.
    pub provider: Option<(Cow<'static, str>, Throttle)>,
    /// The time within which an operation must be sent for the first time. After that it has expired and is not sent.
    pub timeout: Option<Duration>,
    /// The price of each attempt.
    pub price: Option<Price>,
}

impl Quota {
    /// Sets the maximum rate of calls.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.own.rate = Some(rate);
        self
    }

    /// Sets the circuit breaker, which stops calls for a while after repeated failures.
    #[must_use]
    pub const fn breaker(mut self, breaker: Breaker) -> Self {
        self.own.breaker = Some(breaker);
        self
    }

    /// Sets the throttle that this tool shares with all tools that name this provider.
    #[must_use]
    pub fn provider(self, name: impl Into<Cow<'static, str>>, throttle: Throttle) -> Self {
        Self { provider: Some((name.into(), throttle)), ..self }
    }

    /// Sets the time, from the request on, within which an operation must be sent. After that it has expired.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the price of each attempt.
    #[must_use]
    pub fn price(self, price: Price) -> Self {
        Self { price: Some(price), ..self }
    }

    /// True if nothing is limited or priced.
    pub const fn is_none(&self) -> bool {
        self.own.is_none() && self.provider.is_none() && self.timeout.is_none() && self.price.is_none()
    }

    /// True if a throttle may hold calls back.
    pub(crate) fn holds_back(&self) -> bool {
        !self.own.is_none() || self.provider.is_some()
    }

    pub(crate) fn has_breaker(&self) -> bool {
        self.own.breaker.is_some() || self.provider.as_ref().is_some_and(|(_, all)| all.breaker.is_some())
    }
}
