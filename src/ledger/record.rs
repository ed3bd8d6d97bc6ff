//! The idempotency record: the known facts about one operation.

use std::sync::Arc;

use super::approval::Approval;
use super::effect::EffectClass;
use super::hash::RequestHash;
use super::key::OperationKey;
use super::retention::Retention;
use super::retry::RecordedFailure;
use super::scopes::Scopes;
use crate::clock::Timestamp;
use crate::id::{DeclarationId, Fence, Name, QuestionId, RecordId, RunId, Tenant};
use crate::payload::Stored;

/// The first requester of the operation, who owns its effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The run, if a workflow made the request.
    pub run: Option<RunId>,
    /// The step of the run, as name and id.
    pub step: Option<Arc<str>>,
    /// The turn of the run that made the request; 0 before any loop.
    pub turn: u32,
    /// The caller's own id for the call. It is shown, and never used as a key: models reuse such ids.
    pub call_id: Option<String>,
}

/// The evidence that a committed record rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The answer of the provider, received by this engine.
    Answer,
    /// Evidence from a late worker, or a lookup after the answer was lost.
    Lookup,
    /// A second send under the same key, made because the provider declares that it honours keys. If that is not
    /// true, the effect happened twice, and this mark keeps the duplicate from being silent.
    Declaration,
    /// A repeat of an effect that may be repeated, or whose tool opted in to repeats.
    Repeat,
    /// The decision of a person.
    Decision,
    /// The provider's answer to a send that rests on the decision of a person: that an earlier send had no effect, or
    /// that the call is sent without a lookup. If there is a lookup, it is made once more.
    Denial,
}

impl Basis {
    /// All values, in the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::Answer, Self::Lookup, Self::Declaration, Self::Repeat, Self::Decision, Self::Denial];

    /// The name of the basis in tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Lookup => "lookup",
            Self::Declaration => "declaration",
            Self::Repeat => "repeat",
            Self::Decision => "decision",
            Self::Denial => "denial",
        }
    }

    /// The code that rows hold. Never reuse a code.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Answer => 0,
            Self::Lookup => 1,
            Self::Declaration => 2,
            Self::Repeat => 3,
            Self::Decision => 4,
            Self::Denial => 5,
        }
    }

    /// Reads a code back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|basis| basis.code() == code)
    }
}

/// The state of the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// An attempt may have reached the world. After a crash this always means *ambiguous*.
    Started,
    /// The effect happened, once.
    Committed {
        /// The first result, byte for byte.
        response: Stored,
    },
    /// The effect did not happen, for certain; the call may be tried again under the same key.
    Failed {
        /// The recorded failure.
        failure: RecordedFailure,
    },
    /// The effect happened and was undone.
    Compensated {
        /// The first result.
        response: Stored,
        /// The result of the compensation.
        compensation: Stored,
        /// True if the whole effect was undone, false if only a part of it was.
        whole: bool,
    },
    /// The outcome is unknown, and a person decided to leave it open.
    Abandoned {
        /// The name of the person who decided, and the reason.
        reason: String,
    },
    /// The retention of the record is over. The rest of it, a tombstone, prevents that its key counts as new.
    Gone {
        /// The final state of the record.
        was: FinalState,
        /// The digest of the outcome by the tenant's key, in hexadecimal.
        outcome: String,
    },
}

/// The state of an operation when the retention of its record was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalState {
    /// The effect had happened, once.
    Committed,
    /// The effect had happened and was undone, at least in part.
    Compensated,
    /// The outcome was unknown, and a person had decided to leave it open.
    Abandoned,
}

impl FinalState {
    /// All final states.
    pub const ALL: [Self; 3] = [Self::Committed, Self::Compensated, Self::Abandoned];

    /// The name of the state in rows, tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Compensated => "compensated",
            Self::Abandoned => "abandoned",
        }
    }
}

impl State {
    /// The code that rows hold. Never reuse a code.
    pub(crate) const fn code(&self) -> i64 {
        match self {
            Self::Started => 1,
            Self::Committed { .. } => 2,
            Self::Failed { .. } => 3,
            Self::Compensated { .. } => 4,
            Self::Abandoned { .. } => 5,
            Self::Gone { .. } => 7, // 6 is the code of an effect that is compensated in part
        }
    }

