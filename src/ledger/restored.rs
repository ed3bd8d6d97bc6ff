//! A ledger that is older than the world: restored from a backup, or new beside an older system. A key that it does not know
//! may have been used all the same.

use serde::{Deserialize, Serialize};

use super::contract::{Contract, ContractClass};
use super::effect::EffectClass;
use super::record::Record;
use crate::clock::Timestamp;
use crate::id::Fence;

/// Which database of which server the rows are in.
///
/// A dump that was read back, or a copy of the database, is in another one, or in other tables. A server that was restored to an
/// earlier instant, and a standby that was promoted, begin a new timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The number that the server drew when its data were initialised; empty if it does not say.
    pub system: String,
    /// The number of the database.
    pub database: i64,
    /// The number of the table of records.
    pub table: i64,
    /// The timeline on which the server writes.
    pub timeline: i64,
    /// Commits wait for a standby: when it is promoted nothing is lost that was answered.
    pub synchronous: bool,
    /// The server was told to recover up to some instant, and no further.
    pub recovered_in_part: bool,
}

impl Origin {
    /// With the system as it was before, if it does not say: a role may have lost the right to ask.
    #[must_use]
    pub fn or_as_it_was(self, before: Option<&Self>) -> Self {
        match before {
            Some(before) if self.system.is_empty() => Self { system: before.system.clone(), ..self },
            _ => self,
        }
    }

    /// Why the rows may be older than they were in the database in which the ledger was opened last, if there is a sign of it.
    pub fn doubt(&self, before: &Self) -> Option<&'static str> {
        let place = |origin: &Self| (origin.database, origin.table);
        let known = !self.system.is_empty() && !before.system.is_empty(); // a role may have been given the right to ask, or lost it
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

/// Since when a ledger is taken for older than the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// When that was noted. What changed later is this ledger's own knowledge.
    pub since: Timestamp,
    /// The worker that noted it. What was last written by a worker before it came with the backup, whatever the wall clock said.
    pub by: Fence,
    /// The instant that the ledger's rows are of, if it is known: what it does not know was sent after it.
    pub as_of: Option<Timestamp>,
}

impl Restored {
    /// The operation may have been done by a ledger that is lost: nothing is recorded of it, or nothing since then.
    pub fn may_lack(&self, record: Option<&Record>) -> bool {
        record.is_none_or(|record| record.fence < self.by || record.updated_at < self.since)
    }
}

/// The first send of a key is preceded by its lookup; where there is none, a person is asked.
pub(crate) const fn looks_first(effect: EffectClass, contract: &Contract, may_lack: bool) -> bool {
    let transactional = matches!(contract.class, ContractClass::Transactional); // its effects went back with the ledger
    let declared = contract.look_first && !matches!(effect, EffectClass::Compensation);
    !effect.may_repeat(contract.class) && !transactional && (may_lack || declared)
}

/// The earliest instant at which the record's key may have been sent. [`Timestamp::MIN`] if nothing is known of it: then a key that
/// the provider remembers for a while may be forgotten by now.
pub(crate) fn first_sent(record: &Record, restored: Option<&Restored>) -> Timestamp {
    match restored {
        Some(restored) if record.created_at >= restored.since => restored.as_of.unwrap_or(Timestamp::MIN),
        None if record.attempts == 0 => Timestamp::MIN,
        _ => record.created_at,
    }
}
