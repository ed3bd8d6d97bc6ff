//! What was said to a run and it has not received: pure, in memory, for as long as the run is active.

use std::collections::VecDeque;
use std::task::Waker;

use crate::store::Signal;

/// So many of the last received are remembered: a signal may be told of twice, by the history and by its sender.
const REMEMBERED: usize = 1024;

/// Which signal is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// Any, if absent.
    pub(super) id: Option<String>,
}

impl Wanted {
    fn is(&self, signal: &Signal) -> bool {
        self.name == signal.name && self.id.as_ref().is_none_or(|id| *id == signal.id)
    }
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// In the order in which they are to be received.
    pending: Vec<Signal>,
    received: VecDeque<(String, String)>,
    listening: Vec<Waker>,
}

impl Inbox {
    pub(super) fn of(pending: Vec<Signal>) -> Self {
        Self { pending, ..Self::default() }
    }

    /// Something new was said. Gives those to be woken that listen.
    pub(super) fn deliver(&mut self, signal: Signal) -> Vec<Waker> {
        let same = |name: &str, id: &str| name == signal.name && id == signal.id;
        let known = self.pending.iter().any(|other| same(&other.name, &other.id))
            || self.received.iter().any(|(name, id)| same(name, id));
        if known {
            return Vec::new();
        }
        let order = |signal: &Signal| (signal.place, signal.name.clone(), signal.id.clone());
        let at = self.pending.partition_point(|other| order(other) < order(&signal));
        self.pending.insert(at, signal);
        std::mem::take(&mut self.listening)
    }

    /// The first of this name.
    pub(super) fn first(&self, name: &str) -> Option<&Signal> {
        self.pending.iter().find(|signal| signal.name == name)
    }

    pub(super) fn has(&self, wanted: &Wanted) -> bool {
        self.pending.iter().any(|signal| wanted.is(signal))
    }

    /// Takes the first that is wanted out.
    pub(super) fn take(&mut self, wanted: &Wanted) -> Option<Signal> {
        let at = self.pending.iter().position(|signal| wanted.is(signal))?;
        let signal = self.pending.remove(at);
        self.received.push_back((signal.name.clone(), signal.id.clone()));
        if self.received.len() > REMEMBERED {
            self.received.pop_front();
        }
        Some(signal)
    }

    /// Wakes this one when something is said.
    pub(super) fn listen(&mut self, waker: &Waker) {
        if !self.listening.iter().any(|known| known.will_wake(waker)) {
            self.listening.push(waker.clone());
        }
    }
}
