//! Questions that reviewers answer by their votes: a guard (layer 5) counts the votes, and writes the last one with the
//! answer.

use super::error::RunError;
use super::tenant::TenantClient;
use crate::exec::{Said, commit_answer, to_the_end};
use crate::id::QuestionId;
use crate::store::{Change, Question, Store as _, StoreError, Verdict};

impl TenantClient {
    /// The question with this id, if it is open.
    pub(crate) async fn asks(&self, question: QuestionId) -> Result<Option<Question>, StoreError> {
        let (core, tenant) = self.core();
        let found = core.group.escalation_find(&tenant, question).await?;
        Ok(found.filter(|question| question.answer.is_none()))
    }

    /// Writes a guard's rows with the answer to a question, and lets the runs that wait for the answer go on.
    ///
    /// # Crash
    /// The rows and the answer are one transaction. So is the row by which the waiting run is due.
    pub(crate) async fn answer_with(
        &self,
        change: Change,
        mut question: Question,
        said: Said,
    ) -> Result<Verdict, RunError> {
        let (inner, tenant) = self.parts();
        question.answer = Some(said.at(inner.core.now()));
        let tracker = inner.core.tracker.clone();
        // A future dropped between the answer and the wake-up would leave a run that no worker carries out.
        to_the_end(&tracker, async move {
            let verdict = commit_answer(&inner.core, &question, change.escalation(question.clone())).await;
            match &verdict {
                Ok(Verdict::Admitted) => inner.wake_answered(&tenant, &question).await?,
                _ => inner.perhaps_answered(&tenant, question.id),
            }
            Ok(verdict?)
        })
        .await
    }
}
