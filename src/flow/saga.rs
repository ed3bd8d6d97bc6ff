//! Undoing what a run did that did not end well: in reverse order, each effect by its own tool's policy (SAGA-1 to SAGA-6).
//!
//! The run's failure is recorded first. From then on its code is not run again: whoever carries the run on undoes what is
//! left to be undone, and ends it with what it failed with, and with what became of each effect.

use std::collections::HashMap;
use std::sync::Arc;

use super::engine::Inner;
use super::failure::{Became, EffectEnd, Failure};
use super::live::Live;
use super::replay::{Identity, Kind, Replay};
use super::resume::{all_effects, settled};
use super::run::{End, finish_leaving, park, written};
use crate::exec::{Compensated, ExecError, due_for, may_undo, undo};
use crate::id::{EscalationId, RecordId};
use crate::ledger::{Due, Record, State, Undone};
use crate::payload::{Payload, Stored};
use crate::store::{Resolution, Run, Step, StepKind, Store as _, StoreError, WaitsOn};

/// The checkpoint that a run is being undone.
pub(super) const UNDO: &str = "undo";
/// The checkpoint that somebody was asked whether an effect may be undone.
const ASKED: &str = "asked";

/// Something that this run did can be undone.
pub(super) async fn is_due(live: &Arc<Live>) -> Result<bool, ExecError> {
    let registry = &live.engine.core.registry;
    if !registry.can_undo() {
        return Ok(false);
    }
    live.flushed().await?; // everything that the run has queued must be there to be found
    let stands = |record: &Record| matches!(record.state, State::Started | State::Committed { .. });
    let effects = effects(live).await?;
    Ok(effects.iter().any(|record| stands(record) && registry.policy_of(record.operation.as_str()).is_some()))
}

/// The run has failed, and what it did is undone from now on.
///
/// # Crash
/// Before this is durable the run comes here again, from its records; after, its code is not run again.
pub(super) async fn begin(live: &Arc<Live>, failure: &Failure) -> End {
    tracing::info!(tenant = %live.tenant, run = %live.id, code = ?failure.code, "undoing");
    let change = live.engine.core.change(Some(live.lane)).step(begun(live, failure));
    match written(live, live.engine.core.group.commit_one(change).await) {
        Ok(()) => End::Again,
        Err(error) => End::Failed(error),
    }
}

fn begun(live: &Live, failure: &Failure) -> Step {
    // A run that is retried may fail again: the revision of its row tells the two apart.
    let id = live.run().revision.to_string();
    let identity = Identity { turn: live.base, kind: Kind::Step, name: UNDO.into(), id };
    live.step(&identity, StepKind::Undoing, None, Stored::Inline(failure.payload()))
}

/// A halted run that is not to go on: with what it goes on to undo, if there is anything.
pub(super) async fn of_abandoned(
    engine: &Arc<Inner>,
    run: &Run,
    failure: &Failure,
) -> Result<Option<Step>, ExecError> {
    let live = Live::new(engine.clone(), run.clone(), engine.core.new_lane(), Replay::default());
    live.end();
    let due = is_due(&live).await;
    engine.core.group.end_lane(live.lane);
    Ok(due?.then(|| begun(&live, failure)))
}

/// Undoes what is left to be undone, and ends the run.
///
/// # Crash
/// Each compensation has a record, and each record that is undone says so: whoever comes here again goes on with the rest.
pub(super) async fn carry_on(live: &Arc<Live>, failure: &Stored) -> End {
    match Box::pin(Saga::of(live).undo(failure)).await {
        Ok(end) => end,
        Err(error) => End::Failed(error),
    }
}

struct Saga<'a> {
    live: &'a Arc<Live>,
    /// Why effects stand that were to be undone. They are not tried again in this life.
    stands: HashMap<RecordId, String>,
    /// Where somebody was asked whether an effect may be undone.
    asked: HashMap<RecordId, EscalationId>,
}

/// How one effect stands.
enum Stands {
    Over(Option<Became>),
    /// It has become undone just now: there may be others by now.
    Changed,
    /// Somebody is asked.
    Asked,
}

impl<'a> Saga<'a> {
    fn of(live: &'a Arc<Live>) -> Self {
        let asked = live.with_replay(|replay| replay.undoing(live.base, ASKED));
        let asked = asked.iter().filter_map(|step| {
            let question = step.value.as_ref()?.inline()?.decode().ok()?;
            Some((RecordId(step.id.parse().ok()?), EscalationId(question)))
        });
        Self { live, stands: HashMap::new(), asked: asked.collect() }
    }

