//! The model of a store: the required behaviour, in memory, for simulations and differential tests.
//!
//! The model separates *written* from *durable*, as a disk does: a written change can be read, and is lost by a crash
//! unless it was synced. A crash replays the durable batches into a new model, so that nothing is copied as long as
//! nothing crashes.

mod document;
mod erase;
mod figures;
mod outbox;
mod published;
mod queue;
mod read;
mod retention;
mod schedule;
mod tables;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use self::tables::Tables;
use super::chain::Link;
use super::reads::reads;
use super::{
    Aggregate, AvoidedDuplicates, Change, ClusterStatus, Contact, Document, Due, Evidence, History,
    HistoryPlace, LEDGER_ID, LEDGER_KIND, OutboxEvent, Published, PublishedValue, Question, QuestionCount,
    QuestionLoad, QuestionSpan, QueueLoad, RecordLabel, Run, RunCursor, RunFilter, RunLabel, RunPage,
    Schedule, SharedEffect, Signal, Store, StoreError, StoreFuture, Turns, Verdict, Worker,
};
use crate::clock::{SharedClock, Timestamp};
use crate::id::{Fence, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};

/// A store in memory that can crash.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use counterfoil::Timestamp;
/// use counterfoil::store::{Change, Model, Store, WorkerChange};
///
/// let enrol = |name: &str| Change {
///     worker: Some(WorkerChange::Enrol { name: name.to_owned(), at: Timestamp(0), lease_until: None }),
///     ..Change::default()
/// };
/// let model = Model::new();
/// model.commit(&[enrol("ann")]).await.unwrap();
/// model.hold();
/// assert!(futures_util::poll!(model.commit(&[enrol("bob")])).is_pending());
/// assert!(model.worker_find("bob").await.unwrap().is_some(), "it is written");
/// let after = model.crash();
/// assert!(after.worker_find("ann").await.unwrap().is_some(), "it was durable");
/// assert!(after.worker_find("bob").await.unwrap().is_none(), "it was not");
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Model {
    state: Mutex<State>,
    /// Wakes the commits that wait for the disk.
    synced: Notify,
    /// The clock that measures leases, if several workers share the store.
    clock: Option<SharedClock>,
    /// Wakes the workers when a hint is given.
    hints: Notify,
    /// True if no history is kept: a crash loses everything.
    volatile: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The written rows.
    tables: Tables,
    /// The admitted changes of each batch, in their order.
    log: Vec<Vec<Change>>,
    /// The number of batches of the log that are durable.
    durable: usize,
    held: bool,
    crashed: bool,
    failures: VecDeque<StoreError>,
    lose_answer: bool,
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that several workers share, each with a lease by this clock.
    pub fn shared(clock: SharedClock) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }

    /// An empty store that keeps no history: a crash leaves nothing, and its memory grows only with its rows.
    pub fn volatile() -> Self {
        Self { volatile: true, ..Self::default() }
    }

    /// Makes commits written but not durable from now on: they stay pending until [`sync`](Self::sync).
    pub fn hold(&self) {
        self.state().held = true;
    }

    /// Makes all written batches durable. Later commits are still held.
    pub fn sync(&self) {
        {
            let mut state = self.state();
            state.durable = state.log.len();
        }
        self.synced.notify_waiters();
    }

    /// Ends [`hold`](Self::hold), and makes all written batches durable.
    pub fn release(&self) {
        self.state().held = false;
        self.sync();
    }

    /// The number of batches that are written and not durable.
    pub fn unsynced(&self) -> usize {
        let state = self.state();
        state.log.len() - state.durable
    }

    /// Simulates the death of the process: returns a new store with the durable changes. This store no longer works,
    /// and its pending commits end as [`StoreError::Closed`].
    #[must_use]
    pub fn crash(&self) -> Self {
        self.crash_keeping(0)
    }

    /// Like [`crash`](Self::crash), but the first `batches` batches that were not synced had reached the disk all the
    /// same: a write-ahead log may keep any prefix of them.
    #[must_use]
    pub fn crash_keeping(&self, batches: usize) -> Self {
        let log = {
            let mut state = self.state();
            state.crashed = true;
            let kept = state.durable.saturating_add(batches).min(state.log.len());
            let mut log = std::mem::take(&mut state.log);
            log.truncate(kept);
            state.durable = 0;
            log
        };
        self.synced.notify_waiters();
        self.again(log)
    }

    /// A restored backup: a new store with the first `batches` batches.
    #[must_use]
    pub fn backup(&self, batches: usize) -> Self {
        let log = self.state().log.iter().take(batches).cloned().collect();
        self.again(log)
    }

    /// The number of batches that were written.
    pub fn batches(&self) -> usize {
        self.state().log.len()
    }

    /// A new store that replays this history.
    fn again(&self, mut log: Vec<Vec<Change>>) -> Self {
        let mut tables = Tables::default();
        for batch in &mut log {
            for change in batch {
                let refused = tables.admit(change).err();
                debug_assert_eq!(refused, None, "an admitted change is admitted again by the same history");
            }
        }
        let durable = log.len();
        Self {
            state: Mutex::new(State { tables, log, durable, ..State::default() }),
            clock: self.clock.clone(),
            ..Self::default()
        }
    }

    /// Makes the next commit fail with `error` and write nothing. Several calls queue up.
    pub fn fail_next(&self, error: StoreError) {
        self.state().failures.push_back(error);
    }

    /// Loses the answer of the next commit: the commit is written, but fails as if nothing had been written.
    pub fn lose_next_answer(&self) {
        self.state().lose_answer = true;
    }

    /// Every record, of all tenants, in the order of their ids: for checks.
    pub fn records(&self) -> Vec<Record> {
        self.state().tables.records.values().cloned().collect()
    }

    /// Every run, of all tenants, in the order of their ids: for checks.
    pub fn runs(&self) -> Vec<Run> {
        self.state().tables.runs.values().cloned().collect()
    }

    /// Every question, open and answered, of all tenants, in the order of their ids: for checks.
    pub fn escalations(&self) -> Vec<Question> {
        self.state().tables.escalations.values().cloned().collect()
    }

    /// Every scheduled look, of all tenants: for checks.
    pub fn looks(&self) -> Vec<Look> {
        self.state().tables.looks.values().cloned().collect()
    }

    /// Every late answer, of all tenants: for checks.
    pub fn evidence(&self) -> Vec<Evidence> {
        self.state().tables.evidence.values().cloned().collect()
    }

    /// Every contact, of all tenants, in the order of their keys: for checks.
    pub fn contacts(&self) -> Vec<Contact> {
        self.state().tables.contacts.values().cloned().collect()
    }

    /// Every use, of all tenants, in the order of their keys: for checks.
    pub fn uses(&self) -> Vec<SharedEffect> {
        self.state().tables.uses.values().cloned().collect()
    }

    /// Every event in the outbox, of all tenants, published or not, by its tenant and id: for checks.
    pub fn events(&self) -> Vec<OutboxEvent> {
        self.state().tables.events.values().cloned().collect()
    }

    /// The publication state of every aggregate, of all tenants, by tenant and name: for checks.
    pub fn aggregates(&self) -> Vec<Aggregate> {
        self.state().tables.aggregates.values().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under this lock is a bug of the model; failing here would only hide that panic behind another one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<'a, T: Send + 'a>(&'a self, read: impl FnOnce(&Tables) -> T + Send + 'a) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let state = self.state();
            if state.crashed { Err(StoreError::Closed) } else { Ok(read(&state.tables)) }
        })
    }

    /// Waits until this number of batches is durable.
    async fn durable(&self, batches: usize) -> Result<(), StoreError> {
        loop {
            let synced = self.synced.notified();
            {
                let state = self.state();
                if state.crashed {
                    return Err(StoreError::Closed);
                }
                if state.durable >= batches {
                    return Ok(());
                }
            }
            synced.await;
        }
    }
}

