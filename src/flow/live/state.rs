//! What an activation knows in memory: its run's row and history, what is open and what that waits for, and what was said to
//! the run. Nothing here waits, writes, or knows of an engine.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::stop::Stop;
use crate::clock::Timestamp;
use crate::flow::failure::{Failure, misuse};
use crate::flow::identity::{Identity, Kind};
use crate::flow::inbox::{Inbox, Wanted};
use crate::flow::replay::Replay;
use crate::ledger::RequestHash;
use crate::store::{Run, WaitsOn};

/// What is known of one activation.
pub(super) struct State {
    pub(super) run: Run,
    pub(super) replay: Replay,
    /// New effects are held back until every live branch of the replay waits.
    pub(super) replaying: bool,
    pub(super) held: Vec<Waker>,
    pub(super) held_calls: Vec<HeldCall>,
    /// What the code has come to that is not recorded, in its order.
    pub(super) anew: Vec<Identity>,
    pub(super) outside: Scope,
    /// The loop's present turn, while it is carried out.
    pub(super) turn: Option<InTurn>,
    /// The loop that began the run's present turn, if one did.
    pub(super) turn_of: Option<(String, String)>,
    pub(super) open: usize,
    /// The number of open futures that are at work themselves. They may ask for more without being woken from outside.
    pub(super) busy: usize,
    /// The open futures that wait for something durable, and what each of them waits for.
    pub(super) waits: HashMap<u64, Wait>,
    pub(super) next_wait: u64,
    /// The number of open futures that wait for others of the context, and so for whatever these wait for.
    pub(super) behind: usize,
    pub(super) stop: Option<Stop>,
    /// The body is gone or going: a dropped future leaves no mark, and a new one is refused.
    pub(super) ended: bool,
    /// A step's closure is running: the context must not be used in it.
    pub(super) inside: bool,
    /// The number of open futures that are calls.
    pub(super) open_calls: usize,
    /// The number of calls that were pending when user code dropped them, or when the body ended. They may outlive the run.
    pub(super) dropped_calls: usize,
    /// What was said to the run and it has not received.
    pub(super) inbox: Inbox,
    /// The run was told that it is cancelled, and may end by itself until then.
    pub(super) cancelled: Option<Timestamp>,
    /// When the last checkpoint was made.
    pub(super) recorded_at: Option<Timestamp>,
}

/// What an open future waits for: any of these.
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct Wait {
    pub(in crate::flow) until: Option<Timestamp>,
    /// The answer to an open question.
    pub(in crate::flow) answer: bool,
    /// A signal.
    pub(in crate::flow) signal: Option<Wanted>,
}

impl Wait {
    pub(in crate::flow) fn until(at: Timestamp) -> Self {
        Self { until: Some(at), ..Self::default() }
    }
}

/// What is counted in one turn, or outside of all turns.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) counters: HashMap<Kind, HashMap<String, Counter>>,
    /// How often each key was called under.
    pub(super) calls: HashMap<String, u32>,
    /// Which patches the code has asked about, and what it was told.
    pub(super) patches: HashMap<String, bool>,
    pub(super) open: usize,
}

pub(super) struct InTurn {
    pub(super) number: u32,
    pub(super) scope: Scope,
    /// Its code is being polled: the context of the run must not be used in it.
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

/// How the body stands after it was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) enum Rest {
    /// Something in it is at work, or it waits for something that is not the context's.
    Working,
    /// Every live branch of the replay waits: time to see what was not asked for.
    Quiescent,
    /// Everything that is open waits for something durable.
    Waiting {
        /// The earliest instant, if any.
        until: Option<Timestamp>,
        /// What else wakes it.
        on: WaitsOn,
    },
}

impl State {
    pub(super) fn end(&mut self, over: &AtomicBool) {
        if !std::mem::replace(&mut self.ended, true) {
            self.dropped_calls += self.open_calls;
        }
        over.store(true, Ordering::Release);
    }

    /// This instant, or the first one behind all checkpoints so far. So checkpoints stay in their order when the clock is set back,
    /// and when it is too coarse.
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
