//! Erasure on demand: of a record's content before its retention is over, of a run, and of a tenant.

use std::sync::Arc;

use super::core::Core;
use super::executor::Executor;
use super::outcome::ExecError;
use super::request::Wait;
use super::shield::to_the_end;
use crate::id::{RunId, Tenant};
use crate::ledger::{OperationKey, Record, Retention, State};
use crate::store::{Change, Refusal, Retired, RetiredRun, Run, Store as _, StoreError, UnderWay, Verdict};
use crate::tool::compensation_key;

/// The reason why something was not erased.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EraseError {
    /// The record is still needed: the engine would need its content after a crash.
    #[error(
        "{key}: it is under way, asked about, or a run that has not ended rests on it or would undo it: nothing of it was erased; \
         settle it, answer the question, or let the run end or cancel it, and erase it then [invalid]"
    )]
    StillNeeded {
        /// The key of the operation.
        key: String,
    },
    /// The run is still needed: it would go on from what it says, or a person or its parent would.
    #[error(
        "{run} has not ended, a call of it is not settled, a question about it is open, or its parent can be retried or forked: \
         nothing of it was erased; bring it to its end, answer the question, or erase its parent first [invalid]"
    )]
    RunStillNeeded {
        /// The id of the run.
        run: RunId,
    },
    /// The tenant has something that is not at its end.
    #[error("{what} of tenant {tenant} is there: nothing was erased; bring it to its end first [invalid]")]
    UnderWay {
        /// The tenant that was to be erased.
        tenant: Tenant,
        /// The kind of work that is not at its end.
        what: UnderWay,
    },
    /// The tenant is the ledger itself: its rows say how the others are read.
    #[error(
        "the tenant {} holds what the ledger keeps about itself, such as tokens and the marks of its keys: nothing was erased; name a \
         tenant of yours [invalid]",
        Tenant::ledger()
    )]
    Ledger,
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
    /// [`EraseError::StillNeeded`] while the call cannot be settled without the erased content, or while a run that has
    /// not ended rests on it: the run that made it, one that was answered from it, or a parent that undoes it if it
    /// fails.
    ///
    /// # Crash
    /// When this method returns `Ok`, the erasure is durable.
    pub async fn erase(&self, tenant: &Tenant, key: &OperationKey) -> Result<(), EraseError> {
        let (core, tenant, key) = (self.core.clone(), tenant.clone(), key.clone());
        to_the_end(&self.core.tracker, async move { erase(&core, &tenant, &key).await }).await
    }

    /// Erases what a run says, at once, whatever the [retention](crate::flow::Workflow::retention) of its workflow says:
    /// its input and result, its steps and signals, what it published, and the answered questions about it. A tombstone
    /// is left with its id, workflow, start key and times, and with digests of input and outcome, so that the run is not
    /// begun again under its start key.
    ///
    /// The records of its calls are [erased by their keys](Self::erase). Its children are erased by themselves, after
    /// it. A second erasure, or one of an unknown run, does nothing.
    ///
    /// # Errors
    /// [`EraseError::RunStillNeeded`] while anything of the run is under way or asked about, or its parent can be retried
    /// or forked.
    ///
    /// # Crash
    /// A long run goes in parts. From the first part on it is expired for all readers. When this method returns `Ok`, the
    /// erasure is durable; if the process dies before that, erase the run again.
    pub async fn erase_run(&self, tenant: &Tenant, run: RunId) -> Result<(), EraseError> {
        let (core, tenant) = (self.core.clone(), tenant.clone());
        to_the_end(&self.core.tracker, async move { erase_run(&core, &tenant, run).await }).await
    }

    /// Erases a tenant: its records and tombstones, runs, questions, memories, artifacts, events, messages and all its
    /// other rows. Its name is kept, with the random key of its digests.
    ///
    /// Use it for a tenant that is gone: its keys are new from then on, so that a late request would be carried out.
    /// The erasure is one transaction, and on SQLite all other writes wait for it.
    ///
    /// # Errors
    /// [`EraseError::UnderWay`] while any work of the tenant is not at its end. [`EraseError::Ledger`] for [`Tenant::ledger`].
    ///
    /// # Crash
    /// All of the tenant is erased, or nothing.
    pub async fn erase_tenant(&self, tenant: &Tenant) -> Result<(), EraseError> {
        erase_tenant(&self.core, tenant).await
    }
}

