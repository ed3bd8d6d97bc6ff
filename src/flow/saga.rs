//! Compensation of a run that did not end well: its effects, and those of its children that succeeded, are undone in
//! reverse order, each by its own tool's policy.
//!
//! The run's failure is recorded first. From then on its code is not run again: a worker that carries the run on undoes
//! the effects that are left, and ends the run with its failure and with the fate of each effect.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::failure::{EffectEnd, EffectOutcome, Failure};
use super::family::{self, Family};
use super::identity::{Identity, Kind};
use super::live::Live;
use super::resume::{Standing, settled};
use super::run::{Activation, End};
use crate::exec::{Compensated, Core, ExecError, due_for, may_undo, review_beside, undo};
use crate::id::{QuestionId, RecordId, RunId};
use crate::ledger::{Due, FinalState, Record, State, Undone};
use crate::payload::{Payload, Stored};
use crate::store::{
    Change, PastStep, Question, Resolution, Run, RunState, Step, StepKind, Store as _, StoreError, WaitsOn,
};

/// The name of the checkpoint which says that a run is being undone.
pub(super) const UNDO: &str = "undo";
/// The name of the checkpoint which says that a person was asked whether an effect may be undone.
const ASKED: &str = "asked";
/// The time for which a run that waits for its children to end keeps its memory: most end at once.
const MOMENT: Duration = Duration::from_secs(1);
/// The interval at which a run looks again for events that nobody tells it of: the answer to a question about a child's
/// effect, and the end of a child's child.
const LOOK_AGAIN: Duration = Duration::from_mins(1);

/// True if an effect of this run or of its children can be undone, or could be before its record was gone; or if a child
/// has not ended. `by_others`: true if another worker undoes the effects. It may know a tool that is not registered here.
async fn is_due(live: &Arc<Live>, by_others: bool) -> Result<bool, ExecError> {
    let core = &live.core;
    live.flushed().await?; // everything that the run has queued must be durable to be found
    let stands = |record: &Record| {
        use State::{Committed, Gone, Started};
        matches!(record.state, Started | Committed { .. } | Gone { was: FinalState::Committed, .. })
    };
    let can_undo = |record: &Record| match core.registry.find(record.operation.as_str()) {
        Some(tool) => tool.spec().compensation.is_some(),
        None => by_others,
    };
    let family = family::of(core, &live.run()).await?;
    Ok(!family.unfinished.is_empty()
        || family.effects.iter().any(|record| stands(record) && can_undo(record)))
}

/// Begins to undo the effects of a run that has failed.
///
/// # Crash
/// Before this is durable the run comes here again, from its records. After that, its code is not run again.
async fn begin(live: &Arc<Live>, failure: &Failure) -> End {
    tracing::info!(tenant = %live.tenant, run = %live.id, code = ?failure.code, "run failed, undoing its effects");
    let change = live.core.change(Some(live.lane)).step(begun(live, failure));
    match live.written(live.core.group.commit_one(change).await) {
        Ok(()) => End::Again,
        Err(error) => End::Failed(error),
    }
}

fn begun(live: &Live, failure: &Failure) -> Step {
    // A run that is retried may fail again: the revision of its row tells the two failures apart.
    let id = live.run().revision.to_string();
    let identity = Identity { turn: live.base, kind: Kind::Step, name: UNDO.into(), id };
    live.step(&identity, StepKind::Undoing, None, Stored::Inline(failure.payload()))
}

/// The checkpoint with which a blocked run that was abandoned begins to be undone. `None` if there is nothing to undo.
/// `is_ours`: true if this process undoes the effects.
pub(super) async fn of_abandoned(
    core: &Arc<Core>,
    run: &Run,
    failure: &Failure,
    is_ours: bool,
) -> Result<Option<Step>, ExecError> {
    let live = Live::unread(core, run.clone());
    live.end();
    let due = is_due(&live, !is_ours).await;
    core.group.end_lane(live.lane);
    Ok(due?.then(|| begun(&live, failure)))
}

