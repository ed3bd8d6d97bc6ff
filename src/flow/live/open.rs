//! An open future of a run: at work or waiting; and the mark that it leaves when user code drops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Live;
use super::state::{Counter, Wait};
use crate::clock::Timestamp;
use crate::flow::again::AGAIN;
use crate::flow::failure::{Failure, misuse};
use crate::flow::identity::{Identity, Kind};
use crate::id::{IdError, Name, checked};
use crate::ledger::Key;
use crate::payload::{Payload, Stored};
use crate::store::StepKind;

/// An open future of the run.
pub(in crate::flow) struct Open {
    live: Arc<Live>,
    pub(in crate::flow) identity: Identity,
    ordinal: bool,
    done: AtomicBool,
    /// The instant of the opening, if spans are made.
    pub(in crate::flow) began: Option<Timestamp>,
}

impl Open {
    /// Closes a future that has its result.
    pub(in crate::flow) fn close(self) {
        self.settled();
    }

    /// Marks a future as closed that its holder drops later.
    pub(super) fn settled(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    /// Closes a future that ended with this error. The future was not dropped: a resume comes to it again.
    pub(in crate::flow) fn failed<E>(self, error: E) -> E {
        self.close();
        error
    }

    /// Marks that the future waits for something durable, until the guard is dropped.
    pub(in crate::flow) fn wait(&self, wait: Wait) -> Waiting<'_> {
        let mut state = self.live.state();
        let number = state.next_wait;
        state.next_wait += 1;
        state.waits.insert(number, wait);
        state.busy -= 1;
        Waiting { live: &self.live, on: On::Durable(number) }
    }

    /// Marks that the future waits for others of the context, which have waits of their own.
    pub(in crate::flow) fn behind(&self) -> Waiting<'_> {
        let mut state = self.live.state();
        state.behind += 1;
        state.busy -= 1;
        Waiting { live: &self.live, on: On::Others }
    }

    /// Marks that the future waits for something that is not its own work: the replay, or the world.
    pub(in crate::flow) fn rest(&self) -> Waiting<'_> {
        self.live.resting()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mark = {
            let mut state = self.live.state();
            state.open -= 1;
            state.busy -= 1;
            state.open_calls -= usize::from(self.identity.kind == Kind::Call);
            if let Some(scope) = state.scope(self.identity.turn, self.live.base) {
                scope.open -= 1;
                let names = scope.counters.get_mut(&self.identity.kind);
                if self.ordinal
                    && let Some(counter) = names.and_then(|names| names.get_mut(&self.identity.name))
                {
                    counter.open -= 1;
                }
            }
            // A future that is dropped by parking, by a crash or by a panic leaves no mark.
            !self.done.load(Ordering::Relaxed)
                && !state.ended
                && state.stop.is_none()
                && !std::thread::panicking()
        };
        if mark {
            self.live.abandon(&self.identity);
        }
    }
}

impl Live {
    /// Opens a future of the run and gives it its identity. Without an id the future gets the next ordinal of its name,
    /// which is the same on resume only if uses of the name follow one another.
    pub(in crate::flow) fn open(
        self: &Arc<Self>,
        turn: u32,
        kind: Kind,
        name: &str,
        id: Option<String>,
    ) -> Result<Open, Failure> {
        // A bad name is refused here: the store would refuse it only when it is written, long after the code gave it.
        checked("name", name, Name::MAX_BYTES)?;
        if let Some(id) = &id {
            checked("id", id, Key::MAX_BYTES)?;
            if id.contains(AGAIN) {
                return Err(IdError::Reserved { what: "id" }.into());
            }
        }
        let mut state = self.state();
        let scope = state.usable(turn, self.base)?;
        let counters = scope.counters.entry(kind).or_default();
        if !counters.contains_key(name) {
            counters.insert(name.to_owned(), Counter::default());
        }
        let counter = counters.get_mut(name).unwrap_or_else(|| unreachable!("inserted above"));
        let ordinal = id.is_none();
        if ordinal && counter.open > 0 {
            return Err(misuse(format!(
                "two uses of {name:?} are open at once and have no id, so that a resume could mix them up: \
                 give each an id, as in (\"{name}\", id)"
            )));
        }
        let id = match id {
            Some(id) => Identity::given(id),
            None => {
                counter.next += 1;
                Identity::generated(counter.next - 1)
            }
        };
        counter.open += u32::from(ordinal);
        scope.open += 1;
        state.open += 1;
        state.busy += 1;
        state.open_calls += usize::from(kind == Kind::Call);
        drop(state);
        let identity = Identity { turn, kind, name: name.to_owned(), id };
        let began = self.core.spans.is_on().then(|| self.core.now());
        Ok(Open { live: self.clone(), identity, ordinal, done: AtomicBool::new(false), began })
    }

    /// Marks that one of the open futures waits for something that is not its own work.
    pub(super) fn resting(&self) -> Waiting<'_> {
        self.state().busy -= 1;
        Waiting { live: self, on: On::World }
    }

    /// Marks that user code dropped a pending future. On replay the future must never become ready, or another branch would win.
    fn abandon(&self, identity: &Identity) {
        if identity.kind == Kind::Call {
            self.state().dropped_calls += 1;
        }
        if self.check.is_some() || self.with_replay(|replay| replay.is_abandoned(identity)) {
            return;
        }
        let value = Stored::Inline(Payload::stored("null"));
        let mark = Identity { name: identity.abandoned_name(), ..identity.clone() };
        let step = self.step(&mark, StepKind::Abandoned, None, value);
        drop(self.core.group.submit(self.core.change(Some(self.lane)).step(step)));
    }
}

/// A guard. While it lives, its future is not at work.
pub(in crate::flow) struct Waiting<'a> {
    live: &'a Live,
    on: On,
}

/// The thing that an open future waits for.
#[derive(Clone, Copy)]
enum On {
    /// Something durable, by the number of the wait.
    Durable(u64),
    /// Other open futures.
    Others,
    /// The replay, or the world.
    World,
}

impl Waiting<'_> {
    /// The number of a durable wait.
    pub(super) const fn number(&self) -> Option<u64> {
        match self.on {
            On::Durable(number) => Some(number),
            On::Others | On::World => None,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.live.state();
        state.busy += 1;
        match self.on {
            On::Durable(number) => {
                state.waits.remove(&number);
                state.inbox.unlisten(number);
            }
            On::Others => state.behind -= 1,
            On::World => {}
        }
    }
}
