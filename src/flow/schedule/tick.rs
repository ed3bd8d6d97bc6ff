//! A tick of a schedule: its run and the schedule's next tick, in one change.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::rule::{Due, Overlap, Rule};
use crate::clock::Timestamp;
use crate::exec::{More, Pages};
use crate::flow::claim::CLAIM;
use crate::flow::ctx::Ctx;
use crate::flow::error::RunError;
use crate::flow::inner::Inner;
use crate::flow::queue::Choice;
use crate::flow::row::{NewRow, TICK};
use crate::flow::workflow::Registered;
use crate::id::Name;
use crate::ledger::RequestHash;
use crate::store::{InQueue, Queue, Refusal, Run, RunState, Schedule, Store as _, StoreError, Verdict};

/// The name of the queue of runs that begin one after the other. Their queue key is the name of the schedule.
const OWN: &str = "~schedule";

/// The tick that began a run of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The name of the schedule.
    pub schedule: String,
    /// The instant at which the tick was due, whenever the run begins (UTC).
    pub at: Timestamp,
}

impl Ctx {
    /// The tick that began this run. `None` if something else did. The tick is the same in every life of the run, and in
    /// its forks.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// async fn ingest(ctx: Ctx, source: String) -> Result<(), Failure> {
    ///     let day = ctx.tick().map(|tick| tick.at); // and not the present time, which differs when it is caught up
    /// #   let _ = (day, source);
    ///     Ok(())
    /// }
    /// ```
    pub fn tick(&self) -> Option<Tick> {
        let of_origin = self.live.with_replay(|replay| replay.again.tick().map(ToOwned::to_owned));
        let key = of_origin.or_else(|| self.live.run().key)?;
        let (at, schedule) = key.strip_prefix(TICK)?.split_once('/')?;
        Some(Tick { schedule: schedule.to_owned(), at: Timestamp(at.parse().ok()?) })
    }
}

/// The engine's own queue, for runs that begin one after the other.
pub(in crate::flow) fn own_queue() -> Queue {
    Queue::new(OWN).per_key(1)
}

/// A tick that has come: the instant at which it was due, and the present instant.
#[derive(Clone, Copy)]
struct Come {
    at: Timestamp,
    now: Timestamp,
}

/// The decision about a tick.
enum Fate {
    Begins(Box<Run>),
    Skipped(&'static str),
}

impl Inner {
    /// Begins the runs of schedules that are due at `now`.
    pub(in crate::flow) async fn tick_due(self: &Arc<Self>, now: Timestamp) -> More {
        let (mut pages, mut last) = (Pages::default(), None::<Schedule>);
        loop {
            let due = match self.core.group.schedule_due(now, last.as_ref(), CLAIM).await {
                Ok(due) => due,
                Err(error) => {
                    log_trouble!(error, "due schedules not read, will retry");
                    return More::No;
                }
            };
            let mut taken_up = 0;
            for schedule in &due {
                match self.tick(schedule, now).await {
                    Ok(()) => taken_up += 1,
                    // The schedule is another service's: its workers begin the run.
                    Err(RunError::Unregistered) if self.core.is_shared() => {
                        tracing::debug!(tenant = %schedule.tenant, schedule = %schedule.name, workflow = %schedule.workflow, "schedule left to other workers");
                    }
                    // The schedule stays due, and is tried again later, or by another worker.
                    Err(error) => {
                        tracing::error!(tenant = %schedule.tenant, schedule = %schedule.name, %error, "schedule started no run, will retry");
                    }
                }
            }
            if let ControlFlow::Break(more) = pages.next(due.len(), taken_up, CLAIM) {
                return more;
            }
            last = due.last().cloned();
        }
    }

