//! What is written: a change lists all its consequences, so that "one transaction" is visible in the type.

use super::Aggregate;
use super::document::Document;
use super::escalation::{Question, QuestionKind};
use super::outbox::{OutboxEvent, Published};
use super::run::{Run, RunState};
use super::schedule::Schedule;
use super::signal::Signal;
use super::{Evidence, SharedEffect, Step};
use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, Tenant};
use crate::ledger::{Admission, Basis, ContractClass, Look, Record, RequestHash, State};
use crate::payload::{DigestKey, Payload, PayloadDigest, Stored, hex};

/// One activation of a run: changes of one lane never overtake one another, and a refused one stops the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderingKey(pub u64);

/// One change with everything that follows from it: all of it becomes durable, or nothing.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The worker that writes. Refused once that worker has been fenced; absent only for enrolment and for
    /// evidence, which a fenced worker may still leave.
    pub fence: Option<Fence>,
    /// The order it belongs to.
    pub lane: Option<OrderingKey>,
    /// The new state of a record: at revision 1 a new one, otherwise one revision on from what is stored.
    pub record: Option<Box<Record>>,
    /// The look at a record that is to come, by the same rule as `record`; one that is not to come goes.
    pub look: Option<Box<Look>>,
    /// Checkpoints of a run.
    pub steps: Vec<Step>,
    /// A run was answered from a record that another run owns.
    pub used: Option<Box<SharedEffect>>,
    /// The new state of a run, by the same rule as `record`.
    pub run: Option<Box<Run>>,
    /// With a run: the checkpoints of its turns after its [base](Run::base), up to this one, go.
    pub prune: Option<u32>,
    /// A question: without an answer a new one, with an answer one that was open.
    pub escalations: Vec<Question>,
    /// Something said to a run. Refused as `Exists` if it has another of this name and id.
    pub signal: Option<Box<Signal>>,
    /// A signal that its run has received. Refused as `Stale` if there is none.
    pub received: Option<Box<Signal>>,
    /// What a fenced worker learned.
    pub evidence: Option<Box<Evidence>>,
    /// The contract of the call whose outcome the record or the evidence tells. A store needs it to know whether a late
    /// answer is of a second effect: of this evidence, or of what fenced workers left before if the record was
    /// [taken over](Self::taken_over).
    pub contract: Option<ContractClass>,
    /// The record was begun by another worker, and this change seals it: what fenced workers learned about it is compared
    /// with it. Except for what these learned, by worker and attempt, on which the seal rests.
    pub taken_over: Option<Box<[(Fence, u32)]>>,
    /// Payloads that are too large for their rows.
    pub payloads: Vec<(Tenant, Payload)>,
    /// A worker comes or goes.
    pub worker: Option<WorkerChange>,
    /// Runs of a queue begin: as many as its limits allow become this worker's, in a change of its own. Which they are
    /// is [read back](crate::store::Store::queue_admitted).
    pub admission: Option<Box<Admission>>,
    /// The new state of a schedule, by the same rule as `record`; with the run that its tick begins, if it does.
    pub schedule: Option<Box<Schedule>>,
    /// The new states of guards' rows, each of another row: at revision 1 a new one, otherwise one revision on from what
    /// is stored. Refused as `Exists` if one is not: then another was first, and what is there is to be read again.
    pub documents: Vec<Document>,
    /// Events that are to be published, each the next one of its aggregate. Refused as `Exists` if one of this id is there.
    pub events: Vec<OutboxEvent>,
    /// How far aggregates are published, by the same rule as `record`: each is there from its first event on, at revision
    /// 1. Not together with events of the same aggregate.
    pub aggregates: Vec<Aggregate>,
    /// Records whose time is over, each with what is left of it, in a change of its own. One that has changed meanwhile, that
    /// somebody asks about or that a run that is under way rests on stays as it is.
    pub retired: Vec<Retired>,
    /// Runs whose time is over, each with what is left of it, in a change of its own. One that is not at rest stays as it is. Of a long
    /// one a part of what belongs to it goes: it is listed again until all is gone.
    pub retired_runs: Vec<RetiredRun>,
    /// Nobody waits for the disk, for what a crash takes back is retired again. In a batch of its own.
    pub beside: bool,
    /// A tenant of which nothing stays but its key for digests, in a change of its own; alone in a batch it may take as long as
    /// it does. Refused as `UnderWay` while anything of it is.
    pub erased: Option<Tenant>,
    /// Published events that nobody will ask for any more: each goes, and all before it of its aggregate.
    pub forgotten: Vec<Published>,
    /// A tenant's key for digests of secrets, when it is first seen; a key that exists stays.
    pub tenant_key: Option<(Tenant, DigestKey)>,
}

