//! The call as its tool sees it, and the notes that the tool makes while the call is in flight.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::core::Core;
use super::declared::Settling;
use super::operation::Operation;
use crate::clock::{Boot, Timestamp};
use crate::ledger::{Declaration, Event, OperationKey, Record, apply};
use crate::store::{OrderingKey, StoreError, Verdict};
use crate::tool::{Call, Noting};

/// The record of an attempt in flight, to which the tool may add an external reference.
pub(super) struct Note {
    pub(super) core: Arc<Core>,
    key: OperationKey,
    pub(super) lane: Option<OrderingKey>,
    timeout: Duration,
    /// The instant at which the first of the attempt's needs lapses.
    needed: Option<Timestamp>,
    begun: Timestamp,
    /// The instant of the attempt's last sign of life.
    alive: Mutex<Option<(Timestamp, Boot)>>,
    /// True once the attempt has sent.
    #[cfg(any(feature = "tool-http", feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
    sent: std::sync::atomic::AtomicBool,
    /// The record. `None` once the attempt is over.
    record: Mutex<Option<Box<Record>>>,
}

impl Note {
    /// The note of an attempt, and the call that the tool gets.
    pub(super) fn begun(
        Settling { core, op, bound }: Settling<'_>,
        record: Box<Record>,
        begun: Timestamp,
        needed: Option<Timestamp>,
    ) -> (Arc<Self>, Call) {
        let told = call(core, op, &bound.declaration, &record);
        let timeout = op.tool.spec().retry.attempt_timeout;
        let (core, key, record) = (core.clone(), op.key.clone(), Mutex::new(Some(record)));
        let (lane, alive) = (op.lane, Mutex::default());
        let note = Arc::new(Self {
            core,
            key,
            lane,
            timeout,
            needed,
            begun,
            alive,
            #[cfg(any(
                feature = "tool-http",
                feature = "tool-command",
                all(feature = "mcp", feature = "sqlite")
            ))]
            sent: std::sync::atomic::AtomicBool::default(),
            record,
        });
        (note.clone(), Call { noting: Some(note), ..told })
    }

    /// The rest of the timeout since the last sign of life. `None` if the timeout has passed, or if the attempt gave no
    /// sign.
    pub(super) fn left(&self) -> Option<Duration> {
        let (_, since) = (*self.alive())?;
        let left = self.timeout.saturating_sub(since.until(self.core.clock.boot()));
        (!left.is_zero()).then_some(left)
    }

    /// Ends the attempt: returns the record with the tool's notes, and the beginning of the attempt. Nothing can be
    /// noted after this.
    #[allow(clippy::expect_used, reason = "nobody else takes it")]
    pub(super) fn end(&self) -> (Box<Record>, Timestamp) {
        (self.record().take().expect("an attempt ends once"), self.begun)
    }

    fn alive(&self) -> MutexGuard<'_, Option<(Timestamp, Boot)>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self) -> MutexGuard<'_, Option<Box<Record>>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noting for Note {
    fn use_until(&self) -> Timestamp {
        let since = self.alive().map_or(self.begun, |(alive, _)| alive);
        let ends = [self.needed, self.core.lease_until()].into_iter().flatten();
        ends.fold(since.after(self.timeout), Timestamp::min)
    }

    fn alive(&self) {
        *Self::alive(self) = Some((self.core.now(), self.core.clock.boot()));
    }

    #[cfg(any(feature = "tool-http", feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
    fn claim_send(&self) -> Result<(), &'static str> {
        if self.record().is_none() {
            return Err("the attempt is over");
        }
        let sent_before = self.sent.swap(true, std::sync::atomic::Ordering::Relaxed);
        if sent_before { Err("the attempt has sent its request") } else { Ok(()) }
    }

    fn time_left(&self) -> Duration {
        self.core.now().until(self.use_until())
    }

    #[cfg(feature = "_sealed")]
    fn seals(self: Arc<Self>, contract: crate::ledger::ContractClass) -> Option<Box<dyn crate::tool::Seals>> {
        super::sealing::of(self, contract)
    }

    fn note(&self, external_ref: String) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (ticket, next) = {
                let mut under_way = self.record();
                let Some(record) = under_way.as_mut() else {
                    let detail = format!("{}: not noted, the attempt is over", self.key);
                    return Err(StoreError::Io { detail });
                };
                if record.is_unwritten() {
                    record.external_ref = Some(external_ref); // the reference is written with the outcome
                    return Ok(());
                }
                let event = Event::Note { external_ref };
                let Ok(next) = apply(record, event, self.core.fence, self.core.now()).map(Box::new) else {
                    return Ok(()); // no longer started: the record takes no note
                };
                let change = self.core.change(self.lane).record(next.clone());
                // Queued before the lock is released, so that the seal comes after the note.
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

/// The call of a record's last attempt, as the tool gets it.
pub(super) fn call(core: &Core, op: &Operation, declaration: &Arc<Declaration>, record: &Record) -> Call {
    let (attempt, external_ref) = (record.attempts, record.external_ref.clone());
    // The sends of a lost ledger are older than this record.
    let is_known = attempt > 0 && !core.may_be_older();
    let first_sent = is_known.then_some(record.created_at);
    Call { attempt, external_ref, first_sent, ..unsent(op, declaration) }
}

/// The call for a lookup before anything is sent.
pub(super) fn unsent(op: &Operation, declaration: &Arc<Declaration>) -> Call {
    Call {
        tenant: op.tenant.clone(),
        operation_key: op.key.clone(),
        declaration: declaration.clone(),
        wire_key: OnceLock::new(),
        attempt: 0,
        external_ref: None,
        first_sent: None,
        trace: op.run_trace(),
        noting: None,
    }
}
