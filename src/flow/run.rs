//! One activation of a run: poll its body until it ends, parks, or must stop.

use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::again::{self, Again, Mark};
use super::budget;
use super::child::farewell::farewell;
use super::command::{Command, Verb};
use super::ctx::Ctx;
use super::engine::Inner;
use super::failure::Failure;
use super::identity::{Identity, Kind};
use super::live::{Live, Rest, Stop};
use super::queue::without_place;
use super::replay::Replay;
use super::resume::{self, Asked};
use super::saga;
use super::workflow::Body;
use crate::clock::Timestamp;
use crate::exec::{ExecError, follow_dropped};
use crate::id::RecordId;
use crate::panics::message;
use crate::payload::{Payload, Stored};
use crate::store::{
    EscalationKind, Lane, Run, RunState, Signal, StepKind, Store as _, StoreError, Turns, Verdict, WaitsOn,
};

/// A run whose waits are all durable keeps its memory for this long, in case one of them ends soon.
const GRACE: Duration = Duration::from_millis(200);
/// A body that wakes itself while it is polled is polled so often before others get their turn.
const POLLS: usize = 32;

/// How an activation ended.
pub(super) enum End {
    /// The run is over, or halted: this is what its row says, durably.
    Over(RunState),
    /// It waits, and holds no memory.
    Parked,
    /// It starts over from what is recorded.
    Again,
    /// A write failed or was refused.
    Failed(ExecError),
}

/// How the body's polling ended.
enum Polled {
    Finished(Result<Payload, Failure>),
    Panicked(String),
    Quiescent,
    Parkable(Option<Timestamp>, WaitsOn),
    Stopped(Stop),
}

/// Carries out one activation.
///
/// What begins and ends it is boxed: a run is in its body most of the time, and would carry room for all of it.
pub(super) async fn activate(engine: &Arc<Inner>, run: Box<Run>, fresh: Option<Lane>) -> End {
    let is_fresh = fresh.is_some();
    let live = match fresh {
        Some(lane) => Live::new(engine.clone(), *run, lane, Replay::default()),
        None => match Box::pin(resumed(engine, run)).await {
            Ok(live) => live,
            Err(end) => return end,
        },
    };
    match budget::purse(engine, &live.run(), is_fresh).await {
        Ok(purse) => _ = purse.map(|purse| live.purse.set(purse)),
        Err(error) => return End::Failed(error),
    }
    let _listed = engine.list(&live);
    let undoing = live.with_replay(|replay| replay.undoing(live.base, saga::UNDO));
    let end = match undoing.first().and_then(|begun| begun.value.as_ref()) {
        // It waits for no place any more: what it did holds up others until it is undone.
        Some(failure) => Box::pin(saga::carry_on(&live, failure)).await,
        None if live.run().lacks_place() => Box::pin(without_place(&live)).await,
        None => carry(&live).await,
    };
    live.end();
    engine.core.group.end_lane(live.lane);
    if matches!(end, End::Over(_)) && live.run().unsettled {
        follow_dropped(&engine.core, &live.tenant, live.id);
    }
    end
}

async fn resumed(engine: &Arc<Inner>, run: Box<Run>) -> Result<Arc<Live>, End> {
    let history = match engine.core.group.run_history(&run.tenant, run.id, run.present()).await {
        Ok(history) => history,
        Err(error) => return Err(unreadable(engine, run, error).await),
    };
    let again = match again::marks(&engine.core, &run.tenant, &history).await {
        Ok(marks) => Again::of(marks),
        Err(ExecError::Store { source, .. }) => return Err(unreadable(engine, run, source).await),
        Err(error) => return Err(End::Failed(error)),
    };
    Ok(Live::new(engine.clone(), *run, engine.core.new_lane(), Replay::of(history, again)))
}

/// A damaged row halts its run; others go on.
pub(super) async fn unreadable(engine: &Arc<Inner>, run: Box<Run>, error: StoreError) -> End {
    let StoreError::Corrupt { .. } = error else {
        return End::Failed(ExecError::Store { key: run.id.to_string(), source: error });
    };
    let question = format!("run {}: {error}. Repair it and go on, or abandon the run?", run.id);
    let live = Live::new(engine.clone(), *run, engine.core.new_lane(), Replay::default());
    resume::halt(&live, EscalationKind::Damaged, question).await
}