/// A record whose time is over, or begins anew.
#[derive(Clone, Debug)]
pub struct Retired {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its place.
    pub id: RecordId,
    /// The revision at which it is retired.
    pub revision: u32,
    /// What is left of it, one revision on: nothing, digests, or all of it until later. What belongs to it goes with what
    /// is said about it: evidence and answered questions with all but the last, and uses with the first.
    pub left: Option<Box<Record>>,
    /// The payloads that it referred to, if it does not refer to them any more: each has one use less.
    pub payloads: Vec<PayloadDigest>,
}

impl Retired {
    /// What is left of a record.
    pub fn of(record: &Record, left: Option<Record>) -> Self {
        let mut retired = Self {
            tenant: record.tenant.clone(),
            id: record.id,
            revision: record.revision,
            left: left.map(Box::new),
            payloads: Vec::new(),
        };
        if !retired.is_kept() {
            let compensation = match &record.state {
                State::Compensated { compensation, .. } => Some(compensation),
                _ => None,
            };
            let held = [Some(&record.request), record.response(), compensation];
            retired.payloads = held.into_iter().flatten().filter_map(Stored::address).collect();
        }
        retired
    }

    /// It is kept whole for longer.
    pub(crate) fn is_kept(&self) -> bool {
        self.left.as_ref().is_some_and(|left| !matches!(left.state, State::Gone { .. }))
    }
}

/// A run whose time is over: its input, outcome, checkpoints and signals go, and its place and start key stay, unless nothing is left.
#[derive(Clone, Debug)]
pub struct RetiredRun {
    /// The run, as it was listed.
    pub run: Run,
    /// A tombstone is left of it. Otherwise its start key is new again.
    pub is_left: bool,
    /// The hash of its input by the tenant's own key.
    pub input_hash: RequestHash,
    /// The digest of its outcome by the same key.
    pub outcome: String,
}

impl RetiredRun {
    /// What is left of a run that has ended; nothing of one that has not.
    pub fn of(run: &Run, is_left: bool, key: &DigestKey) -> Option<Self> {
        let (is_expired, outcome) = match &run.state {
            RunState::Succeeded { output } => (false, hex(&key.digest(output.column().as_bytes()))),
            RunState::Failed { failure } => (false, hex(&key.digest(failure.as_str().as_bytes()))),
            RunState::Expired { outcome, .. } => (true, outcome.clone()),
            _ => return None,
        };
        let input_hash = if is_expired { run.input_hash } else { run.input_hash.keyed(key) };
        Some(Self { run: run.clone(), is_left, input_hash, outcome })
    }

    /// The large payloads that its row names.
    pub(super) fn payloads(&self) -> Vec<PayloadDigest> {
        let output = match &self.run.state {
            RunState::Succeeded { output } => Some(output),
            _ => None,
        };
        std::iter::once(&self.run.input).chain(output).filter_map(Stored::address).collect()
    }
}

/// A worker comes or goes.
#[derive(Clone, Debug)]
pub enum WorkerChange {
    /// A new process begins work under a name that nobody had before. It is given the next fence.
    Enrol {
        /// Its name: unique, with a random part.
        name: String,
        /// When.
        at: Timestamp,
        /// Until when it is alive unless it [renews](WorkerChange::Renew), by the store's clock. Absent in a store
        /// of one worker, whose lock tells.
        lease_until: Option<Timestamp>,
    },
    /// The worker is alive, and says so until then by the store's clock.
    Renew {
        /// The new end of its lease.
        until: Timestamp,
    },
    /// Another worker's lease has run out: its writes are void from now on. Refused as stale if it has ended
    /// before, or has renewed.
    End {
        /// Which.
        fence: Fence,
        /// Now, by the store's clock.
        at: Timestamp,
    },
    /// Nothing of an ended worker is left to be taken over: nobody looks for it any more.
    Settle {
        /// Which.
        fence: Fence,
    },
    /// All other workers are dead (embedded: their lock was taken): their writes are void from now on.
    FenceOthers {
        /// When.
        at: Timestamp,
    },
    /// The worker publishes what is in the outbox, from now until it ends. Refused as `Exists` while another one does.
    Publish,
    /// The worker goes in order: what it leaves has not killed it.
    Retire {
        /// When.
        at: Timestamp,
    },
}

impl Change {
    /// An empty change by a worker.
    pub fn by(fence: Fence) -> Self {
        Self { fence: Some(fence), ..Self::default() }
    }

    /// Adds or changes a record.
    #[must_use]
    pub fn record(mut self, record: impl Into<Box<Record>>) -> Self {
        self.record = Some(record.into());
        self
    }

    /// Adds, changes or takes off a look.
    #[must_use]
    pub fn look(mut self, look: impl Into<Box<Look>>) -> Self {
        self.look = Some(look.into());
        self
    }

