//! Durable loops: the state of a loop is checkpointed at the end of each turn, and a resume begins with the last turn,
//! however many there were.

use std::future::{Future, IntoFuture, poll_fn};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::failure::{Failure, misuse};
use super::identity::{Identity, Kind};
use super::label::Label;
use super::live::{Entered, Live, Open, Stop};
use super::past_call::settle_dropped;
use super::resume;
use crate::payload::Payload;
use crate::store::{Change, Question};

/// The end of a loop's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<S, O> {
    /// Another turn follows, and begins with this state.
    Next(S),
    /// The loop is over, and this is its result.
    Done(O),
}

type Body<'a, S, O> = dyn FnMut(S, Ctx) -> BoxFuture<'a, Result<Turn<S, O>, Failure>> + Send + 'a;

/// A loop to be awaited. Nothing happens until then.
#[must_use = "a loop does nothing until it is awaited"]
pub struct Loop<'a, S, O> {
    ctx: Ctx,
    label: Label,
    state: S,
    turn: Box<Body<'a, S, O>>,
    keep: Option<u32>,
}

impl Ctx {
    /// A loop that may go on for months: the state is recorded at the end of each turn, and a resume begins with the
    /// last turn. The records of finished turns are neither read nor held in memory; [`RunHandle::history`] shows them.
    ///
    /// Each turn is given the state and a context of its own, which is the one to use in the turn: steps, timers, drawn
    /// values and calls without a key are the turn's, and the same names are new in the next turn. A call with a key is
    /// one effect in all turns.
    ///
    /// The first turn begins with the state that is given here; once the turn has begun, the recorded state counts. A
    /// run is in one loop at a time: loops follow one another, and a resume skips a finished loop as a whole.
    ///
    /// ```
    /// use counterfoil::{Ctx, Failure, Turn};
    /// use std::time::Duration;
    ///
    /// async fn poll(ctx: Ctx, wanted: u32) -> Result<u32, Failure> {
    ///     ctx.turns("poll", 0, |seen, ctx| async move {
    ///         let new = ctx.step("look", &seen, |seen| seen % 3 + 1).await?;
    ///         if seen + new >= wanted {
    ///             return Ok(Turn::Done(seen + new));
    ///         }
    ///         ctx.sleep(Duration::from_secs(60)).await?;
    ///         Ok(Turn::Next(seen + new))
    ///     })
    ///     .await
    /// }
    /// ```
    ///
    /// # Crash
    /// The end of a turn and the state that the next one begins with are one transaction, which nobody waits for: it is
    /// durable before any effect of a later turn leaves the engine. Before it is durable the turn is resumed, from its
    /// records.
    ///
    /// [`RunHandle::history`]: crate::flow::RunHandle::history
    pub fn turns<'a, S, O, F, Fut>(&self, label: impl Into<Label>, state: S, mut turn: F) -> Loop<'a, S, O>
    where
        F: FnMut(S, Self) -> Fut + Send + 'a,
        Fut: Future<Output = Result<Turn<S, O>, Failure>> + Send + 'a,
    {
        Loop {
            ctx: self.clone(),
            label: label.into(),
            state,
            turn: Box::new(move |state, ctx| Box::pin(turn(state, ctx))),
            keep: None,
        }
    }

    /// The number of the turn that this context belongs to. `None` outside of loops. The number is the run's own count:
    /// a second loop goes on counting where the first one ended.
    pub fn turn(&self) -> Option<u32> {
        (self.turn != self.live.base).then_some(self.turn)
    }

