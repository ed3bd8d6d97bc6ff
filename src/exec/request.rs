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
    /// The labels of the call, as names and values: see [`label`](Self::label).
    pub labels: Vec<(String, String)>,
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
            labels: Vec::new(),
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

    /// Adds a label, by which the call's record is listed and [erased](super::Executor::erase_labelled): a customer, a case, a subject.
    /// A record has at most 8 labels, one of each name. A name has at most 128 bytes, and a value 256. Labels are not encrypted and
    /// stay as they are: a repeated request gives its record no others.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::exec::ToolRequest;
    /// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
    /// use counterfoil::tool::{Done, DynamicTool};
    /// use counterfoil::{Executor, Key, Tenant};
    /// use serde_json::json;
    ///
    /// let tool = DynamicTool::new("open_ticket", EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey))
    ///     .call(|call, _input| async move { Ok(Done::new(json!({ "ticket": call.key() }))) });
    /// let executor = Executor::in_memory().dynamic_tool(tool).open().await?;
    /// let acme = Tenant::new("acme")?;
    /// let request = ToolRequest::new(acme.clone(), "open_ticket", json!({ "text": "Printer on fire" }))
    ///     .key(Key::of("open_ticket").target("case-9"))
    ///     .label("customer", "c-7");
    /// executor.execute(request).await?;
    ///
    /// let report = executor.erase_labelled(&acme, "customer", "c-7").await?;
    /// assert_eq!(report.calls, ["open_ticket:case-9"]); // a tombstone now: the effect is not repeated
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((name.into(), value.into()));
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
