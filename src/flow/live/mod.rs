//! One activation of a run: the state that its context, its open futures and its driver share.
//!
//! `state` is the memory of the activation, `open` has its open futures, `recorded` the records that an earlier life
//! left of them, `held` the effects that the replay holds back, `write` the writes that are queued for the store,
//! `hear` the signals and commands to the run, `turn` the present turn of a loop, `ending` the end of the activation.

mod ending;
mod hear;
mod held;
mod open;
mod recorded;
mod state;
mod stop;
mod turn;
mod waker;
mod write;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

pub(super) use self::open::Open;
pub(super) use self::state::{HeldCall, Rest, Wait};
use self::state::{Scope, State};
pub(super) use self::stop::Stop;
pub(super) use self::turn::Entered;
use self::waker::RunWaker;
use super::check::Check;
use super::failure::Failure;
use super::identity::Identity;
use super::inbox::Inbox;
use super::replay::Replay;
use crate::exec::{Core, Purse};
use crate::id::{RunId, RunName, RunNumber, Tenant};
use crate::store::{CANCEL, OrderingKey, Run};
use crate::trace::TraceContext;

/// One activation of a run.
pub(super) struct Live {
    pub(super) core: Arc<Core>,
    pub(super) tenant: Tenant,
    pub(super) id: RunId,
    number: RunNumber,
    /// The span of the run.
    pub(super) trace: Arc<TraceContext>,
    pub(super) lane: OrderingKey,
    pub(super) waker: Arc<RunWaker>,
    /// The turn number under which everything outside of loops is recorded.
    pub(super) base: u32,
    /// The notes of a check, if the run is only checked: then nothing new is done.
    pub(super) check: Option<Check>,
    /// The run's budget, if it has one. Set before the body is polled.
    pub(super) purse: OnceLock<Arc<Purse>>,
    /// True when the activation has ended: from then on its calls begin nothing.
    pub(super) over: Arc<AtomicBool>,
    state: Mutex<State>,
}

impl Live {
    pub(super) fn new(core: Arc<Core>, run: Run, lane: OrderingKey, replay: Replay) -> Arc<Self> {
        Arc::new(Self::of(core, run, lane, replay))
    }

    /// An activation whose history is not read, because its code is not to run.
    pub(super) fn unread(core: &Arc<Core>, run: Run) -> Arc<Self> {
        Self::new(core.clone(), run, core.new_lane(), Replay::default())
    }

    /// An activation that is only checked.
    pub(super) fn checking(core: Arc<Core>, run: Run, replay: Replay, check: Check) -> Arc<Self> {
        let lane = core.new_lane();
        let mut live = Self { check: Some(check), ..Self::of(core, run, lane, replay) };
        // A check holds new effects back for good, and so its replay has no end.
        live.state.get_mut().unwrap_or_else(PoisonError::into_inner).replaying = true;
        Arc::new(live)
    }

    fn of(core: Arc<Core>, run: Run, lane: OrderingKey, mut replay: Replay) -> Self {
        let inbox = Inbox::of(replay.take_signals());
        // A run that was cancelled before it began anything begins nothing, unless its code turns out to listen.
        let replaying = !replay.is_empty() || inbox.first(CANCEL).is_some();
        let recorded_at = replay.recorded_at();
        Self {
            tenant: run.tenant.clone(),
            id: run.id,
            number: run.number,
            trace: Arc::new(run.trace()),
            lane,
            core,
            waker: Arc::default(),
            base: run.base,
            check: None,
            purse: OnceLock::new(),
            over: Arc::default(),
            state: Mutex::new(State {
                turn_of: replay.owner(run.turn).map(|(name, id)| (name.to_owned(), id.to_owned())),
                run,
                replaying,
                replay,
                held: Vec::new(),
                held_calls: Vec::new(),
                anew: Vec::new(),
                outside: Scope::default(),
                turn: None,
                open: 0,
                busy: 0,
                waits: HashMap::new(),
                next_wait: 0,
                behind: 0,
                stop: None,
                ended: false,
                inside: false,
                open_calls: 0,
                dropped_calls: 0,
                inbox,
                cancelled: None,
                told: None,
                recorded_at,
                published: HashMap::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget of the run, if it has one.
    pub(super) fn purse(&self) -> Option<Arc<Purse>> {
        self.purse.get().cloned()
    }

    /// Counts a call [under this key](Identity::under_key) in this turn, and returns the number of such calls so far, this
    /// one included.
    pub(super) fn nth_call(&self, turn: u32, key: &str) -> u32 {
        let mut state = self.state();
        let Some(scope) = state.scope(turn, self.base) else { return 1 }; // the use is refused when it is opened
        match scope.calls.get_mut(key) {
            Some(times) => {
                *times += 1;
                *times
            }
            None => {
                scope.calls.insert(key.to_owned(), 1);
                1
            }
        }
    }

    /// The identity under which a checkpoint is recorded. It differs from the code's identity if a checkpoint of that
    /// identity became void when the run was begun again.
    pub(super) fn recorded_as(&self, identity: &Identity) -> Identity {
        let Identity { turn, kind, name, id } = identity;
        let id = self.state().replay.again.recorded_id(*turn, kind.checkpoint(), name, id);
        Identity { id, ..identity.clone() }
    }

    /// The run's own name in keys.
    pub(super) const fn name(&self) -> RunName {
        RunName { id: self.id, number: self.number }
    }

    /// The run after which effects without a key of their own are named. A fork names them after its origin, and so does a child
    /// that is begun again, so that neither repeats the effects of its origin. Both have the number of their origin.
    pub(super) fn named_after(&self) -> RunName {
        let origin = self.state().replay.again.origin();
        RunName { id: origin.unwrap_or(self.id), ..self.name() }
    }

    /// True if an earlier activation may have recorded something.
    pub(super) fn has_history(&self) -> bool {
        self.check.is_some() || !self.state().replay.is_empty()
    }

    pub(super) fn with_replay<R>(&self, f: impl FnOnce(&mut Replay) -> R) -> R {
        f(&mut self.state().replay)
    }

    /// Looks at the run's row as it will be when every queued write is durable.
    pub(super) fn with_run<R>(&self, look: impl FnOnce(&Run) -> R) -> R {
        look(&self.state().run)
    }

    pub(super) fn run(&self) -> Run {
        self.state().run.clone()
    }

    /// Refuses a use of the context where a resume could not repeat it.
    pub(super) fn usable(&self, turn: u32) -> Result<(), Failure> {
        self.state().usable(turn, self.base).map(drop)
    }

    /// Marks that a closure is running, for as long as the guard lives.
    pub(super) fn inside(&self) -> Inside<'_> {
        self.state().inside = true;
        Inside(self)
    }
}

pub(super) struct Inside<'a>(&'a Live);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state().inside = false;
    }
}
