//! The queue of changes in front of a store: when a transaction is due, what it takes, and the lanes that have stopped.

use std::collections::{HashSet, VecDeque};

use tokio::sync::oneshot;

use super::Told;
use crate::store::{Change, OrderingKey};

/// The maximum number of changes in a transaction.
const MAX_BATCH: usize = 512;
/// The number of changes that starts a transaction although nobody waits for one.
pub(super) const FLUSH_AT: usize = 128;
/// The number of changes that one run in a row has in two transactions: the seal of a call and the start of the next
/// one, twice.
const IN_A_ROW: usize = 4;

/// The changes that are not written yet.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent fact")]
pub(super) struct Queue {
    pub(super) entries: VecDeque<Entry>,
    /// True if a caller waits for a change in the queue.
    pub(super) awaited: bool,
    /// True if the writer sleeps without a timer and must be told of any change.
    pub(super) deep_sleep: bool,
    /// The number of ticks since the oldest entry came.
    ticks: u8,
    /// The number of changes in the last transaction.
    last: usize,
    /// True if nobody waits any longer for a file that another program has locked.
    pub(super) hurried: bool,
    pub(super) closed: bool,
    pub(super) ended: bool,
    /// The lanes with a refused change: none of their later changes is written.
    pub(super) stopped: HashSet<OrderingKey>,
    /// The number of changes that have been queued; `judged` is the number of those that are written or refused.
    pub(super) queued: u64,
    pub(super) judged: u64,
    /// The lanes that have ended, each with the number of changes that were queued by then: once these are judged,
    /// the stop of the lane can be forgotten.
    pub(super) ending: VecDeque<(u64, OrderingKey)>,
}

/// A change, and the caller to be told of its verdict.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) change: Change,
    pub(super) done: oneshot::Sender<Told>,
    /// A guard that is dropped when the change is durable or refused.
    pub(super) held: Option<Held>,
}

/// A guard by which its owner keeps others out until a change can be read.
pub(crate) type Held = Box<dyn std::any::Any + Send>;

impl Queue {
    pub(super) fn is_due(&self) -> bool {
        let reason = self.awaited || self.closed || self.entries.len() >= FLUSH_AT || self.ticks > 1;
        reason && !self.entries.is_empty()
    }

    /// True if a transaction is due, and other runs may be about to queue changes for it: a run that was just told of
    /// the previous transaction goes on at once. Without this pause, runs that fall out of step would use two
    /// transactions by turns from then on, and each run would wait for both.
    pub(super) fn still_gathers(&self, seen: &mut usize) -> bool {
        let before = std::mem::replace(seen, self.entries.len());
        let several = self.last + *seen > IN_A_ROW; // one run alone would wait for nobody
        several && self.is_due() && (before + 1..MAX_BATCH).contains(seen)
    }

    /// Counts a tick and returns true if anything is queued.
    pub(super) fn tick(&mut self) -> bool {
        self.ticks = if self.entries.is_empty() { 0 } else { self.ticks.saturating_add(1) };
        self.ticks > 0
    }

    pub(super) fn take(&mut self) -> Vec<Entry> {
        let count = self.entries.len().min(MAX_BATCH);
        self.last = count;
        let mut batch = Vec::with_capacity(count); // `collect` would make room for four, beyond what a thread keeps at hand
        batch.extend(self.entries.drain(..count));
        self.awaited &= !self.entries.is_empty(); // a change that is left over is still waited for
        (self.ticks, self.deep_sleep) = (0, false);
        batch
    }

    /// Forgets the ended lanes that have nothing in the queue.
    pub(super) fn forget_ended(&mut self) {
        while let Some((_, lane)) = self.ending.pop_front_if(|(queued, _)| *queued <= self.judged) {
            self.stopped.remove(&lane);
        }
    }
}
