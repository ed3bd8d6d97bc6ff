//! How long a record is kept, and what is left of it afterwards (REC-6, REC-8, DESIGN 4.10).

use std::fmt;
use std::time::Duration;

use super::hash::RequestHash;
use super::record::{FinalState, Owner, Record, State};
use crate::clock::Timestamp;
use crate::payload::{DigestKey, Payload, Stored, hex};

/// What remains when the time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Nothing: the key is new again. For nonces and other short windows.
    Forget,
    /// The key, with digests of request and outcome, so that a late retry is told `gone` and not executed again.
    Tombstone,
    /// Everything, for ever.
    Keep,
}

/// From when the time of a record is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedFrom {
    /// From when the operation was first asked for.
    #[default]
    Creation,
    /// From when it was last asked for. The time of a record is written anew when a tenth of it has passed, so it may be
    /// over by as much earlier.
    LastAccess,
}

/// A tool's retention.
///
/// ```
/// use std::time::Duration;
/// use counterfoil::ledger::Retention;
/// let nonces = Retention::forget_after(Duration::from_hours(1));
/// let notices = Retention::tombstone_after(Duration::from_hours(24 * 365)).from_last_access();
/// assert_ne!(nonces, notices);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// What remains afterwards.
    pub mode: RetentionMode,
    /// How long the whole record is kept.
    pub keep_for: Duration,
    /// From when that is counted.
    pub from: CountedFrom,
}

impl Retention {
    const fn of(mode: RetentionMode, keep_for: Duration) -> Self {
        Self { mode, keep_for, from: CountedFrom::Creation }
    }

    /// A window after which the key is new. Shorter than the retry horizon, it is refused at registration.
    pub const fn forget_after(window: Duration) -> Self {
        Self::of(RetentionMode::Forget, window)
    }

    /// Whole records for so long, and digests for ever.
    pub const fn tombstone_after(keep_for: Duration) -> Self {
        Self::of(RetentionMode::Tombstone, keep_for)
    }

    /// Whole records for ever.
    pub const fn keep() -> Self {
        Self::of(RetentionMode::Keep, Duration::MAX)
    }

    /// Counted from when the operation was last asked for.
    #[must_use]
    pub const fn from_last_access(mut self) -> Self {
        self.from = CountedFrom::LastAccess;
        self
    }

    /// The same, and at least for as long as this: what a class says must not be shorter than the retries that a tool declares.
    #[must_use]
    pub(crate) fn at_least(mut self, horizon: Duration) -> Self {
        self.keep_for = self.keep_for.max(horizon);
        self
    }

    /// How soon the key could be taken for new; `None` if never.
    pub(crate) const fn shortest(&self) -> Option<Duration> {
        match self.mode {
            RetentionMode::Forget => Some(self.keep_for),
            RetentionMode::Tombstone | RetentionMode::Keep => None,
        }
    }

    /// Until when a record is kept whole whose time is counted from here; `None` for ever.
    pub(crate) fn until(&self, from: Timestamp) -> Option<Timestamp> {
        match self.mode {
            RetentionMode::Keep => None,
            RetentionMode::Forget | RetentionMode::Tombstone => Some(from.after(self.keep_for)),
        }
    }

    /// The record was asked for, and is kept for longer: the record from now on, unless that is not worth a write.
    pub fn touched(&self, record: &Record, now: Timestamp) -> Option<Record> {
        let CountedFrom::LastAccess = self.from else { return None };
        let (kept, until) = (record.kept_until?, self.until(now)?);
        (until > kept.after(self.keep_for / 10)).then(|| kept_until(record, Some(until)))
    }

    /// What is left of a record that is erased on demand: enough that its effect is not repeated, if it had one.
    pub(crate) fn erased(record: &Record, key: &DigestKey) -> Option<Record> {
        tombstone(record, key)
    }

    /// What is left of a record whose time was over by what was declared when it was made: by what is declared now, and never
    /// before the last retry that may come for it (invariant 9). `None`: nothing is left of it, and its key is new.
    ///
    /// What for certain did not happen leaves nothing in any mode: to do it is what a retry of it would do.
    pub fn left(
        &self,
        record: &Record,
        horizon: Duration,
        key: &DigestKey,
        now: Timestamp,
    ) -> Option<Record> {
        let Some(until) = self.until(record.created_at) else { return Some(kept_until(record, None)) };
        let until = until.max(record.updated_at.after(horizon));
        if until > now {
            return Some(kept_until(record, Some(until)));
        }
        match self.mode {
            RetentionMode::Forget => None,
            RetentionMode::Tombstone | RetentionMode::Keep => tombstone(record, key),
        }
    }
}

impl fmt::Display for Retention {
    /// As it stands in the guarantee report.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = span(self.keep_for);
        match self.mode {
            RetentionMode::Keep => f.write_str("for ever"),
            RetentionMode::Tombstone => write!(f, "whole for {span}, then digests"),
            RetentionMode::Forget => write!(f, "for {span}, then its key is new"),
        }
    }
}

impl Default for Retention {
    /// Tombstones after 30 days.
    fn default() -> Self {
        Self::tombstone_after(Duration::from_hours(30 * 24))
    }
}

fn kept_until(record: &Record, kept_until: Option<Timestamp>) -> Record {
    Record { kept_until, revision: record.revision + 1, ..record.clone() }
}

/// What is left of a record whose key must not be taken for new: the key itself, for that is what is unique, and digests that
/// say nothing to whoever lacks the tenant's key.
fn tombstone(record: &Record, key: &DigestKey) -> Option<Record> {
    let digest = |parts: &[&Stored]| {
        let parts: Vec<_> = parts.iter().map(|part| part.column()).collect();
        hex(&key.digest(parts.join("\0").as_bytes()))
    };
    let (was, outcome) = match &record.state {
        State::Committed { response } => (FinalState::Committed, digest(&[response])),
        State::Compensated { response, compensation, .. } => {
            (FinalState::Compensated, digest(&[response, compensation]))
        }
        State::Abandoned { reason } => (FinalState::Abandoned, hex(&key.digest(reason.as_bytes()))),
        State::Failed { .. } => return None,
        // Neither is ever retired; as they are, they say more than any digest.
        State::Started | State::Gone { .. } => return Some(kept_until(record, None)),
    };
    let Owner { run, turn, .. } = record.owner;
    Some(Record {
        state: State::Gone { was, outcome },
        request: Stored::Inline(Payload::stored("null")),
        request_hash: record.request_hash.keyed(key),
        owner: Owner { run, turn, step: None, call_id: None },
        external_ref: None,
        not_before: None,
        approval: None,
        scopes: None,
        ..kept_until(record, None)
    })
}

impl RequestHash {
    /// The scheme of hashes that only the tenant's key can make.
    const KEYED: u8 = 0x80;

    /// The hash as a tombstone holds it. Of a short request the plain one could be guessed back.
    #[must_use]
    pub fn keyed(&self, key: &DigestKey) -> Self {
        Self { version: self.version | Self::KEYED, digest: key.digest(&self.column()) }
    }
}

/// A span of time in the largest unit that fits.
pub(crate) fn span(of: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = of.as_secs();
    if of.subsec_nanos() > 0 || seconds == 0 {
        return format!("{of:?}");
    }
    let unit = UNITS.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit) && seconds > *unit);
    unit.map_or_else(|| format!("{seconds} s"), |(unit, name)| format!("{} {name}", seconds / unit))
}
