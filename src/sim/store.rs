//! The seam to the disk: a store that reports the durable boundary that each change of a batch crosses.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::crash::{CrashPoint, Probe};
use crate::id::{Fence, RecordId, Tenant};
use crate::ledger::{OperationKey, Record, State};
use crate::store::{
    Change, DECLARATION_KIND, Run, RunState, StepKind, Store, StoreFuture, Verdict, WORKFLOW_KIND,
    WorkerChange,
};

/// A watched store. It changes nothing, and passes the test suite of the store behind it.
pub(super) struct Watched {
    store: Arc<dyn Store>,
    probe: Probe,
    /// The records that were read or written, with the fields that are needed to classify the next write.
    seen: Mutex<HashMap<RecordId, Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    fence: Fence,
    attempts: u32,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The points before and after one durable boundary.
type Boundary = (CrashPoint, CrashPoint);

macro_rules! boundary {
    ($before:ident, $after:ident) => {
        (CrashPoint::$before, CrashPoint::$after)
    };
}

/// The boundary of a change to a worker.
fn of_worker(worker: &WorkerChange) -> Option<Boundary> {
    match worker {
        WorkerChange::Renew { .. } | WorkerChange::Settle { .. } | WorkerChange::Publish => None,
        WorkerChange::Enrol { .. }
        | WorkerChange::Attach { .. }
        | WorkerChange::FenceOthers { .. }
        | WorkerChange::End { .. } => Some(boundary!(BeforeEnrolment, AfterEnrolment)),
        WorkerChange::Retire { .. } => Some(boundary!(BeforeRetirement, AfterRetirement)),
    }
}

/// The boundary of a change to a run that continues.
fn of_run(run: &Run, change: &Change) -> Boundary {
    match run.state {
        _ if run.revision == 1 => boundary!(BeforeRunStart, AfterRunStart),
        _ if change.signal.is_some() => boundary!(BeforeSignal, AfterSignal), // the signal also wakes its run
        RunState::Waiting { .. } | RunState::Queued => boundary!(BeforePark, AfterPark),
        // Only the writes of an activation itself have a lane.
        _ if change.lane.is_some() => boundary!(BeforeProgress, AfterProgress),
        _ => boundary!(BeforeTakeover, AfterTakeover),
    }
}

impl Watched {
    pub(super) fn new(store: Arc<dyn Store>, probe: Probe) -> Self {
        Self { store, probe, seen: Mutex::default() }
    }

    /// The boundary of a change. If several things become durable together, the one that caused the change.
    fn boundary(&self, change: &Change) -> Option<Boundary> {
        if let Some(worker) = &change.worker {
            return of_worker(worker);
        }
        if change.schedule.is_some() {
            return Some(boundary!(BeforeTick, AfterTick));
        }
        if change.retired.iter().any(|retired| !retired.is_kept())
            || !change.retired_runs.is_empty()
            || !change.expired_signals.is_empty()
        {
            return Some(boundary!(BeforeForgetting, AfterForgetting));
        }
        // A declaration that is written and not used yet has no consequence, nor has the catalogue for any run.
        let is_without = |kind: &str| kind == DECLARATION_KIND || kind == WORKFLOW_KIND;
        if change.documents.iter().any(|document| !is_without(document.kind.as_str())) {
            return Some(boundary!(BeforeDocument, AfterDocument));
        }
        if change.admission.is_some() {
            return Some(boundary!(BeforeAdmission, AfterAdmission));
        }
        if change.run.as_ref().is_some_and(|run| run.state.is_final()) {
            return Some(boundary!(BeforeRunEnd, AfterRunEnd));
        }
        if let Some(question) = change.escalations.first() {
            return Some(match question.answer {
                Some(_) => boundary!(BeforeAnswer, AfterAnswer),
                None => boundary!(BeforeQuestion, AfterQuestion),
            });
        }
        if !change.aggregates.is_empty() {
            return Some(boundary!(BeforePublished, AfterPublished));
        }
        if let Some(record) = &change.record {
            return Some(self.transition(record));
        }
        if let Some(look) = &change.look {
            return Some(match look.due_at {
                Some(_) if look.tries > 0 => boundary!(BeforeConfirming, AfterConfirming),
                _ => boundary!(BeforeConfirmed, AfterConfirmed),
            });
        }
        if let Some(run) = &change.run {
            return Some(of_run(run, change));
        }
        if change.signal.is_some() {
            return Some(boundary!(BeforeSignal, AfterSignal));
        }
        if change.received.is_some() {
            return Some(boundary!(BeforeReceipt, AfterReceipt));
        }
        if change.steps.iter().any(|step| step.kind == StepKind::Undoing) {
            return Some(boundary!(BeforeUndoing, AfterUndoing));
        }
        if !change.steps.is_empty() {
            return Some(boundary!(BeforeCheckpoint, AfterCheckpoint));
        }
        if change.used.is_some() {
            return Some(boundary!(BeforeUse, AfterUse));
        }
        // The rest is an empty change: a run that waits for its queued writes.
        change.tenant_key.as_ref().map(|_| boundary!(BeforeDigestKey, AfterDigestKey))
    }

