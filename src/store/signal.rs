//! Signals: what was said to runs.

use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::payload::Stored;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Put, Readable, Row, Take},
    super::table::{Law, Table, flag, number, text},
};

/// Something that was said to a run: from outside, by another run, or by a child that has ended. It is kept until the run
/// receives it, and after that so that the same one again is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Whose it is.
    pub tenant: Tenant,
    /// The run it is for.
    pub run: RunId,
    /// What it is about. The run waits for it under this name.
    pub name: String,
    /// Which one: the same again is not a second one.
    pub id: String,
    /// Where it stands among those that the run has not received: each sender's are received in the order in which they
    /// were sent.
    pub place: i64,
    /// What is said.
    pub body: Stored,
    /// When.
    pub at: Timestamp,
}

/// Signals whose names begin so are commands: they wake their run whatever it waits for.
pub const COMMAND: &str = "~!";

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Signal {
    const TABLE: &'static Table = &Table {
        name: "signal",
        key: &["tenant", "run", "name", "id"],
        with: &[],
        law: Law::Once,
        columns: &[
            text("tenant"),
            number("run"),
            text("name"),
            text("id"),
            number("place"),
            text("body"),
            number("at"),
            flag("received"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            run: RunId(values.number()?),
            name: values.text()?,
            id: values.text()?,
            place: values.number()?,
            body: values.parsed_text(Stored::from_column)?,
            at: values.time()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Signal {
    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.run, &self.name, &self.id)
    }

    /// As one that its run has not received.
    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .number(self.run.0)
            .text(&self.name)
            .text(&self.id)
            .number(self.place)
            .shared(self.body.column())
            .number(self.at.0)
            .flag(false);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Signal {
    pub(super) async fn find<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        run: RunId,
        name: &str,
        id: &str,
    ) -> Result<Option<Self>, StoreError> {
        let behind = "WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4";
        on.row(behind, &[tenant.into(), run.0.into(), name.into(), id.into()]).await
    }

    pub(super) async fn unreceived<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        run: RunId,
        name: &str,
        id: &str,
    ) -> Result<Option<Self>, StoreError> {
        // So put, it is not looked for among all that the run has pending.
        let behind =
            "WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4 AND NOT coalesce(received, false)";
        on.row(behind, &[tenant.into(), run.0.into(), name.into(), id.into()]).await
    }

    /// One step to the end of the index, however many are pending.
    pub(super) async fn last<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        run: RunId,
    ) -> Result<Option<i64>, StoreError> {
        let index = D::either("INDEXED BY signal_pending ", "");
        let sql = format!(
            "SELECT place FROM signal {index}WHERE tenant = $1 AND run = $2 AND NOT received ORDER BY place DESC LIMIT 1"
        );
        on.number(&sql, &[tenant.into(), run.0.into()]).await
    }
}