    /// The name of the state in tables and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Committed { .. } => "committed",
            Self::Failed { .. } => "failed",
            Self::Compensated { .. } => "compensated",
            Self::Abandoned { .. } => "abandoned",
            Self::Gone { .. } => "gone",
        }
    }
}

/// The idempotency record of one operation, unique by tenant and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The position of the record in its table.
    pub id: RecordId,
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The key of the operation.
    pub key: OperationKey,
    /// The operation type: the tool's name.
    pub operation: Name,
    /// The effect class of the operation.
    pub class: EffectClass,
    /// The canonical request, with secrets as keyed digests.
    pub request: Stored,
    /// The hash of the input that the key is bound to.
    pub request_hash: RequestHash,
    /// The declaration of the tool under which the call went out. While the outcome of an attempt is open, this is
    /// the declaration of the first attempt that may have had an effect.
    pub declaration: DeclarationId,
    /// The first requester.
    pub owner: Owner,
    /// The fence of the worker whose attempt this is. A worker with another fence can change nothing.
    pub fence: Fence,
    /// The number of changes. A change is admitted only on top of the revision it was computed from.
    pub revision: u32,
    /// The number of attempts in all.
    pub attempts: u32,
    /// The number of attempts made by executions that have ended; the others count against the present retry budget.
    pub spent: u32,
    /// The state of the operation.
    pub state: State,
    /// The basis of a committed state; for a started record, the basis that it will have if its answer arrives.
    pub basis: Basis,
    /// True if the present attempt was dispatched while the outcome of an earlier one was open. A certain failure
    /// then says nothing about the earlier attempt, and a success is looked up once more.
    pub in_doubt: bool,
    /// The external id: the provider's id, noted as soon as it was known. An attempt after one that failed for certain
    /// begins without an id.
    pub external_ref: Option<String>,
    /// The open question about the operation.
    pub escalation: Option<QuestionId>,
    /// For a failed operation: the earliest instant of the next attempt; `None` if its execution has ended. For a
    /// started one: the instant since which [no worker handles it](Self::is_left); `None` while its worker does.
    pub not_before: Option<Timestamp>,
    /// The instant until which the whole record is kept. `None`: for ever, or the record is a tombstone.
    pub kept_until: Option<Timestamp>,
    /// The instant at which the operation was first started: no byte was sent before it.
    pub created_at: Timestamp,
    /// The instant of the last change.
    pub updated_at: Timestamp,
    /// The instant at which the operation was settled: committed, failed for good or abandoned. Later lookups and a
    /// compensation do not move it. `None` while the operation is open, and in a record that was settled by an engine
    /// without this field.
    pub sealed_at: Option<Timestamp>,
    /// The approval under which the call went out: the person who decided, and the version of the review. While the
    /// outcome of an attempt is open, this is the approval of the first attempt. `None` if none was needed, and in a
    /// tombstone.
    pub approval: Option<Box<Approval>>,
    /// The scopes of the call's key and of its lookup at the provider, if the tool names them for each call. While
    /// the outcome of an attempt is open, these are the scopes of the first attempt. `None`: as the declaration says,
    /// and in a tombstone.
    pub scopes: Option<Box<Scopes>>,
    /// The cost of the answered attempt, in the unit of its tool's [price](super::Price). `None`: as estimated.
    pub cost: Option<u64>,
}

/// The data to record about an operation before anything is sent for it.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The position that the record will have in its table.
    pub id: RecordId,
    /// The tenant that owns the operation.
    pub tenant: Tenant,
    /// The key of the operation.
    pub key: OperationKey,
    /// The operation type: the tool's name.
    pub operation: Name,
    /// The effect class of the operation.
    pub class: EffectClass,
    /// The canonical request, with secrets as keyed digests.
    pub request: Stored,
    /// The hash of the input that the key is bound to.
    pub request_hash: RequestHash,
    /// The declaration of the tool.
    pub declaration: DeclarationId,
    /// The requester.
    pub owner: Owner,
    /// The fence of the worker that writes the record.
    pub fence: Fence,
    /// The retention of the record: its duration, and the part that is left afterwards.
    pub retention: Retention,
    /// The approval under which the call goes out.
    pub approval: Option<Box<Approval>>,
    /// The scopes of the call's key and of its lookup at the provider.
    pub scopes: Option<Box<Scopes>>,
}

