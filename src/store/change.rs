//! Changes: a change lists all its consequences, so that "one transaction" is visible in the type.

use super::Aggregate;
use super::chain::Link;
use super::contact::{Contact, DroppedContact};
use super::document::Document;
use super::escalation::{Question, QuestionKind};
use super::label::{RecordLabel, RunLabel};
use super::outbox::{OutboxEvent, Published};
use super::published::PublishedValue;
use super::run::{Run, RunState};
use super::schedule::Schedule;
use super::signal::Signal;
use super::written::changes;
use super::{Evidence, SharedEffect, Step};
use crate::clock::Timestamp;
use crate::id::{Fence, RecordId, Tenant};
use crate::ledger::{Admission, Basis, ContractClass, Look, Record, RequestHash, State};
use crate::payload::{DigestKey, Payload, PayloadDigest, Stored, hex};

/// The lane of one activation of a run: changes of one lane never overtake one another, and a refused one stops the
/// rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderingKey(pub u64);

/// The form of the private values of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The values are as their callers gave them.
    #[default]
    Readable,
    /// The values are encrypted, and no store encrypts them again.
    Encrypted,
    /// A tenant had no key. Some values may be encrypted, and the change is refused.
    KeyMissing,
}

changes! {
    /// One change with all its consequences: either all of them become durable, or none.
    #[derive(Clone, Debug, Default)]
    pub struct Change {
        /// The fence of the worker that writes. The change is refused once that worker has been fenced. `None` only for
        /// enrolment and for evidence, which a fenced worker may still leave.
        pub fence: Option<Fence>,
        /// The lane that the change belongs to.
        pub lane: Option<OrderingKey>,
        /// The contract of the call whose outcome the record or the evidence holds. A store needs the contract to decide
        /// if a late answer proves a second effect: this evidence, or the earlier evidence if the record
        /// [may have some](Self::taken_over).
        pub contract: Option<ContractClass>,
        /// Set if this change seals a record that another worker began, or that has more than one attempt: the evidence is
        /// compared with the record, except for the listed pieces, by worker and attempt, on which the seal rests.
        pub taken_over: Option<Box<[(Fence, u32)]>>,
        /// True if nobody waits for the disk, because rows that a crash brings back are retired again. In a batch of its
        /// own.
        pub beside: bool,
        /// The form of the private values.
        pub form: Form,
    }
    // The writes, each with the form in which it is judged and written, in the order in which they are judged: the
    // first one that is refused decides why a change is refused.
    writes Written {
        /// The enrolment, renewal or end of a worker.
        worker: Option<WorkerChange> => Worker(WorkerChange),
        /// The admission of runs of a queue: as many as its limits allow become this worker's, in a change of its own.
        /// The admitted runs are [read back](crate::store::Store::queue_admitted).
        admission: Option<Box<Admission>> => Admission(Admission),
        /// The new state of a schedule, by the same rule as `record`, with the run that its tick begins, if any.
        schedule: Option<Box<Schedule>> => Schedule(Schedule),
        /// The new states of guards' rows, each of a different row: revision 1 for a new one, otherwise one more than the
        /// stored revision. Refused as `Exists` if another revision is stored: another writer was first, and the row must
        /// be read again.
        documents: Vec<Document> => Document(Document),
        /// The value that a run publishes, by the same rule as `record`.
        published: Option<Box<PublishedValue>> => Published(PublishedValue),
        /// The tenant to erase: only its key for digests is left, in a change of its own, alone in a batch, which may
        /// take long. Refused as `UnderWay` while anything of the tenant is under way.
        erased: Option<Tenant> => Erased(Tenant),
        /// The events to publish, each the next one of its aggregate. Refused as `Exists` if an event with this id is
        /// there.
        events: Vec<OutboxEvent> => Event(OutboxEvent),
        /// The positions up to which aggregates are published, by the same rule as `record`: an aggregate exists from its
        /// first event on, at revision 1. Not together with events of the same aggregate.
        aggregates: Vec<Aggregate> => Mark(Aggregate),
        /// The published events that nobody will ask for any more: each is deleted together with all earlier events of
        /// its aggregate.
        forgotten: Vec<Published> => Forgotten(Published),
        /// The records whose retention is over, each with the rest that is left, in a change of its own. A record that
        /// has changed meanwhile, that has an open question or that a run under way rests on is left unchanged.
        retired: Vec<Retired> => Retired(Retired),
        /// The runs whose retention is over, each with the rest that is left, in a change of its own. A run that is not
        /// at rest is left unchanged. A long run is deleted in parts: it is listed again until all its rows are gone.
        retired_runs: Vec<RetiredRun> => RetiredRun(RetiredRun),
        /// The received signals whose retention is over, each with the rest that is left, in a change of its own. A signal
        /// that its run has not received, or whose content is another one, is left unchanged.
        expired_signals: Vec<ExpiredSignal> => ExpiredSignal(ExpiredSignal),
        /// The payloads that are too large for their rows.
        payloads: Vec<(Tenant, Payload)> => Payload((Tenant, Payload)),
        /// The key of a tenant for digests of secrets, when the tenant is first seen; an existing key is kept.
        tenant_key: Option<(Tenant, DigestKey)> => Key((Tenant, DigestKey)),
        /// The new state of a run, by the same rule as `record`.
        run: Option<Box<Run>> => Run(Run),
        /// The labels of a run that is started by this change.
        labels: Vec<RunLabel> => Label(RunLabel),
        /// The new state of a record: revision 1 for a new one, otherwise one more than the stored revision.
        record: Option<Box<Record>> => Record(Record),
        /// The labels of a record that is new with this change.
        record_labels: Vec<RecordLabel> => RecordLabel(RecordLabel),
        /// The scheduled look at a record, by the same rule as `record`; a look without a due instant is deleted.
        look: Option<Box<Look>> => Look(Look),
        /// The attempts and lookups that are over; one that is stored is left as it is.
        contacts: Vec<Contact> => Contact(Contact),
        /// The contacts that are dropped because their record has too many. No change of a batch writes one of them.
        dropped_contacts: Vec<DroppedContact> => DroppedContact(DroppedContact),
        /// The checkpoints of a run.
        steps: Vec<Step> => Step(Step),
        /// With a run: deletes the checkpoints of its turns after its [base](Run::base), up to and including this turn.
        prune: Option<u32> => Prune(u32),
        /// The use of a record of another run that answered a run.
        used: Option<Box<SharedEffect>> => SharedEffect(SharedEffect),
        /// Questions: one without an answer is new, one with an answer closes an open question.
        escalations: Vec<Question> => Question(Question),
        /// A signal to a run. Refused as `Exists` if the run has another signal of this name and id.
        signal: Option<Box<Signal>> => Signal(Signal),
        /// A signal that its run has received. Refused as `Stale` if there is none.
        received: Option<Box<Signal>> => Received(Signal),
        /// The late answer of a fenced worker.
        evidence: Option<Box<Evidence>> => Evidence(Evidence),
        /// The link of the chain of evidence that is about this change.
        link: Option<Box<Link>> => Link(Link),
    }
}

