//! The start and the end of a worker: its lasting tasks are begun, and it is closed.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::outbox::{Publisher, announce, publish};
use super::peers::Peers;
use crate::store::Store as _;

impl Core {
    /// Begins the publisher task, if this worker has a sink. In a shared store a worker without a sink announces its
    /// events to the workers that may have one.
    pub(crate) fn begin_publishing(self: &Arc<Self>, publisher: Option<Publisher>) {
        match publisher {
            Some(publisher) => {
                self.publishing.becomes_able();
                self.lasting("publisher", move |core| publish(core, publisher.clone()));
            }
            None if self.is_shared() => self.lasting("announcer", announce),
            None => {}
        }
    }

    /// Closes this worker: it takes no new calls and waits at most `drain` for the calls in flight. Then everything
    /// queued is written, and the file is released.
    ///
    /// The file stays locked until the last call in flight has ended. That call may still send, and the free lock tells
    /// the next process that nothing is sent any more, so that it can begin to count the settle time.
    pub(crate) async fn close(&self, drain: Duration) {
        self.begin_closing();
        self.tracker.close();
        tokio::select! {
            biased; // no random choice, so that a simulation is repeatable
            () = self.tracker.wait() => {}
            () = self.clock.sleep(drain) => {}
        }
        self.group.hurry();
        self.sign_off().await;
        self.group.close().await;
        if let Some(database) = self.database.clone() {
            if self.tracker.is_empty() {
                return database.retire().await;
            }
            tracing::warn!(
                worker = %self.fence,
                "calls still under way, database stays locked until they end"
            );
            let tracker = self.tracker.clone();
            tokio::spawn(async move {
                tracker.wait().await;
                database.retire().await;
            });
        }
    }

    /// Signs this worker off, so that others take over its work at once. In a shared store with a call in flight the
    /// lease runs out instead, because no lock tells the others that the call may still send.
    async fn sign_off(&self) {
        if self.tracker.is_empty() || !self.is_shared() {
            let mut change = self.change(None);
            change.worker = Some(crate::store::WorkerChange::Retire { at: self.now() });
            if let Err(error) = self.group.commit_one(change).await {
                tracing::warn!(worker = %self.fence, %error, "worker could not sign off, its lease runs out instead");
            }
        }
        if let Peers::Shared(shared) = &self.peers {
            shared.lease.lose(); // ends this worker's heartbeat
            if let Err(error) = self.group.wake_others().await {
                tracing::debug!(%error, "hint to other workers lost");
            }
        }
    }
}
