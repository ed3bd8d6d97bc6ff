//! The memory of an activation: its run's row and history, the open futures and their waits, and the signals to the
//! run. Nothing here waits, writes, or knows of an engine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::stop::Stop;
use crate::clock::Timestamp;
use crate::flow::command::Verb;
use crate::flow::failure::{Failure, misuse};
use crate::flow::identity::{Identity, Kind};
use crate::flow::inbox::{Inbox, Wanted};
use crate::flow::replay::Replay;
use crate::ledger::RequestHash;
use crate::payload::Stored;
use crate::store::{CANCEL, Run, Signal, WaitsOn};

/// The memory of one activation.
pub(super) struct State {
    pub(super) run: Run,
    pub(super) replay: Replay,
    /// True while new effects are held back, until every live branch of the replay waits.
    pub(super) replaying: bool,
    pub(super) held: Vec<Waker>,
    pub(super) held_calls: Vec<HeldCall>,
    /// The new things that the code has come to while it replays, in their order.
    pub(super) anew: Vec<Identity>,
    pub(super) outside: Scope,
    /// The present turn of the loop, while it is carried out.
    pub(super) turn: Option<InTurn>,
    /// The name and id of the loop that began the run's present turn, if one did.
    pub(super) turn_of: Option<(String, String)>,
    pub(super) open: usize,
    /// The number of open futures that are at work themselves. They may ask for more without being woken from outside.
    pub(super) busy: usize,
    /// The waits of the open futures that wait for something durable, by their numbers.
    pub(super) waits: HashMap<u64, Wait>,
    pub(super) next_wait: u64,
    /// The number of open futures that wait for others of the context, and so for the waits of these.
    pub(super) behind: usize,
    pub(super) stop: Option<Stop>,
    /// True if the body is gone or going: a dropped future leaves no mark, and a new one is refused.
    pub(super) ended: bool,
    /// True while a step's closure is running, in which the context must not be used.
    pub(super) inside: bool,
    /// The number of open futures that are calls.
    pub(super) open_calls: usize,
    /// The number of calls that were pending when user code dropped them, or when the body ended. They may outlive the run.
    pub(super) dropped_calls: usize,
    /// The signals that the run has not received.
    pub(super) inbox: Inbox,
    /// The instant until which the run may end by itself (UTC), if it was told of its cancellation.
    pub(super) cancelled: Option<Timestamp>,
    /// The command with which the run was told.
    pub(super) told: Option<Box<Stored>>,
    /// The instant of the last checkpoint (UTC).
    pub(super) recorded_at: Option<Timestamp>,
    /// The revision of the last value that the run has published, by its name, as far as it was asked for.
    pub(super) published: HashMap<String, u32>,
}

/// The things that an open future waits for. Any of them ends the wait.
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct Wait {
    pub(in crate::flow) until: Option<Timestamp>,
    /// True if the answer to an open question ends the wait.
    pub(in crate::flow) answer: bool,
    /// The signal that ends the wait.
    pub(in crate::flow) signal: Option<Wanted>,
}

impl Wait {
    pub(in crate::flow) fn until(at: Timestamp) -> Self {
        Self { until: Some(at), ..Self::default() }
    }
}

/// The counts of one turn, or of everything outside of turns.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) counters: HashMap<Kind, HashMap<String, Counter>>,
    /// The number of calls under each key, of the run's code and of each agent.
    pub(super) calls: HashMap<String, u32>,
    /// The patches that the code has asked about, with the answers.
    pub(super) patches: HashMap<String, bool>,
    pub(super) open: usize,
}

pub(super) struct InTurn {
    pub(super) number: u32,
    pub(super) scope: Scope,
    /// True while the turn's code is being polled: the context of the run must not be used in it.
    pub(super) polled: bool,
}

impl InTurn {
    pub(super) fn of(number: u32) -> Self {
        Self { number, scope: Scope::default(), polled: false }
    }
}

#[derive(Default)]
pub(super) struct Counter {
    pub(super) next: u64,
    pub(super) open: u32,
}

/// A new call that waits for the replay to be quiescent.
#[derive(Clone, Debug)]
pub(in crate::flow) struct HeldCall {
    pub(in crate::flow) tool: String,
    pub(in crate::flow) key: String,
    pub(in crate::flow) hash: RequestHash,
}

/// The state of the body after it was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) enum Rest {
    /// Something in the body is at work, or the body waits for something that is not the context's.
    Working,
    /// Every live branch of the replay waits: time to find the records that were not asked for.
    Quiescent,
    /// Every open future waits for something durable.
    Waiting {
        /// The earliest instant that ends a wait (UTC), if any.
        until: Option<Timestamp>,
        /// The other things that wake the run.
        on: WaitsOn,
    },
}

impl State {
    /// The command that pauses the run. `None` if the run is to be cancelled, or was told so: blocked, it would neither
    /// hear of its cancellation nor be ended when its grace is over.
    pub(super) fn pause(&self) -> Option<&Signal> {
        let pause = self.inbox.first(&Verb::Pause.signal())?;
        // The replay may not have come to the receipt yet.
        let is_told = self.told.is_some() || self.replay.has_received_cancel();
        (!is_told && self.inbox.first(CANCEL).is_none()).then_some(pause)
    }

    pub(super) fn end(&mut self, over: &AtomicBool) {
        if !std::mem::replace(&mut self.ended, true) {
            self.dropped_calls += self.open_calls;
        }
        over.store(true, Ordering::Release);
    }

    /// The present instant, or the first one behind all checkpoints so far, so that checkpoints keep their order when
    /// the clock is set back, and when it is too coarse.
    pub(super) fn later(&mut self, now: Timestamp) -> Timestamp {
        let at = self.recorded_at.map_or(now, |last| now.max(Timestamp(last.0.saturating_add(1))));
        self.recorded_at = Some(at);
        at
    }

    pub(super) fn next_run(&mut self, now: Timestamp, change: impl FnOnce(&mut Run)) -> Run {
        self.run.revision += 1;
        self.run.updated_at = now;
        change(&mut self.run);
        self.run.clone()
    }

    pub(super) fn scope(&mut self, turn: u32, base: u32) -> Option<&mut Scope> {
        if turn == base {
            return Some(&mut self.outside);
        }
        self.turn.as_mut().filter(|present| present.number == turn).map(|present| &mut present.scope)
    }

    pub(super) fn usable(&mut self, turn: u32, base: u32) -> Result<&mut Scope, Failure> {
        if self.ended {
            return Err(misuse("the context was used after its run had ended: nothing would be recorded"));
        }
        if self.inside {
            return Err(misuse(
                "the context was used inside a step: a resume would skip the step and what it recorded; \
                 use it between steps",
            ));
        }
        if turn == base && self.turn.as_ref().is_some_and(|turn| turn.polled) {
            return Err(misuse(
                "the run's context was used inside a turn: a resume begins with the last turn, and would not find \
                 what the turns before had recorded so; use the context that the turn is given",
            ));
        }
        self.scope(turn, base)
            .ok_or_else(|| misuse("the context of a turn was used after the turn had ended"))
    }
}