    /// Adds a run's checkpoint.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.reserve_exact(1); // nearly always it is the only one
        self.steps.push(step);
        self
    }

    /// Adds or changes a run.
    #[must_use]
    pub fn run(mut self, run: impl Into<Box<Run>>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Adds or answers a question.
    #[must_use]
    pub fn escalation(mut self, escalation: Question) -> Self {
        self.escalations.push(escalation);
        self
    }

    /// Puts the change in a lane.
    #[must_use]
    pub fn in_lane(mut self, lane: Option<OrderingKey>) -> Self {
        self.lane = lane;
        self
    }

    /// The large payloads that its new rows name and it does not bring: other rows brought them, and may go first.
    pub(super) fn copied(&self) -> Vec<(&Tenant, PayloadDigest)> {
        let mut named: Vec<(&Tenant, PayloadDigest)> = Vec::new();
        let mut name =
            |tenant, stored: &Stored| named.extend(stored.address().map(|digest| (tenant, digest)));
        for step in &self.steps {
            step.value.iter().for_each(|value| name(&step.tenant, value));
        }
        if let Some(signal) = &self.signal {
            name(&signal.tenant, &signal.body);
        }
        if let Some(run) = &self.run {
            if run.revision == 1 {
                name(&run.tenant, &run.input);
            }
            if let RunState::Succeeded { output } = &run.state {
                name(&run.tenant, output);
            }
        }
        if named.is_empty() {
            return named;
        }
        for (tenant, payload) in &self.payloads {
            let digest = payload.digest();
            if let Some(place) = named.iter().position(|(of, one)| *of == tenant && *one == digest) {
                named.swap_remove(place);
            }
        }
        named
    }

    /// What a refused change reports of its attempt's own answer (REC-9); nothing if it rests on a lookup or on a
    /// person's word, which can be asked again.
    pub(super) fn late_evidence(&self) -> Option<Evidence> {
        let record = self.record.as_deref()?;
        if matches!(record.basis, Basis::Lookup | Basis::Decision) {
            return None;
        }
        let response = match &record.state {
            // The payload's row is refused with the change.
            State::Committed { response: Stored::At(digest) } => {
                let (_, payload) = self.payloads.iter().find(|(_, payload)| payload.digest() == *digest)?;
                Stored::Inline(payload.clone())
            }
            State::Committed { response } => response.clone(),
            State::Started if self.accepts() => Stored::Inline(Payload::stored(Evidence::ACCEPTED)),
            _ => return None,
        };
        Some(Evidence {
            tenant: record.tenant.clone(),
            record: record.id,
            fence: record.fence,
            attempt: record.attempts,
            response,
            external_ref: record.external_ref.clone(),
            at: record.updated_at,
        })
    }

    /// The provider has accepted the call of its record, and finishes it by itself.
    fn accepts(&self) -> bool {
        self.escalations.iter().any(|row| row.kind == QuestionKind::Pending && row.is_new())
    }

    /// A change that asks "am I the first?": the start of an operation or of a run, a signal, a document. That it is refused because
    /// somebody else was first is an answer, and holds up nothing behind it.
    pub fn is_question(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.revision == 1)
            || self.run.as_ref().is_some_and(|run| run.revision == 1)
            || self.signal.is_some()
            || !self.documents.is_empty()
    }

    /// With this verdict nothing behind it in its lane may be written.
    pub(super) fn stops_lane(&self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Admitted => false,
            Verdict::Refused(Refusal::Exists) => !self.is_question(),
            Verdict::Refused(_) => true,
        }
    }
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is durable.
    Admitted,
    /// Nothing of it was written.
    Refused(Refusal),
}

impl Verdict {
    /// The change is durable.
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted)
    }
}

/// Why nothing of a change was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its worker has been fenced: another has taken over.
    #[error("this worker has been fenced: another process has taken its work over")]
    Fenced,
    /// A unique key is taken.
    #[error("somebody else was first")]
    Exists,
    /// The row has changed since the change was computed.
    #[error("the row has changed meanwhile")]
    Stale,
    /// An earlier change of the same lane was refused.
    #[error("an earlier write of the same run was refused")]
    Predecessor,
    /// It cannot be stored.
    #[error("it cannot be stored: {0}")]
    Invalid(String),
    /// Of the tenant that is to be erased.
    #[error("{0} keeps the tenant from being erased")]
    UnderWay(UnderWay),
}

/// What stands against a row that counts its changes, where the stored one is at this revision: revision 1 is of a new row, and a
/// later one follows the stored one.
pub(super) fn follows(stored: Option<u32>, revision: u32) -> Result<(), Refusal> {
    match stored {
        Some(_) if revision == 1 => Err(Refusal::Exists),
        stored if stored.unwrap_or_default().checked_add(1) == Some(revision) => Ok(()),
        _ => Err(Refusal::Stale),
    }
}

/// What of a tenant is not at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    /// It has not ended: let it, or cancel it.
    Run,
    /// It has started, is asked about or is to be confirmed by a lookup.
    Operation,
    /// It is open: answer it.
    Question,
    /// It is active or paused: delete it.
    Schedule,
    /// It is not published.
    Event,
}

impl std::fmt::Display for UnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Run => "a run that has not ended",
            Self::Operation => "an operation that is not settled",
            Self::Question => "an open question",
            Self::Schedule => "a schedule",
            Self::Event => "an event that is not published",
        })
    }
}
