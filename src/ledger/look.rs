//! Scheduled looks: the instants at which a committed or questioned record is looked up again, and the meaning of the
//! answers.
//!
//! A send that followed one of unknown outcome is looked up at 1, 2, 4, 8 … settle times after its seal, and for the
//! last time at the contract's [horizon](Contract::horizon): a first request that lands before the horizon is found.
//! A lookup without an answer is repeated after a pause that doubles, up to half a day; then a person is asked.
//!
//! A call of unknown outcome that a person is asked about is looked up beside the question, first after 5 s, then
//! after pauses that double up to half a day: about a day in all.
//!
//! A call that the provider has accepted and not finished is looked up at the intervals that the provider asks for,
//! until its longest time is over.

use std::time::Duration;

use super::contract::{Contract, LookupOffer};
use super::key::{Key, OperationKey};
use super::record::{Record, State};
use crate::clock::Timestamp;
use crate::id::{RecordId, Tenant};

/// The shortest pause after a lookup without an answer.
const SHORTEST: Duration = Duration::from_mins(1);
/// The longest pause after a lookup without an answer, or this many settle times if that is longer.
const LONGEST: Duration = Duration::from_hours(12);
const SETTLE_TIMES: u32 = 8;
/// The first pause beside a question.
const FIRST: Duration = Duration::from_secs(5);
/// The shortest pause between two looks at a pending call.
const SHORTEST_POLL: Duration = Duration::from_secs(1);
/// The first step of the series for a contract without a settle time.
const SMALLEST_STEP: Duration = Duration::from_secs(1);

/// The reason for which a record is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The send followed one of unknown outcome, which may still arrive: a series of looks.
    Doubt,
    /// The network may have doubled the request: one look.
    Doubled,
    /// An audit did not find the effect: one more look.
    Audit,
    /// A person is asked about the outcome, because the lookup does not answer or would have to be made under another
    /// scope: looks beside the question, which is closed when one of them answers.
    Unanswered,
    /// A person is asked about the outcome for another reason: looks beside the question, which is closed when one of
    /// them shows the effect.
    Asked,
    /// The provider has accepted the call and not finished it: looks until the call is finished, or its longest time
    /// is over.
    Pending,
}

/// The pause before the next look after `made` looks that have shown nothing of an unwanted call; `None` after the
/// horizon.
pub(crate) fn pause_after(contract: &Contract, made: u32) -> Option<Duration> {
    Some(step(contract, made + 1)?.saturating_sub(step(contract, made)?))
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Doubt, Self::Doubled, Self::Audit, Self::Unanswered, Self::Asked, Self::Pending];

    /// The code that rows hold. Never reuse a code.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Doubt => 1,
            Self::Doubled => 2,
            Self::Audit => 3,
            Self::Unanswered => 4,
            Self::Asked => 5,
            Self::Pending => 6,
        }
    }

    /// True if the record waits for an open question, or for the provider to finish the call.
    pub const fn is_beside_question(self) -> bool {
        matches!(self, Self::Unanswered | Self::Asked | Self::Pending)
    }

    /// Reads a code back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }
}

/// The next look at a record: a row of its own, so that the record is not written again if the effect is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The record that is looked up.
    pub record: RecordId,
    /// The number of changes: 1 for a new row, otherwise one more than the stored row.
    pub revision: u32,
    /// The reason for the look.
    pub reason: Reason,
    /// The instant at which the look is due. `None`: no look is to come, and the row is deleted.
    pub due_at: Option<Timestamp>,
    /// The instant of the seal, from which the series and its horizon count; or the instant at which the question was
    /// opened.
    pub since: Timestamp,
    /// The index of the step in the series, from 0.
    pub made: u32,
    /// The number of lookups in a row without an answer, including the one under way.
    pub tries: u32,
    /// True if the last answer showed nothing.
    pub missed: bool,
}

/// The next step after a lookup that does not show a committed effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The record is looked up once more, one settle time later.
    LookAgain(Look),
    /// The effect was missing twice: a person is asked. The value is the row that is written with the question.
    Ask(Look),
}