    /// Lets the run go on under its id and start key, with another input and as if nothing were recorded: for a run
    /// that has no end, instead of a history that has none. The records so far are kept as finished history. The call
    /// never returns:
    ///
    /// ```
    /// use counterfoil::{Ctx, Failure};
    ///
    /// async fn watch(ctx: Ctx, mut seen: u64) -> Result<(), Failure> {
    ///     for _ in 0..1000 {
    ///         seen = ctx.step("look", &seen, |seen| seen + 1).await?;
    ///     }
    ///     ctx.continue_as_new(&seen).await
    /// }
    /// ```
    ///
    /// # Crash
    /// The change is one transaction. Before it is durable the run comes to this place again, from its records. After
    /// that, the run begins with the new input.
    ///
    /// The run is blocked if the workflow does not take the input, or if the input is too large.
    pub async fn continue_as_new<I, T>(&self, input: &I) -> Result<T, Failure>
    where
        I: Serialize + ?Sized,
    {
        self.unless_mendable(self.live.usable(self.turn)).await?;
        let input = self.canonical(input).await?;
        let input = self.unless_mendable(self.taken(input)).await?;
        self.live.stop(Stop::Continue(input)).await
    }

    /// Checks that the run can begin with this input.
    fn taken(&self, input: Payload) -> Result<Payload, Failure> {
        let input = input.within(&self.live.core.limits)?;
        let run = self.live.run();
        if let Some(workflow) = self.engine.workflows.find(run.workflow.as_str(), run.version) {
            drop((workflow.start)(self.clone(), &input)?); // the input is read; the body does not begin before it is polled
        }
        Ok(input)
    }
}

impl<S, O> Loop<'_, S, O> {
    /// The number of the run's finished turns that keep their steps. Each end of a turn deletes the steps of older
    /// turns, in the same transaction. Records of calls are kept: they keep an effect from happening twice.
    pub fn keep_turns(mut self, turns: u32) -> Self {
        self.keep = Some(turns);
        self
    }
}

impl<'a, S, O> IntoFuture for Loop<'a, S, O>
where
    S: Serialize + DeserializeOwned + Send + 'a,
    O: Serialize + DeserializeOwned + Send + 'a,
{
    type Output = Result<O, Failure>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.carry())
    }
}

impl<'a, S, O> Loop<'a, S, O>
where
    S: Serialize + DeserializeOwned + Send + 'a,
    O: Serialize + DeserializeOwned + Send + 'a,
{
    async fn carry(self) -> Result<O, Failure> {
        let Self { ctx, label, state, mut turn, keep } = self;
        let live = ctx.live.clone();
        ctx.unless_mendable(outside_turns(&ctx, &label)).await?;
        let open = ctx.open(Kind::Turns, label).await?;
        skip(&live, &open.identity);
        if let Some(past) = live.recorded(&open).await? {
            let outcome: Result<O, Failure> = ctx.replayed(open, None, past).await?;
            return outcome;
        }
        let mut present = ctx.unless_mendable(Present::enter(&live, open, keep)).await?;
        let mut state = match present.begin(&ctx, state).await {
            Ok(state) => state,
            Err(failure) => {
                let failure = live.unless_mendable(failure).await;
                present.open.close(); // the loop failed, and was not dropped
                return Err(failure);
            }
        };
        let outcome = loop {
            // Checked before the turn is settled, because the code has not carried the turn out to its end.
            let ended = match present.carry_out(&ctx, &mut turn, state).await {
                Err(failure) => Err(live.unless_halting(failure).await),
                ended => ended,
            };
            present.check().await;
            let left = present.settle().await;
            match ended.and_then(|ended| Ended::of(ended, &live)).and_then(|ended| present.is_over(ended)) {
                Ok(Ended::Next(payload, next)) => {
                    present.next(payload, left).await;
                    state = next;
                }
                Ok(Ended::Done(payload, output)) => {
                    present.done(payload, left).await;
                    break Ok(output);
                }
                Err(failure) => {
                    let failure = live.unless_mendable(failure).await;
                    present.failed(&failure, left).await;
                    break Err(failure);
                }
            }
        };
        present.open.close();
        outcome
    }
}

/// Refuses a loop inside a turn of another loop.
fn outside_turns(ctx: &Ctx, label: &Label) -> Result<(), Failure> {
    if ctx.turn == ctx.live.base {
        return Ok(());
    }
    Err(misuse(format!(
        "the loop {:?} was begun inside a turn of another: a run is in one turn at a time; give the inner one a run of its own, \
         or let the state say where it stands",
        label.name
    )))
}

