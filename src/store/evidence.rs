//! Evidence: late answers, of fenced workers and of clients whose time was over.

use super::cell::table;
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, Tenant};
use crate::ledger::Record;
use crate::payload::Stored;

/// The late answer of a fenced worker, or of a client whose time was over. It is appended and never changes the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The record that the answer is about.
    pub record: RecordId,
    /// The fence of the worker that made the attempt.
    pub fence: Fence,
    /// The number of the attempt.
    pub attempt: u32,
    /// The response: in the row, however large, or only the digest and size of one over the limit.
    /// `{"$accepted":true}` if the provider had only [accepted](crate::tool::ToolError::accepted) the call.
    pub response: Stored,
    /// The provider's id.
    pub external_ref: Option<String>,
    /// The instant at which the answer arrived.
    pub at: Timestamp,
}

impl Evidence {
    /// The response of a call that its provider has accepted and was to finish by itself.
    pub(crate) const ACCEPTED: &str = r#"{"$accepted":true}"#;

    /// True if the provider had accepted the call and had not finished it.
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(&self.response, Stored::Inline(response) if response.as_str() == Self::ACCEPTED)
    }

    /// True if the evidence shows something about its record that the record does not hold yet.
    pub(crate) fn tells_more(&self, record: &Record) -> bool {
        !self.is_accepted() || record.external_ref.is_none() && self.external_ref.is_some()
    }
}

// A fenced worker may change nothing, but its answer must not be lost.
table! { Evidence in "evidence", Note by (tenant, record, fence, attempt) {
    tenant, record, fence, attempt, response, external_ref, at
} }

impl Row for Evidence {}
