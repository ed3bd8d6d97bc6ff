//! A tool call as an agent loop makes it.

use std::time::Duration;

use serde_json::Value;

use crate::id::Tenant;
use crate::ledger::{Approval, Key};

/// A tool call by name.
#[derive(Clone, Debug)]
#[must_use]
pub struct ToolRequest {
    /// Whose it is.
    pub tenant: Tenant,
    /// The registered tool.
    pub tool: String,
    /// Its input.
    pub input: Value,
    /// Which operation it is; absent if the tool derives that from the input. Not to be taken from arguments
    /// that a model wrote.
    pub key: Option<Key>,
    /// The caller's own id for the call: kept in the record for people, never used as a key.
    pub call_id: Option<String>,
    /// The decision that an effect needs.
    pub approval: Option<Approval>,
    /// What to do while another caller has the same operation in hand.
    pub wait: Wait,
}

impl ToolRequest {
    /// A call of a tool.
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

    /// Says which operation it is.
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Adds the caller's id for the call.
    pub fn call_id(mut self, id: impl Into<String>) -> Self {
        self.call_id = Some(id.into());
        self
    }

    /// Adds the decision that the effect needs.
    pub fn approved_by(mut self, approval: &Approval) -> Self {
        self.approval = Some(approval.clone());
        self
    }

    /// Says what to do while another caller has the same operation in hand.
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }
}

/// How long to wait for another caller that has the same operation in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: answer [`InProgress`](super::Outcome::InProgress) at once.
    No,
    /// At most so long.
    AtMost(Duration),
    /// Until it has an outcome.
    ForOutcome,
}
