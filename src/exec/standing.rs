//! The rights of this worker: if it may send, and if it may take up the work of others.

use std::sync::atomic::Ordering;

use super::core::Core;
use super::lease::Lost;
use super::outcome::{ExecError, failed, refused};
use super::peers::Peers;
use crate::clock::{Boot, SharedClock, Timestamp};
use crate::id::Fence;
use crate::ledger::{OperationKey, Record};
use crate::store::{Refusal, Store as _, StoreError, Worker};

/// The reason why this worker must not send any more.
#[derive(Debug)]
pub(super) enum MayNotSend {
    /// Another worker has taken over this worker's work, or will.
    Fenced,
    /// The store is gone: no record would be found again.
    NoStore(StoreError),
}

impl MayNotSend {
    /// The error for the caller of an operation.
    pub(super) fn of(self, key: &OperationKey) -> ExecError {
        match self {
            Self::Fenced => refused(key, Refusal::Fenced),
            Self::NoStore(error) => {
                log_trouble!(error, %key, "call held back, database gone from its place");
                failed(key, error)
            }
        }
    }
}

impl Core {
    /// This machine's clocks.
    pub(super) fn machine(&self) -> &SharedClock {
        match &self.peers {
            Peers::Shared(shared) => shared.clock.machine(),
            Peers::Client { clock: Some(clock), .. } => clock.machine(),
            Peers::Alone { .. } | Peers::Client { .. } => &self.clock,
        }
    }

    /// Checks that this worker may send: it has not lost its lease, and its file is still there.
    pub(super) async fn hold_lease(&self) -> Result<(), MayNotSend> {
        match &self.peers {
            Peers::Alone { .. } | Peers::Client { .. } => self.group.in_place().map_err(MayNotSend::NoStore),
            Peers::Shared(shared) => {
                shared.lease.hold(&**shared.clock.machine()).await.map_err(|Lost| MayNotSend::Fenced)
            }
        }
    }

    /// The end of this worker's lease, unless it is renewed. `None` for a worker that has its store for itself.
    pub(super) fn lease_until(&self) -> Option<Timestamp> {
        match &self.peers {
            Peers::Alone { .. } | Peers::Client { .. } => None,
            Peers::Shared(shared) => Some(self.now().after(shared.lease.left(&**shared.clock.machine()))),
        }
    }

    /// The instant at which the sender of an attempt ceased to send: now for a sender of this process, whose future is
    /// gone; for another worker, the instant at which it was seen to have ended.
    pub(crate) fn cut(&self, fence: Fence) -> Boot {
        match &self.peers {
            _ if fence == self.fence => self.clock.boot(),
            Peers::Alone { since } | Peers::Client { since, .. } => *since,
            Peers::Shared(shared) => shared.note_ended(fence, self.clock.boot()),
        }
    }

    /// The instant at which the sender of the record's last attempt ceased to send.
    pub(super) fn ceased(&self, record: &Record) -> Boot {
        self.ceased.at(record).unwrap_or_else(|| match &self.peers {
            // The record's worker has left it, or has asked a person: it sends nothing for the record any more, and may
            // still live.
            Peers::Shared(shared) if record.is_left() || record.escalation.is_some() => {
                shared.ended_at(record.fence).unwrap_or_else(|| self.clock.boot())
            }
            _ => self.cut(record.fence),
        })
    }

    /// True if another living worker has this fence, so that its work is not to be taken up here.
    pub(crate) async fn is_anothers(&self, fence: Fence) -> Result<bool, StoreError> {
        let Peers::Shared(shared) = &self.peers else { return Ok(false) };
        if fence == self.fence || shared.ended_at(fence).is_some() {
            return Ok(false);
        }
        // A client is settled from the start, and has no work.
        let lives = |worker: Worker| worker.ended_at.is_none() && !worker.settled;
        let lives = self.group.worker_at(fence).await?.is_some_and(lives);
        if !lives {
            shared.note_ended(fence, self.clock.boot());
        }
        Ok(lives)
    }

    /// True if several workers may work on the store at once.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.peers, Peers::Shared(_) | Peers::Client { clock: Some(_), .. })
    }

    /// True if this process carries nothing out: what it writes is taken up by workers.
    pub(crate) const fn is_client(&self) -> bool {
        matches!(self.peers, Peers::Client { .. })
    }

    /// True if other processes may write what the runs of this worker wait for.
    pub(crate) fn has_others(&self) -> bool {
        self.is_shared() || self.has_clients.load(Ordering::Acquire)
    }

    /// True if other workers take over the work that this one leaves, and this one learns of it.
    pub(crate) fn hears_of_others(&self) -> bool {
        match &self.peers {
            Peers::Shared(shared) => !shared.lease.is_lost(),
            Peers::Client { .. } => true,
            Peers::Alone { .. } => false,
        }
    }

    /// Resolves when this worker has lost its lease, so that it can write nothing any more.
    pub(crate) async fn fenced(&self) {
        match &self.peers {
            Peers::Alone { .. } | Peers::Client { .. } => std::future::pending().await,
            Peers::Shared(shared) => shared.lease.lost().await,
        }
    }
}