impl Activation<'_> {
    /// Ends the run, unless some of its effects are to be undone first.
    pub(super) async fn finish(self, result: Result<Payload, Failure>) -> End {
        let live = self.live;
        // What only a run that has failed needs is boxed: each run would reserve its memory.
        if let Err(failure) = &result {
            match Box::pin(is_due(live, false)).await {
                Ok(true) => return Box::pin(begin(live, failure)).await,
                Ok(false) => {}
                Err(error) => return End::Failed(error),
            }
        }
        self.finish_leaving(result, &HashMap::new()).await
    }

    /// Undoes the effects that are left to be undone, and ends the run.
    ///
    /// # Crash
    /// Each compensation has a record, and each record that is undone says so: a worker that comes here again goes on
    /// with the rest.
    pub(super) async fn undo(self, failure: &Stored) -> End {
        let saga = match Saga::of(self) {
            Ok(saga) => saga,
            Err(error) => return End::Failed(error),
        };
        match Box::pin(saga.undo(failure)).await {
            Ok(end) => end,
            Err(error) => End::Failed(error),
        }
    }
}

struct Saga<'a> {
    activation: Activation<'a>,
    live: &'a Arc<Live>,
    /// The effects that were not undone. They are not tried again in this life.
    stands: HashMap<RecordId, Standing>,
    /// The questions whether an effect may be undone, by the effect's record.
    asked: HashMap<RecordId, QuestionId>,
    /// True if a question about a child's effect is open: its answer wakes the child, which has ended.
    asks_for_child: bool,
    /// True if the run has waited in memory for the end of a child's child.
    waited_for_far: bool,
}

/// The state of one effect while the run is undone.
enum Stands {
    Over(Option<EffectOutcome>),
    /// The effect was undone just now, and others may have come meanwhile.
    Changed,
    /// A person is asked about the effect.
    Asked,
}

impl<'a> Saga<'a> {
    fn of(activation: Activation<'a>) -> Result<Self, ExecError> {
        let live = activation.live;
        let asked = live.with_replay(|replay| replay.undoing(live.base, ASKED));
        let asked: Result<HashMap<_, _>, StoreError> = asked.iter().map(question_about).collect();
        let asked = asked.map_err(|source| ExecError::Store { key: live.id.to_string(), source })?;
        Ok(Self {
            activation,
            live,
            stands: HashMap::new(),
            asked,
            asks_for_child: false,
            waited_for_far: false,
        })
    }

    async fn undo(mut self, failure: &Stored) -> Result<End, ExecError> {
        let core = &self.live.core;
        let failure = core.load(&self.live.tenant, failure).await?;
        let mut failure: Failure = Failure::recorded(&failure);
        self.obeyed().await?;
        let mut told = false;
        loop {
            let heard = self.live.heard();
            let family = self.family().await?;
            if !told && !family.unfinished.is_empty() {
                self.end_children(&family, &failure).await?;
                told = true;
                continue; // the children may have ended at once
            }
            // The effects of a child come after those of its parent, and are undone first.
            if family.unfinished.iter().any(is_under_way) {
                match self.rest(heard, WaitsOn::SIGNAL, &family).await? {
                    Some(end) => return Ok(end),
                    None => continue,
                }
            }
            let (mut ends, mut changed, mut asked) = (Vec::new(), false, false);
            for record in family.effects.iter().rev() {
                match Box::pin(self.one(record, &family.runs)).await? {
                    Stands::Over(became) => ends.extend(became.map(|became| EffectEnd::of(record, became))),
                    Stands::Changed => changed = true,
                    Stands::Asked => asked = true, // the other effects do not wait for the answer
                }
            }
            if changed {
                continue; // an effect that was on its way meanwhile is found
            }
            let on = WaitsOn { answer: asked, signal: !family.unfinished.is_empty() };
            if on != WaitsOn::NOTHING {
                match self.rest(heard, on, &family).await? {
                    Some(end) => return Ok(end),
                    None => continue,
                }
            }
            failure.effects = ends;
            return Ok(self.activation.finish_leaving(Err(failure), &self.stands).await);
        }
    }