/// A record whose retention is over or starts again.
#[derive(Clone, Debug)]
pub struct Retired {
    /// The tenant that owns the record.
    pub tenant: Tenant,
    /// The position of the record in its table.
    pub id: RecordId,
    /// The revision at which the record is retired.
    pub revision: u32,
    /// The rest of the record, one revision on: nothing, a tombstone, or the whole record for longer. Rows that
    /// belong to the record are deleted with it: evidence, contacts, labels and answered questions unless the whole record is kept, and
    /// uses if nothing is left.
    pub left: Option<Box<Record>>,
    /// The large payloads that the record no longer refers to: each has one use less.
    pub payloads: Vec<PayloadDigest>,
}

impl Retired {
    /// The retirement of a record, with its rest.
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

    /// True if the whole record is kept for longer.
    pub(crate) fn is_kept(&self) -> bool {
        self.left.as_ref().is_some_and(|left| !matches!(left.state, State::Gone { .. }))
    }
}

/// A run whose retention is over: its input, outcome, checkpoints and signals are deleted. Its place and start key
/// stay, unless nothing is left.
#[derive(Clone, Debug)]
pub struct RetiredRun {
    /// The run, as it was listed.
    pub run: Run,
    /// True if a tombstone is left of the run. Otherwise its start key counts as new again.
    pub is_left: bool,
    /// The hash of the run's input by the tenant's own key.
    pub input_hash: RequestHash,
    /// The digest of the run's outcome by the same key.
    pub outcome: String,
}

impl RetiredRun {
    /// The retirement of a run that has ended; `None` for one that has not.
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

    /// The large payloads that the row of the run names.
    pub(super) fn payloads(&self) -> Vec<PayloadDigest> {
        let output = match &self.run.state {
            RunState::Succeeded { output } => Some(output),
            _ => None,
        };
        std::iter::once(&self.run.input).chain(output).filter_map(Stored::address).collect()
    }
}

/// A signal that its run has received, and whose retention is over: a digest takes the place of its content. Its name
/// and id stay taken.
#[derive(Clone, Debug)]
pub struct ExpiredSignal {
    /// The signal, as it was listed.
    pub signal: Signal,
    /// The digest of its content by the tenant's own key, as it is stored.
    pub left: Stored,
}

impl ExpiredSignal {
    /// The expiry of a signal.
    pub fn of(signal: Signal, key: &DigestKey) -> Self {
        Self { left: signal.left(key), signal }
    }
}

