//! What a tool is told about its call, and what it notes while the call is under way.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::core::Core;
use super::declared::Bound;
use super::operation::Operation;
use crate::clock::Timestamp;
use crate::ledger::{Declaration, Event, Record, apply};
use crate::store::{Lane, StoreError, Verdict};
use crate::tool::{Call, Noting};

/// The record of an attempt under way, which the tool may add an external reference to.
pub(super) struct Note {
    core: Arc<Core>,
    lane: Option<Lane>,
    /// When the attempt is cut off.
    until: Timestamp,
    declaration: Arc<Declaration>,
    record: Mutex<Box<Record>>,
}

impl Note {
    pub(super) fn of(
        core: &Arc<Core>,
        op: &Operation,
        bound: &Bound,
        record: Box<Record>,
        until: Timestamp,
    ) -> Arc<Self> {
        let (declaration, record) = (bound.declaration.clone(), Mutex::new(record));
        Arc::new(Self { core: core.clone(), lane: op.lane, until, declaration, record })
    }

    /// What the tool is told about the attempt.
    pub(super) fn call(self: &Arc<Self>, op: &Operation) -> Call {
        let noting: Box<dyn Noting> = Box::new(self.clone());
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        call(op, &self.declaration, &record, Some(noting))
    }

    /// The record with what the tool has noted.
    pub(super) fn take(&self) -> Box<Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Noting for Arc<Note> {
    fn use_until(&self) -> Timestamp {
        self.core.lease_until().map_or(self.until, |lease| lease.min(self.until))
    }

    fn time_left(&self) -> Duration {
        self.core.now().until(self.use_until())
    }

    fn note(&self, external_ref: String) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (ticket, next) = {
                let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
                let event = Event::Note { external_ref };
                let Ok(next) = apply(&record, event, self.core.fence, self.core.now()).map(Box::new) else {
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

/// What a tool is told.
pub(super) fn call(
    op: &Operation,
    declaration: &Arc<Declaration>,
    record: &Record,
    noting: Option<Box<dyn Noting>>,
) -> Call {
    let (attempt, external_ref) = (record.attempts, record.external_ref.clone());
    Call { attempt, external_ref, noting, ..unsent(op, declaration) }
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