    async fn family(&self) -> Result<Family, ExecError> {
        family::of(&self.live.core, &self.live.run()).await
    }

    /// Receives the commands that the run was given before it failed. It has obeyed them: in a shared store a command
    /// that the run has not received would wake it as often as it waits.
    async fn obeyed(&self) -> Result<(), ExecError> {
        while let Some(command) = self.live.take_command() {
            let core = &self.live.core;
            let change = Change { received: Some(Box::new(command)), ..core.change(Some(self.live.lane)) };
            self.live.written(core.group.commit_one(change).await)?;
        }
        Ok(())
    }

    /// Cancels the children that have not ended: no code waits for them any more.
    ///
    /// # Crash
    /// The commands are durable before anything is undone. Given again, they are the same commands.
    async fn end_children(&self, family: &Family, failure: &Failure) -> Result<(), ExecError> {
        // Children of a run that was cancelled were told before, by whom and why, and the first command counts. But a
        // child whose row was on its way to the disk was not there to be told, nor was any child of a run that was
        // abandoned while it was cancelled.
        for child in &family.unfinished {
            self.activation.engine.end_child(self.live, child.id, failure).await?;
        }
        Ok(())
    }

    /// Waits for a child's end or an answer: for a moment in memory, then as a row. Returns `None` to look again.
    async fn rest(&mut self, heard: usize, on: WaitsOn, family: &Family) -> Result<Option<End>, ExecError> {
        let (live, core) = (self.live, &self.live.core);
        if on.signal && live.hears_more(heard, MOMENT).await? {
            return Ok(None);
        }
        // A child tells its own parent that it has ended, and that parent may have succeeded before this run failed.
        let far = family.unfinished.iter().any(|child| child.parent != Some(live.id));
        if far && !std::mem::replace(&mut self.waited_for_far, true) || !live.end_unless_told(heard) {
            return Ok(None);
        }
        // Beside other processes a signal that the run does not receive would wake it as often as it waits. The signal is
        // kept for a retry. A question about another run would wake this one in the same way, by the search for
        // answered runs.
        let deaf = on.signal && heard > 0 && core.has_others();
        let looks_again = self.asks_for_child || far || deaf;
        let until = looks_again.then(|| core.now().after(LOOK_AGAIN));
        let answer = on.answer && !(self.asks_for_child && core.has_others());
        let on = WaitsOn { answer, signal: on.signal && !deaf };
        Ok(Some(self.activation.park(until, on).await))
    }

    async fn one(&mut self, record: &Record, family: &[RunId]) -> Result<Stands, ExecError> {
        let (live, core) = (self.live, &self.live.core);
        let record = match record.state {
            State::Started => settled(live, record.id).await?.unwrap_or_else(|| record.clone()),
            _ => record.clone(),
        };
        if let State::Compensated { compensation, whole, .. } = &record.state {
            let undone = core.load(&live.tenant, compensation).await?;
            let rest = || undone.decode::<Undone>().ok()?.rest().map(ToOwned::to_owned);
            let became = if *whole {
                EffectOutcome::Undone
            } else {
                EffectOutcome::UndoneInPart { rest: rest().unwrap_or_default() }
            };
            return Ok(Stands::Over(Some(became)));
        }
        if let Some(Standing { why, .. }) = self.stands.get(&record.id) {
            return Ok(Stands::Over(Some(EffectOutcome::Stands { why: why.clone() })));
        }
        match due_for(core, &record, family, false).await? {
            Due::Nothing => Ok(Stands::Over(None)),
            Due::Settle(question) => Ok(self.waits_for(&record, question)),
            Due::Leave(why) => Ok(self.stays(&record, Standing::undecided(why))),
            Due::Undo => self.undone(&record, family).await,
            Due::Ask => self.ask(&record, family).await,
        }
    }

