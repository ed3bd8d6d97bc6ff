//! A run and the children that end with it: the effects of these children are undone together with the run's own.
//!
//! A child that failed has undone its effects. A child that succeeded has not, and its parent undoes them: they are
//! ordered at the place where the parent received the child's end, in the child's own order. A child whose end the
//! parent did not receive is ordered at the place where it ended.

use std::collections::HashMap;

use futures_util::future::BoxFuture;

use super::child::lineage::{PLACE, begun, ended};
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError};
use crate::id::{RecordId, RunId};
use crate::ledger::{Record, State};
use crate::store::{PastStep, Run, RunState, Store as _, StoreError, Turns};

/// The number of turns, or of children, that are read at once.
const PAGE: u32 = 256;

/// The order of something among a run's effects. A single worker orders by ids, which rise from life to life although
/// its clock may be set back; the ids of several workers do not, and so their effects are ordered by time first.
type Place = (Option<Timestamp>, i64);

/// A run, the children that end with it, and the children of these.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// The run, and the children that succeeded or have not ended.
    pub(super) runs: Vec<RunId>,
    /// The effects of the run since its present input began, in all its turns, and the effects of its children that
    /// succeeded; the first one first.
    pub(super) effects: Vec<Record>,
    /// The children that have not ended.
    pub(super) unfinished: Vec<Run>,
    /// The children that the run has begun detached.
    pub(super) detached: Vec<RunId>,
}

/// Reads the family of a run. Everything that the run has queued must be durable.
pub(super) async fn of(core: &Core, run: &Run) -> Result<Family, ExecError> {
    let reading = Reading { core, run };
    reading.family().await.map_err(|source| ExecError::Store { key: run.id.to_string(), source })
}

struct Reading<'a> {
    core: &'a Core,
    run: &'a Run,
}

impl Reading<'_> {
    fn family(&self) -> BoxFuture<'_, Result<Family, StoreError>> {
        Box::pin(async move {
            let mut family = Family { runs: vec![self.run.id], ..Family::default() };
            let (mut ends, mut begun_here) = (HashMap::new(), Vec::new());
            let mut placed: Vec<(Place, Vec<Record>)> = Vec::new();
            let mut first = self.run.base;
            while first <= self.run.turn && first < u32::MAX {
                let turns = Turns::between(first, first.saturating_add(PAGE - 1).min(self.run.turn));
                let history = self.core.group.run_history(&self.run.tenant, self.run.id, turns).await?;
                begun_here.extend(history.steps.iter().filter_map(begun));
                for step in &history.steps {
                    self.note_end(step, &mut ends);
                }
                let calls = history.calls.into_iter().map(|call| (call.record, false));
                for (id, used) in calls.chain(history.uses.into_iter().map(|used| (used.record, true))) {
                    let record = self.record(id, used).await?;
                    placed.extend(
                        record.map(|record| (self.place(record.created_at, record.id.0), vec![record])),
                    );
                }
                first = turns.last.saturating_add(1);
            }
            for child in self.children().await? {
                begun_here.retain(|begun| *begun != child.id);
                if !child.state.is_final() {
                    family.runs.push(child.id);
                    family.unfinished.push(child);
                    continue;
                }
                if !matches!(child.state, RunState::Succeeded { .. }) {
                    continue; // the child has undone its effects, and those of its children
                }
                let theirs = Reading { core: self.core, run: &child }.family().await?;
                let last = theirs.effects.iter().map(|record| record.id.0).max().unwrap_or(child.id.0);
                let place =
                    ends.get(&child.id).copied().unwrap_or_else(|| self.place(child.updated_at, last));
                placed.push((place, theirs.effects));
                family.runs.extend(theirs.runs);
                family.unfinished.extend(theirs.unfinished);
                family.detached.extend(theirs.detached);
            }
            placed.sort_by_key(|(place, _)| *place);
            family.effects = placed.into_iter().flat_map(|(_, records)| records).collect();
            for child in begun_here {
                let child = self.core.group.run_find(&self.run.tenant, child).await?;
                family.detached.extend(child.filter(|child| child.parent.is_none()).map(|child| child.id));
            }
            Ok(family)
        })
    }

    fn place(&self, at: Timestamp, id: i64) -> Place {
        (self.core.is_shared().then_some(at), id)
    }

    /// Notes the place at which the end of a child was received first.
    fn note_end(&self, step: &PastStep, ends: &mut HashMap<RunId, Place>) {
        let Some(child) = ended(step) else { return };
        let place = if self.core.is_shared() {
            (Some(step.at), i64::MAX)
        } else if step.id.ends_with(PLACE) {
            let Some(place) = step.value.as_ref().and_then(|value| value.inline()?.decode().ok()) else {
                return;
            };
            (None, place)
        } else {
            return;
        };
        ends.entry(child).and_modify(|first: &mut Place| *first = place.min(*first)).or_insert(place);
    }

    /// A record of the run, or one that it used and whose own run has failed, perhaps before the effect happened for
    /// this run. `None` if neither, and if nothing but a tombstone answered the run: the effect is no work of its own.
    async fn record(&self, id: RecordId, used: bool) -> Result<Option<Record>, StoreError> {
        let group = &self.core.group;
        let Some(record) = group.record_at(&self.run.tenant, id).await? else { return Ok(None) };
        if used {
            let Some(owner) = record.owner.run.filter(|_| !matches!(record.state, State::Gone { .. })) else {
                return Ok(None);
            };
            let owner = group.run_find(&self.run.tenant, owner).await?;
            if !owner.is_some_and(|run| matches!(run.state, RunState::Failed { .. })) {
                return Ok(None);
            }
        }
        Ok(Some(record))
    }

    /// The children that the run has begun since its present input began.
    async fn children(&self) -> Result<Vec<Run>, StoreError> {
        let (mut children, mut after) = (Vec::new(), RunId(i64::MIN));
        loop {
            let group = &self.core.group;
            let page = group.run_children(&self.run.tenant, self.run.id, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(children) };
            after = last.id;
            children.extend(page.into_iter().filter(|child| child.begun_in() >= self.run.base));
        }
    }
}
