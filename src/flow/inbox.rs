//! The signals that a run has not received: pure, in memory, for as long as the run is active.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use crate::store::{COMMAND, Signal};

/// The number of received signals that are remembered: a signal may arrive twice, by the history and by its sender.
const REMEMBERED: usize = 1024;

/// The signal that a future waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// The id of the signal. `None` for any id.
    pub(super) id: Option<String>,
}

/// The pending signals of a run. Every operation takes logarithmic time, however many signals are pending.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The pending signals, by name.
    pending: BTreeMap<String, Named>,
    /// The names and ids of the last received signals, in the order of their receipt. `known` holds the same for
    /// look-ups.
    received: VecDeque<(String, String)>,
    known: BTreeSet<(String, String)>,
    /// The listeners, by the numbers of their waits. `None` is the engine, at the end of an activation.
    listening: BTreeMap<Option<u64>, Waker>,
    /// True if the run's code has waited to be told that it is cancelled.
    pub(super) awaits_end: bool,
}

/// The pending signals of one name.
#[derive(Debug, Default)]
struct Named {
    /// The signals by place and id: the order in which they are to be received.
    signals: BTreeMap<(i64, String), Signal>,
    /// The place of each signal, by id.
    places: BTreeMap<String, i64>,
}

impl Inbox {
    pub(super) fn of(pending: Vec<Signal>) -> Self {
        let mut inbox = Self::default();
        for signal in pending {
            inbox.insert(signal);
        }
        inbox
    }

    fn insert(&mut self, signal: Signal) {
        let named = self.pending.entry(signal.name.clone()).or_default();
        named.places.insert(signal.id.clone(), signal.place);
        named.signals.insert((signal.place, signal.id.clone()), signal);
    }

    /// True if the signal is pending here.
    pub(super) fn holds(&self, signal: &Signal) -> bool {
        let is_pending = |named: &Named| named.places.contains_key(&signal.id);
        self.pending.get(&signal.name).is_some_and(is_pending)
    }

    /// Adds a new signal. Returns the listeners that are to be woken.
    pub(super) fn deliver(&mut self, signal: Signal) -> Vec<Waker> {
        if self.holds(&signal) || self.known.contains(&(signal.name.clone(), signal.id.clone())) {
            return Vec::new();
        }
        self.insert(signal);
        std::mem::take(&mut self.listening).into_values().collect()
    }

    /// The first signal of this name.
    pub(super) fn first(&self, name: &str) -> Option<&Signal> {
        self.pending.get(name)?.signals.values().next()
    }

    pub(super) fn has(&self, wanted: &Wanted) -> bool {
        self.place(wanted).is_some()
    }

    /// The place and id of the first wanted signal.
    fn place(&self, wanted: &Wanted) -> Option<(i64, String)> {
        let named = self.pending.get(&wanted.name)?;
        match &wanted.id {
            Some(id) => named.places.get(id).map(|place| (*place, id.clone())),
            None => named.signals.keys().next().cloned(),
        }
    }

    /// The first wanted signal.
    pub(super) fn peek(&self, wanted: &Wanted) -> Option<&Signal> {
        let place = self.place(wanted)?;
        self.pending.get(&wanted.name)?.signals.get(&place)
    }

    /// The number of pending signals.
    pub(super) fn len(&self) -> usize {
        self.pending.values().map(|named| named.signals.len()).sum()
    }

    /// The names and ids of the pending signals.
    pub(super) fn names(&self) -> BTreeSet<(String, String)> {
        let signals = self.pending.values().flat_map(|named| named.signals.values());
        signals.map(|signal| (signal.name.clone(), signal.id.clone())).collect()
    }

    /// Takes the first command out.
    pub(super) fn take_command(&mut self) -> Option<Signal> {
        let name = self.pending.keys().find(|name| name.starts_with(COMMAND))?.clone();
        self.take(&Wanted { name, id: None })
    }

    /// Takes the first wanted signal out.
    pub(super) fn take(&mut self, wanted: &Wanted) -> Option<Signal> {
        let place = self.place(wanted)?;
        let named = self.pending.get_mut(&wanted.name)?;
        let signal = named.signals.remove(&place)?;
        named.places.remove(&signal.id);
        if named.signals.is_empty() {
            self.pending.remove(&wanted.name);
        }
        let received = (signal.name.clone(), signal.id.clone());
        self.known.insert(received.clone());
        self.received.push_back(received);
        if self.received.len() > REMEMBERED
            && let Some(oldest) = self.received.pop_front()
        {
            self.known.remove(&oldest);
        }
        Some(signal)
    }

    /// Wakes this listener when a signal arrives. Its waker of an earlier poll is forgotten.
    pub(super) fn listen(&mut self, number: Option<u64>, waker: &Waker) {
        self.listening.insert(number, waker.clone());
    }

    /// Forgets the listener of a wait that is over.
    pub(super) fn unlisten(&mut self, number: u64) {
        self.listening.remove(&Some(number));
    }
}
