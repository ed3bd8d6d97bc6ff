//! The instants since which nothing is sent for the calls that questions are about.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::clock::Boot;
use crate::id::QuestionId;

/// The largest number of questions that are known. Another process may answer a question, and this one is not told.
const MOST: usize = 10_000;

/// For each question, the instant since which nothing is sent for its call, by the boot clock, as far as this process
/// knows.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<HashMap<QuestionId, Boot>>);

impl Quiet {
    /// Notes that the question is open by now, so that nothing is sent for its call. Returns the instant of the first
    /// note. Beyond [`MOST`] questions the earliest notes are forgotten, which only makes a lookup wait longer.
    pub(super) fn since(&self, question: QuestionId, now: Boot) -> Boot {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() >= MOST && !noted.contains_key(&question) {
            let mut instants: Vec<_> = noted.values().copied().collect();
            let (_, middle, _) = instants.select_nth_unstable(MOST / 2);
            let middle = *middle;
            noted.retain(|_, since| *since > middle);
        }
        *noted.entry(question).or_insert(now)
    }

    /// Forgets a question that was answered.
    pub(super) fn forget(&self, question: QuestionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn questions_that_others_answer_do_not_fill_the_memory() {
        let quiet = Quiet::default();
        let at = |n: i64| Boot(Duration::from_secs(n.unsigned_abs()));
        let last = 100_000;
        for n in 0..=last {
            assert_eq!(quiet.since(QuestionId(n), at(n)), at(n));
        }
        assert!(quiet.0.lock().unwrap().len() <= MOST);
        assert_eq!(quiet.since(QuestionId(last), at(last + 1)), at(last), "the first note counts");
        assert_eq!(quiet.since(QuestionId(0), at(last + 1)), at(last + 1), "as if it were asked now");
    }
}
