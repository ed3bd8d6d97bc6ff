//! What a tool is told about its call, and what it notes while the call is under way.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::core::Core;
use super::declared::Bound;
use super::late;
use super::operation::Operation;
use crate::clock::Timestamp;
use crate::ledger::{ContractClass, Declaration, Event, OperationKey, Record, apply};
use crate::payload::Payload;
use crate::store::{Change, Lane, StoreError, Verdict};
use crate::tool::{Call, Noting, Seals};

/// The record of an attempt under way, which the tool may add an external reference to.
pub(super) struct Note {
    core: Arc<Core>,
    key: OperationKey,
    lane: Option<Lane>,
    /// When the attempt is cut off.
    until: Timestamp,
    /// None when the attempt is over.
    record: Mutex<Option<Box<Record>>>,
}

impl Note {
    /// The note of an attempt, and what the tool is told about it.
    pub(super) fn begun(
        core: &Arc<Core>,
        op: &Operation,
        bound: &Bound,
        record: Box<Record>,
        until: Timestamp,
    ) -> (Arc<Self>, Call) {
        let told = call(op, &bound.declaration, &record);
        let (core, key, record) = (core.clone(), op.key.clone(), Mutex::new(Some(record)));
        let note = Arc::new(Self { core, key, lane: op.lane, until, record });
        (note.clone(), Call { noting: Some(note), ..told })
    }

    /// The record with what the tool has noted. From now on nothing is noted: the attempt is over.
    #[allow(clippy::expect_used, reason = "nobody else takes it")]
    pub(super) fn end(&self) -> Box<Record> {
        self.record().take().expect("an attempt ends once")
    }

    fn record(&self) -> MutexGuard<'_, Option<Box<Record>>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noting for Note {
    fn use_until(&self) -> Timestamp {
        self.core.lease_until().map_or(self.until, |lease| lease.min(self.until))
    }

    fn time_left(&self) -> Duration {
        self.core.now().until(self.use_until())
    }

    fn seals(self: Arc<Self>, contract: ContractClass) -> Option<Box<dyn Seals>> {
        let event = Event::Note { external_ref: IN_TRANSACTION.to_owned() };
        let marked = apply(self.record().as_ref()?, event, self.core.fence, self.core.now()).ok()?;
        Some(Box::new(Sealing { note: self, contract, marked }))
    }

    fn note(&self, external_ref: String) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (ticket, next) = {
                let mut under_way = self.record();
                let Some(record) = under_way.as_mut() else {
                    let detail = format!("{}: not noted, the attempt is over", self.key);
                    return Err(StoreError::Io { detail });
                };
                let event = Event::Note { external_ref };
                let Ok(next) = apply(record, event, self.core.fence, self.core.now()).map(Box::new) else {
                    return Ok(()); // no longer started: there is nothing to note it on
                };
                let change = self.core.change(self.lane).record(next.clone());
                // Queued before the lock is released, so that the seal comes behind it.
                let ticket = self.core.group.submit(change);
                record.clone_from(&next);
                (ticket, next)
            };
            match ticket.durable().await? {
                Verdict::Admitted => Ok(()),
                Verdict::Refused(refusal) => {
                    Err(StoreError::Io { detail: format!("{}: not noted, {refusal}", next.key) })
                }
            }
        })
    }
}

/// What the record of an effect refers to that is a change in the ledger's own database.
const IN_TRANSACTION: &str = "ledger-transaction";

/// The record of an attempt that is sealed in the transaction of its effect.
struct Sealing {
    note: Arc<Note>,
    contract: ContractClass,
    /// As the transaction's first write leaves it.
    marked: Record,
}

impl Seals for Sealing {
    fn mark(&self) -> Change {
        self.note.core.change(self.note.lane).record(Box::new(self.marked.clone()))
    }

    fn seal(&self, response: &Payload) -> Option<Change> {
        let core = &self.note.core;
        let (response, large) = core.storable(response.clone());
        let event = Event::Commit { response, external_ref: None, basis: self.marked.basis };
        let sealed = apply(&self.marked, event, core.fence, core.now()).ok()?;
        let mut change = core.change(self.note.lane).record(Box::new(sealed));
        change.payloads.extend(large.map(|payload| (self.marked.tenant.clone(), payload)));
        late::compare(core, &mut change, self.contract, Box::default());
        Some(change)
    }

    fn took_place(self: Box<Self>, seal: Change) {
        if let Some((sealed, record)) = seal.record.zip(self.note.record().as_mut()) {
            *record = sealed;
        }
        // Whoever wrote events in the transaction could not tell the publisher.
        self.note.core.group.events().notify_one();
    }

    fn ended_inside(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move { self.note.core.group.commit_one(self.mark()).await.map(drop) })
    }
}

/// What a tool is told about the attempt that its record counted last.
pub(super) fn call(op: &Operation, declaration: &Arc<Declaration>, record: &Record) -> Call {
    let (attempt, external_ref) = (record.attempts, record.external_ref.clone());
    Call { attempt, external_ref, ..unsent(op, declaration) }
}

/// What a tool's lookup is told before anything is sent.
pub(super) fn unsent(op: &Operation, declaration: &Arc<Declaration>) -> Call {
    Call {
        tenant: op.tenant.clone(),
        operation_key: op.key.clone(),
        declaration: declaration.clone(),
        wire_key: OnceLock::new(),
        attempt: 0,
        external_ref: None,
        noting: None,
    }
}