impl State {
    /// Writes a batch. Returns the number of batches that must be durable for this one to be durable.
    fn write(&mut self, changes: &[Change], volatile: bool) -> Result<(Vec<Verdict>, usize), StoreError> {
        if self.crashed {
            return Err(StoreError::Closed);
        }
        if let Some(error) = self.failures.pop_front() {
            return Err(error);
        }
        let verdicts = self.tables.judge(changes);
        if volatile {
            return Ok((verdicts, 0));
        }
        let admitted = changes.iter().zip(&verdicts).filter(|(_, verdict)| verdict.is_admitted());
        self.log.push(admitted.map(|(change, _)| change.clone()).collect());
        if !self.held {
            self.durable = self.log.len();
        }
        if std::mem::take(&mut self.lose_answer) {
            return Err(StoreError::Io { detail: "the answer was lost".into() });
        }
        Ok((verdicts, self.log.len()))
    }
}

macro_rules! answer {
    ($($(#[$meaning:meta])+ $question:ident($($named:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(#[allow(clippy::elidable_lifetime_names, reason = "what some questions name lives as long as the answer")]
        fn $question<'a>(&'a self, $($named: $kind),*) -> StoreFuture<'a, $answer> {
            self.ask(move |tables| tables.$question($($named),*))
        })+
    };
}

impl Store for Model {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let (verdicts, batches) = self.state().write(changes, self.volatile)?;
            self.durable(batches).await?;
            Ok(verdicts)
        })
    }

    reads!(answer);

    fn pulse(&self) -> StoreFuture<'_, ClusterStatus> {
        let time = self.clock.as_ref().map_or(Timestamp::MIN, |clock| clock.now());
        self.ask(move |tables| ClusterStatus {
            time,
            workers: tables.workers(),
            next_due: tables.next_due(Timestamp::MIN),
            queued: !tables.queue_waiting().is_empty(),
            resumable: !tables.run_signalled(RunId(i64::MIN), 1).is_empty()
                || !tables.run_answered(RunId(i64::MIN), 1).is_empty(),
            unpublished: tables.is_unpublished(),
            restored: tables
                .document_find(&Tenant::ledger(), LEDGER_KIND, LEDGER_ID)
                .is_some_and(|row| row.open),
        })
    }

    fn in_place(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_shared(&self) -> bool {
        self.clock.is_some()
    }

    fn wake_others(&self) -> StoreFuture<'_, ()> {
        self.hints.notify_waiters();
        Box::pin(std::future::ready(Ok(())))
    }

    fn woken(&self) -> StoreFuture<'_, ()> {
        let hint = self.hints.notified();
        Box::pin(async move {
            hint.await;
            Ok(())
        })
    }
}
