//! The idempotency record: what is known of one operation (REC-1).

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

/// Who asked for the operation first, and so owns its effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The run, if a workflow asked.
    pub run: Option<RunId>,
    /// The step of the run: name and id.
    pub step: Option<Arc<str>>,
    /// The turn of the run in which it asked; 0 before any loop.
    pub turn: u32,
    /// The caller's own id for the call. Shown, never used as a key: models reuse them.
    pub call_id: Option<String>,
}

/// What a committed record rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The provider's answer, seen by us.
    Answer,
    /// Evidence or a lookup after the answer was lost.
    Lookup,
    /// A second send under the same key, trusting the provider's word that it honours keys. If it does not,
    /// the effect happened twice, and this mark is what makes the duplicate not silent.
    Declaration,
    /// A repeat of an effect that may be repeated, or that somebody opted to repeat.
    Repeat,
    /// A person's word.
    Decision,
    /// The provider's answer to a send that rests on a person's word: that an earlier one had no effect, or that it is sent without a
    /// look. Where there is a lookup, it is made once more.
    Denial,
}

impl Basis {
    /// All, in the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::Answer, Self::Lookup, Self::Declaration, Self::Repeat, Self::Decision, Self::Denial];

    /// The number that rows hold. Never reuse one.
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

    /// Reads the number back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|basis| basis.code() == code)
    }
}

/// Where the operation stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// An attempt may have reached the world. After a crash this means *ambiguous*, always.
    Started,
    /// It happened, once.
    Committed {
        /// The first result, byte for byte.
        response: Stored,
    },
    /// For certain it did not happen; it may be tried again under the same key.
    Failed {
        /// Why.
        failure: RecordedFailure,
    },
    /// It happened and was undone.
    Compensated {
        /// The first result.
        response: Stored,
        /// What the undoing gave back.
        compensation: Stored,
        /// All of it was undone, not a part.
        whole: bool,
    },
    /// Nobody knows, and somebody decided to leave it at that.
    Abandoned {
        /// Who decided so, and why.
        reason: String,
    },
    /// Its time was over. What is left keeps its key from being taken for new (DESIGN 4.10).
    Gone {
        /// How it stood.
        was: FinalState,
        /// The digest of its outcome by the tenant's key, in hexadecimal.
        outcome: String,
    },
}

/// How an operation stood when its record's time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalState {
    /// It had happened, once.
    Committed,
    /// It had happened and was undone, at least in part.
    Compensated,
    /// Nobody knew, and somebody had decided to leave it at that.
    Abandoned,
}

impl FinalState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Committed, Self::Compensated, Self::Abandoned];

    /// The name used in rows, tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Compensated => "compensated",
            Self::Abandoned => "abandoned",
        }
    }
}

impl State {
    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(&self) -> i64 {
        match self {
            Self::Started => 1,
            Self::Committed { .. } => 2,
            Self::Failed { .. } => 3,
            Self::Compensated { .. } => 4,
            Self::Abandoned { .. } => 5,
            Self::Gone { .. } => 7, // 6 stands for what is compensated in part
        }
    }

    /// The name used in tables and messages.
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

/// The idempotency record of one operation. Unique by (tenant, key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it stands in its table.
    pub id: RecordId,
    /// Whose it is.
    pub tenant: Tenant,
    /// What it is the record of.
    pub key: OperationKey,
    /// The operation type: the tool's name.
    pub operation: Name,
    /// What it does to the world.
    pub class: EffectClass,
    /// The canonical request, secrets as keyed digests.
    pub request: Stored,
    /// What the key is bound to.
    pub request_hash: RequestHash,
    /// The declaration of its tool under which it went out. While the fate of an attempt is open it stays that of the first
    /// attempt that may have had an effect.
    pub declaration: DeclarationId,
    /// Who asked first.
    pub owner: Owner,
    /// The worker whose attempt this is. A worker with another fence can change nothing.
    pub fence: Fence,
    /// Counts the changes; a change is admitted only on top of the one it was computed from.
    pub revision: u32,
    /// Attempts in all.
    pub attempts: u32,
    /// Attempts made by executions that have ended; the rest count against the present retry budget.
    pub spent: u32,
    /// Where it stands.
    pub state: State,
    /// What a committed state rests on; of a started one, what it will rest on if its answer comes.
    pub basis: Basis,
    /// The present attempt was dispatched while the fate of an earlier one was open. That it fails for certain
    /// then says nothing about the earlier one, and a success is looked at once more.
    pub in_doubt: bool,
    /// The provider's id, noted as soon as it was known.
    pub external_ref: Option<String>,
    /// The open question about it.
    pub escalation: Option<QuestionId>,
    /// Of a failed operation, when it goes again at the earliest; absent if its execution has ended. Of a started one, since when
    /// [nobody has it in hand](Self::is_left); absent while its worker has.
    pub not_before: Option<Timestamp>,
    /// Until when it is kept whole (REC-6). Absent: for ever, or what is left of it.
    pub kept_until: Option<Timestamp>,
    /// When it was first started: no byte left before this instant.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was settled: committed, failed for good or abandoned. Later lookups and an undoing do not move it. Absent while it is
    /// open, and of a record that an engine without this field has settled.
    pub sealed_at: Option<Timestamp>,
    /// The approval under which the call went out: who decided, and which version of which review. While the fate of an attempt is
    /// open it stays that of the first one. Absent where none was needed, and from what is left of a record.
    pub approval: Option<Box<Approval>>,
    /// The scopes of the call's key and of its lookup at the provider, where the tool says them for each call. While the fate of an attempt is
    /// open it stays that of the first one. Absent: as the declaration says, and from what is left of a record.
    pub scopes: Option<Box<Scopes>>,
    /// The cost of the attempt that was answered, in the unit of its tool's [price](super::Price). Absent: as estimated.
    pub cost: Option<u64>,
}