impl Record {
    /// The first record of an operation that is about to be sent.
    pub fn begin(intent: Intent, at: Timestamp) -> Self {
        Self { attempts: 1, ..Self::unsent(intent, at) }
    }

    /// The record of an operation that is sent before anything is recorded, because it may be repeated. The first
    /// write records its outcome.
    pub(crate) fn unwritten(intent: Intent, at: Timestamp) -> Self {
        Self { revision: 0, ..Self::begin(intent, at) }
    }

    /// True if nothing is recorded of the operation yet.
    pub(crate) const fn is_unwritten(&self) -> bool {
        self.revision == 0
    }

    /// The first record of an operation for which this ledger has sent nothing.
    pub fn unsent(intent: Intent, at: Timestamp) -> Self {
        let Intent {
            id,
            tenant,
            key,
            operation,
            class,
            request,
            request_hash,
            declaration,
            owner,
            fence,
            retention,
            approval,
            scopes,
        } = intent;
        Self {
            id,
            tenant,
            key,
            operation,
            class,
            request,
            request_hash,
            declaration,
            owner,
            fence,
            revision: 1,
            attempts: 0,
            spent: 0,
            state: State::Started,
            basis: Basis::Answer,
            in_doubt: false,
            external_ref: None,
            escalation: None,
            not_before: None,
            kept_until: retention.until(at),
            created_at: at,
            updated_at: at,
            sealed_at: None,
            approval,
            scopes,
            cost: None,
        }
    }

    /// The first record of an operation that failed, or waits for another attempt, before anything was sent for it.
    pub fn failed(
        intent: Intent,
        failure: RecordedFailure,
        not_before: Option<Timestamp>,
        at: Timestamp,
    ) -> Self {
        let sealed_at = not_before.is_none().then_some(at);
        Self { state: State::Failed { failure }, not_before, sealed_at, ..Self::unsent(intent, at) }
    }

    /// The record of an effect that happened by the word of a person: committed from its first write, and never
    /// ambiguous.
    pub fn decided(intent: Intent, response: Stored, at: Timestamp) -> Self {
        let state = State::Committed { response };
        Self { state, basis: Basis::Decision, sealed_at: Some(at), ..Self::unsent(intent, at) }
    }

    /// True if the outcome is known or a person has decided to leave it open. An operation that waits for its next
    /// attempt is not settled.
    pub const fn is_settled(&self) -> bool {
        match self.state {
            State::Started => false,
            State::Failed { .. } => self.not_before.is_none(),
            _ => true,
        }
    }

    /// True if the outcome is open, and the worker neither sends the call any more nor finds its outcome out. Any
    /// worker that wants the operation may take it up, even while that worker lives.
    pub const fn is_left(&self) -> bool {
        matches!(self.state, State::Started) && self.not_before.is_some()
    }

    /// The number of attempts that count against the budget of the present execution.
    pub const fn tries(&self) -> u32 {
        self.attempts.saturating_sub(self.spent)
    }

    /// True if the row is as it would have been written. `kept_until` may have changed meanwhile: only
    /// [retirement](super::Retention) changes it.
    pub(crate) fn is_as_written(&self, written: &Self) -> bool {
        let kept_until = self.kept_until;
        *self == Self { kept_until, ..written.clone() }
    }

    /// The run that has to find out the outcome of a started call, unless a person is asked. A run that has ended by
    /// then cannot: it dropped the call.
    pub(crate) const fn awaited_by(&self) -> Option<RunId> {
        match (&self.state, self.escalation) {
            (State::Started, None) => self.owner.run,
            _ => None,
        }
    }

    /// The stored first result, if there is one.
    pub const fn response(&self) -> Option<&Stored> {
        match &self.state {
            State::Committed { response } | State::Compensated { response, .. } => Some(response),
            _ => None,
        }
    }
}
