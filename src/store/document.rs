//! Rows that guards own (layer 5): approvals and the like. The store keeps them and moves each on by one revision; what
//! they say it does not know.

use serde::Serialize;

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};

/// The kind and the id of the ledger's document about itself, of [`Tenant::ledger`]. It is open while the ledger is taken for
/// older than the world; a heartbeat asks for that.
pub(crate) const LEDGER_KIND: &str = "ledger";
pub(crate) const LEDGER_ID: &str = "restored";

/// The kind of the ledger's documents that hold what tools declared, of [`Tenant::ledger`].
pub(crate) const DECLARATION_KIND: &str = "declaration";

/// A part of a row's id, so that no `/` in it is taken for the one that ends it.
pub(crate) fn part(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F")
}

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

table! { Document in "document", Moves by (tenant, kind, id) {
    tenant, kind, id, revision, open, body, created_at, updated_at
} }

impl Document {
    /// A row that is written for the first time, and not open.
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
