//! ② All durable state, and all SQL. What a store must keep is written here; the public suite
//! `store::conformance` checks it, for every back end and every wrapper.
//!
//! Reads are named by meaning. There is one write primitive, [`Store::commit`].

mod aggregate;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod ask;
mod change;
#[cfg(feature = "conformance")]
pub mod conformance;
mod document;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod erase;
mod escalation;
mod evidence;
mod group;
mod history;
mod inbox;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod judge;
mod late;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod look;
mod model;
mod outbox;
pub(crate) mod own;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod payload;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod queried;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod queries;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod queued;
mod read_only;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod record;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod retention;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "SQLite tells the types of values apart by itself, and cuts no batch")
)]
mod row;
mod run;
mod schedule;
mod signal;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod step;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "tables are moved to PostgreSQL alone"))]
mod table;
mod transaction;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub mod transfer;
mod used;
mod worker;
mod written;

use std::fmt;

use futures_util::future::BoxFuture;

pub use aggregate::Aggregate;
pub use change::{Change, Lane, Refusal, Retired, UnderWay, Verdict, WorkerChange};
pub use document::Document;
pub(crate) use document::{DECLARATION_KIND, LEDGER_ID, LEDGER_KIND};
pub use escalation::{Answer, Escalation, EscalationKind, Resolution};
pub use evidence::Evidence;
pub(crate) use group::Held;
pub use group::{Group, Ticket};
pub use history::{History, PastCall, PastUse};
pub(crate) use inbox::{Counting, Delivery, Known, SetAside};
pub(crate) use late::FIRST as FIRST_LATE_QUESTION;
pub use model::Model;
pub use outbox::{Due, OutboxEvent, Published};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use queried::Queried;
pub(crate) use read_only::ReadOnly;
pub use run::{InQueue, Run, RunState, WaitsOn};
pub use schedule::{Schedule, ScheduleState};
#[doc(hidden)]
pub use signal::COMMAND;
pub use signal::Signal;
pub use step::{PastStep, Step, StepKind, Turns};
pub use transaction::TransactionError;
pub use used::Use;
pub use worker::{Pulse, Worker};

pub use crate::ledger::{Admission, Queue, QueueLoad};

use crate::clock::Timestamp;
use crate::id::{EscalationId, Fence, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};

