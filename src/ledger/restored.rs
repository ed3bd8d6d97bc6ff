//! A ledger that is older than the world: restored from a backup, or new beside an older system. A key that this
//! ledger does not know may have been used before.

use serde::{Deserialize, Serialize};

use super::contract::{Contract, ContractClass};
use super::effect::EffectClass;
use super::record::Record;
use crate::clock::Timestamp;
use crate::id::Fence;

/// The origin of the rows: the database and the server that hold them.
///
/// A dump that was read back, or a copy of the database, is in another database or in other tables. A server that was
/// restored to an earlier instant, and a standby that was promoted, begin a new timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The number that the server drew when its data were initialised; empty if the server does not tell.
    pub system: String,
    /// The number of the database.
    pub database: i64,
    /// The number of the table of records.
    pub table: i64,
    /// The timeline on which the server writes.
    pub timeline: i64,
    /// True if commits wait for a standby: its promotion then loses no answered commit.
    pub synchronous: bool,
    /// True if the server was told to recover up to an earlier instant and no further.
    pub recovered_in_part: bool,
}

impl Origin {
    /// The origin with the earlier `system` if the server does not tell it: the role may have lost the right to ask.
    #[must_use]
    pub fn or_as_it_was(self, before: Option<&Self>) -> Self {
        match before {
            Some(before) if self.system.is_empty() => Self { system: before.system.clone(), ..self },
            _ => self,
        }
    }

    /// The reason why the rows may be older than in the database in which the ledger was opened last, if there is a
    /// sign of it.
    pub fn doubt(&self, before: &Self) -> Option<&'static str> {
        let place = |origin: &Self| (origin.database, origin.table);
        let known = !self.system.is_empty() && !before.system.is_empty(); // a role may have gained or lost the right to ask
        if place(self) != place(before) || known && self.system != before.system {
            return Some("it is in another database than before, as after a dump was read back");
        }
        if self.timeline == before.timeline {
            return None;
        }
        match (self.recovered_in_part, before.synchronous) {
            (true, _) => Some("its server was recovered up to an earlier instant"),
            (false, false) => Some(
                "its server began a new timeline, and no standby had every commit: it was restored, or a standby was promoted",
            ),
            (false, true) => None,
        }
    }
}

/// The mark of a ledger that counts as older than the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The instant at which the mark was set. Later changes are this ledger's own knowledge.
    pub since: Timestamp,
    /// The worker that set the mark. A row last written by an earlier worker came with the backup, whatever the wall
    /// clock said.
    pub by: Fence,
    /// The instant that the rows of the ledger date from, if known: calls that the ledger does not know were sent
    /// after it.
    pub as_of: Option<Timestamp>,
}

impl Restored {
    /// True if a lost ledger may have done the operation: nothing is recorded of the operation, or nothing since the
    /// mark.
    pub fn may_lack(&self, record: Option<&Record>) -> bool {
        record.is_none_or(|record| record.fence < self.by || record.updated_at < self.since)
    }
}

/// True if the first send of a key is preceded by its lookup; if there is no lookup, a person is asked.
pub(crate) const fn looks_first(effect: EffectClass, contract: &Contract, may_lack: bool) -> bool {
    let transactional = matches!(contract.class, ContractClass::Transactional); // the effects were restored together with the ledger
    let declared = contract.look_first && !matches!(effect, EffectClass::Compensation);
    !effect.may_repeat(contract.class) && !transactional && (may_lack || declared)
}

/// The earliest instant at which the record's key may have been sent. [`Timestamp::MIN`] if the instant is unknown: a
/// key that the provider remembers only for a while may then be forgotten already.
pub(crate) fn first_sent(record: &Record, restored: Option<&Restored>) -> Timestamp {
    match restored {
        Some(restored) if record.created_at >= restored.since => restored.as_of.unwrap_or(Timestamp::MIN),
        None if record.attempts == 0 => Timestamp::MIN,
        _ => record.created_at,
    }
}
