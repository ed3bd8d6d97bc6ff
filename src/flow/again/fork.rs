//! Fork: a new run goes on from a step of another run, with the part of that run's history that is still valid.

use super::mark::{Again, Mark};
use super::past::{Past, children};
use super::{Plan, RunError, Verb};
use crate::flow::child::lineage::{ENDED, begun, ended};
use crate::flow::deadline::Deadline;
use crate::flow::row::{TICK, started};
use crate::id::RunId;
use crate::store::{
    Change, PastStep, Refusal, Run, RunLabel, Signal, Step, StepKind, Store as _, Turns, Verdict,
};

impl Plan {
    /// Begins the new run, and returns its id.
    ///
    /// # Crash
    /// The new run's row and everything that it is given are one transaction. The ends of children are written before
    /// that transaction, and belong to no run until the row exists.
    pub(super) async fn fork(self) -> Result<RunId, RunError> {
        let id = self.id()?;
        // Before anything is undone: another command under this key must not undo what it names.
        if let Some(first) = self.forked_before(&id).await? {
            return Ok(first);
        }
        // Read before the row: an erasure in between takes the labels, and leaves a row that has expired.
        let labels = self.core().group.run_labels(&self.tenant, self.run).await?;
        let (row, again, past) = loop {
            let (row, again, past) = self.look().await?;
            if !self.undoes_one(&row, &past).await? {
                break (row, again, past);
            }
        };
        let version = match self.inner.workflows.find(row.workflow.as_str(), row.version) {
            Some(workflow) => workflow.version,
            None if self.core().is_client() => row.version, // the worker that takes the run up knows its heir
            None => return Err(RunError::Unregistered),
        };
        let point = self.point(&past)?;
        self.may_explore(&past, point)?;
        let (standing, void) = past.split(point);
        let turn = past.turn(&standing);
        let core = self.core();
        let now = core.now();
        let mut run = Run {
            id: RunId(core.ids.next()),
            version,
            key: Some(fork_key(row.id, &id)),
            parent: None,
            state: started(core, now),
            fence: core.fence,
            revision: 1,
            deaths: 0,
            unsettled: false,
            turn,
            deadline: Deadline::again(&row).and_then(|deadline| deadline.of_run_begun(now)),
            created_at: now,
            updated_at: now,
            ..row.clone()
        };
        run.give_place_free(); // the fork queues up if its origin was in a queue
        let origin = again.origin().unwrap_or(row.id);
        let until = standing.iter().map(|step| step.turn).max().unwrap_or(turn);
        let mut former = again.all_former();
        former.extend(children(&void));
        let former = former.into_iter().collect();
        let unstable = past.unstable();
        let tick = row.key.clone().filter(|key| key.starts_with(TICK));
        let mark = self.mark(Verb::Fork, &again, &past, point)?;
        let mark = Mark { origin: Some(origin), tick, until, former, unstable, ..mark };
        let (step, large) = self.checkpoint(run.id, run.base, &id, &mark)?;
        let lane = core.new_lane();
        // The ends go into the lane of the row, before the row: until the row exists they belong to no run.
        for end in self.ends_to_come(&row, &past, &standing).await? {
            let change = self.change(None).in_lane(Some(lane));
            let signal = Some(Box::new(Signal { run: run.id, ..end }));
            drop(core.group.submit_with_room(Change { signal, ..change }).await);
        }
        let mut change = self.change(large).step(step).run(run.clone()).in_lane(Some(lane));
        change.steps.extend(standing.into_iter().filter_map(|step| self.given(&run, step)));
        change.steps.extend(self.given_before(&run, &again).await?);
        let of_fork = |label: RunLabel| RunLabel { run: run.id, started_at: run.created_at, ..label };
        change.labels.extend(labels.into_iter().map(of_fork)); // it says of a customer what its origin says
        let verdict = core.group.commit_one(change).await;
        core.group.end_lane(lane);
        if !matches!(verdict, Ok(Verdict::Admitted)) {
            self.inner.perhaps_ours(&self.tenant, run.id);
        }
        match verdict? {
            Verdict::Admitted => {
                tracing::info!(tenant = %self.tenant, run = %run.id, workflow = %run.workflow, from = %row.id, by = self.by, "run forked");
                let id = run.id;
                self.inner.spawn(Box::new(run), None);
                Ok(id)
            }
            Verdict::Refused(Refusal::Exists) => {
                let first = self.forked_before(&id).await?;
                first.ok_or(RunError::Refused { run: row.id, refusal: Refusal::Exists })
            }
            Verdict::Refused(refusal) => Err(RunError::Refused { run: row.id, refusal }),
        }
    }

