//! Signals and the engine's own commands to a run that is active.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::task::{Poll, Wake as _, Waker};
use std::time::Duration;

use super::Live;
use super::open::Open;
use super::state::Wait;
use super::stop::Stop;
use crate::clock::Timestamp;
use crate::exec::ExecError;
use crate::flow::Failure;
use crate::flow::child::lineage::{ENDED, PLACE};
use crate::flow::command::{TOLD, Verb, is_command};
use crate::flow::identity::Identity;
use crate::flow::inbox::Wanted;
use crate::flow::signal::aside::Reads;
use crate::payload::{Payload, PayloadError, Stored};
use crate::store::{CANCEL, COMMAND, DEADLINE, Signal, Step};

impl Live {
    /// Notes that the run knows of its cancellation, with the instant until which it may end by itself (UTC), and the
    /// command.
    pub(in crate::flow) fn cancelled(&self, until: Option<Timestamp>, command: Stored) {
        let mut state = self.state();
        (state.cancelled, state.told) = (until, Some(Box::new(command)));
    }

    /// The command with which the run was told of its cancellation.
    pub(in crate::flow) fn told_command(&self) -> Option<Stored> {
        self.state().told.as_deref().cloned()
    }

    /// The instant at which the run is cancelled if it has not ended by then (UTC). `None` once the run was told: its
    /// later calls are for tidying up, and may go out.
    pub(in crate::flow) fn deadline(&self) -> Option<Timestamp> {
        let state = self.state();
        state.run.deadline.filter(|_| state.cancelled.is_none())
    }

    /// Notes that the run's code waits to be told of its cancellation.
    pub(in crate::flow) fn await_end(&self) {
        self.state().inbox.awaits_end = true;
    }

    /// True if the code of this activation has waited to be told of its cancellation.
    pub(in crate::flow) fn awaits_end(&self) -> bool {
        self.state().inbox.awaits_end
    }

    /// The effect of a command on this activation: a stop, or the instant at which to ask again. Asked when the body
    /// has come to rest: by then the body has said whether it waits to be cancelled.
    pub(in crate::flow) fn commanded(&self, now: Timestamp) -> Result<Option<Timestamp>, Stop> {
        let state = self.state();
        let is_cancelled = state.inbox.first(CANCEL).is_some();
        if let Some(pause) = state.pause() {
            return Err(Stop::Paused(Box::new(pause.clone())));
        }
        if state.replaying {
            return Ok(None); // the code may wait to be cancelled once it has caught up with its records
        }
        match state.cancelled {
            Some(until) if until <= now => Err(Stop::Cancelled),
            None if is_cancelled => Err(Stop::Cancelled),
            until => Ok(until),
        }
    }

    /// The command that pauses the run.
    pub(in crate::flow) fn pause_pending(&self) -> Option<Signal> {
        self.state().pause().cloned()
    }

    /// The command that cancels the run, if the run has not received it yet.
    pub(in crate::flow) fn cancel_pending(&self) -> Option<Signal> {
        self.state().inbox.first(&Verb::Cancel.signal()).cloned()
    }

    /// True if the run has not yet received the command which says that its deadline has passed.
    pub(in crate::flow) fn is_past_deadline(&self) -> bool {
        let told = Wanted { name: CANCEL.to_owned(), id: Some(DEADLINE.to_owned()) };
        self.state().inbox.has(&told)
    }

    /// The number of signals that the run has not received.
    pub(in crate::flow) fn heard(&self) -> usize {
        self.state().inbox.len()
    }

    /// The names and ids of the signals that the run has not received, without the commands that it is to obey. They are
    /// final once the activation has ended.
    pub(in crate::flow) fn unreceived(&self) -> BTreeSet<(String, String)> {
        let state = self.state();
        let mut names = state.inbox.names();
        // A command that comes between the body's last rest and the end of the activation is seen by the next one.
        let ignored = Verb::Pause.signal();
        let is_ignored = |name: &str| *name == ignored && state.pause().is_none();
        names.retain(|(name, _)| !name.starts_with(COMMAND) || is_ignored(name));
        names
    }

