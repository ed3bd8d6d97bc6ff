//! One activation of a run: what its context, its open futures and its driver share.

mod open;
mod turn;
mod waker;

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Wake as _, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::check::Check;
use super::command::Verb;
use super::engine::Inner;
use super::failure::{Failure, FailureCode, Meaning, meaning};
use super::identity::{Identity, Kind};
use super::inbox::{Inbox, Wanted};
use super::replay::Replay;
use crate::clock::Timestamp;
use crate::exec::{ExecError, Purse};
use crate::id::{RecordId, RunId, RunName, RunNumber, Tenant};
use crate::ledger::RequestHash;
use crate::payload::{DigestKey, Payload, PayloadError, Stored};
use crate::store::{Change, EscalationKind, Lane, PastStep, Run, Signal, Step, StepKind, Ticket, WaitsOn};

pub(super) use open::Open;
pub(super) use turn::Entered;
use waker::RunWaker;

/// One activation of a run.
pub(super) struct Live {
    pub(super) engine: Arc<Inner>,
    pub(super) tenant: Tenant,
    pub(super) id: RunId,
    number: RunNumber,
    pub(super) lane: Lane,
    pub(super) waker: Arc<RunWaker>,
    /// What is done outside of loops is recorded under this number.
    pub(super) base: u32,
    /// It is not carried out, only looked at: nothing new is done.
    pub(super) check: Option<Check>,
    /// Its budget, if it has one. Filled before the body is polled.
    pub(super) purse: OnceLock<Arc<Purse>>,
    /// The activation has ended: what its calls have not begun is not begun any more.
    pub(super) over: Arc<AtomicBool>,
    state: Mutex<State>,
}

pub(super) struct State {
    run: Run,
    replay: Replay,
    /// New effects are held back until every live branch of the replay waits.
    replaying: bool,
    held: Vec<Waker>,
    held_calls: Vec<HeldCall>,
    outside: Scope,
    /// The loop's present turn, while it is carried out.
    turn: Option<InTurn>,
    /// The loop that began the run's present turn, if one did.
    turn_of: Option<(String, String)>,
    open: usize,
    /// Open futures that are at work themselves, and so may ask for more without being woken from outside.
    busy: usize,
    /// Open futures that wait for something durable, and what for.
    waits: HashMap<u64, Wait>,
    next_wait: u64,
    /// Open futures that wait for others of the context, and so for whatever these wait for.
    behind: usize,
    stop: Option<Stop>,
    /// The body is gone or going: dropped futures say nothing, and new ones are refused.
    pub(super) ended: bool,
    /// A step's closure is running: the context must not be used in it.
    inside: bool,
    /// Of the open futures, those that are calls.
    open_calls: usize,
    /// Calls that were pending when user code dropped them or when the body ended: they may outlive the run.
    dropped_calls: usize,
    /// What was said to the run, and it has not received.
    pub(super) inbox: Inbox,
    /// The run was told that it is cancelled, and may end by itself until then.
    cancelled: Option<Timestamp>,
    /// When the last checkpoint was made.
    recorded_at: Option<Timestamp>,
}

/// What an open future waits for: any of these.
#[derive(Clone, Debug, Default)]
pub(super) struct Wait {
    pub(super) until: Option<Timestamp>,
    /// The answer to an open question.
    pub(super) answer: bool,
    /// A signal.
    pub(super) signal: Option<Wanted>,
}

impl Wait {
    pub(super) fn until(at: Timestamp) -> Self {
        Self { until: Some(at), ..Self::default() }
    }
}

/// Identities are counted in a turn, or outside of all.
#[derive(Default)]
struct Scope {
    counters: HashMap<Kind, HashMap<String, Counter>>,
    /// How often each key was called under.
    calls: HashMap<String, u32>,
    open: usize,
}

struct InTurn {
    number: u32,
    scope: Scope,
    /// Its code is being polled: the context of the run must not be used in it.
    polled: bool,
}

