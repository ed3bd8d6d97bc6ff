//! Rows that guards own (layer 5): approvals and the like. The store keeps them and moves each on by one revision; what
//! they say it does not know.

use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Put, Readable, Row, Take},
    super::table::{Law, Table, flag, number, text},
};

/// The kind and the id of the ledger's document about itself, of [`Tenant::ledger`]. It is open while the ledger is taken for
/// older than the world; a heartbeat asks for that.
pub(crate) const LEDGER_KIND: &str = "ledger";
pub(crate) const LEDGER_ID: &str = "restored";

/// The kind of the ledger's documents that hold what tools declared, of [`Tenant::ledger`].
pub(crate) const DECLARATION_KIND: &str = "declaration";

/// A guard's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Whose it is.
    pub tenant: Tenant,
    /// Which guard's, such as `approval`.
    pub kind: Name,
    /// Which of its kind.
    pub id: String,
    /// Counts the changes; a change is admitted only on top of the one it was computed from.
    pub revision: u32,
    /// Something is still to be done about it: it is listed among the open ones.
    pub open: bool,
    /// JSON, its guard's alone.
    pub body: String,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Document {
    const TABLE: &'static Table = &Table {
        name: "document",
        key: &["tenant", "kind", "id"],
        with: &[],
        law: Law::Moves,
        columns: &[
            text("tenant"),
            text("kind"),
            text("id"),
            number("revision"),
            flag("open"),
            text("body"),
            number("created_at"),
            number("updated_at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            kind: values.name()?,
            id: values.text()?,
            revision: values.count()?,
            open: values.flag()?,
            body: values.text()?,
            created_at: values.time()?,
            updated_at: values.time()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Document {
    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.kind.as_str(), &self.id)
    }

    fn revision(&self) -> u32 {
        self.revision
    }

    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .shared(self.kind.text())
            .text(&self.id)
            .number(self.revision)
            .flag(self.open)
            .text(&self.body)
            .number(self.created_at.0)
            .number(self.updated_at.0);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Document {
    pub(super) async fn find<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        kind: &str,
        id: &str,
    ) -> Result<Option<Self>, StoreError> {
        on.row("WHERE tenant = $1 AND kind = $2 AND id = $3", &[tenant.into(), kind.into(), id.into()]).await
    }

    pub(super) async fn list<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let behind = "WHERE tenant = $1 AND kind = $2 AND id > $3 ORDER BY id LIMIT $4";
        on.sound(behind, &[tenant.into(), kind.into(), after.into(), limit.into()]).await
    }

    /// SQLite takes the primary key otherwise, and reads all that were ever open.
    pub(super) async fn list_open<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let index = D::either("INDEXED BY document_open ", "");
        let behind =
            format!("{index}WHERE tenant = $1 AND kind = $2 AND open AND id > $3 ORDER BY id LIMIT $4");
        on.sound(&behind, &[tenant.into(), kind.into(), after.into(), limit.into()]).await
    }
}
