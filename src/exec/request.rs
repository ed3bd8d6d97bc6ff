//! The request of a tool call, as an agent loop makes it.

use std::time::Duration;

use serde_json::Value;

use crate::id::Tenant;
use crate::ledger::{Approval, Key};

/// A tool call by name.
#[derive(Clone, Debug)]
#[must_use]
pub struct ToolRequest {
    /// The tenant that owns the operation.
    pub tenant: Tenant,
    /// The name of the registered tool.
    pub tool: String,
    /// The input of the tool.
    pub input: Value,
    /// The key of the operation; absent if the tool derives the key from the input. Do not take it from arguments that
    /// a model wrote.
    pub key: Option<Key>,
    /// The caller's own id for the call: kept in the record for people, never used as a key.
    pub call_id: Option<String>,
    /// The approval that an effect needs.
    pub approval: Option<Approval>,
    /// The longest wait while another caller has the same operation in flight.
    pub wait: Wait,
}

impl ToolRequest {
    /// A request that calls a tool.
    pub fn new(tenant: Tenant, tool: impl Into<String>, input: Value) -> Self {
        Self {
            tenant,
            tool: tool.into(),
            input,
            key: None,
            call_id: None,
            approval: None,
            wait: Wait::ForOutcome,
        }
    }

    /// Sets the key of the operation.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Adds the caller's id for the call.
    pub fn call_id(mut self, id: impl Into<String>) -> Self {
        self.call_id = Some(id.into());
        self
    }

    /// Adds the approval that the effect needs.
    pub fn approved_by(mut self, approval: &Approval) -> Self {
        self.approval = Some(approval.clone());
        self
    }

    /// Sets the longest wait while another caller has the same operation in flight.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }
}

/// The longest wait for another caller that has the same operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No wait: the answer is [`InProgress`](super::Outcome::InProgress) at once.
    No,
    /// A wait of at most this time.
    AtMost(Duration),
    /// A wait until the operation has an outcome.
    ForOutcome,
}