impl InTurn {
    fn of(number: u32) -> Self {
        Self { number, scope: Scope::default(), polled: false }
    }
}

#[derive(Default)]
struct Counter {
    next: u64,
    open: u32,
}

/// A new call that waits for the replay to be quiescent.
#[derive(Clone, Debug)]
pub(super) struct HeldCall {
    pub(super) tool: String,
    pub(super) key: String,
    pub(super) hash: RequestHash,
}

/// Why an activation ends without a result.
#[derive(Debug)]
pub(super) enum Stop {
    /// A write failed or was refused: what is durable stands, and the run goes on from there.
    Failed(ExecError),
    /// The run waits for a decision.
    Halt {
        kind: EscalationKind,
        question: String,
        record: Option<RecordId>,
        /// What is asked about beside: from now on it is kept, whatever the answer.
        kept: Vec<String>,
    },
    /// An answer has come, or the engine wants the run to start over from what is recorded.
    Bounce,
    /// The run goes on as new, with this input.
    Continue(Payload),
    /// Somebody paused the run.
    Paused(Box<Signal>),
    /// Somebody cancelled the run, and it did not end by itself.
    Cancelled,
}

/// How the body stands after it was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
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

impl Live {
    pub(super) fn new(engine: Arc<Inner>, run: Run, lane: Lane, replay: Replay) -> Arc<Self> {
        Arc::new(Self::of(engine, run, lane, replay))
    }

    /// One that is only looked at.
    pub(super) fn checking(
        engine: Arc<Inner>,
        run: Run,
        lane: Lane,
        replay: Replay,
        check: Check,
    ) -> Arc<Self> {
        let live = Self { check: Some(check), ..Self::of(engine, run, lane, replay) };
        live.release(); // what is held back here is held back for good
        Arc::new(live)
    }

    fn of(engine: Arc<Inner>, run: Run, lane: Lane, mut replay: Replay) -> Self {
        let inbox = Inbox::of(replay.take_signals());
        let recorded_at = replay.recorded_at();
        Self {
            tenant: run.tenant.clone(),
            id: run.id,
            number: run.number,
            lane,
            engine,
            waker: Arc::default(),
            base: run.base,
            check: None,
            purse: OnceLock::new(),
            over: Arc::default(),
            state: Mutex::new(State {
                turn_of: replay.owner(run.turn).map(|(name, id)| (name.to_owned(), id.to_owned())),
                run,
                replaying: !replay.is_empty(),
                replay,
                held: Vec::new(),
                held_calls: Vec::new(),
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
                recorded_at,
            }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the run has called under this key in this turn by now, this time included.
    pub(super) fn nth_call(&self, turn: u32, key: &str) -> u32 {
        let mut state = self.state();
        let Some(scope) = state.scope(turn, self.base) else { return 1 }; // refused when it is opened
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

    /// The checkpoint of an identity; pends for ever if its future was dropped in an earlier life.
    ///
    /// # Errors
    /// The error that the run's code was given in its place.
    pub(super) async fn recorded(&self, open: &Open) -> Result<Option<PastStep>, Failure> {
        let (step, abandoned, failed) = {
            let mut state = self.state();
            state.replay.ask(&open.identity);
            let replay = &state.replay;
            let step = replay.step(&open.identity).cloned();
            let failed = step.is_none() && replay.failure(&open.identity).is_some();
            (step, replay.is_abandoned(&open.identity), failed)
        };
        if abandoned {
            let _waiting = open.wait(Wait::default());
            std::future::pending::<()>().await;
        }
        if failed && let Some(failure) = self.shown_before(open).await {
            return Err(failure);
        }
        Ok(step)
    }

    /// The error that the run's code was given in an earlier life. Of a call it is the checkpoint itself.
    ///
    /// Boxed because it is rare: every operation would have to carry the room for it.
    fn shown_before<'a>(&'a self, open: &'a Open) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(async move {
            let past = self.with_replay(|replay| replay.failure(&open.identity)?.value.clone())?;
            let failure = match self.engine.core.load(&self.tenant, &past).await {
                Ok(failure) => failure.decode().unwrap_or_else(Failure::from),
                Err(error) => self.failure(error).await,
            };
            open.settled();
            Some(failure)
        })
    }

    /// An error that the run's code is given. It is recorded first, so that every resume gives the same one, whatever has
    /// changed meanwhile.
    pub(super) fn shown(&self, open: Open, failure: Failure) -> BoxFuture<'_, Failure> {
        // Boxed because it is rare.
        Box::pin(async move {
            if self.check.is_some() {
                return open.failed(failure);
            }
            if let Some(before) = self.shown_before(&open).await {
                return before;
            }
            let payload = failure.payload();
            let shown = payload.decode().unwrap_or(failure); // as a resume reads it
            self.checkpoint(&open.identity.failed(), None, payload).await;
            open.failed(shown)
        })
    }