    /// Notes that a person is asked about the effect.
    fn waits_for(&mut self, record: &Record, question: QuestionId) -> Stands {
        if record.owner.run != Some(self.live.id) {
            self.asks_for_child = true;
            self.activation.engine.answers.wait(question, self.live.id);
        }
        Stands::Asked
    }

    fn stays(&mut self, record: &Record, standing: Standing) -> Stands {
        let why = standing.why.clone();
        self.stands.insert(record.id, standing);
        Stands::Over(Some(EffectOutcome::Stands { why }))
    }

    async fn undone(&mut self, record: &Record, family: &[RunId]) -> Result<Stands, ExecError> {
        Ok(match undo(&self.live.core, record, family).await? {
            Compensated::Parked { question } => self.waits_for(record, question),
            Compensated::Stands(why) => self.stays(record, Standing::undecided(why)),
            Compensated::Undone(_) | Compensated::Nothing => {
                self.live.progressed();
                Stands::Changed
            }
        })
    }

    /// Asks a person once whether the effect may be undone, or reads the answer.
    ///
    /// # Crash
    /// The question, and the checkpoint that it was asked, are one transaction.
    async fn ask(&mut self, record: &Record, family: &[RunId]) -> Result<Stands, ExecError> {
        let (live, core) = (self.live, &self.live.core);
        let store_failed = |source: StoreError| ExecError::Store { key: record.key.to_string(), source };
        if let Some(asked) = self.asked.get(&record.id) {
            let question = core.group.escalation_find(&live.tenant, *asked).await.map_err(store_failed)?;
            return match question.and_then(|question| question.answer) {
                None => Ok(Stands::Asked),
                Some(answer) if answer.resolution == Resolution::Undo => self.undone(record, family).await,
                Some(answer) => {
                    let why = format!("{} decided to leave it", answer.by);
                    Ok(self.stays(record, Standing { why, is_decided: true }))
                }
            };
        }
        // This run waits for the answer, whichever run made the effect.
        let question = Question { run: Some(live.id), ..may_undo(core, record) };
        let (name, id) = (ASKED.to_owned(), record.id.0.to_string());
        let identity = Identity { turn: live.base, kind: Kind::Step, name, id };
        let asked = Payload::of(&question.id.0)?;
        self.asked.insert(record.id, question.id);
        let step = live.step(&identity, StepKind::Undoing, None, Stored::Inline(asked));
        let mut change = core.change(Some(live.lane)).step(step);
        change.documents.extend(review_beside(core, record, &question)?);
        let change = change.escalation(question);
        live.written(core.group.commit_one(change).await)?;
        Ok(Stands::Asked)
    }
}

/// The effect and the question of a checkpoint which says that a person was asked about the effect.
///
/// A checkpoint that cannot be read is damage. If it were passed over, the person would be asked again, and the second
/// checkpoint would be refused as often as the run is carried on.
fn question_about(step: &PastStep) -> Result<(RecordId, QuestionId), StoreError> {
    let question = step.value.as_ref().and_then(|value| value.inline()?.decode::<i64>().ok());
    match (step.id.parse::<i64>(), question) {
        (Ok(record), Some(question)) => Ok((RecordId(record), QuestionId(question))),
        _ => Err(StoreError::Corrupt {
            row: "step (asked)".into(),
            detail: format!("its id is {:?}", step.id),
        }),
    }
}

/// True if a child gets on without a person's answer.
fn is_under_way(child: &Run) -> bool {
    match child.state {
        RunState::Queued | RunState::Active => true,
        RunState::Waiting { on, .. } => !on.answer,
        _ => false,
    }
}
