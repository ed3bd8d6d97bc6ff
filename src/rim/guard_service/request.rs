//! The requests of clients, as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exec::{ExecError, RequestError};
use crate::id::Name;
use crate::ledger::{
    ApprovalSubject, Confirm, Contract, ContractClass, EffectClass, ErrorKind, Key, KeyError, LookupOffer,
    LookupPolicy, OperationKey, RetryPolicy, ReviewPolicy,
};
use crate::store::Labels;

/// The least time that a request waits for its answer, so that a client that does not want to wait gets a recorded answer.
const LEAST_WAIT: Duration = Duration::from_millis(15);
/// The longest time that a request waits for its answer.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// A call that a client wants to make, with what its tool declares.
///
/// ```
/// use counterfoil::guard_service::Begin;
///
/// let begin: Begin = serde_json::from_str(r#"{"tool": "refund", "key": "order-9", "input": {"cents": 1200}}"#)?;
/// assert_eq!(begin.attempt_ms, 30_000);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Begin {
    /// The name of the tool.
    pub tool: String,
    /// The key of the operation: the same for each try, and for nothing else.
    pub key: String,
    /// The input of the tool. Another input under the same key is a conflict.
    #[serde(default)]
    pub input: Value,
    /// The effect of the tool on the world. Default: `internal_mutation`.
    #[serde(default = "internal_mutation")]
    pub effect: EffectClass,
    /// The offer of the provider. Default: `lookup` if the client looks calls up, and `blind` otherwise.
    #[serde(default)]
    pub contract: Option<ContractClass>,
    /// True if the client finds out the outcome of a call when it is asked to [look](super::Step::Look). Default: false.
    #[serde(default)]
    pub lookup: bool,
    /// The timeout of one attempt and of one lookup, in milliseconds. Default: 30,000.
    #[serde(default = "attempt_ms")]
    pub attempt_ms: u64,
    /// The time after which a request that has left can no longer take effect at the provider, in milliseconds: only a lookup after it
    /// shows that a call did not happen. Default: a minute.
    #[serde(default)]
    pub settle_ms: Option<u64>,
    /// The time for which the provider remembers a key, in milliseconds. A call of unknown outcome is not sent again after it.
    /// Default: for ever.
    #[serde(default)]
    pub key_window_ms: Option<u64>,
    /// The maximum length of a key that the provider takes, in characters. Default: 64.
    #[serde(default)]
    pub key_max_len: Option<usize>,
    /// The account, credential or region that the provider scopes its keys to. Default: none.
    #[serde(default)]
    pub scope: Option<String>,
    /// The sends after which a call that is done is looked up once more. `always` needs a process that [polls](Poll) for the tool:
    /// without one, nobody makes the lookup, and a person is asked. Default: `after_doubt`.
    #[serde(default)]
    pub confirm: Option<Confirm>,
    /// The people of whom one approves the call before it goes out. A notification and a deletion need some, unless
    /// they go out [without an approval](Self::without_approval).
    #[serde(default)]
    pub reviewers: Vec<String>,
    /// The [labels](crate::ToolRequest::label) of the call: values by their names. Default: none.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// True if a notification or a deletion goes out without an approval. Default: false.
    #[serde(default)]
    pub without_approval: bool,
    /// The longest wait for an answer other than "in flight", in milliseconds: at most a minute. Default: 10,000.
    #[serde(default = "wait_ms")]
    pub wait_ms: u64,
}

/// The outcome of a call that a client was told to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Seal {
    /// The permit of the [step](super::Step::Send).
    pub permit: String,
    /// The outcome of the call.
    pub outcome: CallOutcome,
    /// The longest wait for an answer other than "in flight", in milliseconds: at most a minute. Default: 10,000.
    #[serde(default = "wait_ms")]
    pub wait_ms: u64,
}

/// The outcome of a call, as its client knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The call was done.
    Done {
        /// The output of the call.
        output: Value,
        /// The provider's id for the effect.
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// The call failed. Its kind says if it can have had an effect.
    Failed {
        /// The kind of the failure. `unknown` if the call may have had its effect.
        kind: ErrorKind,
        /// Description of the failure, for people. Goes into the record: no secrets.
        message: String,
        /// The pause that the provider asks for, in milliseconds.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
}

/// The finding of a client that was told to look a call up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Reconcile {
    /// The permit of the [step](super::Step::Look).
    pub permit: String,
    /// The finding.
    pub finding: Finding,
    /// The longest wait for an answer other than "in flight", in milliseconds: at most a minute. Default: 10,000.
    #[serde(default = "wait_ms")]
    pub wait_ms: u64,
}

/// The finding of a lookup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Finding {
    /// The call happened.
    Happened {
        /// The output of the call.
        output: Value,
        /// The provider's id for the effect.
        #[serde(default)]
        external_ref: Option<String>,
    },
    /// The call happened more than once. The first effect is kept, and a person is asked about the others.
    Duplicated {
        /// All effects, the first one first.
        effects: Vec<FoundEffect>,
    },
    /// The provider shows no effect of the call.
    NotFound,
    /// The provider gave no answer, or none that tells.
    Unknown,
}