/// The result of asking a store: the future is boxed, so that stores can be wrapped as `dyn Store`.
pub type Asked<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Durable state.
///
/// # Contract
///
/// **Commit.** [`commit`](Store::commit) takes a batch of changes from many runs and writes it in as few
/// transactions as it can. When it returns `Ok`, everything admitted is durable, and `verdicts[i]` belongs to `changes[i]`.
///
/// 1. A change is all or nothing, and is admitted or refused by itself.
/// 2. It is refused as `Fenced` if its worker has been fenced, as `Exists` if a unique key is taken, or a place on a shelf
///    (unless by the very same row: then an earlier answer was lost, and it is admitted), as `Stale` if a record, run or
///    escalation is not at the revision that the change was computed from, as `UnderWay` if the tenant that it erases is
///    not at its end, as `Invalid` if it cannot be stored.
/// 3. Changes of one [`Lane`] are judged in order. When one is refused, all later ones of that lane in the batch
///    are refused as `Predecessor`; a refused *question* ([`Change::is_question`]) is an answer and holds up nothing.
/// 4. If the batch as a whole fails, the error says so, and the same changes may be written again: one that is
///    durable after all is admitted as the same again (2). Which of them those are is known by reading back.
/// 5. A future of `commit` that is dropped may or may not take effect; nothing is half written.
/// 6. A late answer and the seal of the record that it is about are compared in the transaction that writes the later of
///    the two (see [`Change::contract`]). If the answer [proves a second effect](crate::ledger::is_second_effect), that
///    transaction opens the question, once for each late answer, and its worker is no longer settled.
///
/// **Reads** see at least what was durable when they were called, and only the tenant that is asked for. A list
/// that goes on from `after` may leave damaged rows out, but it is empty only at its end.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Writes a batch of changes.
    ///
    /// # Crash
    /// Before it returns: each change is there wholly or not at all. After: every admitted change is there.
    fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>>;

    /// The store behind this one, which is asked all that this one does not answer by itself: so a wrapper is its `commit`, this,
    /// and what it changes. None of a store that answers everything.
    ///
    /// ```
    /// use counterfoil::store::{Asked, Change, Model, Store, Verdict};
    ///
    /// #[derive(Debug)]
    /// struct Logged(Model);
    ///
    /// impl Store for Logged {
    ///     fn commit<'a>(&'a self, changes: &'a [Change]) -> Asked<'a, Vec<Verdict>> {
    ///         println!("{} changes", changes.len());
    ///         self.0.commit(changes)
    ///     }
    ///
    ///     fn behind(&self) -> Option<&dyn Store> {
    ///         Some(&self.0)
    ///     }
    /// }
    /// ```
    fn behind(&self) -> Option<&dyn Store> {
        None
    }

    /// Asked before each question that is passed on. What is returned is dropped when its answer was taken, or nobody wants it any
    /// more.
    fn passing(&self) -> Option<Passing> {
        None
    }

    /// The record of an operation.
    fn record_find<'a>(&'a self, tenant: &'a Tenant, key: &'a OperationKey) -> Asked<'a, Option<Record>> {
        passed(self, |store| store.record_find(tenant, key))
    }
    /// A record by its place, for what refers to it.
    fn record_at<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Option<Record>> {
        passed(self, |store| store.record_at(tenant, id))
    }
    /// Started records of fenced workers that nobody will resume, from `after` on: outside any run, or of a run
    /// that ended [`unsettled`](Run::unsettled). Not those with an open question, unless it is an [`UnknownTool`](EscalationKind::UnknownTool):
    /// the tool may be here by now.
    fn record_orphans(&self, after: RecordId, limit: u32) -> Asked<'_, Vec<Record>> {
        passed(self, |store| store.record_orphans(after, limit))
    }
    /// Committed records of a tenant that were written at `since` or later, in the order of their keys from behind `after` on.
    fn record_committed<'a>(
        &'a self,
        tenant: &'a Tenant,
        since: Timestamp,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Record>> {
        passed(self, |store| store.record_committed(tenant, since, after, limit))
    }
    /// A record with this key, or with one that goes on behind it with a further part, was written at `since` or later, and
    /// neither failed nor was abandoned.
    fn record_removed<'a>(&'a self, tenant: &'a Tenant, key: &'a str, since: Timestamp) -> Asked<'a, bool> {
        passed(self, |store| store.record_removed(tenant, key, since))
    }
    /// Looks that are due at `until` or before, the earliest first.
    fn look_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Look>> {
        passed(self, |store| store.look_due(until, limit))
    }
    /// The look at a record that is to come.
    fn look_find<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Asked<'a, Option<Look>> {
        passed(self, |store| store.look_find(tenant, record))
    }
    /// Records whose time was over between `after` and `until` and which nothing rests on: they are not under way, no question
    /// about them is open and no lookup to come, and the runs that asked for them have ended or gone on as new. Those whose
    /// time was over first come first.
    fn record_expired(&self, after: Timestamp, until: Timestamp, limit: u32) -> Asked<'_, Vec<Record>> {
        passed(self, |store| store.record_expired(after, until, limit))
    }
    /// The earliest instant after `after` at which a record's time is over.
    fn record_expiring(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        passed(self, |store| store.record_expiring(after))
    }
    /// The runs that were answered from a record which another run owns.
    fn record_uses<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Use>> {
        passed(self, |store| store.record_uses(tenant, id))
    }
    /// What fenced workers learned about a record too late, the earliest first.
    fn record_evidence<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> Asked<'a, Vec<Evidence>> {
        passed(self, |store| store.record_evidence(tenant, id))
    }

    /// A run.
    fn run_find<'a>(&'a self, tenant: &'a Tenant, id: RunId) -> Asked<'a, Option<Run>> {
        passed(self, |store| store.run_find(tenant, id))
    }
    /// The run that was started under a key.
    fn run_keyed<'a>(
        &'a self,
        tenant: &'a Tenant,
        workflow: &'a str,
        key: &'a str,
    ) -> Asked<'a, Option<Run>> {
        passed(self, |store| store.run_keyed(tenant, workflow, key))
    }
    /// What a run has recorded in these turns.
    fn run_history<'a>(&'a self, tenant: &'a Tenant, id: RunId, turns: Turns) -> Asked<'a, History> {
        passed(self, |store| store.run_history(tenant, id, turns))
    }
    /// Active runs whose worker has been fenced, from `after` on: what a restart takes over.
    fn run_orphans(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        passed(self, |store| store.run_orphans(after, limit))
    }
    /// Runs that wait for an answer although none of their questions is open, from `after` on: the answer came, and
    /// the process died before it could wake them.
    fn run_answered(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        passed(self, |store| store.run_answered(after, limit))
    }
    /// Runs that wait for a signal and have one that they have not received, from `after` on: it came, and the process
    /// died before it could wake them; or it is not the one that they wait for. A command wakes a queued one, too.
    fn run_signalled(&self, after: RunId, limit: u32) -> Asked<'_, Vec<Run>> {
        passed(self, |store| store.run_signalled(after, limit))
    }
    /// The runs that a run began and that are to go down with it, from `after` on.
    fn run_children<'a>(
        &'a self,
        tenant: &'a Tenant,
        parent: RunId,
        after: RunId,
        limit: u32,
    ) -> Asked<'a, Vec<Run>> {
        passed(self, |store| store.run_children(tenant, parent, after, limit))
    }
    /// Waiting runs whose time has come, the earliest first.
    fn run_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Run>> {
        passed(self, |store| store.run_due(until, limit))
    }
    /// The earliest instant after `after` that anything waits for: a run's timer, a schedule, a queue or a confirming
    /// lookup.
    fn next_due(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        passed(self, |store| store.next_due(after))
    }
    /// The runs of a tenant, from `after` on.
    fn run_list<'a>(&'a self, tenant: &'a Tenant, after: RunId, limit: u32) -> Asked<'a, Vec<Run>> {
        passed(self, |store| store.run_list(tenant, after, limit))
    }

    /// The queues in which runs of any tenant wait, by name.
    fn queue_waiting(&self) -> Asked<'_, Vec<String>> {
        passed(self, |store| store.queue_waiting())
    }
    /// The active runs of a queue that were [admitted](Admission) to a worker at `since` or later.
    fn queue_admitted<'a>(&'a self, queue: &'a str, fence: Fence, since: Timestamp) -> Asked<'a, Vec<Run>> {
        passed(self, |store| store.queue_admitted(queue, fence, since))
    }
    /// How many runs of each queue wait, and how many have a place, by the queue's name.
    fn queue_load(&self) -> Asked<'_, Vec<QueueLoad>> {
        passed(self, |store| store.queue_load())
    }
    /// A schedule, deleted or not.
    fn schedule_find<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Asked<'a, Option<Schedule>> {
        passed(self, |store| store.schedule_find(tenant, name))
    }
    /// The schedules of a tenant by their names, from behind `after` on, deleted ones among them.
    fn schedule_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Schedule>> {
        passed(self, |store| store.schedule_list(tenant, after, limit))
    }
    /// The schedules of all tenants that are due at `until` or before, the earliest first.
    fn schedule_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Schedule>> {
        passed(self, |store| store.schedule_due(until, limit))
    }
    /// A guard's row.
    fn document_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Document>> {
        passed(self, |store| store.document_find(tenant, kind, id))
    }
    /// The rows of a guard by their ids, from behind `after` on.
    fn document_list<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Document>> {
        passed(self, |store| store.document_list(tenant, kind, after, limit))
    }
    /// The same of those that are open.
    fn document_open<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: &'a str,
        after: &'a str,
        limit: u32,
    ) -> Asked<'a, Vec<Document>> {
        passed(self, |store| store.document_open(tenant, kind, after, limit))
    }

    /// What is to be published of aggregates that are due at `until` and not set aside: the longest due first, then by tenant
    /// and name; so many events in all, those of each in their order.
    fn outbox_due(&self, until: Timestamp, limit: u32) -> Asked<'_, Vec<Due>> {
        passed(self, |store| store.outbox_due(until, limit))
    }
    /// The earliest instant after `after` at which an aggregate is due.
    fn outbox_next(&self, after: Timestamp) -> Asked<'_, Option<Timestamp>> {
        passed(self, |store| store.outbox_next(after))
    }
    /// Published events that were written at `after` or later, the earliest first.
    fn outbox_published(&self, after: Timestamp, limit: u32) -> Asked<'_, Vec<Published>> {
        passed(self, |store| store.outbox_published(after, limit))
    }
    /// An event, published or not.
    fn outbox_find<'a>(&'a self, tenant: &'a Tenant, id: &'a str) -> Asked<'a, Option<OutboxEvent>> {
        passed(self, |store| store.outbox_find(tenant, id))
    }
    /// How far the events of an aggregate are published.
    fn outbox_aggregate<'a>(&'a self, tenant: &'a Tenant, name: &'a str) -> Asked<'a, Option<Aggregate>> {
        passed(self, |store| store.outbox_aggregate(tenant, name))
    }
    /// The aggregate that is set aside until this question is answered.
    fn outbox_set_aside<'a>(
        &'a self,
        tenant: &'a Tenant,
        question: EscalationId,
    ) -> Asked<'a, Option<Aggregate>> {
        passed(self, |store| store.outbox_set_aside(tenant, question))
    }

    /// A signal, received or not.
    fn signal_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: RunId,
        name: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Signal>> {
        passed(self, |store| store.signal_find(tenant, run, name, id))
    }
    /// The same if its run has not received it.
    fn signal_unreceived<'a>(
        &'a self,
        tenant: &'a Tenant,
        run: RunId,
        name: &'a str,
        id: &'a str,
    ) -> Asked<'a, Option<Signal>> {
        passed(self, |store| store.signal_unreceived(tenant, run, name, id))
    }
    /// The last place among the signals that a run has not received.
    fn signal_last<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Asked<'a, Option<i64>> {
        passed(self, |store| store.signal_last(tenant, run))
    }
    /// The signals that these runs have not received, those of each in the order in which it is to receive them.
    fn signal_pending<'a>(&'a self, runs: &'a [(Tenant, RunId)]) -> Asked<'a, Vec<Signal>> {
        passed(self, |store| store.signal_pending(runs))
    }

    /// An escalation.
    fn escalation_find<'a>(&'a self, tenant: &'a Tenant, id: EscalationId) -> Asked<'a, Option<Escalation>> {
        passed(self, |store| store.escalation_find(tenant, id))
    }
    /// The open escalations of a tenant, the oldest first, from behind `after` on. An empty page is the end.
    fn escalation_open<'a>(
        &'a self,
        tenant: &'a Tenant,
        after: EscalationId,
        limit: u32,
    ) -> Asked<'a, Vec<Escalation>> {
        passed(self, |store| store.escalation_open(tenant, after, limit))
    }
    /// The open questions about a run and what it owns, the oldest first.
    fn escalation_about<'a>(&'a self, tenant: &'a Tenant, run: RunId) -> Asked<'a, Vec<Escalation>> {
        passed(self, |store| store.escalation_about(tenant, run))
    }
    /// What was ever asked about a record.
    fn escalation_of<'a>(&'a self, tenant: &'a Tenant, record: RecordId) -> Asked<'a, Vec<Escalation>> {
        passed(self, |store| store.escalation_of(tenant, record))
    }
    /// The open questions about runs whose [workflow is not registered](EscalationKind::UnknownWorkflow), of all tenants,
    /// from `after` on: it may be here by now.
    fn escalation_unknown_workflow(&self, after: EscalationId, limit: u32) -> Asked<'_, Vec<Escalation>> {
        passed(self, |store| store.escalation_unknown_workflow(after, limit))
    }
    /// Open questions about effects that [happened more than once](EscalationKind::Duplicated), of all tenants, from
    /// `after` on.
    fn escalation_duplicated(&self, after: EscalationId, limit: u32) -> Asked<'_, Vec<Escalation>> {
        passed(self, |store| store.escalation_duplicated(after, limit))
    }

    /// A worker by the name it enrolled under.
    fn worker_find<'a>(&'a self, name: &'a str) -> Asked<'a, Option<Worker>> {
        passed(self, |store| store.worker_find(name))
    }
    /// A worker by its fence.
    fn worker_at(&self, fence: Fence) -> Asked<'_, Option<Worker>> {
        passed(self, |store| store.worker_at(fence))
    }
    /// Who is there, what time it is for leases, and what is due next.
    fn pulse(&self) -> Asked<'_, Pulse> {
        passed(self, |store| store.pulse())
    }
    /// Fails if what was opened is not what is there any more: a file that was removed or replaced. Asked directly before each
    /// send, so it must be cheap.
    fn in_place(&self) -> Result<(), StoreError> {
        self.behind().map_or(Ok(()), Store::in_place)
    }
    /// Several workers may work on it at once, each for as long as its lease lasts. Otherwise whoever opens it knows
    /// that all others are dead.
    fn is_shared(&self) -> bool {
        self.behind().is_some_and(Store::is_shared)
    }
    /// Tells the other workers that there is something to look at. Only a hint: it may be lost, or merged with others.
    fn wake_others(&self) -> Asked<'_, ()> {
        passed(self, |store| store.wake_others())
    }
    /// Resolves when another worker has given a hint, or one may have been lost.
    fn woken(&self) -> Asked<'_, ()> {
        passed(self, |store| store.woken())
    }
    /// A tenant's key for digests of secrets.
    fn tenant_key<'a>(&'a self, tenant: &'a Tenant) -> Asked<'a, Option<DigestKey>> {
        passed(self, |store| store.tenant_key(tenant))
    }
    /// A large payload.
    fn payload_find<'a>(&'a self, tenant: &'a Tenant, digest: PayloadDigest) -> Asked<'a, Option<Payload>> {
        passed(self, |store| store.payload_find(tenant, digest))
    }
}

