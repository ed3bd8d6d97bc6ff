//! Resume: a paused run goes on from where it was paused. No checkpoint becomes void; the run gets a mark as from a
//! retry.

use std::future::IntoFuture;

use futures_util::future::BoxFuture;

use super::{Mark, Plan, RunError, Sent, Verb};
use crate::exec::{ExecError, Said, to_the_end};
use crate::flow::handle::RunHandle;
use crate::store::{QuestionKind, Resolution, Store as _, Turns};

/// A command that lets a paused run go on. Nothing happens until it is awaited; then it is durable.
///
/// # Errors
/// [`RunError::NotPaused`] if the run is not paused, [`RunError::CommandConflict`] if another command was given under its key.
#[must_use = "a run does not go on before this is awaited"]
pub struct Resume {
    plan: Plan,
}

impl<O> RunHandle<O> {
    /// Lets a [paused](Self::pause) run go on from where it was paused.
    ///
    /// # Crash
    /// The command and the run's new state are one transaction.
    pub fn resume(&self, by: impl Into<String>, reason: impl Into<String>) -> Resume {
        Resume { plan: self.plan(by.into(), reason.into()) }
    }
}

impl Resume {
    /// The idempotency key of the command: the same command under the same key is not a second one, and does not end a
    /// later pause.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.plan.key = Some(key.into());
        self
    }
}

impl IntoFuture for Resume {
    type Output = Result<Sent, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let tracker = self.plan.inner.core.tracker.clone();
            // A future dropped between the row and the task would leave a run that no worker carries out.
            to_the_end(&tracker, self.plan.resume()).await
        })
    }
}

impl Plan {
    async fn resume(self) -> Result<Sent, RunError> {
        let (id, group, tenant) = (self.id()?, &self.core().group, &self.tenant);
        let mut answered = None;
        loop {
            let row = group.run_find(tenant, self.run).await?.ok_or(RunError::Unknown { run: self.run })?;
            let turns = Turns::between(row.base, u32::MAX);
            if self.key.is_some() {
                let steps = group.run_history(tenant, self.run, turns).await?.steps;
                if self.was_given(Verb::Resume, &id, &steps).await? {
                    return Ok(Sent::Before);
                }
            }
            let is_pause = |kind| kind == QuestionKind::Paused;
            let paused = self.inner.asked_about(tenant, self.run, is_pause).await?;
            let question = paused.ok_or(RunError::NotPaused { run: self.run })?;
            let (by, reason) = (self.by.clone(), self.reason.clone());
            let order = Some(self.order(Verb::Resume));
            let mark = Mark { by: by.clone(), reason: reason.clone(), order, ..Mark::default() };
            let step = self.checkpoint(row.id, row.base, &id, &mark)?;
            let said = Said { because: Some(reason), ..Said::new(Resolution::Resume, by) };
            match Box::pin(self.inner.answer(tenant, question, said, Some(step))).await {
                Ok(()) => return Ok(Sent::New),
                // Another answer was first, perhaps by the very same command.
                Err(ExecError::Unanswerable { .. }) if answered != Some(question) => {
                    answered = Some(question);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
