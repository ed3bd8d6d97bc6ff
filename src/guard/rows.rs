//! Rows of guards as values: the body that is read from a row and written to one.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::clock::Timestamp;
use crate::flow::Label;
use crate::id::Tenant;
use crate::payload::hex;
pub(super) use crate::store::part;
use crate::store::{Document, StoreError};

pub(super) fn read<T: DeserializeOwned>(row: &Document) -> Result<T, StoreError> {
    let damaged = |detail| StoreError::Corrupt { row: format!("document ({} {})", row.kind, row.id), detail };
    serde_json::from_str(&row.body).map_err(|error| damaged(error.to_string()))
}

/// The name of a run's checkpoint about a row. The row is a part of the name: code that is deployed with another row finds
/// no answer about the first one, and several rows may be used at once. It is a digest, because ids are longer than names.
pub(super) fn label(action: &str, row: &str) -> Label {
    Label::of(&format!("~{action}/{}", hex(&Sha256::digest(row))), None)
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