/// Forgets the last turn of a loop that is over, or was dropped: the code asks for nothing of it any more, which is no
/// divergence.
fn skip(live: &Arc<Live>, identity: &Identity) {
    let over = live.with_replay(|replay| replay.step(identity).is_some() || replay.is_abandoned(identity));
    if over && is_of(live, identity) {
        let turn = live.run().turn;
        for call in live.with_replay(|replay| replay.forget(turn)) {
            if call.response.is_none() && live.check.is_none() {
                settle_dropped(live, call.record);
            }
        }
    }
}

/// True if this loop began the run's present turn.
fn is_of(live: &Live, identity: &Identity) -> bool {
    live.turn_of().is_some_and(|(name, id)| (name, id) == (identity.name.clone(), identity.id.clone()))
}

/// The end of a turn, in its recorded form and as a resume would read it.
enum Ended<S, O> {
    Next(Payload, S),
    Done(Payload, O),
}

impl<S, O> Ended<S, O>
where
    S: Serialize + DeserializeOwned,
    O: Serialize + DeserializeOwned,
{
    fn of(turn: Turn<S, O>, live: &Live) -> Result<Self, Failure> {
        let limits = &live.core.limits;
        match turn {
            Turn::Next(state) => {
                let payload = Payload::of(&state)?.within(limits)?;
                let state = payload.decode()?;
                Ok(Self::Next(payload, state))
            }
            Turn::Done(output) => {
                let payload = Payload::of(&Ok::<_, Failure>(output))?.within(limits)?;
                let output: Result<O, Failure> = payload.decode()?;
                Ok(Self::Done(payload, output?))
            }
        }
    }
}

/// The loop in its present turn.
struct Present<'a> {
    live: &'a Arc<Live>,
    open: Open,
    number: u32,
    /// True if the turn before belongs to another loop, which did not end well.
    behind_another: bool,
    keep: Option<u32>,
    _entered: Entered<'a>,
}

impl<'a> Present<'a> {
    fn enter(live: &'a Arc<Live>, open: Open, keep: Option<u32>) -> Result<Self, Failure> {
        let behind_another = live.turn_of().is_some() && !is_of(live, &open.identity);
        let number = live.run().turn + u32::from(behind_another);
        match live.enter_turn(number, &open.identity) {
            Ok(entered) => Ok(Self { live, open, number, behind_another, keep, _entered: entered }),
            Err(refused) => {
                open.close(); // the loop failed, and was not dropped
                Err(refused)
            }
        }
    }

    /// Stops a check of the loop here: the next part is not recorded.
    async fn check(&self) {
        if let Some(check) = &self.live.check {
            self.live.unrecorded(check, &self.open.identity).await;
        }
    }

    /// The state that the present turn began with. For a new loop, the given state.
    async fn begin<S>(&self, ctx: &Ctx, state: S) -> Result<S, Failure>
    where
        S: Serialize + DeserializeOwned,
    {
        let mark = self.mark(self.number);
        let begun = self.live.with_replay(|replay| {
            replay.ask(&mark);
            replay.step(&mark)?.value.clone()
        });
        if let Some(stored) = begun {
            return ctx.decoded(&format!("turn {} of {:?}", self.number, mark.name), &stored).await;
        }
        self.check().await;
        let payload = Payload::of(&state)?.within(&self.live.core.limits)?;
        let state = payload.decode()?;
        self.live.core.group.room().await;
        let change = self.change(&mark, payload);
        if self.behind_another {
            drop(self.live.change_run_with(change, |run| run.turn = self.number));
        } else {
            drop(self.live.core.group.submit(change));
        }
        Ok(state)
    }