    async fn undo(mut self, failure: &Stored) -> Result<End, ExecError> {
        let core = &self.live.engine.core;
        let failure = core.load(&self.live.tenant, failure).await?;
        let mut failure: Failure = failure.decode().unwrap_or_else(Failure::from);
        loop {
            let (mut ends, mut changed, mut asked) = (Vec::new(), false, false);
            for record in effects(self.live).await? {
                match Box::pin(self.one(&record)).await? {
                    Stands::Over(became) => ends.extend(became.map(|became| EffectEnd::of(&record, became))),
                    Stands::Changed => changed = true,
                    Stands::Asked => asked = true, // the others do not wait for it
                }
            }
            if changed {
                continue; // what was on its way meanwhile is found
            }
            if asked {
                return Ok(park(self.live, None, WaitsOn { answer: true, ..WaitsOn::default() }).await);
            }
            failure.effects = ends;
            return Ok(finish_leaving(self.live, Err(failure), &self.stands).await);
        }
    }

    async fn one(&mut self, record: &Record) -> Result<Stands, ExecError> {
        let (live, core) = (self.live, &self.live.engine.core);
        let record = match record.state {
            State::Started => settled(live, record.id).await?.unwrap_or_else(|| record.clone()),
            _ => record.clone(),
        };
        if let State::Compensated { compensation, whole, .. } = &record.state {
            let undone = core.load(&live.tenant, compensation).await?;
            let rest = || undone.decode::<Undone>().ok()?.rest().map(ToOwned::to_owned);
            let became = if *whole {
                Became::Undone
            } else {
                Became::UndoneInPart { rest: rest().unwrap_or_default() }
            };
            return Ok(Stands::Over(Some(became)));
        }
        if let Some(why) = self.stands.get(&record.id) {
            return Ok(Stands::Over(Some(Became::Stands { why: why.clone() })));
        }
        match due_for(core, &record, Some(live.id), false).await? {
            Due::Nothing => Ok(Stands::Over(None)),
            Due::Settle(_) => Ok(Stands::Asked),
            Due::Leave(why) => Ok(self.stays(&record, why)),
            Due::Undo => self.undone(&record).await,
            Due::Ask => self.ask(&record).await,
        }
    }

    fn stays(&mut self, record: &Record, why: String) -> Stands {
        self.stands.insert(record.id, why.clone());
        Stands::Over(Some(Became::Stands { why }))
    }

    async fn undone(&mut self, record: &Record) -> Result<Stands, ExecError> {
        Ok(match undo(&self.live.engine.core, record).await? {
            Compensated::Parked { .. } => Stands::Asked,
            Compensated::Stands(why) => self.stays(record, why),
            Compensated::Undone(_) | Compensated::Nothing => {
                self.live.progressed();
                Stands::Changed
            }
        })
    }

    /// Asks whether it may be undone, once, or reads the answer.
    ///
    /// # Crash
    /// The question, and that it was asked, are one transaction.
    async fn ask(&mut self, record: &Record) -> Result<Stands, ExecError> {
        let (live, core) = (self.live, &self.live.engine.core);
        let store_failed = |source: StoreError| ExecError::Store { key: record.key.to_string(), source };
        if let Some(asked) = self.asked.get(&record.id) {
            let question = core.group.escalation_find(&live.tenant, *asked).await.map_err(store_failed)?;
            return match question.and_then(|question| question.answer) {
                None => Ok(Stands::Asked),
                Some(answer) if answer.resolution == Resolution::NotCommitted => self.undone(record).await,
                Some(answer) => Ok(self.stays(record, format!("{} decided to leave it", answer.by))),
            };
        }
        let question = may_undo(core, record);
        let (name, id) = (ASKED.to_owned(), record.id.0.to_string());
        let identity = Identity { turn: live.base, kind: Kind::Step, name, id };
        let asked = Payload::of(&question.id.0)?;
        self.asked.insert(record.id, question.id);
        let step = live.step(&identity, StepKind::Undoing, None, Stored::Inline(asked));
        let change = core.change(Some(live.lane)).step(step).escalation(question);
        written(live, core.group.commit_one(change).await)?;
        Ok(Stands::Asked)
    }
}

/// What the run did in the world, the last first; not what undoes it.
async fn effects(live: &Arc<Live>) -> Result<Vec<Record>, ExecError> {
    let mut effects = Vec::new();
    for id in all_effects(live).await? {
        let record = live.engine.core.group.record_at(&live.tenant, id).await;
        effects.extend(record.map_err(|source| ExecError::Store { key: live.id.to_string(), source })?);
    }
    effects.retain(|record| record.class.needs_owner());
    // The ids of a store's only worker rise from life to life, although its clock may be set back; those of several do not.
    let by_clock = live.engine.core.is_shared();
    effects.sort_by_key(|record| std::cmp::Reverse((by_clock.then_some(record.created_at), record.id)));
    Ok(effects)
}
