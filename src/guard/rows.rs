//! Rows of guards as values: what is read from one and written to one.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
use crate::store::{Document, StoreError};

/// A part of a row's id, so that no `/` in it is taken for the one that ends it.
pub(super) fn part(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}

pub(super) fn read<T: DeserializeOwned>(row: &Document) -> Result<T, StoreError> {
    let damaged = |detail| StoreError::Corrupt { row: format!("document ({} {})", row.kind, row.id), detail };
    serde_json::from_str(&row.body).map_err(|error| damaged(error.to_string()))
}

/// First written and last changed at these instants.
pub(super) fn row<T: Serialize>(
    tenant: &Tenant,
    kind: &str,
    id: String,
    revision: u32,
    (created_at, updated_at): (Timestamp, Timestamp),
    body: &T,
) -> Document {
    Document {
        tenant: tenant.clone(),
        kind: Name::new(kind).unwrap_or_else(|_| unreachable!("a name like others")),
        id,
        revision,
        open: false,
        body: serde_json::to_string(body).unwrap_or_else(|_| unreachable!("text and numbers")),
        created_at,
        updated_at,
    }
}