/// What is to be recorded of an operation before anything is sent for it.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Where its record will stand in its table.
    pub id: RecordId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Which operation it is.
    pub key: OperationKey,
    /// The operation type: the tool's name.
    pub operation: Name,
    /// What it does to the world.
    pub class: EffectClass,
    /// The canonical request, secrets as keyed digests.
    pub request: Stored,
    /// What the key is bound to.
    pub request_hash: RequestHash,
    /// The declaration of its tool.
    pub declaration: DeclarationId,
    /// Who asks.
    pub owner: Owner,
    /// The worker that writes the record.
    pub fence: Fence,
    /// How long the record is kept, and what is left of it.
    pub retention: Retention,
    /// The approval under which it goes out.
    pub approval: Option<Box<Approval>>,
    /// The scopes of its key and of its lookup at the provider.
    pub scopes: Option<Box<Scopes>>,
}

impl Record {
    /// The first record of an operation that is about to be sent.
    pub fn begin(intent: Intent, at: Timestamp) -> Self {
        Self { attempts: 1, ..Self::unsent(intent, at) }
    }

    /// The record of an operation that is sent before anything is recorded of it, because it may be repeated. What is written first is
    /// what became of it.
    pub(crate) fn unwritten(intent: Intent, at: Timestamp) -> Self {
        Self { revision: 0, ..Self::begin(intent, at) }
    }

    /// Nothing is recorded of it yet.
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

    /// The first record of an operation that failed, or waits to go again, before anything was sent for it.
    pub fn failed(
        intent: Intent,
        failure: RecordedFailure,
        not_before: Option<Timestamp>,
        at: Timestamp,
    ) -> Self {
        let sealed_at = not_before.is_none().then_some(at);
        Self { state: State::Failed { failure }, not_before, sealed_at, ..Self::unsent(intent, at) }
    }

    /// The record of what somebody says has happened: it is there with its record, and is never ambiguous.
    pub fn decided(intent: Intent, response: Stored, at: Timestamp) -> Self {
        let state = State::Committed { response };
        Self { state, basis: Basis::Decision, sealed_at: Some(at), ..Self::unsent(intent, at) }
    }

    /// Its outcome is known, or somebody has decided to leave it. One that waits for its next attempt is not settled.
    pub const fn is_settled(&self) -> bool {
        match self.state {
            State::Started => false,
            State::Failed { .. } => self.not_before.is_none(),
            _ => true,
        }
    }

    /// Its fate is open, and its worker neither sends it any more nor finds out what became of it: whoever wants it may take it up,
    /// also while that worker lives.
    pub const fn is_left(&self) -> bool {
        matches!(self.state, State::Started) && self.not_before.is_some()
    }

    /// Attempts that count against the present execution's budget.
    pub const fn tries(&self) -> u32 {
        self.attempts.saturating_sub(self.spent)
    }

    /// The row stands as it would have been written. Until when it is kept may have changed meanwhile: that is for
    /// [retirement](super::Retention) alone to change.
    pub(crate) fn is_as_written(&self, written: &Self) -> bool {
        let kept_until = self.kept_until;
        *self == Self { kept_until, ..written.clone() }
    }

    /// The run that has to find out what became of a started call, unless a person is asked. A run that is over does not: its
    /// call was dropped and not there.
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
