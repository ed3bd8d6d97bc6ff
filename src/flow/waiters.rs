//! Waiters in this process: callers that wait for the ends of runs, and runs that wait for answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::id::{QuestionId, RunId, Tenant};
use crate::store::RunState;

/// The callers that wait for the ends of runs.
#[derive(Default)]
pub(super) struct EndWaiters {
    by_run: Mutex<BTreeMap<RunId, Waiting>>,
    /// Notified when a caller begins to wait.
    pub(super) began: Arc<Notify>,
}

/// The callers that wait for the end of one run.
struct Waiting {
    tenant: Tenant,
    callers: Vec<oneshot::Sender<RunState>>,
}

impl EndWaiters {
    fn by_run(&self) -> MutexGuard<'_, BTreeMap<RunId, Waiting>> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the run is over or blocked.
    pub(super) fn wait(&self, tenant: &Tenant, id: RunId) -> oneshot::Receiver<RunState> {
        let (sender, receiver) = oneshot::channel();
        let waiting = || Waiting { tenant: tenant.clone(), callers: Vec::new() };
        self.by_run().entry(id).or_insert_with(waiting).callers.push(sender);
        self.began.notify_one();
        receiver
    }

    /// True if no caller waits.
    pub(super) fn is_empty(&self) -> bool {
        self.by_run().is_empty()
    }

    /// Forgets the callers of this run that have gone away.
    pub(super) fn forget_gone(&self, id: RunId) {
        let mut by_run = self.by_run();
        if let Some(Waiting { callers, .. }) = by_run.get_mut(&id) {
            callers.retain(|sender| !sender.is_closed());
            if callers.is_empty() {
                by_run.remove(&id);
            }
        }
    }

    /// Tells the callers of a run that the run is over or blocked.
    pub(super) fn tell(&self, id: RunId, state: &RunState) {
        for caller in self.by_run().remove(&id).into_iter().flat_map(|waiting| waiting.callers) {
            let _ = caller.send(state.clone()); // the caller may have gone away
        }
    }

    /// Tells the callers of a run that its end is not heard of here, instead of letting them wait for ever.
    pub(super) fn give_up(&self, id: RunId) {
        self.by_run().remove(&id);
    }

    /// Tells the callers of all runs that the ends are not heard of here.
    pub(super) fn give_up_all(&self) {
        self.by_run().clear();
    }

    /// The runs that callers wait for, without those that are here.
    pub(super) fn elsewhere(&self, is_here: impl Fn(RunId) -> bool) -> Vec<(Tenant, RunId)> {
        let by_run = self.by_run();
        let elsewhere = by_run.iter().filter(|(id, _)| !is_here(**id));
        elsewhere.map(|(id, waiting)| (waiting.tenant.clone(), *id)).collect()
    }
}

/// The runs that wait for the answer to another run's question, which are parents that undo the effects of their
/// children. Any other run is found by the question's record. This is only a hint: after a restart these runs are found
/// by their rows.
#[derive(Default)]
pub(super) struct AnswerWaiters {
    by_question: Mutex<BTreeMap<QuestionId, Vec<RunId>>>,
}

impl AnswerWaiters {
    /// The largest number of questions about which there is a hint.
    const MOST: usize = 10_000;

    fn by_question(&self) -> MutexGuard<'_, BTreeMap<QuestionId, Vec<RunId>>> {
        self.by_question.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a run waits for an answer. Another process may take the answer, and this one is not told: beyond
    /// [`Self::MOST`] questions the hint about the oldest is dropped.
    pub(super) fn wait(&self, question: QuestionId, run: RunId) {
        let mut by_question = self.by_question();
        if by_question.len() >= Self::MOST && !by_question.contains_key(&question) {
            by_question.pop_first();
        }
        let runs = by_question.entry(question).or_default();
        if !runs.contains(&run) {
            runs.push(run);
        }
    }

    /// Takes the runs that waited for the answer to this question.
    pub(super) fn take(&self, question: QuestionId) -> Vec<RunId> {
        self.by_question().remove(&question).unwrap_or_default()
    }
}
