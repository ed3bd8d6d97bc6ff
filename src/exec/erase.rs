//! Erasure on demand: of a record's content before its retention is over, and of a tenant.

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

/// The reason why something was not erased.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EraseError {
    /// The record is still needed: the engine would need its content after a crash.
    #[error(
        "{key}: it is under way, asked about, or a run rests on it that has not ended: nothing of it was erased; settle it, \
         answer the question, or let the run end or cancel it, and erase it then [invalid]"
    )]
    StillNeeded {
        /// The key of the operation.
        key: String,
    },
    /// The tenant has something that is not at its end.
    #[error("{what} of tenant {tenant} is there: nothing was erased; bring it to its end first [invalid]")]
    UnderWay {
        /// The tenant that was to be erased.
        tenant: Tenant,
        /// The kind of work that is not at its end.
        what: UnderWay,
    },
    /// The erasure failed, or it was done and the answer was lost: erase again.
    #[error(transparent)]
    Failed(#[from] ExecError),
}

impl Executor {
    /// Erases the request and the answer under a key, and those of its [compensation](crate::tool::Compensate), at
    /// once, whatever the tool's [retention](crate::ledger::Retention) says. A tombstone is left, so that the effect is
    /// not repeated. A call that certainly did not happen leaves nothing.
    ///
    /// The inputs and steps of runs are not erased. A second erasure, or one of an unknown key, does nothing.
    ///
    /// # Errors
    /// [`EraseError::StillNeeded`] while the call cannot be settled without the erased content.
    ///
    /// # Crash
    /// When this method returns `Ok`, the erasure is durable.
    pub async fn erase(&self, tenant: &Tenant, key: &OperationKey) -> Result<(), EraseError> {
        let (core, tenant, key) = (self.core.clone(), tenant.clone(), key.clone());
        to_the_end(&self.core.tracker, async move { erase(&core, &tenant, &key).await }).await
    }

    /// Erases a tenant: its records and tombstones, runs, questions, memories, artifacts, events, messages and all its
    /// other rows. Its name is kept, with the random key of its digests.
    ///
    /// Use it for a tenant that is gone: its keys are new from then on, so that a late request would be carried out.
    /// The erasure is one transaction, and on SQLite all other writes wait for it.
    ///
    /// # Errors
    /// [`EraseError::UnderWay`] while any work of the tenant is not at its end.
    ///
    /// # Crash
    /// All of the tenant is erased, or nothing.
    pub async fn erase_tenant(&self, tenant: &Tenant) -> Result<(), EraseError> {
        erase_tenant(&self.core, tenant).await
    }
}

/// Erases a tenant: see [`Executor::erase_tenant`].
pub(crate) async fn erase_tenant(core: &Core, tenant: &Tenant) -> Result<(), EraseError> {
    let change = Change { erased: Some(tenant.clone()), ..core.change(None) };
    let failed = |source| ExecError::Store { key: tenant.to_string(), source };
    // Not through the queue: the erasure takes longer than other writes there should wait.
    let verdicts = core.group.store().commit(&[change]).await.map_err(failed)?;
    match verdicts.into_iter().next() {
        Some(Verdict::Admitted) => {
            tracing::info!(%tenant, "tenant erased");
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

/// Erases the content of a record: see [`Executor::erase`].
pub(crate) async fn erase(core: &Arc<Core>, tenant: &Tenant, key: &OperationKey) -> Result<(), EraseError> {
    // Waits until the operation is no longer in flight in this process.
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
            tracing::info!(%tenant, %key, "record erased");
        }
        before = Some(record);
    }
}
