//! The circuit breaker of a provider, as a state machine.

use std::time::Duration;

use super::retry::ErrorKind;
use crate::clock::Boot;

/// A success makes up for one part in this many of a failure, so that up to one failure in eleven calls counts as
/// normal. (The ratio of gRPC's retry throttling, proposal A6.)
const MAKES_UP: u32 = 10;
const MAX_DOUBLINGS: u32 = 16;

/// The rule of a circuit breaker: the failures that open the circuit, and the duration for which it stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// The number of failures that open the circuit; at least 1. Failures leak away: a success makes up for a tenth
    /// of one, and time makes up for all. Default: 5.
    pub failures: u32,
    /// The time in which all failures leak away. Default: 30 s.
    pub within: Duration,
    /// The time for which nothing is sent; then one call goes ahead. If that call fails, the time doubles. Default:
    /// 5 s.
    pub open_for: Duration,
    /// The maximum time for which the circuit stays open. Default: 5 min.
    pub at_most: Duration,
}

impl Default for Breaker {
    /// Five failures in 30 s open the circuit for 5 s, doubling up to 5 min.
    fn default() -> Self {
        Self {
            failures: 5,
            within: Duration::from_secs(30),
            open_for: Duration::from_secs(5),
            at_most: Duration::from_mins(5),
        }
    }
}

impl Breaker {
    fn leak(&self) -> Duration {
        self.within / self.failures.max(1)
    }

    fn pause(&self, times: u32) -> Duration {
        self.open_for.saturating_mul(1 << times.min(MAX_DOUBLINGS)).min(self.at_most.max(self.open_for))
    }
}

/// The health of the provider that an answer shows, independent of the outcome of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The provider answers.
    Well,
    /// The provider does not answer, or asks for fewer calls.
    Sick,
    /// The health is unknown: the provider was not asked, or the tool cannot say.
    Unknown,
}

impl ErrorKind {
    /// The health of the provider that the error shows.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub const fn health(self) -> Health {
        match self {
            Self::RateLimited
            | Self::Unreachable
            | Self::TimeoutBeforeEffect
            | Self::TimeoutDuringEffect
            | Self::Disconnected
            | Self::Server => Health::Sick,
            Self::Validation
            | Self::Unauthorized
            | Self::InProgress
            | Self::Duplicate
            | Self::VersionConflict => Health::Well,
            Self::PolicyDenied
            | Self::BudgetExceeded
            | Self::ApprovalMissing
            | Self::Panic
            | Self::Unknown => Health::Unknown,
        }
    }
}

/// The state of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Calls are let through.
    Closed,
    /// No call is let through until `until`.
    Open {
        /// The instant at which one call may go ahead.
        until: Boot,
    },
    /// One call has gone ahead; the others wait for its result.
    HalfOpen {
        /// The instant at which the call that went ahead is given up, and another one may go.
        until: Boot,
    },
}

/// A permit for one call. Its result is reported to the circuit that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPermit {
    ahead: u64,
}

/// A circuit of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circuit {
    state: CircuitState,
    since: Boot,
    /// The fill level that failures have caused, as the time that it takes to leak away from `filled_at` on.
    level: Duration,
    filled_at: Boot,
    /// The number of times in a row that the circuit has opened.
    times: u32,
    /// The number of calls that have gone ahead. It separates answers to calls that went out before the circuit
    /// opened, or that were given up, from later answers.
    ahead: u64,
}

impl Circuit {
    /// A closed circuit.
    pub const fn closed(now: Boot) -> Self {
        Self {
            state: CircuitState::Closed,
            since: now,
            level: Duration::ZERO,
            filled_at: now,
            times: 0,
            ahead: 0,
        }
    }

    /// The state of the circuit.
    pub const fn state(&self) -> CircuitState {
        self.state
    }

    /// The instant of the last change of state.
    pub const fn since(&self) -> Boot {
        self.since
    }

    /// The time until the circuit could let a call through.
    pub fn wait(&self, now: Boot) -> Duration {
        match self.state {
            CircuitState::Closed => Duration::ZERO,
            CircuitState::Open { until } | CircuitState::HalfOpen { until } => now.until(until),
        }
    }

    /// Returns a permit if the circuit lets a call through. An open circuit whose time is over lets one call go
    /// ahead.
    pub fn pass(&mut self, rule: &Breaker, now: Boot) -> Option<BreakerPermit> {
        if self.state == CircuitState::Closed {
            return Some(BreakerPermit { ahead: self.ahead });
        }
        if !self.wait(now).is_zero() {
            return None;
        }
        self.ahead += 1; // an earlier call that went ahead is given up
        self.enter(CircuitState::HalfOpen { until: later(now, rule.pause(self.times)) }, now);
        Some(BreakerPermit { ahead: self.ahead })
    }

    /// Reports the result of a call. The result of a call that went out before the circuit opened changes nothing.
    pub fn report(&mut self, rule: &Breaker, permit: BreakerPermit, health: Health, now: Boot) {
        if permit.ahead != self.ahead {
            return; // a half-open circuit counts only the call that has gone ahead
        }
        match (self.state, health) {
            (CircuitState::Closed, Health::Well) => {
                self.level = self.level(now).saturating_sub(rule.leak() / MAKES_UP);
                self.filled_at = now;
            }
            (CircuitState::Closed, Health::Sick) => {
                self.level = self.level(now).saturating_add(rule.leak());
                self.filled_at = now;
                if self.level > rule.leak().saturating_mul(rule.failures.max(1) - 1) {
                    self.open(rule, now);
                }
            }
            (CircuitState::HalfOpen { .. }, Health::Well) => {
                *self = Self { ahead: self.ahead, ..Self::closed(now) };
            }
            (CircuitState::HalfOpen { .. }, Health::Sick) => {
                self.times += 1;
                self.open(rule, now);
            }
            // The call showed nothing about the provider: another one may go ahead at once.
            (CircuitState::HalfOpen { .. }, Health::Unknown) => {
                self.enter(CircuitState::HalfOpen { until: now }, now);
            }
            _ => {}
        }
    }

    /// The number of failures that are still remembered.
    pub fn failures(&self, rule: &Breaker, now: Boot) -> u32 {
        let leak = rule.leak().as_nanos().max(1);
        u32::try_from(self.level(now).as_nanos().div_ceil(leak)).unwrap_or(u32::MAX)
    }

    fn level(&self, now: Boot) -> Duration {
        self.level.saturating_sub(self.filled_at.until(now))
    }

    fn open(&mut self, rule: &Breaker, now: Boot) {
        self.enter(CircuitState::Open { until: later(now, rule.pause(self.times)) }, now);
    }

    fn enter(&mut self, state: CircuitState, now: Boot) {
        self.state = state;
        self.since = now;
    }
}

fn later(now: Boot, by: Duration) -> Boot {
    Boot(now.0.saturating_add(by))
}
