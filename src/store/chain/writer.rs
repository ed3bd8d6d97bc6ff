//! The writer of links: one for each opening of a ledger.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::covered::covered;
use super::digest::Digests;
use super::key::ChainKey;
use super::link::{Body, Entry, Link};
use super::mark::ChainMark;
use crate::clock::SharedClock;
use crate::id::{Entropy, Tenant};
use crate::store::{Change, Verdict};

/// The number of links without an answer that are kept.
const UNANSWERED: usize = 10_000;

pub(super) struct Writer {
    chain: i64,
    digests: Digests,
    key: ChainKey,
    clock: SharedClock,
    state: Mutex<State>,
}

struct State {
    next: i64,
    /// The numbers of the links whose changes are not judged yet.
    under_way: BTreeSet<i64>,
    /// The numbers of links that may be missing, and that no durable link names yet.
    absent: BTreeSet<i64>,
    /// The links whose answers were lost, by their entries. A change that is written again carries the same link again,
    /// because a store recognises the change by its rows, and then writes none of them.
    unanswered: HashMap<Vec<Entry>, Made>,
}

struct Made {
    link: Link,
    /// The numbers that the link names as perhaps missing.
    absent: Vec<i64>,
    entries: Vec<Entry>,
}

impl Writer {
    pub(super) fn new(mark: &ChainMark, key: &ChainKey, clock: SharedClock, entropy: &dyn Entropy) -> Self {
        // Positive, so that chains are read in the order of their numbers on every store.
        let chain = (entropy.bits() >> 1).cast_signed();
        let (next, under_way, absent) = (1, BTreeSet::new(), BTreeSet::new());
        let state = Mutex::new(State { next, under_way, absent, unanswered: HashMap::new() });
        Self { chain, digests: mark.digests(), key: key.clone(), clock, state }
    }

    /// The changes with their links; `None` if evidence rests on none of them.
    pub(super) fn linked(self: &Arc<Self>, changes: &[Change]) -> Option<Linked> {
        let covered: Vec<_> = changes.iter().map(|change| covered(change, &self.digests)).collect();
        if covered.iter().all(Option::is_none) {
            return None;
        }
        let mut linked = Linked { writer: self.clone(), changes: changes.to_vec(), made: Vec::new() };
        let mut state = self.state();
        for (place, covered) in covered.into_iter().enumerate() {
            if let Some((tenant, entries)) = covered {
                let made = self.made(&mut state, tenant, entries);
                linked.changes[place].link = Some(Box::new(made.link.clone()));
                linked.made.push((place, made));
            }
        }
        drop(state);
        Some(linked)
    }

    fn made(&self, state: &mut State, tenant: Tenant, entries: Vec<Entry>) -> Made {
        if let Some(made) = state.unanswered.remove(&entries) {
            state.absent.remove(&made.link.number);
            state.under_way.insert(made.link.number);
            return made;
        }
        let number = state.next;
        state.next += 1;
        state.under_way.insert(number);
        let settled = state.under_way.first().copied().unwrap_or(number);
        let absent: Vec<_> = state.absent.iter().copied().collect();
        let body = Body { settled, absent: ranges(&absent), entries };
        let (chain, at, bytes) = (self.chain, self.clock.now(), body.to_bytes());
        let mut link = Link { chain, number, tenant, at, body: bytes, signature: Box::default() };
        link.signature = self.key.sign(&link).into();
        Made { link, absent, entries: body.entries }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes with their links, on their way to the disk. If this value is dropped before the changes are judged, it is unknown
/// if they are durable.
pub(super) struct Linked {
    writer: Arc<Writer>,
    pub(super) changes: Vec<Change>,
    /// The links, each with the place of its change.
    made: Vec<(usize, Made)>,
}

impl Linked {
    /// Takes the verdicts on the changes.
    pub(super) fn judged(self, verdicts: &[Verdict]) {
        self.ended(|place| verdicts.get(place).is_some_and(Verdict::is_admitted));
    }

    /// Notes that all changes are durable.
    pub(super) fn durable(self) {
        self.ended(|_| true);
    }

    fn ended(mut self, is_durable: impl Fn(usize) -> bool) {
        let writer = self.writer.clone();
        let mut state = writer.state();
        for (place, made) in self.made.drain(..) {
            state.under_way.remove(&made.link.number);
            // A change for which nobody waits for the disk may be lost in a crash of the database.
            let is_beside = self.changes.get(place).is_some_and(|change| change.beside);
            if is_durable(place) && !is_beside {
                for number in &made.absent {
                    state.absent.remove(number);
                }
            } else {
                state.absent.insert(made.link.number);
            }
        }
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        let mut state = self.writer.state();
        for (_, made) in self.made.drain(..) {
            state.under_way.remove(&made.link.number);
            state.absent.insert(made.link.number);
            if state.unanswered.len() == UNANSWERED {
                state.unanswered.clear(); // an outage that has lasted long: what is written again has new links
            }
            state.unanswered.insert(made.entries.clone(), made);
        }
    }
}

/// Numbers in their order, as ranges from a first number to a last one.
fn ranges(numbers: &[i64]) -> Vec<(i64, i64)> {
    let ranges = numbers.chunk_by(|one, next| one + 1 == *next);
    ranges.map(|range| (range[0], range[range.len() - 1])).collect()
}
