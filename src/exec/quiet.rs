//! Since when nothing is sent of what questions are about.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::clock::Boot;
use crate::id::QuestionId;

/// Since when nothing is sent of what questions are about, by the boot clock, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<HashMap<QuestionId, Boot>>);

impl Quiet {
    /// The question is open by now, and nothing is sent while it is.
    pub(super) fn since(&self, question: QuestionId, now: Boot) -> Boot {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(question).or_insert(now)
    }

    /// The question is answered.
    pub(super) fn forget(&self, question: QuestionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
    }
}
