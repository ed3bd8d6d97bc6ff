//! A child that is begun again. Its former run, which was begun in its place before, has failed or was undone, and
//! effects of that run exist in the world, or may exist. The new run is named after the former one, as a fork is named
//! after its origin: an effect without a key of its own is found again, and not done a second time.

use std::collections::HashSet;

use super::mark::{Again, Anew, Mark, bare, next_revision};
use super::marks::marks;
use super::past::{Past, children};
use crate::exec::{Core, ExecError};
use crate::flow::child::lineage::begun;
use crate::id::{RunId, RunName, RunNumber, Tenant};
use crate::ledger::{OperationKey, Record, State};
use crate::store::{History, Run, Store as _, StoreError, Turns};

/// The number of a child's former run, and the mark with which the history of the new run begins. `parent` holds the
/// marks of the parent. `None` if the former run no longer exists.
pub(in crate::flow) async fn child_begun_again(
    core: &Core,
    tenant: &Tenant,
    former: RunId,
    parent: Vec<Mark>,
) -> Result<Option<(RunNumber, Mark)>, ExecError> {
    let Some((run, history)) = read(core, tenant, former).await.map_err(|source| failed(former, source))?
    else {
        return Ok(None);
    };
    let again = Again::of(marks(core, tenant, &history).await?);
    let named = RunName { id: again.origin().unwrap_or(run.id), number: run.number };
    // Earlier decisions about keys hold, and so do those that were made when the parent was begun again.
    let mut anew: Vec<Anew> = again.anew().cloned().collect();
    anew.extend(parent.iter().flat_map(|mark| mark.anew.iter().cloned()));
    let records = recorded(core, tenant, &history).await.map_err(|source| failed(former, source))?;
    for record in &records {
        // An effect that was undone completely is no longer there: it is done under the next revision of its key.
        if matches!(record.state, State::Compensated { whole: true, .. })
            && is_named_after(&record.key, named)
        {
            let (key, revision) = (bare(record.key.as_str()).to_owned(), next_revision(record.key.as_str()));
            anew.push(Anew { key, revision, record: record.id });
        }
    }
    // The children of the former run are begun again with it.
    let past = Past { records, ..Past::of(run.base, history.steps, &again) };
    let mut places = again.all_former();
    places.extend(children(&past.steps.iter().collect::<Vec<_>>()));
    let former = places.into_iter().collect();
    let before = again.before().chain([run.id]).collect();
    let last = parent.into_iter().next_back().unwrap_or_default();
    let mark = Mark {
        by: last.by,
        reason: last.reason,
        origin: Some(named.id),
        anew,
        before,
        former,
        unstable: again.unstable().cloned().chain(past.unstable()).collect(),
        ..Mark::default()
    };
    Ok(Some((run.number, mark)))
}

/// The records of a child that is begun again, of the former runs in its place, and of the children of all these runs;
/// the oldest record first.
pub(super) async fn records(core: &Core, child: &Run) -> Result<Vec<Record>, ExecError> {
    let tenant = &child.tenant;
    let (mut records, mut ids) = (Vec::new(), HashSet::new());
    let (mut runs, mut known) = (vec![child.id], HashSet::new());
    while let Some(id) = runs.pop() {
        let found = if known.insert(id) { read(core, tenant, id).await } else { Ok(None) };
        let Some((_, history)) = found.map_err(|source| failed(id, source))? else { continue };
        let found = recorded(core, tenant, &history).await.map_err(|source| failed(id, source))?;
        records.extend(found.into_iter().filter(|record| ids.insert(record.id)));
        runs.extend(history.steps.iter().filter_map(begun));
        runs.extend(Again::of(marks(core, tenant, &history).await?).before());
    }
    records.sort_by_key(|record| (record.created_at, record.id));
    Ok(records)
}

/// True if the key is that of a call without a key of its own.
pub(super) fn is_named_after_a_run(key: &OperationKey) -> bool {
    // `~` is escaped in keys that users give.
    key.as_str().split(":~").skip(1).any(|part| part.starts_with("run-"))
}

fn is_named_after(key: &OperationKey, run: RunName) -> bool {
    key.as_str().contains(&format!(":~{run}:"))
}

/// Reads a run and its history since its present input began. `None` if there is no such run.
async fn read(core: &Core, tenant: &Tenant, id: RunId) -> Result<Option<(Run, History)>, StoreError> {
    let Some(run) = core.group.run_find(tenant, id).await? else { return Ok(None) };
    let history = core.group.run_history(tenant, id, Turns::between(run.base, u32::MAX)).await?;
    Ok(Some((run, history)))
}

/// The records of a run's calls, and the records of other runs that it used.
async fn recorded(core: &Core, tenant: &Tenant, history: &History) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    let uses = history.uses.iter().map(|used| used.record);
    for id in history.calls.iter().map(|call| call.record).chain(uses) {
        records.extend(core.group.record_at(tenant, id).await?);
    }
    Ok(records)
}

fn failed(run: RunId, source: StoreError) -> ExecError {
    ExecError::Store { key: run.to_string(), source }
}