/// A question that is passed on, until it is answered.
pub type Passing = Box<dyn Send>;

/// Asks the store behind a wrapper.
fn passed<'a, T: Send + 'a>(
    wrapper: &'a (impl Store + ?Sized),
    question: impl FnOnce(&'a dyn Store) -> Asked<'a, T>,
) -> Asked<'a, T> {
    let Some(behind) = wrapper.behind() else {
        let detail = "this store does not answer that question".to_owned();
        return Box::pin(async { Err(StoreError::Io { detail }) });
    };
    let (passing, answer) = (wrapper.passing(), question(behind));
    if passing.is_none() {
        return answer;
    }
    Box::pin(async move {
        let _passing = passing;
        answer.await
    })
}

// A store is handed around as `dyn`.
const _: Option<&dyn Store> = None;

/// What went wrong with the store itself. The text says what is durable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no room left.
    #[error(
        "the disk is full: nothing of this write is durable; free some space, then it goes on ({detail})"
    )]
    Full {
        /// The database's words.
        detail: String,
    },
    /// Another process holds the database for too long.
    #[error(
        "the database is locked by another process: nothing of this write is durable; it may be retried ({detail})"
    )]
    Busy {
        /// The database's words.
        detail: String,
    },
    /// Reading or writing the file failed.
    #[error("the database cannot be read or written: nothing of this write is durable ({detail})")]
    Io {
        /// The database's words.
        detail: String,
    },
    /// A row holds what no version of this engine writes.
    #[error(
        "the row {row} is damaged: {detail}; it was left as it is, restore it from a backup or resolve its run by hand"
    )]
    Corrupt {
        /// Which row.
        row: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The connection was lost, and did not come back in time.
    #[error(
        "the database cannot be reached: whether this write is durable is not known; nothing is sent that needs it, \
         and when the database is back its rows tell ({detail})"
    )]
    Unreachable {
        /// The system's words.
        detail: String,
    },
    /// The store's own code, or code that it called, panicked.
    #[error(
        "the store panicked: whether this write is durable is not known; nothing is sent that needs it, and its rows tell \
         ({detail})"
    )]
    Panicked {
        /// The panic's words.
        detail: String,
    },
    /// The database cannot be used at all.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine is shutting down; the write was not made.
    #[error("the engine is shutting down: this write was not made")]
    Closed,
}