    /// Waits until the run has more signals than `heard`, and for `at_most`. Returns false if the time is over.
    pub(in crate::flow) async fn hears_more(
        &self,
        heard: usize,
        at_most: Duration,
    ) -> Result<bool, ExecError> {
        let mut limit = self.core.clock.sleep(at_most);
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
            state.inbox.listen(None, cx.waker());
            drop(state);
            limit.as_mut().poll(cx).map(|()| Ok(false))
        })
        .await
    }

    /// Takes out a command that the run has not received.
    pub(in crate::flow) fn take_command(&self) -> Option<Signal> {
        self.state().inbox.take_command()
    }

    /// Hands a signal to the run. Returns false if this activation has ended, and cannot receive it. A signal that it had
    /// when it ended is no reason to wake the run again: a heartbeat may bring it once more while the run parks.
    pub(in crate::flow) fn deliver(&self, signal: Signal) -> bool {
        let command = is_command(&signal);
        let listening = {
            let mut state = self.state();
            if state.ended {
                return !command && state.inbox.holds(&signal);
            }
            state.inbox.deliver(signal)
        };
        self.waker.by_context(|| listening.into_iter().for_each(Waker::wake));
        if command {
            self.waker.wake_by_ref(); // nothing in the run's code waits for a command
        }
        true
    }

    /// Receives the next wanted signal that can be read, as soon as there is one. The receipt is queued when this
    /// returns.
    pub(in crate::flow) async fn next_signal(
        &self,
        open: &Open,
        wanted: &Wanted,
        reads: Option<Reads>,
    ) -> Result<Stored, Failure> {
        if self.check.is_some() {
            let _waiting = open.wait(Wait { signal: Some(wanted.clone()), ..Wait::default() });
            return std::future::pending().await; // a replay check receives nothing
        }
        // Nothing is received while the run replays: a branch that lost its select in an earlier life would take a signal and
        // drop it.
        self.released(open, None).await;
        loop {
            {
                let waiting = open.wait(Wait { signal: Some(wanted.clone()), ..Wait::default() });
                poll_fn(|cx| {
                    let mut state = self.state();
                    if state.inbox.has(wanted) {
                        return Poll::Ready(());
                    }
                    state.inbox.listen(waiting.number(), cx.waker());
                    Poll::Pending
                })
                .await;
            }
            let (first, misfit) = match self.first_that_waits(wanted, reads).await {
                Ok(Some(first)) => first,
                Ok(None) => continue,
                Err(error) => return Err(self.failure(error).await),
            };
            self.core.group.room().await;
            // There is no await from here on: a future that was dropped at one would have taken a signal and lost it.
            let taken = self.state().inbox.take(&first);
            if let (Some(signal), Some(error)) = (&taken, misfit) {
                drop(self.core.group.submit(self.set_aside(signal.clone(), error)));
                self.progressed();
            } else if let Some(signal) = taken {
                let kind = open.identity.kind.checkpoint();
                let step = self.step(&open.identity, kind, None, signal.body.clone());
                let body = signal.body.clone();
                let is_end = wanted.name == ENDED && !self.core.is_shared();
                let place = is_end.then(|| self.place_of_end(&step));
                let is_told = wanted.name == CANCEL && step.turn != self.base;
                let told = is_told.then(|| self.told_outside(open, &signal));
                let mut change = self.core.change(Some(self.lane)).step(step);
                change.steps.extend(place.into_iter().chain(told));
                change.received = Some(Box::new(signal));
                drop(self.core.group.submit(change));
                self.core.wake_sweeper();
                self.progressed();
                return Ok(body);
            }
        }
    }

    /// The first wanted signal, and the error if it cannot be read. The signal stays in the inbox.
    async fn first_that_waits(
        &self,
        wanted: &Wanted,
        reads: Option<Reads>,
    ) -> Result<Option<(Wanted, Option<PayloadError>)>, ExecError> {
        let first = self.state().inbox.peek(wanted).cloned();
        let Some(Signal { name, id, body, .. }) = first else { return Ok(None) };
        let misfit = match reads {
            Some(reads) => reads(&self.core.load(&self.tenant, &body).await?).err(),
            None => None,
        };
        Ok(Some((Wanted { name, id: Some(id) }, misfit)))
    }

    /// The checkpoint that keeps a command to cancel the run outside of the turn that received it. A resume in a later turn
    /// does not read the receipt: without this checkpoint nothing would end the run when its grace is over.
    fn told_outside(&self, received: &Open, command: &Signal) -> Step {
        let id = format!("{TOLD}{}", command.id);
        let identity = Identity { turn: self.base, id, ..received.identity.clone() };
        self.step(&identity, identity.kind.checkpoint(), None, command.body.clone())
    }

    /// The checkpoint that orders the end of a child among this run's effects. The order is an id and not a time,
    /// because the clock may be set back while there is only one worker.
    fn place_of_end(&self, received: &Step) -> Step {
        let place = Payload::stored(self.core.ids.next().to_string());
        let (id, value) = (format!("{}{PLACE}", received.id), Some(Stored::Inline(place)));
        Step { id, value, ..received.clone() }
    }
}
