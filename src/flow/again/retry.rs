//! Retry: a run that failed or was blocked goes on from a step.

use super::mark::Mark;
use super::past::{children, place};
use super::{Plan, RunError, Sent, Verb};
use crate::exec::withdrawn;
use crate::flow::command::is_command;
use crate::store::{
    Change, PastStep, Question, QuestionKind, Refusal, Run, RunState, StepKind, Store as _, Verdict,
};

impl Plan {
    /// Lets the run go on from the step of the command.
    ///
    /// # Crash
    /// The command, the run's new state and the withdrawal of the questions about its end are one transaction.
    pub(super) async fn retry(self) -> Result<Sent, RunError> {
        let id = self.id()?;
        loop {
            let (row, again, past) = self.look().await?;
            if self.was_given(Verb::Retry, &id, &past.steps).await? {
                return Ok(Sent::Before);
            }
            self.may_be_retried(&row)?;
            if self.undoes_one(&row, &past).await? {
                continue; // the record of that effect has changed
            }
            let point = self.point(&past)?;
            let (standing, void) = past.split(point);
            if past.turn(&standing) != row.turn {
                return Err(self.not_retryable("would have to go back to a turn that is over"));
            }
            let former = children(&void);
            let void = void.into_iter().map(place).collect();
            let mark = Mark { void, former, ..self.mark(Verb::Retry, &again, &past, point)? };
            let (step, large) = self.checkpoint(row.id, row.base, &id, &mark)?;
            let run = self.inner.going_on(&row);
            let mut change = self.change(large).step(step).run(run.clone());
            change.escalations = self.void_questions().await?;
            self.obey_no_more().await?;
            let verdict = self.core().group.commit_one(change).await;
            if !matches!(verdict, Ok(Verdict::Admitted)) {
                self.inner.perhaps_ours(&self.tenant, row.id);
            }
            match verdict? {
                Verdict::Admitted => {
                    tracing::info!(tenant = %self.tenant, run = %row.id, workflow = %row.workflow, by = self.by, "run retried");
                    self.inner.go_on(Box::new(run)).await;
                    return Ok(Sent::New);
                }
                // Another command was first, perhaps the very same one.
                Verdict::Refused(Refusal::Stale | Refusal::Exists) => {}
                Verdict::Refused(refusal) => return Err(RunError::Refused { run: row.id, refusal }),
            }
        }
    }

    /// Marks the commands of the run as received: a command that ended the run would end it again.
    ///
    /// # Crash
    /// The commands are received before the run goes on. Until then the run is over, and they have done their work.
    async fn obey_no_more(&self) -> Result<(), RunError> {
        let group = &self.inner.core.group;
        for signal in group.signal_pending(&[(self.tenant.clone(), self.run)]).await? {
            if is_command(&signal) {
                let change = Change { received: Some(Box::new(signal)), ..self.change(None) };
                let _received_before = group.commit_one(change).await?;
            }
        }
        Ok(())
    }

    /// True if this command was given before.
    ///
    /// # Errors
    /// [`RunError::CommandConflict`] if another command was given under its key: to answer that it was given before
    /// would lose it.
    pub(super) async fn was_given(&self, verb: Verb, id: &str, steps: &[PastStep]) -> Result<bool, RunError> {
        let given = steps.iter().find(|step| step.kind == StepKind::Again && step.id == id);
        let Some(stored) = given.and_then(|step| step.value.as_ref()) else { return Ok(false) };
        let mark: Mark = self.core().load(&self.tenant, stored).await?.decode()?;
        let is_same_order = mark.order.is_none_or(|first| first == self.order(verb));
        if is_same_order && (&mark.by, &mark.reason) == (&self.by, &self.reason) {
            return Ok(true);
        }
        Err(RunError::CommandConflict { run: self.run, key: id.to_owned() })
    }

    fn may_be_retried(&self, row: &Run) -> Result<(), RunError> {
        let is_known = self.inner.workflows.find(row.workflow.as_str(), row.version).is_some();
        if !is_known && !self.core().is_client() {
            return Err(RunError::Unregistered);
        }
        match row.state {
            RunState::Failed { .. } if row.parent.is_some() => {
                Err(self.not_retryable("is a child, and its parent was told that it failed"))
            }
            RunState::Failed { .. } | RunState::Blocked { .. } => Ok(()),
            RunState::Succeeded { .. } => Err(self.not_retryable("has succeeded")),
            _ => Err(self.not_retryable("is under way")),
        }
    }

    fn not_retryable(&self, why: &'static str) -> RunError {
        RunError::NotRetryable { run: self.run, why }
    }

    /// The questions that were asked because the run had ended or was blocked, as withdrawn.
    async fn void_questions(&self) -> Result<Vec<Question>, RunError> {
        let mut asked = self.core().group.escalation_about(&self.tenant, self.run).await?;
        asked.retain(|asked| asked.kind == QuestionKind::Orphaned || asked.kind.blocks_its_run());
        Ok(asked.into_iter().map(|asked| withdrawn(self.core(), asked)).collect())
    }
}