    /// The same of an executor's error; one that ends this activation is given to nobody.
    pub(super) fn told(&self, open: Open, error: ExecError) -> BoxFuture<'_, Failure> {
        Box::pin(async move {
            match meaning(error) {
                Meaning::Failure(failure) => self.shown(open, failure).await,
                Meaning::Stop(error) => {
                    open.close();
                    self.stop(Stop::Failed(error)).await
                }
            }
        })
    }

    /// The identity under which its checkpoint is recorded: another one if it is done again.
    pub(super) fn recorded_as(&self, identity: &Identity) -> Identity {
        let Identity { turn, kind, name, id } = identity;
        let id = self.state().replay.again.recorded_id(*turn, kind.checkpoint(), name, id);
        Identity { id, ..identity.clone() }
    }

    /// The run's own name.
    pub(super) const fn name(&self) -> RunName {
        RunName { id: self.id, number: self.number }
    }

    /// The name of the run after which what has no key of its own is named, so that a fork does not do it again, nor a child that
    /// is begun again. Both have the number of their origin.
    pub(super) fn named_after(&self) -> RunName {
        let origin = self.state().replay.again.origin();
        RunName { id: origin.unwrap_or(self.id), ..self.name() }
    }

    /// An earlier activation has recorded something.
    pub(super) fn has_history(&self) -> bool {
        self.check.is_some() || !self.state().replay.is_empty()
    }

    pub(super) fn with_replay<R>(&self, f: impl FnOnce(&mut Replay) -> R) -> R {
        f(&mut self.state().replay)
    }

    /// Waits until new effects may go out. A call says what it is, so that an unstable key can be named.
    pub(super) async fn released(&self, open: &Open, call: Option<HeldCall>) {
        if let Some(check) = &self.check {
            self.state().held_calls.extend(call);
            return check.held(&open.identity).await;
        }
        if !self.state().replaying {
            return;
        }
        if let Some(call) = call {
            self.state().held_calls.push(call);
        }
        let _waiting = open.rest();
        poll_fn(|cx| {
            let mut state = self.state();
            if state.replaying {
                state.held.push(cx.waker().clone());
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }

    /// The replay is over: what was held back may go out.
    pub(super) fn release(&self) {
        let held = {
            let mut state = self.state();
            state.replaying = false;
            state.held_calls.clear();
            std::mem::take(&mut state.held)
        };
        held.into_iter().for_each(Waker::wake);
    }

    /// The run replays, or is only looked at: who asks is woken when that is over.
    pub(super) fn replays(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        if state.replaying {
            state.held.push(waker.clone());
        }
        state.replaying || self.check.is_some()
    }

    pub(super) fn is_replaying(&self) -> bool {
        self.state().replaying
    }

    /// The run replays, and something of it is still being read.
    pub(super) fn is_reading_back(&self) -> bool {
        let state = self.state();
        state.replaying && state.busy > 0
    }

    pub(super) fn held_calls(&self) -> Vec<HeldCall> {
        self.state().held_calls.clone()
    }

    /// How the body stands; asked when it is pending and did not wake itself.
    pub(super) fn rest(&self) -> Rest {
        let state = self.state();
        if state.open == 0 || state.busy > 0 {
            Rest::Working
        } else if state.replaying {
            Rest::Quiescent
        } else if !state.waits.is_empty() && state.waits.len() + state.behind == state.open {
            let until = state.waits.values().filter_map(|wait| wait.until).min();
            let on = WaitsOn {
                answer: state.waits.values().any(|wait| wait.answer),
                signal: state.waits.values().any(|wait| wait.signal.is_some()),
            };
            Rest::Waiting { until, on }
        } else {
            Rest::Working
        }
    }

    /// Queues a checkpoint. A write that is refused later stops the run by its lane.
    pub(super) async fn checkpoint(&self, identity: &Identity, hash: Option<RequestHash>, value: Payload) {
        if let Some(check) = &self.check {
            return check.unrecorded(identity).await;
        }
        self.engine.core.group.room().await;
        self.put(identity, hash, value);
        self.progressed();
    }

    fn put(&self, identity: &Identity, hash: Option<RequestHash>, value: Payload) {
        let (value, large) = self.engine.core.storable(value);
        let step = self.step(identity, identity.kind.checkpoint(), hash, value);
        let mut change = self.engine.core.change(Some(self.lane)).step(step);
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        drop(self.engine.core.group.submit(change));
    }

    /// A checkpoint of an identity, of this kind.
    pub(super) fn step(
        &self,
        identity: &Identity,
        kind: StepKind,
        input_hash: Option<RequestHash>,
        value: impl Into<Option<Stored>>,
    ) -> Step {
        let mut state = self.state();
        let at = state.later(self.engine.core.now());
        Step {
            tenant: self.tenant.clone(),
            run: self.id,
            turn: identity.turn,
            kind,
            name: identity.name.clone(),
            id: state.replay.again.recorded_id(identity.turn, kind, &identity.name, &identity.id),
            input_hash,
            value: value.into(),
            at,
        }
    }

    /// The run got somewhere: the deaths of its earlier processes no longer count against it.
    pub(super) fn progressed(&self) {
        if self.state().run.deaths > 0 {
            drop(self.change_run(|run| run.deaths = 0));
        }
    }

    /// The next state of the run's row, to be written with other things.
    pub(super) fn next_run(&self, change: impl FnOnce(&mut Run)) -> Run {
        self.state().next_run(self.engine.core.now(), change)
    }

    /// Queues a new state of the run's row.
    pub(super) fn change_run(&self, change: impl FnOnce(&mut Run)) -> Ticket {
        self.change_run_with(self.engine.core.change(Some(self.lane)), change)
    }

    /// The same, as a part of a change.
    pub(super) fn change_run_with(&self, with: Change, change: impl FnOnce(&mut Run)) -> Ticket {
        let mut state = self.state();
        // Queued before the lock is released, so that revisions arrive in their order.
        let run = state.next_run(self.engine.core.now(), change);
        self.engine.core.group.submit(with.run(run))
    }

    pub(super) fn run(&self) -> Run {
        self.state().run.clone()
    }

    /// The run's workflow may call this tool: it has named it, or has named none.
    pub(super) fn may_call(&self, tool: &str) -> bool {
        let state = self.state();
        let workflow = self.engine.workflows.find(state.run.workflow.as_str(), state.run.version);
        workflow.is_none_or(|workflow| workflow.may_call(tool))
    }

    /// Everything that the run has queued is durable. Free of charge if nothing is queued.
    pub(super) async fn flushed(&self) -> Result<(), ExecError> {
        let barrier = self.engine.core.change(Some(self.lane));
        let verdict = self.engine.core.group.commit_one(barrier).await;
        match verdict {
            Ok(crate::store::Verdict::Admitted) => Ok(()),
            Ok(crate::store::Verdict::Refused(refusal)) => {
                Err(ExecError::Refused { key: self.id.to_string(), refusal })
            }
            Err(source) => Err(ExecError::Store { key: self.id.to_string(), source }),
        }
    }

    /// Ends this activation from inside: its futures never resolve.
    pub(super) async fn stop<T>(&self, stop: Stop) -> T {
        self.request_stop(stop);
        std::future::pending().await
    }

    /// A value as it is recorded, its secrets as keyed digests.
    pub(super) async fn canonical(
        &self,
        write: impl Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>,
    ) -> Result<Payload, Failure> {
        match self.engine.core.canonical(&self.tenant, write).await {
            Ok(payload) => Ok(payload),
            Err(ExecError::Payload(error)) => Err(error.into()),
            Err(error) => Err(self.failure(error).await),
        }
    }

    /// What an open future is about, as it is recorded. What is recorded already fits, whatever the limits are now.
    pub(super) async fn fitting(
        &self,
        open: Open,
        recorded: bool,
        write: impl Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>,
    ) -> Result<(Open, Payload), Failure> {
        let limits = &self.engine.core.limits;
        let fits = |payload: Payload| if recorded { Ok(payload) } else { Ok(payload.within(limits)?) };
        match self.canonical(write).await.and_then(fits) {
            Ok(payload) => Ok((open, payload)),
            Err(failure) => Err(self.shown(open, failure).await),
        }
    }

    /// An executor's error: a failure for the workflow, or the end of this activation.
    ///
    /// Boxed because it is rare, and asked for everywhere: every call would have to carry the room for it.
    pub(super) fn failure(&self, error: ExecError) -> BoxFuture<'_, Failure> {
        Box::pin(async move {
            match meaning(error) {
                Meaning::Failure(failure) => failure,
                Meaning::Stop(error) => self.stop(Stop::Failed(error)).await,
            }
        })
    }

    /// Asks the driver to end this activation.
    pub(super) fn request_stop(&self, stop: Stop) {
        {
            let mut state = self.state();
            if !state.ended && state.stop.is_none() {
                state.stop = Some(stop);
            }
        }
        self.waker.is_own();
        self.waker.wake_by_ref();
    }

    pub(super) fn take_stop(&self) -> Option<Stop> {
        self.state().stop.take()
    }

    /// A call may outlive the run, because its code dropped it, or left it to a task of its own.
    pub(super) fn has_dropped_call(&self) -> bool {
        self.state().dropped_calls > 0
    }

    /// The run knows that it is cancelled, and has time to end by itself.
    pub(super) fn cancelled(&self, until: Option<Timestamp>) {
        self.state().cancelled = until;
    }

    /// What a command asks of this activation: to stop, or to be looked at again at this instant. Asked when the body has
    /// come to rest, and so has said whether it waits to be cancelled.
    pub(super) fn commanded(&self, now: Timestamp) -> Result<Option<Timestamp>, Stop> {
        let state = self.state();
        if let Some(pause) = state.inbox.first(&Verb::Pause.signal()) {
            return Err(Stop::Paused(Box::new(pause.clone())));
        }
        if state.replaying {
            return Ok(None); // it may wait to be cancelled when it has come to where it was
        }
        match state.cancelled {
            Some(until) if until <= now => Err(Stop::Cancelled),
            None if state.inbox.first(&Verb::Cancel.signal()).is_some() => Err(Stop::Cancelled),
            until => Ok(until),
        }
    }

    /// The command that pauses the run.
    pub(super) fn pause_pending(&self) -> Option<Signal> {
        self.state().inbox.first(&Verb::Pause.signal()).cloned()
    }

    /// The command that cancels the run, received or not.
    pub(super) fn cancel_pending(&self) -> Option<Signal> {
        self.state().inbox.first(&Verb::Cancel.signal()).cloned()
    }

    /// Ends the activation in order to park, unless a signal has come that it waits for: whoever delivers one from here
    /// on is told that it came too late, and wakes the run again.
    pub(super) fn end_to_park(&self) -> bool {
        let mut state = self.state();
        let State { waits, inbox, .. } = &*state;
        if waits.values().filter_map(|wait| wait.signal.as_ref()).any(|wanted| inbox.has(wanted)) {
            return false;
        }
        state.end(&self.over);
        true
    }

    /// How much was said to the run that it has not received.
    pub(super) fn heard(&self) -> usize {
        self.state().inbox.len()
    }

    /// Waits for at most so long until more is said to the run than this. False if nothing was.
    pub(super) async fn hears_more(&self, heard: usize, at_most: Duration) -> Result<bool, ExecError> {
        let mut limit = self.engine.core.clock.sleep(at_most);
        poll_fn(|cx| {
            self.waker.driven_by(cx.waker());
            match self.take_stop() {
                Some(Stop::Failed(error)) => return Poll::Ready(Err(error)),
                Some(_) => return Poll::Ready(Ok(true)),
                None => {}
            }
            let mut state = self.state();
            if state.inbox.len() > heard {
                return Poll::Ready(Ok(true));
            }
            state.inbox.listen(cx.waker());
            drop(state);
            limit.as_mut().poll(cx).map(|()| Ok(false))
        })
        .await
    }

    /// Ends the activation in order to park, unless more was said to the run than this.
    pub(super) fn end_unless_told(&self, heard: usize) -> bool {
        let mut state = self.state();
        if state.inbox.len() > heard {
            return false;
        }
        state.end(&self.over);
        true
    }

    /// A command that the run has not received.
    pub(super) fn take_command(&self) -> Option<Signal> {
        self.state().inbox.take_command()
    }

    /// From here on dropped futures leave no mark, and the context is refused. A call that is open may outlive the run, whether
    /// it is dropped later or never: nothing is begun for it any more.
    pub(super) fn end(&self) {
        self.state().end(&self.over);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// What has been asked of the context is allowed by it.
    pub(super) fn usable(&self, turn: u32) -> Result<(), Failure> {
        self.state().usable(turn, self.base).map(drop)
    }

    /// Marks that a closure is running, for as long as the guard lives.
    pub(super) fn inside(&self) -> Inside<'_> {
        self.state().inside = true;
        Inside(self)
    }
}

impl State {
    fn end(&mut self, over: &AtomicBool) {
        if !std::mem::replace(&mut self.ended, true) {
            self.dropped_calls += self.open_calls;
        }
        over.store(true, Ordering::Release);
    }

    /// This instant, or one that is later than all checkpoints so far: they stay in their order when the clock is set
    /// back, and when it is too coarse.
    fn later(&mut self, now: Timestamp) -> Timestamp {
        let at = self.recorded_at.map_or(now, |last| now.max(Timestamp(last.0.saturating_add(1))));
        self.recorded_at = Some(at);
        at
    }

    fn next_run(&mut self, now: Timestamp, change: impl FnOnce(&mut Run)) -> Run {
        self.run.revision += 1;
        self.run.updated_at = now;
        change(&mut self.run);
        self.run.clone()
    }

    fn scope(&mut self, turn: u32, base: u32) -> Option<&mut Scope> {
        if turn == base {
            return Some(&mut self.outside);
        }
        self.turn.as_mut().filter(|present| present.number == turn).map(|present| &mut present.scope)
    }

    fn usable(&mut self, turn: u32, base: u32) -> Result<&mut Scope, Failure> {
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

pub(super) fn misuse(message: impl Into<String>) -> Failure {
    Failure::coded(FailureCode::Misuse, message)
}

pub(super) struct Inside<'a>(&'a Live);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.state().inside = false;
    }
}
