//! When a provider is left alone: a circuit breaker, as a state machine.

use std::time::Duration;

use super::retry::ErrorKind;
use crate::clock::Boot;

/// A success makes up for so much of a failure: up to one in eleven is taken for the provider's usual self.
/// (The ratio of gRPC's retry throttling, proposal A6.)
const MAKES_UP: u32 = 10;
const MAX_DOUBLINGS: u32 = 16;

/// When a circuit opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// So many failures open it; at least 1. They leak away: a success makes up for a tenth of one, and time for all.
    pub failures: u32,
    /// In this time all failures are forgotten.
    pub within: Duration,
    /// So long nothing is sent; then one call goes ahead. If it fails, twice as long.
    pub open_for: Duration,
    /// But never longer than this.
    pub at_most: Duration,
}

impl Default for Breaker {
    /// Five failures in half a minute; left alone for five seconds, doubling up to five minutes.
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

/// What an answer says about the provider, whatever it says about the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It answers.
    Well,
    /// It does not, or wants to be left alone.
    Sick,
    /// Nothing: it was not asked, or the tool cannot say.
    Unknown,
}

impl ErrorKind {
    /// What the error says about the provider.
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

/// Where a circuit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Calls go out.
    Closed,
    /// None goes out until then.
    Open {
        /// When one may go ahead.
        until: Boot,
    },
    /// One has gone ahead, the others wait for what becomes of it.
    HalfOpen {
        /// It is given up by then, and another one may go.
        until: Boot,
    },
}

/// The right to send one call. What becomes of it is told to the circuit that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPermit {
    ahead: u64,
}

/// A circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circuit {
    state: CircuitState,
    since: Boot,
    /// What the failures have filled in, as the time that it takes to leak away from `filled_at` on.
    level: Duration,
    filled_at: Boot,
    /// How often in a row it has opened.
    times: u32,
    /// Counts the calls that have gone ahead. It tells answers to calls that went out before the circuit opened, or that were
    /// given up, from those after.
    ahead: u64,
}

impl Circuit {
    /// A closed one.
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

    /// Where it stands.
    pub const fn state(&self) -> CircuitState {
        self.state
    }

    /// Since when it stands there.
    pub const fn since(&self) -> Boot {
        self.since
    }

    /// How long until it could let a call through.
    pub fn wait(&self, now: Boot) -> Duration {
        match self.state {
            CircuitState::Closed => Duration::ZERO,
            CircuitState::Open { until } | CircuitState::HalfOpen { until } => now.until(until),
        }
    }

    /// Lets a call through, or not yet. An open circuit whose time is over lets one go ahead.
    pub fn pass(&mut self, rule: &Breaker, now: Boot) -> Option<BreakerPermit> {
        if self.state == CircuitState::Closed {
            return Some(BreakerPermit { ahead: self.ahead });
        }
        if !self.wait(now).is_zero() {
            return None;
        }
        self.ahead += 1; // the one before it that went ahead is given up
        self.enter(CircuitState::HalfOpen { until: later(now, rule.pause(self.times)) }, now);
        Some(BreakerPermit { ahead: self.ahead })
    }

    /// What has become of a call. Of one that went out before the circuit opened it says nothing new.
    pub fn report(&mut self, rule: &Breaker, permit: BreakerPermit, health: Health, now: Boot) {
        if permit.ahead != self.ahead {
            return; // so a half-open circuit hears of the call that has gone ahead, and of no other
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
            // It has not said anything: another one may go ahead at once.
            (CircuitState::HalfOpen { .. }, Health::Unknown) => {
                self.enter(CircuitState::HalfOpen { until: now }, now);
            }
            _ => {}
        }
    }

    /// So many failures are remembered.
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