    /// A checkpoint of the origin as the fork is given it. `None` if the fork does not get it.
    fn given(&self, run: &Run, step: &PastStep) -> Option<Step> {
        // The origin's marks are carried on separately.
        (step.kind != StepKind::Again).then(|| Step {
            tenant: self.tenant.clone(),
            run: run.id,
            turn: step.turn,
            kind: step.kind,
            name: step.name.clone(),
            id: step.id.clone(),
            input_hash: step.input_hash,
            value: step.value.clone(),
            at: step.at,
        })
    }

    /// The origin's marks, whose decisions about keys hold for the fork, too.
    async fn given_before(&self, run: &Run, again: &Again) -> Result<Vec<Step>, RunError> {
        let mut steps = Vec::new();
        for (n, mark) in again.marks().iter().enumerate() {
            let (step, large) = self.checkpoint(run.id, run.base, &format!("~{n}"), &mark.carried_on())?;
            if let Some(large) = large {
                // The payload is written on its own: it is content, which may exist before any row names it.
                drop(self.core().group.submit_with_room(self.change(Some(large))).await);
            }
            steps.push(step);
        }
        Ok(steps)
    }

    /// The ends of children that the origin was told of and has not received. A child that is under way refuses the
    /// fork: it would tell its end to the origin alone.
    async fn ends_to_come(
        &self,
        row: &Run,
        past: &Past,
        standing: &[&PastStep],
    ) -> Result<Vec<Signal>, RunError> {
        let mut ends = Vec::new();
        let received = |child| standing.iter().any(|step| ended(step) == Some(child));
        for child in standing.iter().filter_map(|step| begun(step)).filter(|child| !received(*child)) {
            if past.children.get(&child).is_none_or(|run| run.parent != Some(row.id)) {
                continue; // the child is detached, or its row is gone
            }
            let end = self.core().group.signal_find(&self.tenant, row.id, ENDED, &child.to_string()).await?;
            ends.push(end.ok_or(RunError::ChildRunning { run: row.id, child })?);
        }
        Ok(ends)
    }

    /// The run that the same command began before, if it did.
    ///
    /// # Errors
    /// [`RunError::CommandConflict`] if another fork of the run was begun under the command's key.
    async fn forked_before(&self, id: &str) -> Result<Option<RunId>, RunError> {
        if self.key.is_none() {
            return Ok(None); // its id is unique
        }
        let (group, key) = (&self.core().group, fork_key(self.run, id));
        let Some(origin) = group.run_find(&self.tenant, self.run).await? else { return Ok(None) };
        let first = group.run_keyed(&self.tenant, origin.workflow.as_str(), &key).await?;
        let Some(first) = first else { return Ok(None) };
        let turns = Turns::between(first.base, u32::MAX);
        let history = group.run_history(&self.tenant, first.id, turns).await?;
        // The mark is gone if the fork has expired or goes on as new: then its key alone tells the command.
        let _is_marked = self.was_given(Verb::Fork, id, &history.steps).await?;
        Ok(Some(first.id))
    }
}

/// The key of the run that a fork with this id begins.
fn fork_key(origin: RunId, id: &str) -> String {
    format!("~fork/{origin}/{id}")
}
