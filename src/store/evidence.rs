//! Evidence: what fenced workers learned too late.

use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, Tenant};
use crate::payload::Payload;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Put, Readable, Row, Take},
    super::table::{Law, Table, number, text},
};

/// What a fenced worker learned too late. Appended, never a change of the record (REC-9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Whose it is.
    pub tenant: Tenant,
    /// The record it is about.
    pub record: RecordId,
    /// The worker that learned it.
    pub fence: Fence,
    /// The attempt it belongs to.
    pub attempt: u32,
    /// The response.
    pub response: Payload,
    /// The provider's id.
    pub external_ref: Option<String>,
    /// When it was learned.
    pub at: Timestamp,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Evidence {
    const TABLE: &'static Table = &Table {
        name: "evidence",
        key: &["tenant", "record", "fence", "attempt"],
        with: &[],
        law: Law::Note, // a fenced worker may change nothing, but what it learned must not be lost
        columns: &[
            text("tenant"),
            number("record"),
            number("fence"),
            number("attempt"),
            text("response"),
            text("external_ref"),
            number("at"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: values.tenant()?,
            record: RecordId(values.number()?),
            fence: Fence(values.number()?),
            attempt: values.count()?,
            response: Payload::stored(values.text()?),
            external_ref: values.some_text()?,
            at: values.time()?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Evidence {
    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.record, self.fence, self.attempt)
    }

    fn put(&self, values: &mut impl Put) {
        values
            .shared(self.tenant.text())
            .number(self.record.0)
            .number(self.fence.0)
            .number(self.attempt)
            .shared(self.response.text())
            .some_text(self.external_ref.as_deref())
            .number(self.at.0);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Evidence {
    /// What is known of a record.
    pub(super) const OF: &str = "WHERE tenant = $1 AND record = $2 ORDER BY at, fence, attempt";

    pub(super) async fn of<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        record: RecordId,
    ) -> Result<Vec<Self>, StoreError> {
        on.rows(Self::OF, &[tenant.into(), record.0.into()]).await
    }
}