impl Look {
    /// The first look at a record that is sealed at `at`.
    pub fn first(record: &Record, reason: Reason, contract: &Contract, at: Timestamp) -> Self {
        Self {
            tenant: record.tenant.clone(),
            record: record.id,
            revision: 1,
            reason,
            due_at: Some(at.after(contract.settle_time())),
            since: at,
            made: 0,
            tries: 0,
            missed: false,
        }
    }

    /// The second look at a record that an audit has missed at `now`.
    pub fn after_audit(record: &Record, contract: &Contract, now: Timestamp) -> Self {
        Self { missed: true, ..Self::first(record, Reason::Audit, contract, now) }
    }

    /// The first look beside a question about the record, opened at `at`.
    pub fn beside_question(record: &Record, reason: Reason, at: Timestamp) -> Self {
        Self {
            tenant: record.tenant.clone(),
            record: record.id,
            revision: 1,
            reason,
            due_at: Some(at.after(FIRST)),
            since: at,
            made: 0,
            tries: 0,
            missed: false,
        }
    }

    /// The same for an answer of a person: it is due at once, for the answer waits for a worker and not for the provider.
    pub fn for_answer(record: &Record, reason: Reason, at: Timestamp) -> Self {
        Self { due_at: Some(at), ..Self::beside_question(record, reason, at) }
    }

    /// The first look at a record whose call the provider has accepted at `at` and not finished.
    pub fn while_pending(record: &Record, look_again: Duration, contract: &Contract, at: Timestamp) -> Self {
        let first = Self::beside_question(record, Reason::Pending, at);
        Self { due_at: Some(first.poll_at(look_again, contract, at)), ..first }
    }

    /// The next look after an answer that the call is still pending.
    #[must_use]
    pub fn still_pending(&self, look_again: Duration, contract: &Contract, now: Timestamp) -> Self {
        Self { tries: 0, missed: false, ..self.due(self.poll_at(look_again, contract, now)) }
    }

    /// The first look beside a question that a person is asked from now on.
    #[must_use]
    pub fn asked(&self, now: Timestamp) -> Self {
        let due_at = Some(now.after(FIRST));
        Self { reason: Reason::Asked, due_at, since: now, tries: 0, missed: false, ..self.done() }
    }

    /// True if the longest time of a pending call is over.
    pub fn is_overdue(&self, contract: &Contract, now: Timestamp) -> bool {
        self.reason == Reason::Pending && now >= self.completes_by(contract)
    }

    fn completes_by(&self, contract: &Contract) -> Timestamp {
        self.since.after(contract.completion_time())
    }

    /// The instant after the pause, but not later than the end of the longest time.
    fn poll_at(&self, pause: Duration, contract: &Contract, now: Timestamp) -> Timestamp {
        let (at, by) = (now.after(pause.max(SHORTEST_POLL)), self.completes_by(contract));
        if now < by { at.min(by) } else { at }
    }

    /// The look as it is made now. If its worker dies, the look is made again after a pause.
    #[must_use]
    pub fn taken_up(&self, contract: &Contract, now: Timestamp) -> Self {
        let tries = self.tries.saturating_add(1);
        let pause = self.reason.pause(tries, contract.settle_time());
        let at = match self.reason {
            Reason::Pending => self.poll_at(pause, contract, now),
            _ => now.after(pause),
        };
        Self { tries, ..self.due(at) }
    }

    /// True if the lookup under way is the last one: if it has no answer, a person is asked, or no further look is
    /// made beside the question.
    pub fn is_last_try(&self, contract: &Contract) -> bool {
        let settle = contract.settle_time();
        self.reason != Reason::Pending && self.reason.pause(self.tries, settle) >= longest(settle)
    }

    /// True if a lookup was made before and had no answer or showed nothing.
    pub const fn was_tried(&self) -> bool {
        self.tries > 0 || self.missed
    }