/// One of several effects of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FoundEffect {
    /// The output that the call would have had if this were its only effect.
    pub output: Value,
    /// The provider's id for the effect.
    #[serde(default)]
    pub external_ref: Option<String>,
}

/// The tasks for which a process polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tasks {
    /// Lookups. Attempts are left to the clients that begin their calls.
    #[default]
    Looks,
    /// Lookups, and attempts of calls for which no client waits.
    All,
}

/// A request for calls of a tool that have lost their client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Poll {
    /// The name of the tool.
    pub tool: String,
    /// The tasks that the process carries out. Default: `looks`.
    #[serde(default)]
    pub tasks: Tasks,
    /// The longest wait for a call, in milliseconds: at most a minute. Default: 10,000.
    #[serde(default = "wait_ms")]
    pub wait_ms: u64,
}

const fn internal_mutation() -> EffectClass {
    EffectClass::InternalMutation
}

const fn attempt_ms() -> u64 {
    30_000
}

const fn wait_ms() -> u64 {
    10_000
}

/// The time that a request waits for its answer.
pub(super) fn wait(ms: u64) -> Duration {
    Duration::from_millis(ms).clamp(LEAST_WAIT, LONGEST_WAIT)
}

/// The operation of a tool under a client's key.
pub(super) fn operation(tool: &str, key: &str) -> Result<OperationKey, KeyError> {
    Name::new(tool).map_err(|_| KeyError::Empty { part: "operation type" })?;
    Key::given(tool, key).render()
}

impl Begin {
    /// A call of this tool under a key, with the defaults of its fields.
    pub fn new(tool: impl Into<String>, key: impl Into<String>, input: Value) -> Self {
        Self {
            tool: tool.into(),
            key: key.into(),
            input,
            effect: internal_mutation(),
            contract: None,
            lookup: false,
            attempt_ms: attempt_ms(),
            settle_ms: None,
            key_window_ms: None,
            key_max_len: None,
            scope: None,
            confirm: None,
            reviewers: Vec::new(),
            labels: BTreeMap::new(),
            without_approval: false,
            wait_ms: wait_ms(),
        }
    }

    /// Refuses labels that do not fit.
    pub(super) fn check_labels(&self) -> Result<(), ExecError> {
        let labels: Vec<_> = self.labels.clone().into_iter().collect();
        Ok(Labels::from(labels).check().map_err(RequestError::Label)?)
    }

    pub(super) fn attempt(&self) -> Duration {
        Duration::from_millis(self.attempt_ms)
    }

    /// The contract of the provider. An outcome in the ledger's own database cannot be promised from outside.
    pub(super) fn contract(&self) -> Option<Contract> {
        let (default, offer) = if self.lookup {
            (ContractClass::Lookup, LookupOffer::Strong)
        } else {
            (ContractClass::Blind, LookupOffer::None)
        };
        let class = self.contract.unwrap_or(default);
        let settle = self.settle_ms.map(Duration::from_millis);
        let key_window = self.key_window_ms.map(Duration::from_millis);
        let mut contract = Contract { key_window, settle, ..Contract::new(class).lookup(offer) };
        contract.key_max_len = self.key_max_len.unwrap_or(contract.key_max_len);
        contract.scope.clone_from(&self.scope);
        contract.confirm = Some(self.confirm.unwrap_or(Confirm::AfterDoubt));
        (class != ContractClass::Transactional).then_some(contract)
    }

    pub(super) fn retry(&self, contract: &Contract) -> RetryPolicy {
        RetryPolicy { attempt_timeout: self.attempt(), ..RetryPolicy::of(contract) }
    }

    pub(super) fn lookups(&self) -> LookupPolicy {
        LookupPolicy::default().timeout(self.attempt())
    }

    /// The content that the reviewers approve, if there are any.
    pub(super) fn review(&self) -> Option<(ApprovalSubject, ReviewPolicy)> {
        let subject = || ApprovalSubject::of(self.tool.as_str(), &self.input);
        (!self.reviewers.is_empty()).then(|| (subject(), ReviewPolicy::by(self.reviewers.iter().cloned())))
    }
}

impl CallOutcome {
    /// A call that was done with this output.
    pub const fn done(output: Value) -> Self {
        Self::Done { output, external_ref: None }
    }
}

impl Seal {
    /// The outcome of the attempt that a permit was given for.
    pub fn new(permit: impl Into<String>, outcome: CallOutcome) -> Self {
        Self { permit: permit.into(), outcome, wait_ms: wait_ms() }
    }
}

impl FoundEffect {
    /// An effect with this output, under the provider's id.
    pub fn new(output: Value, external_ref: impl Into<String>) -> Self {
        Self { output, external_ref: Some(external_ref.into()) }
    }
}

impl Reconcile {
    /// The finding of the lookup that a permit was given for.
    pub fn new(permit: impl Into<String>, finding: Finding) -> Self {
        Self { permit: permit.into(), finding, wait_ms: wait_ms() }
    }
}

impl Poll {
    /// A request for the lookups of this tool.
    pub fn new(tool: impl Into<String>) -> Self {
        Self { tool: tool.into(), tasks: Tasks::default(), wait_ms: wait_ms() }
    }
}
