//! Answers to open questions: an answer is recorded, and the runs that wait for it go on. An engine's tenants and its
//! executor answer in this one way.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::child::farewell::farewell;
use super::inner::Inner;
use super::replay::UNSTABLE_KEY;
use super::resume;
use super::saga;
use super::unstable_key;
use crate::exec::{Answerable, Answers, ExecError, Said, to_the_end};
use crate::id::{QuestionId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::{
    Change, Question, QuestionKind, Resolution, Run, RunState, Signal, Step, StepKind, Store as _, StoreError,
};

impl Answers for Inner {
    fn resolve(
        self: Arc<Self>,
        tenant: Tenant,
        escalation: QuestionId,
        said: Said,
    ) -> BoxFuture<'static, Result<(), ExecError>> {
        // A future dropped between the answer and the wake-up would leave a run that no worker carries out.
        let tracker = self.core.tracker.clone();
        let resolving = async move { Box::pin(self.answer(&tenant, escalation, said, None)).await };
        Box::pin(to_the_end(&tracker, resolving))
    }
}

/// The consequences of an answer for the blocked run that the question is about, if any. They are written with the
/// answer.
#[derive(Default)]
struct Next {
    run: Option<Run>,
    /// True if the blocked run goes on: it was not abandoned.
    is_going_on: bool,
    /// True if the recorded effect that the answer is about answers the same request under any key from now on.
    is_unstable: bool,
    /// Questions about effects that the run leaves without an owner.
    left: Vec<Question>,
    /// The checkpoint from which on the run is being undone.
    undoing: Option<Step>,
    /// The checkpoint of the command that lets the run go on.
    commanded: Option<(Step, Option<Payload>)>,
    /// The signal of the run to its parent when it ends, or the signal to a run in place of one that it could not read.
    said: Option<(Signal, Option<Payload>)>,
}

impl Next {
    fn add_to(&mut self, change: &mut Change, answered: &Question) {
        change.run = self.run.clone().map(Box::new);
        change.escalations.append(&mut self.left);
        change.steps.extend(self.undoing.take());
        if let Some((step, large)) = self.commanded.take() {
            change.steps.push(step);
            change.payloads.extend(large.map(|payload| (answered.tenant.clone(), payload)));
        }
        if let Some((signal, large)) = self.said.clone() {
            change.payloads.extend(large.map(|payload| (answered.tenant.clone(), payload)));
            change.signal = Some(Box::new(signal));
        }
        // The effect that the run no longer asks for is kept from now on, or answers the same request under any key.
        // If the run is abandoned, nobody has decided that: a retry asks again.
        let is_kept = answered.kind == QuestionKind::Diverged && self.is_going_on;
        let left = answered.record.filter(|_| is_kept);
        change.steps.extend(left.zip(self.run.as_ref()).map(|(record, run)| Step {
            tenant: answered.tenant.clone(),
            run: run.id,
            turn: run.base,
            kind: StepKind::Kept,
            name: if self.is_unstable { UNSTABLE_KEY } else { resume::KEPT }.into(),
            id: record.to_string(),
            input_hash: None,
            value: Some(Stored::Inline(Payload::stored("null"))),
            at: run.updated_at,
        }));
    }
}

impl Inner {
    /// Answers a question, and lets the runs that wait for the answer go on. `commanded`: the checkpoint of the command
    /// that lets a blocked run go on, if the answer is a command.
    ///
    /// # Crash
    /// The answer and its consequences are one transaction.
    pub(super) async fn answer(
        self: &Arc<Self>,
        tenant: &Tenant,
        escalation: QuestionId,
        answer: Said,
        commanded: Option<(Step, Option<Payload>)>,
    ) -> Result<(), ExecError> {
        let store_failed = |source: StoreError| ExecError::Store { key: escalation.to_string(), source };
        let mut next = match self.blocked(tenant, escalation).await.map_err(store_failed)? {
            Some(run) if answer.resolution == Resolution::Abandon => self.abandoned(run, &answer.by).await?,
            Some(run) => {
                let is_unstable = unstable_key::blocks(&run);
                let run = Some(self.going_on(&run));
                Next { run, is_going_on: true, is_unstable, commanded, ..Next::default() }
            }
            None => {
                let said = self.handed(tenant, escalation, &answer.resolution).await?;
                Next { said, ..Next::default() }
            }
        };
        let with = |change: &mut Change, answered: &Question| next.add_to(change, answered);
        let answered = async {
            let asked = Answerable::find(&self.core, tenant, escalation, &answer.resolution).await?;
            asked.answer(&self.core, answer, with).await
        };
        let answered = answered.await;
        if let Err(ExecError::Store { .. } | ExecError::Refused { .. }) = &answered {
            match (&next.run, &next.said) {
                (_, Some((signal, _))) => self.perhaps_sent(signal.clone()),
                (Some(run), None) => self.perhaps_ours(tenant, run.id),
                (None, None) => self.perhaps_answered(tenant, escalation),
            }
        }
        let answered = answered?;
        match (next.run, next.said) {
            (_, Some((signal, _))) => self.delivered(signal).await,
            (Some(run), None) if run.state.is_final() => {}
            (Some(run), None) => self.go_on(Box::new(run)).await,
            (None, None) if answered.answer.is_none() => {} // the question waits for a lookup, which wakes the waiting runs
            (None, None) => self.wake_answered(tenant, &answered).await.map_err(store_failed)?,
        }
        Ok(())
    }

    /// The run that this question blocks, if any.
    async fn blocked(&self, tenant: &Tenant, escalation: QuestionId) -> Result<Option<Run>, StoreError> {
        let found = self.core.group.escalation_find(tenant, escalation).await?;
        let Some(run) = found.filter(|found| found.kind.blocks_its_run()).and_then(|found| found.run) else {
            return Ok(None);
        };
        let run = self.core.group.run_find(tenant, run).await?;
        Ok(run.filter(|run| matches!(run.state, RunState::Blocked { .. })))
    }

    /// The end of a blocked run that was abandoned. It is written with the answer: with two writes, a crash in between
    /// would leave an abandoned run that goes on all the same.
    ///
    /// A process that should not carry the run out, because it is a client or does not know the workflow, hands the run
    /// over to be undone: it cannot tell which effects their tools undo.
    async fn abandoned(&self, run: Run, by: &str) -> Result<Next, ExecError> {
        let mut failure = self.ended_by(&run, by).await?;
        let is_ours = self.may_claim(&run);
        if let Some(step) = saga::of_abandoned(&self.core, &run, &failure, is_ours).await? {
            return Ok(Next { run: Some(self.going_on(&run)), undoing: Some(step), ..Next::default() });
        }
        let (run, left) = resume::abandoned(&self.core, run, &mut failure).await?;
        let said = farewell(&self.core, &run, Err(&failure));
        Ok(Next { run: Some(run), left, said, ..Next::default() })
    }
}
