//! Erasure by a label: the runs that have it, with their calls and children, and the calls that have it themselves.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::core::Core;
use super::erase::{EraseError, can_be_erased, erase, erase_after, erase_run};
use super::executor::Executor;
use super::outcome::ExecError;
use super::request::Wait;
use super::shield::to_the_end;
use crate::id::{RunId, Tenant};
use crate::store::{Run, RunFilter, Store as _, StoreError, Turns};

/// The number of runs or calls that are read at once.
const PAGE: u32 = 200;
/// The number of turns whose calls are read at once.
const TURNS: u32 = 100;
/// The longest wait for a call that has the label and is in flight in this process.
const PATIENCE: Wait = Wait::AtMost(Duration::from_secs(1));

/// What an erasure by a label has erased, and what it has kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ErasureReport {
    /// The runs that were erased. A tombstone of each is left, with its id, its workflow, its start key and its times.
    pub runs: Vec<RunId>,
    /// The keys of the calls whose content was erased. A tombstone of each effect is left, so that it is not repeated.
    pub calls: Vec<String>,
    /// The runs that were kept, with their labels, and with their calls but for those in `calls`: erase again when they are at their end.
    pub kept: Vec<KeptRun>,
    /// The calls that were kept, with their labels: erase again when they are settled and nothing rests on them.
    pub kept_calls: Vec<KeptCall>,
}

impl ErasureReport {
    /// True if nothing with the label was kept.
    pub fn is_complete(&self) -> bool {
        self.kept.is_empty() && self.kept_calls.is_empty()
    }
}

/// A run that an erasure by a label has kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeptRun {
    /// The run.
    pub run: RunId,
    /// The reason, and what to do about it.
    pub why: String,
}

/// A call that an erasure by a label has kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeptCall {
    /// The key of the call.
    pub key: String,
    /// The reason, and what to do about it.
    pub why: String,
}

impl Executor {
    /// Erases the runs of a tenant that have a label, with their children, and the content of their calls; then the content of the
    /// calls that have the label themselves, inside of other runs or outside of all runs. A run that has not ended, a call that is
    /// under way or asked about, and what is needed otherwise, is kept and reported. A run that has not ended, or about which a
    /// question is open, keeps its calls, except those that have the label themselves.
    ///
    /// A call that answered the run from another run's record belongs to that run, and is not erased unless it has the label. Of
    /// another run that made a call with the label, the inputs and steps are not erased.
    ///
    /// # Errors
    /// [`EraseError::Failed`] if the store failed. What was erased before stays erased.
    ///
    /// # Crash
    /// Each run and each call is erased by itself, and loses its label as the last of its rows. If the process dies before this
    /// method returns, erase by the label again. Children of the run that was being erased then are erased by their ids.
    pub async fn erase_labelled(
        &self,
        tenant: &Tenant,
        name: &str,
        value: &str,
    ) -> Result<ErasureReport, EraseError> {
        let (core, tenant) = (self.core().clone(), tenant.clone());
        let label = (name.to_owned(), value.to_owned());
        let tracker = core.tracker.clone();
        to_the_end(&tracker, async move { erase_labelled(&core, &tenant, &label).await }).await
    }
}

/// Erases by a label. See [`Executor::erase_labelled`].
pub(crate) async fn erase_labelled(
    core: &Arc<Core>,
    tenant: &Tenant,
    label: &(String, String),
) -> Result<ErasureReport, EraseError> {
    let mut report = ErasureReport::default();
    runs(core, tenant, label, &mut report).await?;
    calls(core, tenant, label, &mut report).await?;
    tracing::info!(
        %tenant,
        label = %label.0,
        runs = report.runs.len(),
        calls = report.calls.len(),
        kept = report.kept.len() + report.kept_calls.len(),
        "runs and calls erased by their label"
    );
    Ok(report)
}

/// Erases the runs with a label.
async fn runs(
    core: &Arc<Core>,
    tenant: &Tenant,
    (name, value): &(String, String),
    report: &mut ErasureReport,
) -> Result<(), EraseError> {
    let (filter, mut after) = (RunFilter::new().label(name, value), None);
    loop {
        let page = core.group.run_page(tenant, &filter, after.as_ref(), PAGE).await;
        let page = page.map_err(|source| failed(name, source))?;
        for run in &page.runs {
            with_children(core, tenant, run, report).await?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Erases the content of the calls with a label. Those of the runs that were erased before have lost it.
async fn calls(
    core: &Arc<Core>,
    tenant: &Tenant,
    (name, value): &(String, String),
    report: &mut ErasureReport,
) -> Result<(), EraseError> {
    let mut after = String::new();
    loop {
        let page = core.group.record_labelled(tenant, (name, value), "", &after, PAGE).await;
        let page = page.map_err(|source| failed(name, source))?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.key.to_string();
        for record in page {
            let key = record.key.to_string();
            match erase_after(core, tenant, &record.key, PATIENCE).await {
                Ok(()) => report.calls.push(key),
                Err(error @ EraseError::Failed(_)) => return Err(error),
                Err(why) => report.kept_calls.push(KeptCall { key, why: why.to_string() }),
            }
        }
    }
}

/// Erases a run with its calls, and then its children, which may go after it alone.
async fn with_children(
    core: &Arc<Core>,
    tenant: &Tenant,
    run: &Run,
    report: &mut ErasureReport,
) -> Result<(), EraseError> {
    let mut left = vec![run.clone()];
    while let Some(run) = left.pop() {
        if let Err(error) = whole(core, tenant, &run, report).await {
            match error {
                EraseError::Failed(_) => return Err(error),
                why => report.kept.push(KeptRun { run: run.id, why: why.to_string() }),
            }
            continue;
        }
        report.runs.push(run.id);
        let mut after = RunId(i64::MIN);
        loop {
            let children = core.group.run_children(tenant, run.id, after, PAGE).await;
            let children = children.map_err(|source| failed(&run.id, source))?;
            let Some(last) = children.last() else { break };
            after = last.id;
            left.extend(children.into_iter().filter(|child| !child.state.is_expired()));
        }
    }
    Ok(())
}

/// Erases the content of a run's calls, and the run. Of a run that cannot go, the calls stay.
///
/// # Race
/// A question may be opened between the look and the erasure, and another run may rest on one of the calls. The run stays
/// then, and calls of it have gone: the report lists both.
async fn whole(
    core: &Arc<Core>,
    tenant: &Tenant,
    run: &Run,
    report: &mut ErasureReport,
) -> Result<(), EraseError> {
    if !can_be_erased(core, tenant, run.id).await? {
        return Err(EraseError::RunStillNeeded { run: run.id });
    }
    let mut first = 0_u32;
    while first <= run.turn {
        let turns = Turns::between(first, first.saturating_add(TURNS - 1));
        let history = core.group.run_history(tenant, run.id, turns).await;
        for call in history.map_err(|source| failed(&run.id, source))?.calls {
            erase(core, tenant, &call.key).await?;
            report.calls.push(call.key.to_string());
        }
        first = first.saturating_add(TURNS);
    }
    erase_run(core, tenant, run.id).await
}

fn failed(what: &impl ToString, source: StoreError) -> EraseError {
    ExecError::Store { key: what.to_string(), source }.into()
}