impl StoreError {
    /// The same write may succeed a moment later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Io { .. } | Self::Full { .. } | Self::Unreachable { .. })
    }
}

/// Why a database was refused when it was opened. It was left as it is.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process that is alive works on it.
    #[error(
        "{path} belongs to another process that is alive ({owner}): one engine at a time; use PostgreSQL to share work"
    )]
    Owned {
        /// The file.
        path: String,
        /// The process, as far as it can be seen.
        owner: String,
    },
    /// This very process works on it.
    #[error(
        "{path} is open in this process already: one engine at a time; shut the other engine down first, or use that one"
    )]
    OwnedHere {
        /// The file.
        path: String,
    },
    /// It was removed, or another file was put in its place, while it was open.
    #[error(
        "{path} was removed or replaced while this engine worked on it ({detail}): nothing more is sent or recorded here; \
         what was in flight is not known to the new file. Put the former file back, if it still exists, and start again"
    )]
    Replaced {
        /// The file.
        path: String,
        /// What is there instead.
        detail: String,
    },
    /// It has several names, and SQLite's log belongs to one of them only.
    #[error(
        "{path} has several names (hard links): what is written under one of them is not seen under the others; remove the \
         other names, or make a copy and open that"
    )]
    HardLinked {
        /// The file.
        path: String,
    },
    /// It does not say which file is meant.
    #[error("{path:?} names no database file: {detail}")]
    NoFile {
        /// As it was given.
        path: String,
        /// What to write instead.
        detail: &'static str,
    },
    /// Written by a newer version of this crate.
    #[error(
        "{path} has schema version {found}, this engine knows {known}: update counterfoil; never run an old engine on a new database"
    )]
    FromTheFuture {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// The newest version that this engine knows.
        known: i64,
    },
    /// Its rows were moved to another database.
    #[error(
        "{path} was moved to PostgreSQL and given up: start the engine there; on this file it would do again what is \
         done there"
    )]
    GivenUp {
        /// The file.
        path: String,
    },
    /// Its rows are being moved into it.
    #[error(
        "{path} is being filled by `counterfoil move` (from the file of {source_name}), and nothing can work on it \
         before that is done: make the same move again, and it goes on from there"
    )]
    Filling {
        /// Hosts and database.
        path: String,
        /// The file, by its first worker and its last fence.
        source_name: String,
    },
    /// The file is somebody else's.
    #[error("{path} is the database of another application (id {found:#x}): choose another file")]
    Foreign {
        /// The file.
        path: String,
        /// Its application id.
        found: i64,
    },
    /// It cannot be written.
    #[error(
        "{path} is read-only: no effect could be recorded, so none will be started; make file and folder writable ({detail})"
    )]
    ReadOnly {
        /// The file.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// WAL needs shared memory, which a network filesystem does not have.
    #[error(
        "{path} is on a network filesystem ({kind}): SQLite's WAL does not work there; use a local disk or PostgreSQL"
    )]
    NetworkFilesystem {
        /// The file.
        path: String,
        /// The filesystem.
        kind: &'static str,
    },
    /// No host of it accepts connections that can write.
    #[error("{path} cannot be reached: {detail}; check the URL, and that the server is up")]
    Unreachable {
        /// Hosts and database.
        path: String,
        /// The system's words.
        detail: String,
    },
    /// The server says that a commit is done before it is on disk.
    #[error(
        "{path} has synchronous_commit = {found}: what is answered as committed may be lost when the server crashes, \
         and a call whose start is lost is made again; set it to `on`, or allow it in the options of the store"
    )]
    WeakDurability {
        /// Hosts and database.
        path: String,
        /// The setting.
        found: String,
    },
    /// Another host may be promoted that lacks the last commits.
    #[error(
        "{path} names several hosts, and synchronous_standby_names is empty: when a standby is promoted, the last \
         commits of the primary may be lost, and a call whose start is lost is made again; configure a synchronous \
         standby, or allow it in the options of the store"
    )]
    AsynchronousStandby {
        /// Hosts and database.
        path: String,
    },
    /// A pooler in between gives each transaction another connection.
    #[error(
        "{path} is reached through a pooler that gives each transaction another connection (PgBouncer: pool_mode = \
         transaction): the search path and the time limits of a session would be lost, or left to another client; nothing \
         was written; connect past the pooler, or through one with pool_mode = session"
    )]
    TransactionPooling {
        /// Hosts and database.
        path: String,
    },
    /// It has a table of migrations that is not of this engine.
    #[error("{path} holds something else: {detail}; choose another schema")]
    Strange {
        /// Hosts and database.
        path: String,
        /// What differs.
        detail: String,
    },
    /// The SQLite library has the WAL-reset bug.
    #[error(
        "the SQLite library is {found}, below 3.51.3: it can corrupt a WAL database (sqlite.org/wal.html#walresetbug); link a newer one"
    )]
    UnsafeLibrary {
        /// Its version.
        found: String,
    },
    /// The file is not a database, or cannot be opened.
    #[error("{path} cannot be opened: {detail}")]
    Unusable {
        /// The file.
        path: String,
        /// The system's words.
        detail: String,
    },
}