/// The enrolment, renewal or end of a worker.
#[derive(Clone, Debug)]
pub enum WorkerChange {
    /// A new process begins work under a fresh name. The store gives it the next fence.
    Enrol {
        /// The name of the worker: unique, with a random part.
        name: String,
        /// The instant of the enrolment.
        at: Timestamp,
        /// The end of the lease by the store's clock, unless the worker [renews](WorkerChange::Renew) it. `None` in a
        /// store of one worker, whose lock takes the place of a lease.
        lease_until: Option<Timestamp>,
    },
    /// A client attaches under a fresh name. The store gives it the next fence, for the ids of its rows. A client
    /// carries nothing out: it has no lease, nobody takes over from it, and [`FenceOthers`](WorkerChange::FenceOthers)
    /// spares it. Its row is settled from the start.
    Attach {
        /// The name of the client: unique, with a random part.
        name: String,
        /// The instant of the change.
        at: Timestamp,
    },
    /// The worker renews its lease, by the store's clock.
    Renew {
        /// The new end of the worker's lease.
        until: Timestamp,
    },
    /// The lease of another worker has run out: its writes are void from now on. Refused as `Stale` if that worker
    /// has ended before, or has renewed.
    End {
        /// The fence of the worker that ends.
        fence: Fence,
        /// The present instant, by the store's clock.
        at: Timestamp,
    },
    /// Nothing of an ended worker is left to be taken over: other workers no longer look for its work.
    Settle {
        /// The fence of the ended worker.
        fence: Fence,
    },
    /// All other workers are dead (embedded: the lock was acquired): their writes are void from now on. Those of
    /// [clients](WorkerChange::Attach) are not.
    FenceOthers {
        /// The instant of the change.
        at: Timestamp,
    },
    /// The worker publishes the events of the outbox from now until it ends. Refused as `Exists` while another one
    /// does.
    Publish,
    /// The worker ends in order: the work that it leaves has not killed it.
    Retire {
        /// The instant of the change.
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

    /// Adds, changes or deletes a look.
    #[must_use]
    pub fn look(mut self, look: impl Into<Box<Look>>) -> Self {
        self.look = Some(look.into());
        self
    }

    /// Adds a run's checkpoint.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.reserve_exact(1); // nearly always there is only one
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

    /// The large payloads that the new rows of this change name and that it does not bring: other rows brought them
    /// and may be deleted first.
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

    /// The evidence in the attempt's own answer of a refused change; `None` if the outcome rests on a lookup or on a
    /// person's decision, which can be obtained again.
    pub(super) fn late_evidence(&self) -> Option<Evidence> {
        let record = self.record.as_deref()?;
        if matches!(record.basis, Basis::Lookup | Basis::Decision) {
            return None;
        }
        let response = match &record.state {
            // The row of the payload is refused with the change.
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

    /// True if the provider has accepted the call of the record and finishes it by itself.
    fn accepts(&self) -> bool {
        self.escalations.iter().any(|row| row.kind == QuestionKind::Pending && row.is_new())
    }

    /// True if the change asks "am I the first?": the start of an operation or of a run, a signal, a document. A
    /// refusal because another writer was first is an answer, and stops no later change of the lane.
    pub fn is_question(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.revision == 1)
            || self.run.as_ref().is_some_and(|run| run.revision == 1)
            || self.signal.is_some()
            || !self.documents.is_empty()
    }

    /// True if, with this verdict, no later change of the lane may be written.
    pub(super) fn stops_lane(&self, verdict: &Verdict) -> bool {
        match verdict {
            Verdict::Admitted => false,
            Verdict::Refused(Refusal::Exists) => !self.is_question(),
            Verdict::Refused(_) => true,
        }
    }
}

/// The verdict on a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The change is durable.
    Admitted,
    /// Nothing of the change was written.
    Refused(Refusal),
}

impl Verdict {
    /// True if the change is durable.
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted)
    }
}

/// The reason why nothing of a change was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The worker of the change has been fenced: another one has taken over.
    #[error("this worker has been fenced: another process has taken its work over")]
    Fenced,
    /// A unique key is taken.
    #[error("another write has this key already, and its row stands")]
    Exists,
    /// The row has changed since the change was computed.
    #[error("the row has changed meanwhile")]
    Stale,
    /// An earlier change of the same lane was refused.
    #[error("an earlier write of the same run was refused")]
    Predecessor,
    /// The change cannot be stored.
    #[error("it cannot be stored: {0}")]
    Invalid(String),
    /// The tenant to be erased has something under way.
    #[error("{0} keeps the tenant from being erased")]
    UnderWay(UnderWay),
}

/// Checks the revision of a change against the stored one: revision 1 must be of a new row, and a later revision must
/// follow the stored one.
pub(super) fn follows(stored: Option<u32>, revision: u32) -> Result<(), Refusal> {
    match stored {
        Some(_) if revision == 1 => Err(Refusal::Exists),
        stored if stored.unwrap_or_default().checked_add(1) == Some(revision) => Ok(()),
        _ => Err(Refusal::Stale),
    }
}

/// The kind of row that keeps a tenant from being erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    /// A run has not ended: let it end, or cancel it.
    Run,
    /// An operation has started, has an open question or is to be confirmed by a lookup.
    Operation,
    /// A question is open: answer it.
    Question,
    /// A schedule is active or paused: delete it.
    Schedule,
    /// An event is not published.
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