    /// The next step of the series, or none, after a lookup that found the effect as recorded.
    #[must_use]
    pub fn answered(&self, contract: &Contract, now: Timestamp) -> Self {
        let mut next = Self { tries: 0, missed: false, ..self.done() };
        if self.reason != Reason::Doubt {
            return next;
        }
        // No step is skipped even if its instant has passed: the wall clock may have been set forward.
        if let Some((at, distance)) = step(contract, self.made + 1).zip(pause_after(contract, self.made)) {
            next.made += 1;
            // If the wall clock was set in either direction since, the distance between the steps counts.
            let (due, usual) = (self.since.after(at), now.after(distance));
            next.due_at = Some(if due > now { due.min(usual) } else { usual });
        }
        next
    }

    /// The distance between this look and the one before it.
    pub fn distance(&self, contract: &Contract) -> Duration {
        let settle = contract.settle_time();
        self.made.checked_sub(1).and_then(|before| pause_after(contract, before)).unwrap_or(settle)
    }

    /// The look repeated after this pause, because the answer came too early to count.
    #[must_use]
    pub fn too_early(&self, pause: Duration, now: Timestamp) -> Self {
        Self { tries: 0, missed: false, ..self.due(now.after(pause)) }
    }

    /// The next step after a lookup that did not show an effect that it should show.
    pub fn missed(&self, contract: &Contract, now: Timestamp) -> Missing {
        if self.missed {
            Missing::Ask(self.done())
        } else {
            let again = self.due(now.after(contract.settle_time()));
            Missing::LookAgain(Self { tries: 0, missed: true, ..again })
        }
    }

    /// The row without a look to come.
    #[must_use]
    pub fn done(&self) -> Self {
        Self { revision: self.revision + 1, due_at: None, ..self.clone() }
    }

    fn due(&self, at: Timestamp) -> Self {
        Self { due_at: Some(at), ..self.done() }
    }
}

/// The key of an operation of this name on the same target, or the common prefix of the keys of all such operations;
/// `None` if the key names no target.
pub fn removal_key(key: &OperationKey, operation: &str) -> Option<String> {
    let kind = Key::of(operation).target("-").render().ok()?;
    let kind = kind.as_str().strip_suffix(":-")?;
    let mut parts = key.as_str().split(':').skip(1);
    let target = match parts.next()? {
        given @ "~key" => format!("{given}:{}", parts.next()?),
        user @ "~user" => {
            format!("{user}:{}:{}", parts.next()?, parts.next().filter(|t| !t.starts_with('~'))?)
        }
        target if !target.starts_with('~') => target.to_owned(),
        _ => return None,
    };
    Some(format!("{kind}:{target}"))
}

/// The time after the seal at which a step of the series is due; `None` behind the last step, which is at the
/// horizon.
fn step(contract: &Contract, number: u32) -> Option<Duration> {
    let (settle, horizon) = (contract.settle_time(), contract.horizon());
    let at = |number: u32| {
        let doubled = |first: Duration, times: u32| {
            1_u32.checked_shl(times).map_or(Duration::MAX, |factor| first.saturating_mul(factor))
        };
        match number {
            0 => settle,
            _ if settle.is_zero() => doubled(SMALLEST_STEP, number - 1),
            _ => doubled(settle, number),
        }
    };
    match number {
        0 => Some(settle),
        _ if at(number - 1) >= horizon => None,
        _ => Some(at(number).min(horizon)),
    }
}

impl Reason {
    /// The pause after this number of lookups in a row without an answer.
    fn pause(self, tries: u32, settle: Duration) -> Duration {
        let first =
            if self.is_beside_question() { FIRST * 2 } else { settle.saturating_mul(2).max(SHORTEST) };
        let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        first.saturating_mul(factor).min(longest(settle))
    }
}

fn longest(settle: Duration) -> Duration {
    LONGEST.max(settle.saturating_mul(SETTLE_TIMES))
}

/// True if a lookup that does not show this record's effect opens no question, because the effect need not be shown
/// yet or any more. `age`: the time since the effect was sealed. `removed`: an operation that removes the effect has
/// gone out since.
pub fn may_be_missing(record: &Record, contract: &Contract, age: Duration, removed: bool) -> bool {
    let hidden_by_now = contract.shown_for.is_some_and(|shown| age >= shown);
    let committed = matches!(record.state, State::Committed { .. });
    !committed || contract.lookup != LookupOffer::Strong || hidden_by_now || removed
}
