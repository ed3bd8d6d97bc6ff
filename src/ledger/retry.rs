//! What an error means for the next attempt (EXE-2), and how long to wait before it (EXE-3).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contract::{Contract, ContractClass, LookupOffer};
use super::effect::EffectClass;

/// What went wrong in an attempt, as far as it decides what may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The provider refused the request as malformed; nothing happened.
    Validation,
    /// A policy forbids it; nothing happened.
    PolicyDenied,
    /// The credential was refused; nothing happened. One retry, for a refreshed token.
    Unauthorized,
    /// Too many requests; nothing happened.
    RateLimited,
    /// No connection came about (refused, DNS, TLS): nothing was sent.
    Unreachable,
    /// Timed out before anything was sent.
    TimeoutBeforeEffect,
    /// Timed out after something may have been sent.
    TimeoutDuringEffect,
    /// The connection broke, or the answer was cut off, after something may have been sent.
    Disconnected,
    /// The provider failed (5xx). It may have done it before it failed.
    Server,
    /// The provider says that a request with this key is still being worked on.
    InProgress,
    /// A budget is used up; nothing was sent.
    BudgetExceeded,
    /// The approval is missing, stale or expired; nothing was sent.
    ApprovalMissing,
    /// The provider says it knows this key or object already. That is not "done": it is looked up.
    Duplicate,
    /// The expected version was not the current one; nothing happened.
    VersionConflict,
    /// The tool's own code panicked, perhaps after the effect.
    Panic,
    /// The tool cannot say.
    Unknown,
}

/// The four things that can follow an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryDecision {
    /// Nothing happened; it may be tried again.
    Retry,
    /// Nothing happened, and trying again would not help.
    DoNotRetry,
    /// It may have happened: ask the world first.
    Reconcile,
    /// Only a person or a policy can say.
    Escalate,
}

impl ErrorKind {
    /// What may follow, for an effect of this class at such a provider.
    pub const fn decision(self, effect: EffectClass, contract: ContractClass) -> RetryDecision {
        use RetryDecision::{DoNotRetry, Escalate, Reconcile, Retry};
        match self {
            Self::Validation | Self::PolicyDenied | Self::BudgetExceeded | Self::VersionConflict => {
                DoNotRetry
            }
            Self::Unauthorized | Self::RateLimited | Self::Unreachable | Self::TimeoutBeforeEffect => Retry,
            Self::ApprovalMissing => Escalate,
            // The provider answers for the key: asking again under it is the lookup.
            Self::InProgress if contract.collides() => Retry,
            Self::TimeoutDuringEffect
            | Self::Disconnected
            | Self::Server
            | Self::InProgress
            | Self::Panic
            | Self::Unknown => {
                if effect.repeatable() {
                    Retry
                } else {
                    Reconcile
                }
            }
            Self::Duplicate => Reconcile,
        }
    }

    /// The name used in rows and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::PolicyDenied => "policy_denied",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate_limited",
            Self::Unreachable => "unreachable",
            Self::TimeoutBeforeEffect => "timeout_before_effect",
            Self::TimeoutDuringEffect => "timeout_during_effect",
            Self::Disconnected => "disconnected",
            Self::Server => "server",
            Self::InProgress => "in_progress",
            Self::BudgetExceeded => "budget_exceeded",
            Self::ApprovalMissing => "approval_missing",
            Self::Duplicate => "duplicate",
            Self::VersionConflict => "version_conflict",
            Self::Panic => "panic",
            Self::Unknown => "unknown",
        }
    }
}

/// A failure as a record keeps it: a value, not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// What kind.
    pub kind: ErrorKind,
    /// What the tool said, redacted by the tool.
    pub message: String,
    /// More, if the tool gave it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// Exponential backoff with full jitter: a delay drawn evenly from nothing to `min(cap, base * 2^n)`.
/// (M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay's upper end.
    pub base: Duration,
    /// The upper end that no delay exceeds.
    pub cap: Duration,
}

impl Backoff {
    const MAX_DOUBLINGS: u32 = 31;

