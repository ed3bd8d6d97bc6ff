//! Looks: the rows of scheduled lookups.

use super::cell::table;
use super::row::Row;
use crate::ledger::Look;

table! { Look in "look", Moves by (tenant, record) {
    tenant, record, revision, reason, due_at, since, made, tries, missed
} }

impl Row for Look {
    const GOES: bool = true;

    fn is_gone(&self) -> bool {
        self.due_at.is_none()
    }
}