/// The body of a run, to be polled. If it cannot be started, that ends the activation.
async fn start(live: &Arc<Live>) -> Result<Body, End> {
    let run = live.run();
    let workflows = &live.engine.workflows;
    let Some(workflow) = workflows.find(run.workflow.as_str(), run.version) else {
        let question = workflows.unknown(&run);
        return Err(resume::halt(live, EscalationKind::UnknownWorkflow, question).await);
    };
    if workflow.version != run.version {
        tracing::info!(tenant = %run.tenant, run = %run.id, from = run.version, by = workflow.version, "taken over");
        // In the run's lane, so that nothing which the newer version records is there without it.
        drop(live.change_run(|run| run.version = workflow.version));
    }
    let continued = live.with_replay(|replay| replay.input(run.base).and_then(|step| step.value.clone()));
    let input = continued.as_ref().unwrap_or(&run.input);
    let input = live.engine.core.load(&run.tenant, input).await.map_err(End::Failed)?;
    match (workflow.start)(Ctx::new(live.clone()), &input) {
        Ok(body) => Ok(body),
        Err(error) => {
            let question = format!("run {}: {error}. Restore the type and go on, or abandon?", run.id);
            Err(resume::halt(live, EscalationKind::Damaged, question).await)
        }
    }
}

async fn carry(live: &Arc<Live>) -> End {
    let mut body = match Box::pin(start(live)).await {
        Ok(body) => body,
        Err(end) => return end,
    };
    loop {
        match poll(live, &mut body).await {
            Polled::Quiescent => match Box::pin(resume::unasked(live, resume::When::Replayed)).await {
                Ok(None) => live.release(),
                Ok(Some(stop)) => return stopped(live, body, stop).await,
                Err(error) => return End::Failed(error),
            },
            Polled::Parkable(until, on) => {
                if !live.end_to_park() {
                    continue;
                }
                drop(body); // what is dropped from here on is dropped by parking
                return Box::pin(park(live, until, on)).await;
            }
            Polled::Finished(result) => {
                live.end();
                drop(body);
                return Box::pin(finish(live, result)).await;
            }
            Polled::Panicked(message) => {
                live.end();
                let question = format!(
                    "run {}: its code panicked: {message}. Nothing after its last record is durable. \
                     Mend the code and go on, or abandon?",
                    live.id
                );
                return Box::pin(resume::halt(live, EscalationKind::Quarantined, question)).await;
            }
            Polled::Stopped(stop) => return stopped(live, body, stop).await,
        }
    }
}

/// The activation ends before its body has.
async fn stopped(live: &Arc<Live>, body: Body, stop: Stop) -> End {
    if let Stop::Continue(input) = stop {
        return Box::pin(continued(live, body, input)).await;
    }
    live.end();
    drop(body);
    match stop {
        Stop::Failed(error) => End::Failed(error),
        Stop::Bounce | Stop::Continue(_) => End::Again,
        Stop::Paused(signal) => Box::pin(pause(live, *signal)).await,
        Stop::Cancelled => Box::pin(cancel(live)).await,
        Stop::Halt { kind, question, record, kept } => {
            let asked = Asked { kind, question, record, kept, command: None };
            Box::pin(resume::halt_on(live, asked)).await
        }
    }
}

/// The run goes on as new: from now on it has this input, and nothing recorded.
///
/// # Crash
/// The new input and the number under which its history begins are one transaction. Before it is durable the run
/// comes here again, from its records.
async fn continued(live: &Arc<Live>, body: Body, input: Payload) -> End {
    match resume::unasked(live, resume::When::Continued).await {
        Ok(None) => {}
        Ok(Some(Stop::Halt { kind, question, record, kept })) => {
            return resume::halt_on(live, Asked { kind, question, record, kept, command: None }).await;
        }
        Ok(Some(_)) => return End::Again,
        Err(error) => return End::Failed(error),
    }
    drop(body); // by the run's own will: a call that is under way leaves its mark, and is settled by the engine
    live.end();
    let core = &live.engine.core;
    let dropped = live.has_dropped_call();
    let (value, large) = core.storable(input);
    let base = live.run().turn + 1;
    let identity = Identity { turn: base, kind: Kind::Step, name: "input".into(), id: "0".into() };
    let mut change = core.change(Some(live.lane)).step(live.step(&identity, StepKind::Input, None, value));
    change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
    // What was decided when the run was begun again holds for what it does from now on, too.
    let marks: Vec<_> =
        live.with_replay(|replay| replay.again.marks().iter().map(Mark::carried_on).collect());
    for (n, mark) in marks.into_iter().enumerate() {
        let identity = Identity { name: "again".into(), id: n.to_string(), ..identity.clone() };
        let mark = Payload::of(&mark).map_err(ExecError::Payload);
        match mark {
            Ok(mark) => change.steps.push(live.step(&identity, StepKind::Again, None, Stored::Inline(mark))),
            Err(error) => return End::Failed(error),
        }
    }
    let ticket = live.change_run_with(change, |run| {
        (run.base, run.turn, run.deaths) = (base, base + 1, 0);
        run.unsettled |= dropped;
    });
    match written(live, ticket.durable().await) {
        Ok(()) => End::Again,
        Err(error) => End::Failed(error),
    }
}

