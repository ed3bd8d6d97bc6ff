//! Evidence: what fenced workers learned too late.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, Tenant};
use crate::ledger::Record;
use crate::payload::Stored;

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
    /// The response: in place, however large, or what is kept of one over the limit. `{"$accepted":true}` if the provider had only
    /// [accepted](crate::tool::ToolError::accepted) the call.
    pub response: Stored,
    /// The provider's id.
    pub external_ref: Option<String>,
    /// When it was learned.
    pub at: Timestamp,
}

impl Evidence {
    /// The response of a call that its provider has accepted and was to finish by itself.
    pub(crate) const ACCEPTED: &str = r#"{"$accepted":true}"#;

    /// The provider had accepted the call, and had not finished it.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(&self.response, Stored::Inline(response) if response.as_str() == Self::ACCEPTED)
    }

    /// It tells of its record what the record does not know yet.
    pub(crate) fn tells_more(&self, record: &Record) -> bool {
        !self.is_accepted() || record.external_ref.is_none() && self.external_ref.is_some()
    }
}

// A fenced worker may change nothing, but what it learned must not be lost.
table! { Evidence in "evidence", Note by (tenant, record, fence, attempt) {
    tenant, record, fence, attempt, response, external_ref, at
} }

impl Row for Evidence {}
