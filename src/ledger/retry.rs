//! Retries: the decision after an error, and the delay before the next attempt.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contract::{Contract, ContractClass, LookupOffer};
use super::effect::EffectClass;

/// The kind of an attempt's error, which decides the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The provider refused the request as malformed; nothing happened.
    Validation,
    /// A policy forbids the call; nothing happened.
    PolicyDenied,
    /// The credential was refused; nothing happened. There is one retry, for a refreshed token.
    Unauthorized,
    /// The provider had too many requests; nothing happened.
    RateLimited,
    /// No connection was made (refused, DNS, TLS): nothing was sent.
    Unreachable,
    /// The attempt timed out before anything was sent.
    TimeoutBeforeEffect,
    /// The attempt timed out after something may have been sent.
    TimeoutDuringEffect,
    /// The connection broke, or the answer was cut off, after something may have been sent.
    Disconnected,
    /// The provider failed (5xx). The effect may have happened before the failure.
    Server,
    /// The provider says that it is still working on a request with this key.
    InProgress,
    /// A budget is used up; nothing was sent.
    BudgetExceeded,
    /// The approval is missing, stale or expired; nothing was sent.
    ApprovalMissing,
    /// The provider says that it knows this key or object already. That does not mean "done": the call is looked up.
    Duplicate,
    /// The expected version was not the current one; nothing happened.
    VersionConflict,
    /// The tool's own code panicked, perhaps after the effect.
    Panic,
    /// The tool cannot name the kind.
    Unknown,
}

/// The decision that follows an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryDecision {
    /// The effect did not happen, and another attempt may be made.
    Retry,
    /// The effect did not happen, and another attempt would not help.
    DoNotRetry,
    /// The effect may have happened: look it up at the provider first.
    Reconcile,
    /// Only a person or a policy can decide.
    Escalate,
}

impl ErrorKind {
    /// The decision that follows this error, for an effect of this class at a provider of this contract class.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub const fn decision(self, effect: EffectClass, contract: ContractClass) -> RetryDecision {
        use RetryDecision::{DoNotRetry, Escalate, Reconcile, Retry};
        match self {
            Self::Validation | Self::PolicyDenied | Self::BudgetExceeded | Self::VersionConflict => {
                DoNotRetry
            }
            Self::Unauthorized | Self::RateLimited | Self::Unreachable | Self::TimeoutBeforeEffect => Retry,
            Self::ApprovalMissing => Escalate,
            // The provider recognises the key: another send under it serves as the lookup.
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

    /// True if an attempt that returned this error had no effect, for certain. An answer that the first request is still
    /// in progress is no proof that it will have none.
    pub(crate) fn is_without_effect(self, effect: EffectClass, contract: ContractClass) -> bool {
        let uncertain = self == Self::InProgress && effect.leaves_mark();
        self.decision(effect, contract) != RetryDecision::Reconcile && !uncertain
    }

    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::Validation,
        Self::PolicyDenied,
        Self::Unauthorized,
        Self::RateLimited,
        Self::Unreachable,
        Self::TimeoutBeforeEffect,
        Self::TimeoutDuringEffect,
        Self::Disconnected,
        Self::Server,
        Self::InProgress,
        Self::BudgetExceeded,
        Self::ApprovalMissing,
        Self::Duplicate,
        Self::VersionConflict,
        Self::Panic,
        Self::Unknown,
    ];

    /// The kind of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
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

/// A failure as a record keeps it: a value, not a Rust error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// The message of the tool, redacted by the tool.
    pub message: String,
    /// More details, if the tool gave any.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// Exponential backoff with full jitter: a delay drawn evenly between zero and `min(cap, base * 2^n)`. (M. Brooker,
/// "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The upper end of the first delay.
    pub base: Duration,
    /// The maximum upper end of any delay.
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

/// The policy of the lookups that are made before a person is asked: their number, their pauses and their timeout.
/// Looks continue beside the question: see [`Reason::Asked`](super::Reason::Asked).
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::LookupPolicy;
/// let patient = LookupPolicy::default().attempts(20).cap(Duration::from_mins(5)).timeout(Duration::from_secs(10));
/// assert_eq!(patient.attempts, 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupPolicy {
    /// The maximum number of lookups without an answer, the first included; at least 1. Meanwhile the worker holds
    /// the call in memory. Default: 4.
    pub attempts: u32,
    /// The pauses between the lookups. Default: 100 ms, doubling up to 5 s.
    pub backoff: Backoff,
    /// The timeout of one lookup. `None`: the [timeout of an attempt](RetryPolicy::attempt_timeout).
    pub timeout: Option<Duration>,
}

impl LookupPolicy {
    /// Sets the number of lookups without an answer after which a person is asked.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets the maximum upper end of the pauses.
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.backoff.cap = cap;
        self
    }

    /// Sets the timeout of one lookup.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl Default for LookupPolicy {
    /// Four lookups in about half a second: asking a person early does no harm, because looks continue.
    fn default() -> Self {
        let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };
        Self { attempts: 4, backoff, timeout: None }
    }
}

/// The retry policy of a tool: the number of attempts, their delays and their timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The maximum number of attempts, the first included; at least 1. Default: 5.
    pub attempts: u32,
    /// The delays between the attempts. Default: 200 ms, doubling up to 30 s.
    pub backoff: Backoff,
    /// The timeout of one attempt. After the timeout the outcome is unknown, unless the tool says that nothing was
    /// sent. Default: 30 s. [`NO_TIMEOUT`](Self::NO_TIMEOUT): never.
    pub attempt_timeout: Duration,
    /// The maximum `Retry-After` of a provider that is obeyed. Default: 1 h.
    pub retry_after_cap: Duration,
}

impl RetryPolicy {
    /// The value that means no timeout: a century.
    pub const NO_TIMEOUT: Duration = Duration::from_hours(24 * 36_525);

    /// The policy of calls under this contract, unless their tool declares another one: the default, but without a
    /// timeout of an attempt if the outcome of an attempt that timed out could not be found out.
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

    /// The longest time that retries may take: every attempt times out, and every delay has its upper end, which is
    /// that of the backoff or the longest `Retry-After`. Attempts without a timeout add nothing: a record is not
    /// touched while one is under way.
    pub fn horizon(&self) -> Duration {
        let timeout = self.timeout().unwrap_or_default();
        let retry = |attempt| {
            let delay = self.backoff.delay(attempt, u64::MAX).max(self.retry_after_cap);
            delay.saturating_add(timeout)
        };
        // From some attempt on the delays no longer double, and all later ones are equal.
        let doubling = 2 + Backoff::MAX_DOUBLINGS;
        let first = (2..=self.attempts.min(doubling))
            .fold(timeout, |sum, attempt| sum.saturating_add(retry(attempt)));
        first.saturating_add(retry(doubling).saturating_mul(self.attempts.saturating_sub(doubling)))
    }

    /// The delay until the next attempt, counted from now; `None` if the attempts are used up.
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
    /// Five attempts with delays of 200 ms doubling to 30 s, each with a timeout of 30 s, and `Retry-After` obeyed up
    /// to an hour: about four hours in all at most, less than the usual key window of a day.
    fn default() -> Self {
        Self {
            attempts: 5,
            backoff: Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(30) },
            attempt_timeout: Duration::from_secs(30),
            retry_after_cap: Duration::from_hours(1),
        }
    }
}
