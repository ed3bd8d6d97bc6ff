//! Looks: records that are looked up again.

use std::hash::Hash;

use super::StoreError;
use super::ask::{Queries, Reader};
use super::row::{Put, Readable, Row, Take};
use super::table::{Law, Table, flag, number, text};
use crate::clock::Timestamp;
use crate::id::{RecordId, Tenant};
use crate::ledger::{Look, Reason};

impl Readable for Look {
    const TABLE: &'static Table = &Table {
        name: "look",
        key: &["tenant", "record"],
        with: &[],
        law: Law::Moves,
        columns: &[
            text("tenant"),
            number("record"),
            number("revision"),
            number("reason"),
            number("due_at"),
            number("since"),
            number("made"),
            number("tries"),
            flag("missed"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            record: RecordId(values.number()?),
            revision: values.count()?,
            reason: values.parsed(Reason::from_code)?,
            due_at: values.some_time()?,
            since: values.time()?,
            made: values.count()?,
            tries: values.count()?,
            missed: values.flag()?,
        })
    }
}

impl Row for Look {
    fn key(&self) -> impl Ord + Hash {
        (&self.tenant, self.record)
    }

    fn revision(&self) -> u32 {
        self.revision
    }

    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .number(self.record.0)
            .number(self.revision)
            .number(self.reason.code())
            .some_number(self.due_at.map(|at| at.0))
            .number(self.since.0)
            .number(self.made)
            .number(self.tries)
            .flag(self.missed);
    }

    const GOES: bool = true;

    fn is_gone(&self) -> bool {
        self.due_at.is_none()
    }
}

pub(super) async fn find<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    record: RecordId,
) -> Result<Option<Look>, StoreError> {
    on.row("WHERE tenant = $1 AND record = $2", &[tenant.into(), record.0.into()]).await
}

pub(super) async fn due<D: Reader>(
    on: &Queries<D>,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Look>, StoreError> {
    let behind = "WHERE due_at <= $1 ORDER BY due_at, tenant, record LIMIT $2";
    on.sound(behind, &[until.0.into(), limit.into()]).await
}
