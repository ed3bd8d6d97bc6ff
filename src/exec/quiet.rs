//! The instants since which nothing is sent for the calls that questions are about.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::clock::Boot;
use crate::id::QuestionId;

/// For each question, the instant since which nothing is sent for its call, by the boot clock, as far as this process
/// knows.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<HashMap<QuestionId, Boot>>);

impl Quiet {
    /// Notes that the question is open by now, so that nothing is sent for its call. Returns the instant of the first
    /// note.
    pub(super) fn since(&self, question: QuestionId, now: Boot) -> Boot {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(question).or_insert(now)
    }

    /// Forgets a question that was answered.
    pub(super) fn forget(&self, question: QuestionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
    }
}