/// Erases a tenant: see [`Executor::erase_tenant`].
pub(crate) async fn erase_tenant(core: &Core, tenant: &Tenant) -> Result<(), EraseError> {
    if *tenant == Tenant::ledger() {
        return Err(EraseError::Ledger);
    }
    let change = Change { erased: Some(tenant.clone()), ..core.change(None) };
    let failed = |source| ExecError::Store { key: tenant.to_string(), source };
    // Not through the queue: the erasure takes longer than other writes there should wait.
    let verdicts = core.group.store().commit(&[change]).await.map_err(failed)?;
    match verdicts.into_iter().next() {
        Some(Verdict::Admitted) => {
            #[cfg(feature = "encryption")]
            core.forget_first_key(tenant).await.map_err(failed)?;
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
    erase_after(core, tenant, key, Wait::ForOutcome).await
}

/// Erases the content of a record, and of the record of its compensation, whatever became of that one. Waits until the
/// operation is no longer in flight in this process; if that takes too long, the record is still needed.
///
/// # Crash
/// The compensation goes first: with the record go its labels, by which an erasure that is made again finds it.
pub(super) async fn erase_after(
    core: &Arc<Core>,
    tenant: &Tenant,
    key: &OperationKey,
    wait: Wait,
) -> Result<(), EraseError> {
    let slot = core.in_flight.enter(tenant, key, wait, &*core.clock).await;
    let Some(slot) = slot else { return Err(EraseError::StillNeeded { key: key.to_string() }) };
    if let Some(record) = core.find(tenant, key).await?
        && let Some(compensation) = compensation_key(&record)
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

/// Erases a run. See [`Executor::erase_run`].
pub(crate) async fn erase_run(core: &Core, tenant: &Tenant, id: RunId) -> Result<(), EraseError> {
    let failed = |source| ExecError::Store { key: id.to_string(), source };
    let digests = core.tenant_key(tenant).await?;
    let mut before: Option<Run> = None;
    loop {
        let run = core.group.run_find(tenant, id).await.map_err(failed)?;
        let Some(run) = run else { return Ok(()) };
        if run.state.is_expired() {
            // The first part has gone: has the rest?
            if !is_listed(core, &run).await? {
                return Ok(());
            }
        } else if before.is_some_and(|before| before.revision == run.revision) {
            return Err(EraseError::RunStillNeeded { run: id });
        }
        let Some(retired) = RetiredRun::of(&run, true, &digests) else {
            return Err(EraseError::RunStillNeeded { run: id });
        };
        let change = Change { retired_runs: vec![retired], ..core.change(None) };
        match core.group.commit_one(change).await.map_err(failed)? {
            Verdict::Admitted => tracing::info!(%tenant, run = %id, "run erased"),
            Verdict::Refused(refusal) => {
                return Err(ExecError::Refused { key: id.to_string(), refusal }.into());
            }
        }
        before = Some(run);
    }
}

/// True if a run can be erased now, or has been. What belongs to a run is erased before it, and not for one that stays.
pub(super) async fn can_be_erased(core: &Core, tenant: &Tenant, id: RunId) -> Result<bool, EraseError> {
    let run = core.group.run_find(tenant, id).await;
    let run = run.map_err(|source| ExecError::Store { key: id.to_string(), source })?;
    Ok(match run {
        Some(run) if !run.state.is_expired() => run.state.is_final() && is_listed(core, &run).await?,
        _ => true,
    })
}

/// True if the store lists a run that has ended as one that may go, or of which a part is still to go.
async fn is_listed(core: &Core, run: &Run) -> Result<bool, ExecError> {
    let whole = core.group.run_over(run.workflow.as_str(), run.updated_at, run.updated_at, AT_ONCE).await;
    let whole = whole.map_err(|source| ExecError::Store { key: run.id.to_string(), source })?;
    Ok(whole.iter().any(|whole| whole.id == run.id))
}

/// The number of runs that ended at the same instant, among which a run is looked for.
const AT_ONCE: u32 = 1000;