    fn transition(&self, record: &Record) -> Boundary {
        let before = self.seen().get(&record.id).cloned();
        match (&record.state, before) {
            _ if record.revision == 1 => boundary!(BeforeStarted, AfterStarted),
            (State::Started, Some(seen)) if seen.attempts == record.attempts => {
                if seen.fence == record.fence {
                    boundary!(BeforeNote, AfterNote)
                } else {
                    boundary!(BeforeAdoption, AfterAdoption)
                }
            }
            (State::Started, _) => boundary!(BeforeAttempt, AfterAttempt),
            (State::Failed { .. }, _) => boundary!(BeforeFailed, AfterFailed),
            // A compensation that was opened with a question crosses the question's boundary.
            (State::Compensated { .. }, None) => boundary!(BeforeCompensated, AfterCompensated),
            _ => boundary!(BeforeSeal, AfterSeal),
        }
    }

    /// Remembers a record that is not final. After the final state, only the confirming lookup is written.
    fn note(&self, record: &Record) {
        match record.state {
            State::Started | State::Failed { .. } => {
                let seen = Seen { fence: record.fence, attempts: record.attempts };
                self.seen().insert(record.id, seen);
            }
            _ => drop(self.seen().remove(&record.id)),
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<RecordId, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noting<'a, T>(
        &'a self,
        asked: StoreFuture<'a, T>,
        records: impl Fn(&T) -> &[Record] + Send + 'a,
    ) -> StoreFuture<'a, T>
    where
        T: Send + 'a,
    {
        Box::pin(async move {
            let found = asked.await?;
            for record in records(&found) {
                self.note(record);
            }
            Ok(found)
        })
    }
}

impl Store for Watched {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let mut boundaries = Vec::with_capacity(changes.len());
            for change in changes {
                boundaries.push(self.boundary(change));
                // Remembered before the change is admitted, because a later change of this batch builds on it.
                if let Some(record) = &change.record {
                    self.note(record);
                }
            }
            for (before, _) in boundaries.iter().flatten() {
                self.probe.cross(*before).await;
            }
            let verdicts = self.store.commit(changes).await?;
            for (boundary, verdict) in boundaries.iter().zip(&verdicts) {
                if let (Some((_, after)), Verdict::Admitted) = (boundary, verdict) {
                    self.probe.cross(*after).await;
                }
            }
            Ok(verdicts)
        })
    }

    fn record_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a OperationKey,
    ) -> StoreFuture<'a, Option<Record>> {
        self.noting(self.store.record_find(tenant, key), Option::as_slice)
    }

    fn record_at<'a>(&'a self, tenant: &'a Tenant, id: RecordId) -> StoreFuture<'a, Option<Record>> {
        self.noting(self.store.record_at(tenant, id), Option::as_slice)
    }

    fn record_orphans(&self, after: RecordId, limit: u32) -> StoreFuture<'_, Vec<Record>> {
        self.noting(self.store.record_orphans(after, limit), Vec::as_slice)
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}
