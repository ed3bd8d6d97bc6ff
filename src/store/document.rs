//! Documents: rows that guards own (layer 5), such as approvals. The store keeps the rows and moves each on by one
//! revision; it does not know the meaning of their content.

use serde::Serialize;

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};

/// The kind and the id of the ledger's document about itself, owned by [`Tenant::ledger`]. The document is open while
/// the ledger counts as older than the world; a heartbeat reads that.
pub(crate) const LEDGER_KIND: &str = "ledger";
pub(crate) const LEDGER_ID: &str = "restored";
/// The id of the row that marks an encrypted ledger.
pub(crate) const ENCRYPTION_ID: &str = "encryption";

/// The kind of the ledger's documents that hold tool declarations, owned by [`Tenant::ledger`].
pub(crate) const DECLARATION_KIND: &str = "declaration";

/// The kind of the ledger's documents that hold the catalogue of workflows, owned by [`Tenant::ledger`].
#[cfg(any(feature = "api", feature = "sim"))]
pub(crate) const WORKFLOW_KIND: &str = "workflow";

/// A part of a row's id, escaped so that a `/` inside it does not count as the end of the part.
pub(crate) fn part(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}

/// The text of a [`part`].
#[cfg(feature = "api")]
pub(crate) fn whole(part: &str) -> String {
    part.replace("%2F", "/").replace("%25", "%")
}

/// A row that a guard owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The tenant that owns the document.
    pub tenant: Tenant,
    /// The name of the guard, such as `approval`.
    pub kind: Name,
    /// The id of the document within its kind.
    pub id: String,
    /// The number of changes. A change is admitted only on top of the revision it was computed from.
    pub revision: u32,
    /// True if there is still work for the document: it is listed among the open ones.
    pub open: bool,
    /// The content as JSON, read only by the guard.
    pub body: String,
    /// The instant at which the document was first written.
    pub created_at: Timestamp,
    /// The instant of the last change.
    pub updated_at: Timestamp,
}

table! { Document in "document", Moves by (tenant, kind, id) {
    tenant, kind, id, revision, open, body, created_at, updated_at
} }

impl Document {
    /// A document that is written for the first time and is not open.
    pub(crate) fn first(
        tenant: &Tenant,
        kind: &str,
        id: String,
        body: &impl Serialize,
        at: Timestamp,
    ) -> Self {
        Self {
            tenant: tenant.clone(),
            kind: Name::new(kind).unwrap_or_else(|_| unreachable!("a name like others")),
            id,
            revision: 1,
            open: false,
            body: serde_json::to_string(body).unwrap_or_else(|_| unreachable!("text and numbers")),
            created_at: at,
            updated_at: at,
        }
    }
}

impl Row for Document {}
