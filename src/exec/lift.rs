//! The state of a ledger that is taken for older than the world, and the way in which a person lifts it.

use super::executor::Executor;
use super::outcome::ExecError;
use crate::id::{QuestionId, Tenant};
use crate::store::Resolution;

impl Executor {
    /// Lifts the consequences of a restore: first sends are no longer preceded by a lookup. The question is answered as
    /// well.
    ///
    /// # Errors
    /// [`ExecError::Unanswerable`] if no restore is in force. Nothing was changed.
    pub async fn lift_restored(&self, by: &str, because: &str) -> Result<(), ExecError> {
        let Some(question) = self.core.restored_question().await? else {
            let reason = "this ledger is not taken for older than the world: there is nothing to be lifted";
            return Err(ExecError::Unanswerable { question: QuestionId(0), reason: reason.to_owned() });
        };
        let answer = self.answer(&Tenant::ledger(), question, Resolution::Lift, by);
        if because.is_empty() {
            answer.await?;
        } else {
            answer.because(because).await?;
        }
        self.core.restored().await.map(drop)
    }
}
