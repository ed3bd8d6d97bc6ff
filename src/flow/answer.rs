//! Answers to open questions: recorded, and what waits for them goes on. The one way for an engine's tenants and
//! for its executor.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::child::farewell::farewell;
use super::engine::{CLAIM, Inner};
use super::failure::{Failure, FailureCode};
use super::resume;
use super::saga;
use crate::exec::{Answers, ExecError, Said, answer_escalation, to_the_end, withdrawn};
use crate::id::{EscalationId, Tenant};
use crate::payload::{Payload, Stored};
use crate::store::{
    Escalation, EscalationKind, Resolution, Run, RunState, Step, StepKind, Store as _, StoreError, Verdict,
};

impl Answers for Inner {
    fn resolve(
        self: Arc<Self>,
        tenant: Tenant,
        escalation: EscalationId,
        said: Said,
    ) -> BoxFuture<'static, Result<(), ExecError>> {
        // Dropped between the answer and what it lets go on, this would leave a run that nobody carries out.
        let tracker = self.core.tracker.clone();
        let resolving = async move { self.answer(&tenant, escalation, said).await };
        Box::pin(to_the_end(&tracker, resolving))
    }
}

impl Inner {
    /// # Crash
    /// The answer and what follows from it are one transaction.
    async fn answer(
        self: &Arc<Self>,
        tenant: &Tenant,
        escalation: EscalationId,
        answer: Said,
    ) -> Result<(), ExecError> {
        let store_failed = |source: StoreError| ExecError::Store { key: escalation.to_string(), source };
        let found = self.core.group.escalation_find(tenant, escalation).await.map_err(store_failed)?;
        let halted = match found.as_ref().map(|found| (found.kind.halts_its_run(), found.run)) {
            Some((true, Some(run))) => self.core.group.run_find(tenant, run).await.map_err(store_failed)?,
            _ => None,
        };
        let halted = halted.filter(|run| matches!(run.state, RunState::Halted { .. }));
        let mut left = Vec::new();
        let mut said = None;
        let mut undoing = None;
        let next = match halted {
            // Its end is written with the answer: were it written after, a crash in between would leave a run
            // that somebody abandoned and that goes on all the same.
            Some(run) if answer.resolution == Resolution::Abandon => {
                let by = &answer.by;
                let mut failure = Failure::coded(FailureCode::Abandoned, format!("{by} abandoned the run"));
                undoing = saga::of_abandoned(self, &run, &failure).await?;
                if undoing.is_some() {
                    Some(self.going_on(&run))
                } else {
                    let (run, questions) = resume::abandoned(self, run, &mut failure).await?;
                    left = questions;
                    said = farewell(&self.core, &run, Err(&failure));
                    Some(run)
                }
            }
            Some(run) => Some(self.going_on(&run)),
            None => None,
        };
        let answered = answer_escalation(&self.core, tenant, escalation, answer, |change, answered| {
            change.run = next.clone().map(Box::new);
            change.escalations.extend(left);
            change.steps.extend(undoing);
            if let Some((signal, large)) = said.clone() {
                change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
                change.signal = Some(Box::new(signal));
            }
            change.steps.extend(answered.record.zip(next.as_ref()).map(|(record, run)| Step {
                tenant: tenant.clone(),
                run: run.id,
                turn: run.base,
                kind: StepKind::Kept,
                name: "kept".into(),
                id: record.to_string(),
                input_hash: None,
                value: Some(Stored::Inline(Payload::stored("null"))),
                at: run.updated_at,
            }));
        })
        .await;
        if let Err(ExecError::Store { .. } | ExecError::Refused { .. }) = &answered {
            match (&next, &said) {
                (Some(_), Some((signal, _))) => self.perhaps_sent(signal.clone()),
                (Some(run), None) => self.perhaps_ours(tenant, run.id),
                (None, _) => self.perhaps_answered(tenant, escalation),
            }
        }
        let answered = answered?;
        match next {
            Some(run) if run.state.is_final() => {
                if let Some((signal, _)) = said {
                    self.delivered(signal).await;
                }
            }
            Some(run) => self.spawn(Box::new(run), None),
            None if answered.answer.is_none() => {} // it waits for a lookup, which wakes whoever waits for it
            None => self.wake_waiting(tenant, &answered).await.map_err(store_failed)?,
        }
        Ok(())
    }

    /// Runs that were halted because their workflow was not registered go on where it is by now: nobody need answer.
    ///
    /// # Crash
    /// Each withdrawal and its run's new state are one transaction.
    pub(super) async fn take_up_known(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut after = EscalationId(i64::MIN);
        loop {
            let asked = self.core.group.escalation_unknown_workflow(after, CLAIM).await?;
            let Some(last) = asked.last() else { return Ok(()) };
            after = last.id;
            let mut known = Vec::new();
            for question in asked {
                known.extend(self.known(&question).await?.map(|run| (question, run)));
            }
            let withdrawn = |(question, run): &(Escalation, Run)| {
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
                        tracing::info!(run = %run.id, escalation = %question.id, "withdrawn");
                        self.spawn(Box::new(run), None);
                    }
                    Verdict::Refused(refusal) => {
                        tracing::warn!(run = %run.id, %refusal, "left as it is");
                        self.perhaps_ours(&run.tenant, run.id);
                    }
                }
            }
        }
    }

    /// The run of a question about an unknown workflow as it would go on, if its workflow is registered here.
    async fn known(&self, asked: &Escalation) -> Result<Option<Run>, StoreError> {
        let Some(run) = asked.run else { return Ok(None) };
        let run = match self.core.group.run_find(&asked.tenant, run).await {
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::error!(escalation = %asked.id, %error, "left as it is");
                return Ok(None); // others go on
            }
            found => found?,
        };
        let run = run.filter(|run| matches!(run.state, RunState::Halted { .. }));
        let run = run.filter(|run| self.workflows.find(run.workflow.as_str(), run.version).is_some());
        Ok(run.map(|run| self.going_on(&run)))
    }

    /// Starts the runs over that wait for this answer.
    pub(super) async fn wake_waiting(
        self: &Arc<Self>,
        tenant: &Tenant,
        answered: &Escalation,
    ) -> Result<(), StoreError> {
        let mut runs = self.waiting_for(answered.id);
        runs.extend(answered.run);
        if let Some(record) = answered.record {
            runs.extend(self.core.group.record_uses(tenant, record).await?.iter().map(|used| used.run));
        }
        runs.sort_unstable();
        runs.dedup();
        if EscalationKind::PARKING.contains(&answered.kind) {
            for run in runs {
                self.wake(tenant, run).await;
            }
        }
        Ok(())
    }
}
