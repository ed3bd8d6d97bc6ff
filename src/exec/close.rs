//! The ends of a worker: what lasts as long as it does is begun, and it is closed.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::outbox::{Publisher, announce, publish};
use super::peers::Peers;
use crate::store::Store as _;

impl Core {
    /// Whoever has no sink tells those who may have one.
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

    /// Ends this worker: no new call, at most `drain` for those under way, then everything queued is written, and
    /// the file is given free.
    ///
    /// Not while a call is under way: it may send yet, and the lock is what tells the next process that nothing
    /// is sent any more, so that it can begin to count the settle time. It stays until the last call has ended.
    pub(crate) async fn close(&self, drain: Duration) {
        self.begin_closing();
        self.tracker.close();
        tokio::select! {
            biased; // chance is drawn in one place only, or no simulation could be repeated
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
                "calls are still under way: the database stays locked until they end, or this process"
            );
            let tracker = self.tracker.clone();
            tokio::spawn(async move {
                tracker.wait().await;
                database.retire().await;
            });
        }
    }

    /// Others take over at once what this worker leaves. Not while a call is under way in a shared store, where no lock
    /// tells that it may send yet: then the lease runs out instead.
    async fn sign_off(&self) {
        if self.tracker.is_empty() || !self.is_shared() {
            let mut change = self.change(None);
            change.worker = Some(crate::store::WorkerChange::Retire { at: self.now() });
            if let Err(error) = self.group.commit_one(change).await {
                tracing::warn!(%error, "this worker could not sign off; the next one will find it dead");
            }
        }
        if let Peers::Shared(shared) = &self.peers {
            shared.lease.lose(); // ends its heartbeat
            if let Err(error) = self.group.wake_others().await {
                tracing::debug!(%error, "the others will find out by themselves");
            }
        }
    }
}
