//! Seals and findings that come when the time of their attempt is over, or when another process has taken the ledger over.

use super::line::Task;
use super::permit::Attempt;
use super::request::{CallOutcome, Seal};
use super::step::Step;
use super::{AUTHOR, GuardError, GuardService};
use crate::exec::Said;
use crate::id::Tenant;
use crate::ledger::{Record, State};
use crate::payload::{Payload, Stored};
use crate::store::{Change, Evidence, Resolution};

impl GuardService {
    /// Keeps a late success as evidence, which settles the call if nobody has settled it, and counts as a second effect if somebody has.
    /// A late failure proves nothing about the present, and changes nothing.
    ///
    /// # Crash
    /// The evidence is a row of its own, written once for each attempt.
    pub(super) async fn seal_late(&self, tenant: &Tenant, seal: Seal) -> Result<Step, GuardError> {
        let core = self.executor.core();
        let attempt = self.given(tenant, &seal.permit, Task::Send).await?;
        let record = core.find(tenant, &attempt.key).await?.ok_or(GuardError::Permit)?;
        if let CallOutcome::Done { output, external_ref } = seal.outcome {
            let proof = self.keep(&record, &attempt, output.clone(), external_ref).await?;
            if let Some(question) = record.escalation.filter(|_| record.state == State::Started) {
                // The proof answers the question about the outcome. If it was answered meanwhile, the evidence is compared with that answer.
                let said = Said::new(Resolution::Happened(output), AUTHOR);
                let said = Said { proof: Some(Box::new(proof)), ..said };
                let _ = self.executor.answer_as(tenant, question, said).await;
            }
        }
        let outcome = self.executor.recorded_outcome(tenant, &attempt.key).await?;
        Ok(outcome.map_or_else(|| Ok(Step::recorded()), |outcome| Step::after(&outcome, false))?)
    }

    /// Answers a finding that was reported before, or whose time is over. It may be outdated, so it changes nothing: the answer is that
    /// of the record.
    pub(super) async fn report_late(&self, tenant: &Tenant, permit: &str) -> Result<Step, GuardError> {
        let look = self.given(tenant, permit, Task::Look).await?;
        let outcome = self.executor.recorded_outcome(tenant, &look.key).await?;
        Ok(outcome.map_or(Ok(Step::InFlight), |outcome| Step::after(&outcome, false))?)
    }

    /// The task of a permit that this ledger has given to the tenant.
    async fn given(&self, tenant: &Tenant, permit: &str, task: Task) -> Result<Attempt, GuardError> {
        let secret = self.executor.core().tenant_key(tenant).await?;
        let given = Attempt::of(permit, &secret, tenant).filter(|given| given.task == task);
        given.ok_or(GuardError::Permit)
    }

    async fn keep(
        &self,
        record: &Record,
        attempt: &Attempt,
        output: serde_json::Value,
        external_ref: Option<String>,
    ) -> Result<Evidence, GuardError> {
        let core = self.executor.core();
        let response = match Payload::of(&output)?.response(&core.limits) {
            Ok(response) => Stored::Inline(response),
            Err(oversized) => Stored::Oversized(oversized),
        };
        let evidence = Evidence {
            tenant: record.tenant.clone(),
            record: record.id,
            fence: attempt.fence,
            attempt: attempt.number,
            response,
            external_ref,
            at: core.now(),
        };
        let contract = Some(core.contract_of(record).await?.class);
        let change = Change { evidence: Some(Box::new(evidence.clone())), contract, ..Change::default() };
        core.commit(&record.key, change).await?;
        Ok(evidence)
    }
}
