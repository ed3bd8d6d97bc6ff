//! A transaction that several messages share. Their closures run one after the other in any case, because SQLite has
//! one writer; in one transaction they wait for the disk once.
//!
//! A message whose closure has ended leaves the transaction open and queues for the writer once more. Messages that
//! already wait come first and join. The first message that queues again commits for all, and so does any other
//! writer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use sqlx::Executor as _;
use tokio::sync::{MutexGuard, oneshot};

use super::{Sqlite, StoreError, Writer, failure};
use crate::clock::Boot;

/// The maximum number of messages that share a transaction.
const MOST: usize = 32;
/// The age from which a transaction takes no more messages: the first message does not wait for ever.
const OPEN_FOR: Duration = Duration::from_millis(20);

/// The messages whose closures have ended in the open transaction.
#[derive(Debug, Default)]
pub(super) struct Shared {
    since: Option<Boot>,
    messages: Vec<oneshot::Sender<()>>,
}

/// The membership of a message in the shared transaction.
pub(super) struct Membership(oneshot::Receiver<()>);

impl Writer {
    /// True if a transaction is open that one more message can join.
    pub(super) fn can_join(&self, now: Boot) -> Result<bool, StoreError> {
        self.place.check_to_write()?;
        let is_young = self.shared.since.is_some_and(|since| since.until(now) < OPEN_FOR);
        Ok(is_young && !self.unfinished && self.shared.messages.len() < MOST)
    }

    /// True if messages wait for the end of the transaction.
    pub(super) const fn has_shared(&self) -> bool {
        !self.shared.messages.is_empty()
    }

    /// Adds a message whose closure has ended and that waits for the end of the transaction.
    pub(super) fn join(&mut self, now: Boot) -> Membership {
        let (committed, waits) = oneshot::channel();
        self.shared.since.get_or_insert(now);
        self.shared.messages.push(committed);
        Membership(waits)
    }

    /// Commits for all waiting messages, without the work of a later message that has begun and not ended. If that
    /// message has removed their savepoints, it has ended the transaction, and they look up the result.
    pub(super) async fn end_shared(&mut self) -> Result<(), StoreError> {
        if !self.has_shared() {
            return Ok(());
        }
        let Shared { messages, .. } = std::mem::take(&mut self.shared);
        let begun = std::mem::replace(&mut self.unfinished, true);
        if begun && self.connection.execute("ROLLBACK TO message").await.is_err() {
            return Ok(());
        }
        self.connection.execute("COMMIT").await.map_err(|e| failure(&e))?;
        self.unfinished = false;
        for committed in messages {
            let _ = committed.send(());
        }
        Ok(())
    }
}

impl Sqlite {
    /// The writer, when it is free. Messages in line are counted, and the holder of the writer leaves the transaction
    /// open for them.
    pub(super) async fn next_writer(&self) -> MutexGuard<'_, Option<Writer>> {
        let _in_line = InLine::of(&self.in_line);
        self.writer.lock().await
    }

    pub(super) fn is_anybody_in_line(&self) -> bool {
        self.in_line.load(Ordering::Relaxed) > 0
    }

    /// Returns true when the transaction has been committed. False: another message has ended the transaction, and
    /// the result must be looked up.
    pub(super) async fn is_committed(&self, mut message: Membership) -> Result<bool, StoreError> {
        let mut in_line = tokio::select! {
            biased;
            committed = &mut message.0 => return Ok(committed.is_ok()),
            writer = self.writer.lock() => writer,
        };
        in_line.as_mut().ok_or(StoreError::Closed)?.settle().await?;
        Ok(matches!(message.0.now_or_never(), Some(Ok(()))))
    }
}

/// The place of a message in line for the writer.
struct InLine<'a>(&'a AtomicUsize);

impl<'a> InLine<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
