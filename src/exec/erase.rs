//! Erasure on demand: of what a record says, before its time is over, and of a tenant (REC-8).

use std::sync::Arc;

use super::core::Core;
use super::executor::Executor;
use super::outcome::ExecError;
use super::request::Wait;
use super::shield::to_the_end;
use super::undo;
use crate::id::Tenant;
use crate::ledger::{OperationKey, Record, Retention, State};
use crate::store::{Change, Refusal, Retired, StoreError, UnderWay, Verdict};

/// Why something was not erased.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EraseError {
    /// The engine itself would need it after a crash.
    #[error(
        "{key}: it is under way, asked about, or a run rests on it that has not ended: nothing of it was erased; settle it, \
         answer the question, or let the run end or cancel it, and erase it then"
    )]
    StillNeeded {
        /// The operation.
        key: String,
    },
    /// Something of the tenant is not at its end.
    #[error("{what} of tenant {tenant} is there: nothing was erased; bring it to its end first")]
    UnderWay {
        /// The tenant.
        tenant: Tenant,
        /// What.
        what: UnderWay,
    },
    /// It could not be done, or could and the answer was lost: erase again.
    #[error(transparent)]
    Failed(#[from] ExecError),
}

impl Executor {
    /// Erases what was asked and answered under a key, and under that of its [compensation](crate::tool::Compensate), now, whatever
    /// its tool's [retention](crate::ledger::Retention): what is left is a tombstone, so that the effect is not repeated. What
    /// for certain did not happen leaves nothing.
    ///
    /// The inputs and steps of runs stay as they are. Erasing again, or what never was, does nothing.
    ///
    /// # Errors
    /// [`EraseError::StillNeeded`] while it cannot be settled without it.
    ///
    /// # Crash
    /// When this returns `Ok`, it is durable.
    pub async fn erase(&self, tenant: &Tenant, key: &OperationKey) -> Result<(), EraseError> {
        let (core, tenant, key) = (self.core.clone(), tenant.clone(), key.clone());
        to_the_end(&self.core.tracker, async move { erase(&core, &tenant, &key).await }).await
    }

    /// Erases a tenant: its records and tombstones, runs, questions, memories, artifacts, events, messages and whatever else is
    /// stored. What stays is its name, with the random key that its digests were made by.
    ///
    /// For a tenant that is gone: its keys are new from then on, so that a request that comes late would be carried out. It is
    /// one transaction, and on SQLite whoever else writes waits for it.
    ///
    /// # Errors
    /// [`EraseError::UnderWay`] while anything of it is.
    ///
    /// # Crash
    /// All of it is erased, or nothing.
    pub async fn erase_tenant(&self, tenant: &Tenant) -> Result<(), EraseError> {
        let change = Change { erased: Some(tenant.clone()), ..self.core.change(None) };
        let failed = |source| ExecError::Store { key: tenant.to_string(), source };
        // Not through the queue: it takes longer than anybody there should wait.
        let verdicts = self.core.group.store().commit(&[change]).await.map_err(failed)?;
        match verdicts.into_iter().next() {
            Some(Verdict::Admitted) => {
                tracing::info!(%tenant, "erased");
                Ok(())
            }
            Some(Verdict::Refused(Refusal::UnderWay(what))) => {
                Err(EraseError::UnderWay { tenant: tenant.clone(), what })
            }
            Some(Verdict::Refused(refusal)) => {
                Err(ExecError::Refused { key: tenant.to_string(), refusal }.into())
            }
            None => Err(failed(StoreError::Closed).into()), // cannot be: each change has a verdict
        }
    }
}

async fn erase(core: &Arc<Core>, tenant: &Tenant, key: &OperationKey) -> Result<(), EraseError> {
    // Behind whoever has it in hand in this process.
    let slot = core.in_flight.enter(tenant, key, Wait::ForOutcome, &*core.clock).await;
    if let Some(record) = core.find(tenant, key).await?
        && let State::Compensated { .. } = record.state
        && let Some(compensation) = undo::key_of(core, &record).await?
    {
        Box::pin(erase_one(core, tenant, &compensation)).await?;
    }
    erase_one(core, tenant, key).await?;
    drop(slot);
    Ok(())
}

async fn erase_one(core: &Arc<Core>, tenant: &Tenant, key: &OperationKey) -> Result<(), EraseError> {
    let digests = core.tenant_key(tenant).await?;
    let mut before: Option<Box<Record>> = None;
    loop {
        let found = core.find(tenant, key).await?;
        let Some(record) = found.filter(|record| !matches!(record.state, State::Gone { .. })) else {
            return Ok(());
        };
        if before.is_some_and(|before| before.revision == record.revision) {
            return Err(EraseError::StillNeeded { key: key.to_string() });
        }
        let retired = Retired::of(&record, Retention::erased(&record, &digests));
        if !retired.is_kept() {
            core.commit(key, Change { retired: vec![retired], ..core.change(None) }).await?;
            tracing::info!(%tenant, %key, "erased");
        }
        before = Some(record);
    }
}
