//! The contract of a store, as a trait.

use std::collections::BTreeMap;
use std::fmt;

use futures_util::future::BoxFuture;

use super::chain::Link;
use super::reads::reads;
use super::{
    Aggregate, AvoidedDuplicates, Change, ClusterStatus, Contact, Defect, Document, Due, Evidence, History,
    HistoryPlace, OutboxEvent, Published, PublishedValue, Question, QuestionCount, QuestionLoad,
    QuestionSpan, QueueLoad, RecordLabel, RetentionLoad, Run, RunCursor, RunFilter, RunLabel, RunPage,
    Schedule, SharedEffect, Signal, StoreError, StoreLoad, Turns, Verdict, Worker,
};
use crate::clock::Timestamp;
use crate::id::{Fence, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::{Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};

/// The answer of a store: the future is boxed, so that stores can be wrapped as `dyn Store`.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// The durable state of an engine.
///
/// # Contract
///
/// **Commit.** [`commit`](Store::commit) takes a batch of changes from many runs and writes the batch in as few
/// transactions as possible. When it returns `Ok`, all admitted changes are durable, and `verdicts[i]` belongs to
/// `changes[i]`.
///
/// 1. A change is all or nothing, and is admitted or refused by itself.
/// 2. A change is refused as `Fenced` if its worker has been fenced; as `Exists` if a unique key is taken (unless by
///    the very same row: then an earlier answer was lost, and the change is admitted) or a guard's row is at another
///    revision; as `Stale` if a record, run or question is not at the revision that the change was computed from; as
///    `UnderWay` if the tenant that it erases still has something under way; as `Invalid` if it cannot be stored.
/// 3. Changes of one [`OrderingKey`](super::OrderingKey) are judged in order. When one is refused, all later ones of that lane in the
///    batch are refused as `Predecessor`; a refused *question* ([`Change::is_question`]) is an answer and stops
///    nothing.
/// 4. If the batch as a whole fails, the error says so, and the same changes may be written again: a change that is
///    durable after all is admitted as the same again (2). Reading back shows which changes are durable.
/// 5. A dropped future of `commit` may or may not take effect; no change is half written.
/// 6. A late answer is compared with the seal of its record in the transaction that writes the later of the two (see
///    [`Change::contract`]). If the answer [proves a second effect](crate::ledger::is_second_effect), that
///    transaction opens the question, once for each late answer, and the worker of the answer is no longer settled.
///
/// **Reads** see at least the rows that were durable when the read was called, and only rows of the given tenant. A
/// list that goes on from `after` may leave damaged rows out, but an empty list is always the end. A list of due work that
/// is shorter than its limit is the end, too.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Writes a batch of changes.
    ///
    /// # Crash
    /// Before it returns: each change is there wholly or not at all. After: every admitted change is there.
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>>;

    /// Does what can be done for a change before its transaction. The queue in front of a store calls this where a change is
    /// queued, while an earlier transaction is being written.
    fn prepare(&self, change: &mut Change) {
        if let Some(store) = self.behind() {
            store.prepare(change);
        }
    }

    /// The store behind this one, which answers every question that this one does not answer by itself. A wrapper
    /// thus needs only `commit`, this method, and the methods that it changes. `None` for a store that answers all
    /// questions.
    ///
    /// ```
    /// use counterfoil::store::{StoreFuture, Change, Model, Store, Verdict};
    ///
    /// #[derive(Debug)]
    /// struct Logged(Model);
    ///
    /// impl Store for Logged {
    ///     fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
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

    /// Called before each question that is passed on. The returned value is dropped when the answer was taken, or
    /// when nobody waits for it any more.
    fn passing(&self) -> Option<Passing> {
        None
    }

    reads!(pass_on);

    /// The workers, the time of the store's clock for leases, and the next due instant.
    fn pulse(&self) -> StoreFuture<'_, ClusterStatus> {
        passed(self, |store| store.pulse())
    }
    /// Fails if the opened file is no longer in place, because it was removed or replaced. This is called directly
    /// before each send, so it must be cheap.
    fn in_place(&self) -> Result<(), StoreError> {
        self.behind().map_or(Ok(()), Store::in_place)
    }
    /// The sizes that the store knows without asking its database, for metrics.
    fn load(&self) -> StoreLoad {
        self.behind().map_or_else(StoreLoad::default, Store::load)
    }
    /// The rows that are kept for a time, by tool, workflow and consumer, at the instant `now`. An operator asks this: it
    /// reads whole tables, and only the databases answer it.
    fn retention_load(&self, now: Timestamp) -> StoreFuture<'_, Vec<RetentionLoad>> {
        passed(self, move |store| store.retention_load(now))
    }
    /// The scheduled look whose lookups have failed most often in a row, if any has. An operator asks this: it reads the
    /// whole table, and only the databases answer it.
    fn look_failing(&self) -> StoreFuture<'_, Option<Look>> {
        passed(self, |store| store.look_failing())
    }
    /// The defects of the database that its rows do not show. It reads the whole file, and only the databases answer it.
    fn examine(&self) -> StoreFuture<'_, Vec<Defect>> {
        passed(self, |store| store.examine())
    }
    /// The number of encrypted texts by their tenant and the id of the key that they name. A text of a caller that looks
    /// like an encrypted one is counted, too. It reads all rows, and only the databases answer it.
    fn named_keys(&self) -> StoreFuture<'_, BTreeMap<(String, String), u64>> {
        passed(self, |store| store.named_keys())
    }
    /// True if an engine works on the store, where its lock tells. `None` in a shared store, whose workers have leases.
    fn has_engine(&self) -> Option<bool> {
        self.behind().and_then(Store::has_engine)
    }
    /// True if several workers may work on the store at once, each while its lease lasts. Otherwise a process that
    /// opens the store knows that all others are dead.
    fn is_shared(&self) -> bool {
        self.behind().is_some_and(Store::is_shared)
    }
    /// Tells the other workers that there is work. This is only a hint: it may be lost, or merged with others.
    fn wake_others(&self) -> StoreFuture<'_, ()> {
        passed(self, |store| store.wake_others())
    }
    /// A future that resolves when another worker has given a hint, or when a hint may have been lost.
    fn woken(&self) -> StoreFuture<'_, ()> {
        passed(self, |store| store.woken())
    }
}

/// Implements each question by passing it to the store behind.
macro_rules! pass_on {
    ($($(#[$meaning:meta])+ $question:ident($($named:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $($(#[$meaning])+
        #[allow(clippy::elidable_lifetime_names, reason = "what some questions name lives as long as the answer")]
        fn $question<'a>(&'a self, $($named: $kind),*) -> StoreFuture<'a, $answer> {
            passed(self, |store| store.$question($($named),*))
        })+
    };
}
use pass_on;

/// A guard for a question that is passed on; it is dropped when the question is answered.
pub type Passing = Box<dyn Send>;

/// Asks the store behind a wrapper.
fn passed<'a, T: Send + 'a>(
    wrapper: &'a (impl Store + ?Sized),
    question: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T>,
) -> StoreFuture<'a, T> {
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

// `Store` is passed around as `dyn`.
const _: Option<&dyn Store> = None;