    async fn carry_out<'b, S: 'b, O: 'b>(
        &self,
        ctx: &Ctx,
        turn: &mut Body<'b, S, O>,
        state: S,
    ) -> Result<Turn<S, O>, Failure> {
        let mut work = turn(state, Ctx { turn: self.number, ..ctx.clone() });
        let _behind = self.open.behind();
        poll_fn(|cx| {
            let _polling = self.live.polling_turn();
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Compares the records of the turn with what its code asked for, before anything of the next turn goes out. An
    /// effect that an earlier life of the turn recorded and this one did not ask for is kept and listed, or blocks the
    /// run: no effect of the turn is forgotten.
    async fn settle(&self) -> Vec<Question> {
        let over = resume::When::TurnOver(self.number);
        let settled = match resume::unasked(self.live, over).await {
            Ok(None) => resume::left_unasked(self.live, over).await,
            Ok(Some(stop)) => return self.live.stop(stop).await,
            Err(error) => Err(error),
        };
        match settled {
            Ok(left) => left,
            Err(error) => self.live.stop(Stop::Failed(error)).await,
        }
    }

    /// Checks that no future was kept beyond its turn: there is no place where it could be recorded.
    fn is_over<T>(&self, ended: T) -> Result<T, Failure> {
        if self.live.open_in_turn() == 0 {
            return Ok(ended);
        }
        Err(misuse(format!(
            "turn {} of {:?} ended while futures of its context are open: await or drop them in the turn",
            self.number, self.open.identity.name
        )))
    }

    /// Ends the present turn, and begins the next one with this state.
    ///
    /// # Crash
    /// The turn's number and the state that it begins with are one transaction, queued before anything that the turn
    /// does.
    async fn next(&mut self, state: Payload, left: Vec<Question>) {
        let next = self.number + 1;
        self.live.core.group.room().await;
        let change = self.change(&self.mark(next), state);
        self.write_turn(next, change, left);
        self.number = next;
        self.live.next_turn(next);
        if self.live.with_replay(|replay| replay.again.may_know(next)) {
            // The checkpoints that the fork was given of this turn are read with its history.
            let stop = self.live.flushed().await.map_or_else(Stop::Failed, |()| Stop::Bounce);
            self.live.stop::<()>(stop).await;
        }
    }

    /// Ends the last turn with the result of the loop.
    ///
    /// # Crash
    /// The result of the loop and the end of its last turn are one transaction.
    async fn done(&self, output: Payload, left: Vec<Question>) {
        self.live.core.group.room().await;
        let change = self.change(&self.open.identity, output);
        self.write_turn(self.number + 1, change, left);
        self.live.last_turn();
    }

    /// Records the failure of the loop. The turn stays the run's present one: if the run fails as well, questions are
    /// opened about the turn's effects like about the others.
    async fn failed(&self, failure: &Failure, left: Vec<Question>) {
        self.live.core.group.room().await;
        let failure = serde_json::json!({ "Err": failure });
        let payload = Payload::of(&failure).unwrap_or_else(|_| Payload::stored("{\"Err\":{}}"));
        let mut change = self.change(&self.open.identity, payload);
        change.escalations = left;
        drop(self.live.core.group.submit(change));
    }

    fn write_turn(&self, next: u32, mut change: Change, left: Vec<Question>) {
        let last = self.keep.and_then(|keep| self.number.checked_sub(keep));
        change.prune = last.filter(|last| *last > self.live.base);
        change.escalations = left;
        let dropped = self.live.has_dropped_call();
        drop(self.live.change_run_with(change, |run| {
            (run.turn, run.deaths) = (next, 0);
            run.unsettled |= dropped;
        }));
    }

    fn change(&self, identity: &Identity, value: Payload) -> Change {
        let core = &self.live.core;
        let (value, large) = core.storable(value);
        let step = self.live.step(identity, identity.kind.checkpoint(), None, value);
        let mut change = core.change(Some(self.live.lane)).step(step);
        change.payloads.extend(large.map(|payload| (self.live.tenant.clone(), payload)));
        change
    }

    /// The identity of the checkpoint with a turn's state. It names the loop, so that a resume finds out whose turn it
    /// is.
    fn mark(&self, turn: u32) -> Identity {
        Identity { turn, ..self.open.identity.clone() }
    }
}
