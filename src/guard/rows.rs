//! Rows of guards as values: the body that is read from a row and written to one.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Timestamp;
use crate::id::Tenant;
pub(super) use crate::store::part;
use crate::store::{Document, StoreError};

pub(super) fn read<T: DeserializeOwned>(row: &Document) -> Result<T, StoreError> {
    let damaged = |detail| StoreError::Corrupt { row: format!("document ({} {})", row.kind, row.id), detail };
    serde_json::from_str(&row.body).map_err(|error| damaged(error.to_string()))
}

/// The identity of a row, its revision and its times.
pub(super) struct Row<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) kind: &'a str,
    pub(super) id: String,
    /// The revision of the row that was read, plus 1; 1 if there was no row.
    pub(super) revision: u32,
    /// The time of the first write (UTC).
    pub(super) since: Timestamp,
    pub(super) at: Timestamp,
}

impl Row<'_> {
    pub(super) fn holding<T: Serialize>(self, body: &T) -> Document {
        let Self { tenant, kind, id, revision, since, at } = self;
        Document { revision, created_at: since, ..Document::first(tenant, kind, id, body, at) }
    }
}