    /// The delay before attempt `attempt` (the first retry is attempt 2), with `chance` as 64 random bits.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::ledger::Backoff;
    /// let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };
    /// assert_eq!(backoff.delay(2, 0), Duration::ZERO);
    /// assert!(backoff.delay(2, u64::MAX) <= Duration::from_millis(100));
    /// assert!(backoff.delay(60, u64::MAX) <= Duration::from_secs(5));
    /// ```
    pub fn delay(&self, attempt: u32, chance: u64) -> Duration {
        let doublings = attempt.saturating_sub(2).min(Self::MAX_DOUBLINGS);
        let ceiling = self.base.saturating_mul(1 << doublings).min(self.cap);
        let ceiling = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
        let micros = u128::from(ceiling) * u128::from(chance) / u128::from(u64::MAX);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// The lookups by which a provider is asked what became of a call, before a person is asked: their number, their pauses and the time of
/// one. Beside the question the looks go on: see [`Reason::Asked`](super::Reason::Asked).
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::LookupPolicy;
/// let patient = LookupPolicy::default().attempts(20).cap(Duration::from_mins(5)).timeout(Duration::from_secs(10));
/// assert_eq!(patient.attempts, 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupPolicy {
    /// Lookups in all that have no answer, the first included; at least 1. The worker holds the call in memory meanwhile.
    pub attempts: u32,
    /// The pauses between them.
    pub backoff: Backoff,
    /// After this long a lookup is cut off. Absent: after the [timeout of an attempt](RetryPolicy::attempt_timeout).
    pub timeout: Option<Duration>,
}

impl LookupPolicy {
    /// Sets the number of lookups without an answer after which a person is asked.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the upper end of the pauses.
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.backoff.cap = cap;
        self
    }

    /// Sets the time after which a lookup is cut off.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl Default for LookupPolicy {
    /// Four lookups in about half a second: a person who is asked early loses nothing, because the looks go on.
    fn default() -> Self {
        let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };
        Self { attempts: 4, backoff, timeout: None }
    }
}

/// How often, how soon, and how long an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1.
    pub attempts: u32,
    /// The delays between them.
    pub backoff: Backoff,
    /// After this long an attempt is cut off; its outcome is then unknown, unless the tool says that nothing
    /// was sent. [`NO_TIMEOUT`](Self::NO_TIMEOUT): never.
    pub attempt_timeout: Duration,
    /// A provider's `Retry-After` is obeyed up to this long.
    pub retry_after_cap: Duration,
}

impl RetryPolicy {
    /// No attempt is cut off: a century.
    pub const NO_TIMEOUT: Duration = Duration::from_hours(24 * 36_525);

    /// The policy of calls under this contract, unless their tool says otherwise: the default, and no timeout of an attempt where
    /// nobody could find out what became of one that was cut off.
    ///
    /// ```
    /// use counterfoil::ledger::{Contract, ContractClass, RetryPolicy};
    /// let blind = Contract::new(ContractClass::Blind);
    /// assert_eq!(RetryPolicy::of(&blind).attempt_timeout, RetryPolicy::NO_TIMEOUT);
    /// assert_eq!(RetryPolicy::of(&Contract::new(ContractClass::Lookup)), RetryPolicy::default());
    /// ```
    pub fn of(contract: &Contract) -> Self {
        let is_blind = contract.class == ContractClass::Blind && contract.lookup == LookupOffer::None;
        let usual = Self::default();
        if is_blind { Self { attempt_timeout: Self::NO_TIMEOUT, ..usual } } else { usual }
    }

    /// The timeout of an attempt, if there is one.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        (self.attempt_timeout < Self::NO_TIMEOUT).then_some(self.attempt_timeout)
    }

    /// The longest that retries may take: every attempt cut off, every delay at its upper end, which is the
    /// backoff's or the longest `Retry-After`. Attempts without a timeout count for nothing: a record is not touched while one is
    /// under way.
    pub fn horizon(&self) -> Duration {
        let timeout = self.timeout().unwrap_or_default();
        let retry = |attempt| {
            let delay = self.backoff.delay(attempt, u64::MAX).max(self.retry_after_cap);
            delay.saturating_add(timeout)
        };
        // From some attempt on the delays double no more, and all the others are alike.
        let doubling = 2 + Backoff::MAX_DOUBLINGS;
        let first = (2..=self.attempts.min(doubling))
            .fold(timeout, |sum, attempt| sum.saturating_add(retry(attempt)));
        first.saturating_add(retry(doubling).saturating_mul(self.attempts.saturating_sub(doubling)))
    }

    /// When the next attempt may start, counted from now; `None` when the attempts are used up.
    pub fn next_delay(
        &self,
        attempts_made: u32,
        kind: ErrorKind,
        retry_after: Option<Duration>,
        chance: u64,
    ) -> Option<Duration> {
        let allowed = if kind == ErrorKind::Unauthorized { self.attempts.min(2) } else { self.attempts };
        (attempts_made < allowed).then(|| {
            let drawn = self.backoff.delay(attempts_made + 1, chance);
            retry_after.map_or(drawn, |after| after.min(self.retry_after_cap).max(drawn))
        })
    }
}

impl Default for RetryPolicy {
    /// Five attempts, 200 ms doubling to 30 s, each cut off after 30 s, `Retry-After` obeyed up to an hour: at
    /// most some four hours in all, which the usual key window of a day covers.
    fn default() -> Self {
        Self {
            attempts: 5,
            backoff: Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(30) },
            attempt_timeout: Duration::from_secs(30),
            retry_after_cap: Duration::from_hours(1),
        }
    }
}
