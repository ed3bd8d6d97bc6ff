//! Taking runs over: runs that earlier processes left, and runs that wait as rows and may go on.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use super::inner::Inner;
use super::queue::Choice;
use super::row::due;
use super::unregistered::Unregistered;
use super::unwanted::is_news;
use super::workflow::UNBOUND;
use crate::exec::{ExecError, withdrawn};
use crate::id::{QuestionId, RunId};
use crate::store::{Question, Run, RunState, Store as _, StoreError, Verdict};

/// The number of runs that are taken over in one batch.
pub(super) const CLAIM: u32 = 256;

impl Inner {
    /// Claims the runs that earlier processes left active, and those whose question has been answered meanwhile. The number of runs
    /// that this worker got.
    pub(super) async fn claim_orphans(self: &Arc<Self>) -> Result<usize, StoreError> {
        let (mut killed, mut claimed) = (BTreeMap::new(), 0);
        let mut after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_orphans(after, CLAIM).await?;
            let Some(last) = runs.last() else { break };
            after = last.id;
            for run in &runs {
                if let Entry::Vacant(unknown) = killed.entry(run.fence) {
                    let worker = self.core.group.worker_at(run.fence).await?;
                    unknown.insert(u32::from(worker.is_none_or(|worker| !worker.retired)));
                }
            }
            claimed += self.claim(runs, |run| run.deaths += killed.get(&run.fence).unwrap_or(&1)).await?;
        }
        claimed += self.take_up_known().await?;
        self.cancel_blocked_orphans().await?;
        Ok(claimed + self.take_up_answered().await?)
    }

    /// Cancels the blocked runs that have a command which nobody has obeyed: a process died between the row that blocks
    /// the run and its look for such a command, or between the command and its effect.
    async fn cancel_blocked_orphans(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_cancelled(after, CLAIM).await?;
            let Some(last) = runs.last() else { return Ok(()) };
            after = last.id;
            for Run { tenant, id, .. } in &runs {
                // Boxed because it is rare.
                match Box::pin(self.obey_blocked(tenant, *id)).await {
                    Err(ExecError::Store { source, .. }) if source.is_transient() => return Err(source),
                    // One run that cannot be ended does not hold up the others.
                    Err(error) => log_trouble!(error, %tenant, run = %id, "blocked run not cancelled"),
                    Ok(()) => {}
                }
            }
        }
    }

    /// Claims the waiting runs whose question has been answered, and those that were sent a signal.
    pub(super) async fn take_up_answered(self: &Arc<Self>) -> Result<usize, StoreError> {
        let mut claimed = 0;
        let mut after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_answered(after, CLAIM).await?;
            let Some(last) = runs.last() else { break };
            after = last.id;
            claimed += self.claim(runs, |_| {}).await?;
        }
        after = RunId(i64::MIN);
        loop {
            let runs = self.core.group.run_signalled(after, CLAIM).await?;
            let Some(last) = runs.last() else { return Ok(claimed) };
            after = last.id;
            claimed += self.claim(self.with_news(runs).await?, |_| {}).await?;
        }
    }

    /// Leaves out the signalled runs that wait here for other signals than those that they have. Each wake-up would replay
    /// such a run, and it would park again, for ever.
    async fn with_news(&self, mut runs: Vec<Run>) -> Result<Vec<Run>, StoreError> {
        let left = |run: &Run| Some((run.id, self.unwanted.of(run)?));
        // Read before the signals are: a signal that comes from here on is one that the run has not left.
        let left: BTreeMap<_, _> = runs.iter().filter_map(left).collect();
        if left.is_empty() {
            return Ok(runs);
        }
        let asked = runs.iter().filter(|run| left.contains_key(&run.id));
        let asked: Vec<_> = asked.map(|run| (run.tenant.clone(), run.id)).collect();
        let pending = match self.core.group.signal_pending(&asked).await {
            // One damaged signal must not hold up the others. All of these runs are woken, and the one that has it is
            // blocked.
            Err(StoreError::Corrupt { .. }) => return Ok(runs),
            pending => pending?,
        };
        runs.retain(|run| {
            left.get(&run.id).is_none_or(|left| pending.iter().any(|signal| is_news(run, signal, left)))
        });
        Ok(runs)
    }

    /// Lets runs go on that were blocked because their workflow, a tool or a child's workflow was not registered, if
    /// that is registered here. Their questions need no answer, and are withdrawn.
    ///
    /// # Crash
    /// Each withdrawal and its run's new state are one transaction.
    async fn take_up_known(self: &Arc<Self>) -> Result<usize, StoreError> {
        let mut claimed = 0;
        let mut after = QuestionId(i64::MIN);
        loop {
            let asked = self.core.group.escalation_unknown_workflow(after, CLAIM).await?;
            let Some(last) = asked.last() else { return Ok(claimed) };
            after = last.id;
            let mut known = Vec::new();
            for question in asked {
                known.extend(self.known(&question).await?.map(|run| (question, run)));
            }
            let withdrawn = |(question, run): &(Question, Run)| {
                let question = withdrawn(&self.core, question.clone());
                self.core.change(None).run(run.clone()).escalation(question)
            };
            let changes: Vec<_> = known.iter().map(withdrawn).collect();
            let verdicts = self.core.group.commit(&changes).await;
            if verdicts.is_err() {
                for (_, run) in &known {
                    self.perhaps_ours(&run.tenant, run.id);
                }
            }
            for ((question, run), verdict) in known.into_iter().zip(verdicts?) {
                match verdict {
                    Verdict::Admitted => {
                        claimed += 1;
                        self.go_on(Box::new(run)).await;
                    }
                    Verdict::Refused(refusal) => {
                        tracing::warn!(tenant = %run.tenant, run = %run.id, workflow = %run.workflow, question = %question.id, %refusal, "question unchanged: run moved on");
                        self.perhaps_ours(&run.tenant, run.id);
                    }
                }
            }
        }
    }

    /// The next row of the run that such a question is about. `None` if the run's workflow, tool or child is not
    /// registered here, either.
    async fn known(&self, asked: &Question) -> Result<Option<Run>, StoreError> {
        let Some(run) = asked.run else { return Ok(None) };
        let run = match self.core.group.run_find(&asked.tenant, run).await {
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(tenant = %asked.tenant, question = %asked.id, %error, "question unchanged: run damaged");
                return Ok(None); // one damaged row does not hold up the others
            }
            found => found?,
        };
        Ok(run.filter(|run| self.lacks_nothing(run)).map(|run| self.going_on(&run)))
    }

    /// True if everything that the blocked run asked for is registered here.
    fn lacks_nothing(&self, run: &Run) -> bool {
        let RunState::Blocked { failure } = &run.state else { return false };
        self.workflows.find(run.workflow.as_str(), run.version).is_some()
            && Unregistered::of(failure)
                .is_none_or(|lacked| lacked.is_here(&self.core.registry, &self.workflows, &self.host_values))
    }

    /// Claims a run that has just parked, if an answer or a signal has come for it. Closes a race: an answer or a
    /// signal that another process wrote while the run was parking found it neither waiting in the store nor active
    /// there.
    pub(super) async fn take_up_if_answered(self: &Arc<Self>, id: RunId) {
        match self.try_to_take_up(id).await {
            Err(error) if error.is_transient() => self.take_up_later(id),
            Err(error) => not_read(&error, id),
            Ok(()) => {}
        }
    }

    /// The same in the background, as soon as the store is there.
    pub(super) fn take_up_later(self: &Arc<Self>, id: RunId) {
        let attempt = move |inner: Arc<Self>| async move { inner.try_to_take_up(id).await };
        self.until_stored_later(attempt, move |error| not_read(&error, id));
    }

    async fn try_to_take_up(self: &Arc<Self>, id: RunId) -> Result<(), StoreError> {
        let before = RunId(id.0 - 1);
        let mut runs = self.core.group.run_answered(before, 1).await?;
        let mut signalled = self.core.group.run_signalled(before, 1).await?;
        signalled.retain(|run| run.id == id);
        runs.retain(|run| run.id == id);
        runs.extend(self.with_news(signalled).await?);
        runs.truncate(1);
        self.claim(runs, |_| {}).await.map(drop)
    }

    /// Makes runs this worker's, and returns the number of runs that it got. The count of deaths is durable before the
    /// code of a run runs again: otherwise a run that kills its process would never be found out.
    pub(super) async fn claim(
        self: &Arc<Self>,
        mut runs: Vec<Run>,
        note: impl Fn(&mut Run),
    ) -> Result<usize, StoreError> {
        let mut claimed = 0;
        runs.retain(|run| self.may_claim(run));
        for run in &mut runs {
            note(run);
            self.make_active(run);
        }
        let changes: Vec<_> = runs.iter().map(|run| self.core.change(None).run(run.clone())).collect();
        let verdicts = self.core.group.commit(&changes).await;
        if verdicts.is_err() {
            for run in &runs {
                self.perhaps_ours(&run.tenant, run.id);
            }
        }
        for (run, verdict) in runs.into_iter().zip(verdicts?) {
            match verdict {
                Verdict::Admitted => {
                    claimed += 1;
                    self.go_on(Box::new(run)).await;
                }
                Verdict::Refused(refusal) => {
                    tracing::debug!(tenant = %run.tenant, run = %run.id, workflow = %run.workflow, %refusal, "run not taken over: it moved on");
                    self.perhaps_ours(&run.tenant, run.id);
                }
            }
        }
        Ok(claimed)
    }

    /// True if this worker should claim the run. In a shared store it leaves a run whose workflow it does not know to
    /// the workers that know it. A client claims none.
    pub(super) fn may_claim(&self, run: &Run) -> bool {
        let knows = || self.workflows.find(run.workflow.as_str(), run.version).is_some();
        !self.core.is_client() && (!self.core.is_shared() || knows())
    }

    /// Turns a run's row into its next state: active, and this worker's. A process that should not claim the run makes
    /// it due instead: active here, a run of an unknown workflow would be blocked, and no worker that knows it would look.
    pub(super) fn make_active(&self, run: &mut Run) {
        run.fence = self.core.fence;
        run.revision += 1;
        run.updated_at = self.core.now();
        run.state = if self.may_claim(run) { RunState::Active } else { due(run.updated_at) };
        if run.version == UNBOUND {
            self.bind(run);
        }
    }

    /// Gives a run that a client has started the version of its workflow, its deadline, and its queue, in which the run
    /// waits for its turn.
    fn bind(&self, run: &mut Run) {
        let Some(workflow) = self.workflows.newest(run.workflow.as_str()) else { return };
        run.version = workflow.version;
        let deadline = || workflow.deadline.and_then(|deadline| deadline.of_run_begun(run.created_at));
        run.deadline = run.deadline.or_else(deadline);
        if run.queue.is_none() {
            run.queue = self.queues.place(workflow.queue.as_ref(), Choice::default()).unwrap_or_default();
            if run.queue.is_some() {
                run.state = RunState::Queued;
            }
        }
    }

    /// Carries out a run that was made active, or sees to its turn.
    pub(super) async fn go_on(self: &Arc<Self>, run: Box<Run>) {
        match &run.queue {
            Some(queue) if run.state == RunState::Queued && !self.core.is_client() => {
                self.note_deadline(&run);
                self.queued(queue.name.as_str()).await;
            }
            _ if matches!(run.state, RunState::Waiting { .. }) => self.hand_over(),
            _ => self.spawn(run, None),
        }
    }

    /// The row with which a blocked run goes on. It is written in one transaction with the answer that lets the run go on.
    pub(super) fn going_on(&self, run: &Run) -> Run {
        let mut run = run.clone();
        run.give_place_free(); // a run with a queue queues up again
        self.make_active(&mut run);
        run.deaths = 0;
        run
    }
}

fn not_read(error: &StoreError, run: RunId) {
    log_trouble!(error, %run, "answer during the end of an activation not read");
}