/// Polls the body until there is something to be done about it.
async fn poll(live: &Arc<Live>, body: &mut Body) -> Polled {
    let clock = live.engine.core.clock.clone();
    let waker = Waker::from(live.waker.clone());
    let (mut grace, mut limit, mut forced, mut waiting) = (None, None, None, false);
    poll_fn(|cx| {
        live.waker.driven_by(cx.waker());
        for _ in 0..POLLS {
            if let Some(stop) = live.take_stop() {
                return Poll::Ready(Polled::Stopped(stop));
            }
            let (woken, own) = (live.waker.take_woken(), live.waker.take_own());
            if std::mem::take(&mut waiting) && woken && !own && live.waker.note_foreign() {
                tracing::warn!(
                    tenant = %live.tenant, run = %live.id,
                    "waits for something that is not the context's: it is kept in memory; a crash loses that wait"
                );
            }
            let polled =
                catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(&mut Context::from_waker(&waker))));
            match polled {
                Ok(Poll::Ready(result)) => return Poll::Ready(Polled::Finished(result)),
                Err(panic) => return Poll::Ready(Polled::Panicked(message(&*panic))),
                Ok(Poll::Pending) => {}
            }
            // A body that woke itself has not come to rest: poll it again before judging it.
            if live.waker.take_woken() {
                continue;
            }
            match live.commanded(clock.now()) {
                Err(stop) => return Poll::Ready(Polled::Stopped(stop)),
                Ok(Some(until)) => {
                    let timer = limit.get_or_insert_with(|| clock.sleep(clock.now().until(until)));
                    if timer.as_mut().poll(cx).is_ready() {
                        limit = None;
                        continue;
                    }
                    forced = Some(until);
                }
                Ok(None) => {}
            }
            match live.rest() {
                Rest::Quiescent => return Poll::Ready(Polled::Quiescent),
                Rest::Working => {
                    grace = None;
                    return Poll::Pending;
                }
                Rest::Waiting { until, on } => {
                    waiting = true;
                    if live.waker.has_foreign() {
                        return Poll::Pending; // dropped by parking, what it waits for would begin anew with each resume
                    }
                    let until = until.into_iter().chain(forced).min();
                    if until.is_some_and(|at| clock.now().until(at) <= GRACE) {
                        return Poll::Pending; // it ends soon
                    }
                    let timer = grace.get_or_insert_with(|| clock.sleep(GRACE));
                    return timer.as_mut().poll(cx).map(|()| Polled::Parkable(until, on));
                }
            }
        }
        // It waits for somebody by polling: who that is may need this very thread.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Somebody paused the run: it is halted with the question whether it may go on.
pub(super) async fn pause(live: &Arc<Live>, signal: Signal) -> End {
    match command(live, Some(&signal.body)).await {
        Ok(command) => {
            let question = command.question(live.id);
            let (kind, command) = (EscalationKind::Paused, Some(signal));
            resume::halt_on(live, Asked { kind, question, record: None, kept: Vec::new(), command }).await
        }
        Err(error) => End::Failed(error),
    }
}

/// Somebody cancelled the run: it fails, after its children were cancelled.
///
/// # Crash
/// The command stays until the run has ended: whoever carries the run on finds it, and does the same again.
pub(super) async fn cancel(live: &Arc<Live>) -> End {
    let cancelled = async {
        let body = match live.cancel_pending() {
            Some(signal) => Some(signal.body),
            None => received_before(live).await?,
        };
        let command = command(live, body.as_ref()).await?;
        tracing::info!(tenant = %live.tenant, run = %live.id, by = command.by, "cancelled");
        live.engine.cancel_children(&live.tenant, live.id, &command).await?;
        Ok(command)
    };
    match cancelled.await {
        Ok(command) => finish(live, Err(command.failure())).await,
        Err(error) => End::Failed(error),
    }
}

/// The command that the run has received, and did not obey in time.
async fn received_before(live: &Arc<Live>) -> Result<Option<Stored>, ExecError> {
    live.flushed().await?;
    let history = live.engine.core.group.run_history(&live.tenant, live.id, Turns::ALL).await;
    let history = history.map_err(|source| ExecError::Store { key: live.id.to_string(), source })?;
    let name = Verb::Cancel.signal();
    let received = history.steps.into_iter().find(|step| step.kind == StepKind::Signal && step.name == name);
    Ok(received.and_then(|step| step.value))
}

/// Whatever a command says of itself, it is obeyed.
async fn command(live: &Arc<Live>, body: Option<&Stored>) -> Result<Command, ExecError> {
    let body = match body {
        Some(body) => live.engine.core.load(&live.tenant, body).await?,
        None => Payload::stored("null"),
    };
    Ok(Command::of(&body).unwrap_or_else(|_| Command::unreadable()))
}

/// The run waits as a row: no task, no memory.
///
/// # Crash
/// Before the row is durable the run is active, and is resumed at once; after, when its time comes.
pub(super) async fn park(live: &Arc<Live>, until: Option<Timestamp>, on: WaitsOn) -> End {
    let freed = live.run().queue.filter(|queue| live.engine.queues.frees(queue));
    let ticket = live.change_run(|run| {
        run.state = RunState::Waiting { until, on };
        run.deaths = 0;
        if freed.is_some() {
            run.give_place_free();
        }
    });
    match written(live, ticket.durable().await) {
        Ok(()) => {
            if let Some(at) = until {
                live.engine.core.agenda.note(at);
            }
            if let Some(queue) = freed {
                live.engine.admit_soon(queue.name.as_str());
            }
            End::Parked
        }
        Err(error) => End::Failed(error),
    }
}

/// The run is over: unless something that it did is to be undone first.
async fn finish(live: &Arc<Live>, result: Result<Payload, Failure>) -> End {
    let result = result.and_then(|output| Ok(output.within(&live.engine.core.limits)?));
    if let Err(failure) = &result {
        match saga::is_due(live).await {
            Ok(true) => return saga::begin(live, failure).await,
            Ok(false) => {}
            Err(error) => return End::Failed(error),
        }
    }
    finish_leaving(live, result, &HashMap::new()).await
}

/// The run is over: its result, and every effect that is left without an owner, become durable together. `stands`: why
/// effects stand that were to be undone.
pub(super) async fn finish_leaving(
    live: &Arc<Live>,
    result: Result<Payload, Failure>,
    stands: &HashMap<RecordId, String>,
) -> End {
    let mut result = result;
    let left = match &mut result {
        Ok(_) => resume::left_unasked(live, resume::When::Succeeded).await,
        Err(failure) => resume::left_by_failed(live, failure, stands).await,
    };
    let left = match left {
        Ok(left) => left,
        Err(error) => return End::Failed(error),
    };
    let core = &live.engine.core;
    let farewell = farewell(core, &live.run(), result.as_ref());
    let (state, large) = match result {
        Ok(output) => {
            let (output, large) = core.storable(output);
            (RunState::Succeeded { output }, large)
        }
        Err(failure) => (RunState::Failed { failure: failure.payload() }, None),
    };
    let (signal, said) = farewell.unzip();
    let dropped = live.has_dropped_call();
    let run = live.next_run(|run| {
        run.state = state.clone();
        // A failed run has looked at all its calls before it failed.
        run.unsettled |= dropped && matches!(state, RunState::Succeeded { .. });
    });
    let mut change = core.change(Some(live.lane)).run(run);
    change.escalations = left;
    change.signal = signal.clone().map(Box::new);
    let large = large.into_iter().chain(said.flatten());
    change.payloads.extend(large.map(|payload: Payload| (live.tenant.clone(), payload)));
    match written(live, core.group.commit_one(change).await) {
        Ok(()) => {
            if let Some(signal) = signal {
                live.engine.delivered(signal).await;
            }
            End::Over(state)
        }
        Err(error) => End::Failed(error),
    }
}

pub(super) fn written(live: &Live, verdict: Result<Verdict, StoreError>) -> Result<(), ExecError> {
    let key = live.id.to_string();
    match verdict {
        Ok(Verdict::Admitted) => Ok(()),
        Ok(Verdict::Refused(refusal)) => Err(ExecError::Refused { key, refusal }),
        Err(source) => Err(ExecError::Store { key, source }),
    }
}

/// The output of a run that ended well.
pub(super) const fn output(state: &RunState) -> Option<&Stored> {
    match state {
        RunState::Succeeded { output } => Some(output),
        _ => None,
    }
}