    /// Begins the run of a due schedule, or skips the tick.
    ///
    /// # Crash
    /// The run and the schedule's next tick are one transaction: before it the tick is due, after it the run exists.
    async fn tick(self: &Arc<Self>, schedule: &Schedule, now: Timestamp) -> Result<(), RunError> {
        let refused = |reason: String| RunError::Schedule { name: schedule.name.as_str().to_owned(), reason };
        let Some(first) = schedule.next_at else { return Ok(()) };
        let rule: Rule = serde_json::from_str(&schedule.rule).map_err(|e| refused(e.to_string()))?;
        let due = rule.when.due(first, now).map_err(refused)?;
        let fate = self.fate(schedule, &rule, Come { at: due.tick, now }).await?;
        let mut next = moved_on(schedule, due, now);
        let change = match &fate {
            Fate::Begins(run) => {
                (next.last_at, next.last_run) = (Some(due.tick), Some(run.id));
                self.core.change(None).run(run.clone())
            }
            Fate::Skipped(why) => {
                tracing::info!(tenant = %schedule.tenant, schedule = %schedule.name, why, "schedule tick skipped");
                next.missed = next.missed.saturating_add(1);
                self.core.change(None)
            }
        };
        if due.missed > 0 {
            let missed = due.missed;
            tracing::warn!(tenant = %schedule.tenant, schedule = %schedule.name, missed, "schedule ticks missed");
        }
        let change = crate::store::Change { schedule: Some(Box::new(next)), ..change };
        match (self.core.group.commit_one(change).await?, fate) {
            (Verdict::Admitted, Fate::Begins(run)) => {
                self.go_on(run).await;
                Ok(())
            }
            // Another worker was first.
            (Verdict::Admitted | Verdict::Refused(Refusal::Stale), _) => Ok(()),
            // The schedule was deleted and set again at once: the tick has its run already.
            (Verdict::Refused(Refusal::Exists), _) => {
                let next = moved_on(schedule, due, now);
                self.write_schedule(&next, None).await.map(drop)
            }
            (Verdict::Refused(refusal), _) => Err(refused(refusal.to_string())),
        }
    }

    async fn fate(&self, schedule: &Schedule, rule: &Rule, tick: Come) -> Result<Fate, RunError> {
        match (rule.overlap, self.last_state(schedule).await?) {
            (Overlap::After, Some(RunState::Queued)) => return Ok(Fate::Skipped("one waits already")),
            (Overlap::Skip, Some(_)) => return Ok(Fate::Skipped("the run before is under way")),
            _ => {}
        }
        let workflow = self.workflows.find(schedule.workflow.as_str(), schedule.version);
        let workflow = workflow.or_else(|| self.workflows.newest(schedule.workflow.as_str()));
        let Some(workflow) = workflow else { return Err(RunError::Unregistered) };
        let queue = self.queue_of(schedule, rule, workflow)?;
        let input = self.core.load(&schedule.tenant, &schedule.input).await?;
        let row = NewRow {
            tenant: &schedule.tenant,
            workflow,
            number: None,
            key: Some(format!("{TICK}{}/{}", tick.at.0, schedule.name)),
            parent: None,
            queue,
            deadline: workflow.deadline,
            input: schedule.input.clone(),
            input_hash: RequestHash::of(workflow.name.as_str(), &input),
            traceparent: None,
        };
        Ok(Fate::Begins(Box::new(row.at(&self.core, tick.now))))
    }

    /// The state of the run of the tick before, if that run has not ended.
    async fn last_state(&self, schedule: &Schedule) -> Result<Option<RunState>, StoreError> {
        let Some(last) = schedule.last_run else { return Ok(None) };
        let run = self.core.group.run_find(&schedule.tenant, last).await?;
        Ok(run.map(|run| run.state).filter(|state| !state.is_final()))
    }

    fn queue_of(
        &self,
        schedule: &Schedule,
        rule: &Rule,
        workflow: &Registered,
    ) -> Result<Option<Box<InQueue>>, RunError> {
        if rule.overlap == Overlap::After {
            let key = Some(schedule.name.as_str().to_owned());
            return Ok(Some(Box::new(InQueue {
                name: Name::new(OWN)?,
                key,
                priority: 0,
                admitted_at: None,
            })));
        }
        let (queue, key) = (rule.queue.clone(), rule.queue_key.clone());
        self.queues.place(workflow.queue.as_ref(), Choice { queue, key, priority: rule.priority })
    }
}

fn moved_on(schedule: &Schedule, due: Due, now: Timestamp) -> Schedule {
    Schedule {
        next_at: due.next,
        missed: schedule.missed.saturating_add(due.missed),
        revision: schedule.revision + 1,
        updated_at: now,
        ..schedule.clone()
    }
}
