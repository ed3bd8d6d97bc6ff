//! The retention of a record: the time for which it is kept whole, and the part that is left afterwards.

use std::fmt;
use std::time::Duration;

use super::hash::RequestHash;
use super::record::{FinalState, Owner, Record, State};
use crate::clock::Timestamp;
use crate::payload::{DigestKey, Payload, Stored, hex};

/// The part of a record that remains when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Nothing remains: the key counts as new again. For nonces and other short windows.
    Forget,
    /// The key remains, with digests of request and outcome (a tombstone), so that a late retry is answered `gone`
    /// and not executed again.
    Tombstone,
    /// The whole record remains, for ever.
    Keep,
}

/// The instant from which the time of a record is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedFrom {
    /// The instant of the first request for the operation.
    #[default]
    Creation,
    /// The instant of the last request for the operation. The time of a record is written again only when a tenth of
    /// it has passed, so it may end that much earlier.
    LastAccess,
}

/// The retention of a tool's records.
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
    /// The part that remains afterwards.
    pub mode: RetentionMode,
    /// The time for which the whole record is kept.
    pub keep_for: Duration,
    /// The instant from which the time is counted.
    pub from: CountedFrom,
}

impl Retention {
    const fn of(mode: RetentionMode, keep_for: Duration) -> Self {
        Self { mode, keep_for, from: CountedFrom::Creation }
    }

    /// A window after which the key counts as new. A window shorter than the retry horizon is refused at
    /// registration.
    pub const fn forget_after(window: Duration) -> Self {
        Self::of(RetentionMode::Forget, window)
    }

    /// Keeps whole records for this time, then tombstones for ever.
    pub const fn tombstone_after(keep_for: Duration) -> Self {
        Self::of(RetentionMode::Tombstone, keep_for)
    }

    /// Keeps whole records for ever.
    pub const fn keep() -> Self {
        Self::of(RetentionMode::Keep, Duration::MAX)
    }

    /// Counts the time from the last request for the operation.
    #[must_use]
    pub const fn from_last_access(mut self) -> Self {
        self.from = CountedFrom::LastAccess;
        self
    }

    /// The same retention, but at least this long: the default of a class must not be shorter than the retries that a
    /// tool declares.
    #[must_use]
    pub(crate) fn at_least(mut self, horizon: Duration) -> Self {
        self.keep_for = self.keep_for.max(horizon);
        self
    }

    /// The time after which the key counts as new; `None` if never.
    pub(crate) const fn shortest(&self) -> Option<Duration> {
        match self.mode {
            RetentionMode::Forget => Some(self.keep_for),
            RetentionMode::Tombstone | RetentionMode::Keep => None,
        }
    }

    /// The instant until which a record is kept whole if its time is counted from `from`; `None` for ever.
    pub(crate) fn until(&self, from: Timestamp) -> Option<Timestamp> {
        match self.mode {
            RetentionMode::Keep => None,
            RetentionMode::Forget | RetentionMode::Tombstone => Some(from.after(self.keep_for)),
        }
    }

    /// The record with its time counted from `now` on, because it was requested; `None` if the change is not worth a
    /// write.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn touched(&self, record: &Record, now: Timestamp) -> Option<Record> {
        let CountedFrom::LastAccess = self.from else { return None };
        let (kept, until) = (record.kept_until?, self.until(now)?);
        (until > kept.after(self.keep_for / 10)).then(|| kept_until(record, Some(until)))
    }

    /// The record, kept whole until this instant.
    pub(crate) fn kept(record: &Record, until: Timestamp) -> Record {
        kept_until(record, Some(until))
    }

    /// The tombstone of a record that is erased on demand, so that its effect is not repeated; `None` if it had no
    /// effect.
    pub(crate) fn erased(record: &Record, key: &DigestKey) -> Option<Record> {
        tombstone(record, key)
    }

    /// The rest of a record whose time, as declared when it was made, is over. The present declaration decides, and
    /// never before the last retry that may come for the record. `None`: nothing is left, and the key counts as new.
    ///
    /// A call that for certain did not happen leaves nothing in any mode: a retry would do it anyway.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
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
    /// Writes the retention as the guarantee report shows it.
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
    /// A tombstone after 30 days.
    fn default() -> Self {
        Self::tombstone_after(Duration::from_hours(30 * 24))
    }
}

fn kept_until(record: &Record, kept_until: Option<Timestamp>) -> Record {
    Record { kept_until, revision: record.revision + 1, ..record.clone() }
}

/// The tombstone of a record whose key must not count as new: the key itself, which is the unique part, and digests
/// that reveal nothing without the tenant's key.
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
        // Neither of these is ever retired; they hold more than a tombstone would.
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
    /// The flag for hashes that only the tenant's key can make.
    const KEYED: u8 = 0x80;

    /// The hash as a tombstone holds it. The request could be guessed from the plain hash of a short one.
    #[must_use]
    pub fn keyed(&self, key: &DigestKey) -> Self {
        Self { version: self.version | Self::KEYED, digest: key.digest(&self.column()) }
    }
}

/// A span of time, in the largest unit that divides it.
pub(crate) fn span(of: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let seconds = of.as_secs();
    if of.subsec_nanos() > 0 || seconds == 0 {
        return format!("{of:?}");
    }
    let unit = UNITS.into_iter().find(|(unit, _)| seconds.is_multiple_of(*unit) && seconds > *unit);
    unit.map_or_else(|| format!("{seconds} s"), |(unit, name)| format!("{} {name}", seconds / unit))
}
