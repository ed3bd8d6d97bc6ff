//! Aggregates: how far their events are published.

use crate::clock::Timestamp;
use crate::id::{EscalationId, Tenant};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Readable, Take},
    super::table::{Law, Table, number, text},
};

/// How far the events of an aggregate are published. It is there from its first event on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name.
    pub name: String,
    /// The place of its last event. What stands here when it is written does not count.
    pub last: i64,
    /// All events up to this place are published, or were dropped by somebody.
    pub published: i64,
    /// How often the one behind that was tried in vain.
    pub tries: u32,
    /// How often it was refused, which is not the fault of the way there.
    pub refusals: u32,
    /// It is not tried before.
    pub due_at: Timestamp,
    /// It is set aside: all behind it wait for the answer to this question.
    pub escalation: Option<EscalationId>,
    /// Of what is written about publishing: 1 from its first event on. An event that is added does not change it.
    pub revision: u32,
}

impl Aggregate {
    /// Something of it is to be published, and nobody need answer a question first.
    pub const fn is_pending(&self) -> bool {
        self.published < self.last && self.escalation.is_none()
    }

    /// As a store keeps it that knows this one's change by its revision: without what added events change.
    pub(super) fn same_change(&self, other: &Self) -> bool {
        let of = |a: &Self| (a.published, a.tries, a.refusals, a.escalation, a.revision);
        of(self) == of(other)
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Aggregate {
    const TABLE: &'static Table = &Table {
        name: "outbox_aggregate",
        key: &["tenant", "name"],
        with: &[],
        law: Law::Own,
        columns: &[
            text("tenant"),
            text("name"),
            number("last"),
            number("published"),
            number("tries"),
            number("refusals"),
            number("due_at"),
            number("escalation"),
            number("revision"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            name: values.text()?,
            last: values.number()?,
            published: values.number()?,
            tries: values.count()?,
            refusals: values.count()?,
            due_at: values.time()?,
            escalation: values.some_number()?.map(EscalationId),
            revision: values.count()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Aggregate {
    pub(super) const FIND: &str = "WHERE tenant = $1 AND name = $2";

    pub(super) async fn find<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        name: &str,
    ) -> Result<Option<Self>, StoreError> {
        on.row(Self::FIND, &[tenant.into(), name.into()]).await
    }

    pub(super) async fn set_aside<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        question: EscalationId,
    ) -> Result<Option<Self>, StoreError> {
        on.row("WHERE tenant = $1 AND escalation = $2", &[tenant.into(), question.0.into()]).await
    }

    /// When the next one is due.
    pub(super) async fn next<D: Reader>(
        on: &Queries<D>,
        after: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let sql = "SELECT min(due_at) FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at > $1";
        Ok(on.number(sql, &[after.0.into()]).await?.map(Timestamp))
    }

    /// Something is pending.
    #[cfg(feature = "sqlite")]
    pub(super) async fn is_any_pending<D: Reader>(on: &Queries<D>) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM outbox_aggregate WHERE published < last AND escalation IS NULL LIMIT 1";
        Ok(on.number(sql, &[]).await?.is_some())
    }
}
