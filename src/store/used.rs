//! Uses: runs that were answered from records which they do not own.

use crate::clock::Timestamp;
use crate::id::{RecordId, RunId, Tenant};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Put, Readable, Row, Take},
    super::table::{Law, Table, number, text},
};

/// A run that was answered from a record which another run (or nobody's run) owns (SAGA-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Whose it is.
    pub tenant: Tenant,
    /// The record that answered.
    pub record: RecordId,
    /// The run that was answered.
    pub run: RunId,
    /// The turn in which it was answered first.
    pub turn: u32,
    /// The id of its call.
    pub step: String,
    /// When.
    pub at: Timestamp,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Use {
    const TABLE: &'static Table = &Table {
        name: "use",
        key: &["tenant", "run", "turn", "record"],
        with: &[],
        law: Law::Keep, // the same use again says nothing new
        columns: &[
            text("tenant"),
            number("run"),
            number("record"),
            number("turn"),
            text("step"),
            number("at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            run: RunId(values.number()?),
            record: RecordId(values.number()?),
            turn: values.count()?,
            step: values.text()?,
            at: values.time()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Use {
    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.run, self.turn, self.record)
    }

    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .number(self.run.0)
            .number(self.record.0)
            .number(self.turn)
            .text(&self.step)
            .number(self.at.0);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Use {
    pub(super) async fn of<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        record: RecordId,
    ) -> Result<Vec<Self>, StoreError> {
        let behind = "WHERE tenant = $1 AND record = $2 ORDER BY run, turn";
        on.rows(behind, &[tenant.into(), record.0.into()]).await
    }
}
