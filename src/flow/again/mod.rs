//! Beginning again from a step: retry (the same run goes on) and fork (a new run does). What the run computed from there
//! on is done again; what it did in the world stands and is not done again, unless somebody says so of an effect
//! (DESIGN 4.11).

mod fork;
mod former;
mod mark;
mod marks;
mod past;
mod resume;
mod retry;
mod undone;

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

pub(super) use former::child_begun_again;
pub(super) use mark::{AGAIN, Again, Mark, Place};
use mark::{Anew, bare, next_revision};
pub(super) use marks::{checkpoint, marks};
use past::Past;
pub use resume::Resume;

use super::child::lineage::begun;
use super::error::RunError;
use super::family;
use super::handle::RunHandle;
use super::inner::Inner;
use super::label::Label;
use super::signal::Sent;
use crate::clock::Timestamp;
use crate::exec::{Core, to_the_end};
use crate::id::{RunId, Tenant, checked};
use crate::ledger::{Key, OperationKey, Record, State};
use crate::payload::Payload;
use crate::store::{Change, Run, RunState, Step, Store as _, Turns};

/// A retry: the run itself goes on.
#[derive(Debug)]
pub struct Retry;
/// A fork: a new run goes on from what another has recorded.
#[derive(Debug)]
pub struct Fork<O>(PhantomData<fn() -> O>);

/// A command to begin a run again. Nothing happens before it is awaited; then it is durable.
#[must_use = "nothing is begun again before this is awaited"]
pub struct BeginAgain<How> {
    plan: Plan,
    _how: PhantomData<fn() -> How>,
}

struct Plan {
    inner: Arc<Inner>,
    tenant: Tenant,
    run: RunId,
    by: String,
    reason: String,
    key: Option<String>,
    from: Option<Label>,
    anew: Vec<OperationKey>,
    undone: Vec<OperationKey>,
    /// Models are asked anew.
    explores: bool,
}

impl<O> RunHandle<O> {
    /// Lets a run that failed, or was blocked, go on from a step: from what failed last, unless a step is
    /// [said](BeginAgain::from_step). What it computed from there on is done again; calls that failed are made again;
    /// children that failed, or were undone with the run, are begun again. Effects that are committed stand, and are not repeated, nor
    /// are those of a child that is begun again: see
    /// [`effects`](BeginAgain::effects) and [`reissue`](BeginAgain::reissue).
    ///
    /// # Errors
    /// [`RunError::NotRetryable`] if it is under way, has succeeded, is a child whose failure its parent knows, or would
    /// have to go back to a turn that is over: [`fork`](Self::fork) it.
    ///
    /// # Crash
    /// The command and the run's new state are one transaction.
    pub fn retry(&self, by: impl Into<String>, reason: impl Into<String>) -> BeginAgain<Retry> {
        self.again(by.into(), reason.into())
    }

    /// Begins a new run that goes on from a step of this one, whatever state that is in: from what failed last, unless a
    /// step is [said](BeginAgain::from_step). It finds what was recorded before that step; its calls are answered from
    /// what is recorded of the effects of this run, before and after that step, and nothing is repeated.
    ///
    /// # Errors
    /// [`RunError::ChildRunning`] while a child that this run has begun is under way.
    ///
    /// # Crash
    /// The new run is there with all that it is given, or not at all.
    pub fn fork(&self, by: impl Into<String>, reason: impl Into<String>) -> BeginAgain<Fork<O>> {
        self.again(by.into(), reason.into())
    }

    fn again<How>(&self, by: String, reason: String) -> BeginAgain<How> {
        BeginAgain { plan: self.plan(by, reason), _how: PhantomData }
    }

    fn plan(&self, by: String, reason: String) -> Plan {
        let (inner, tenant, run) = (self.inner.clone(), self.tenant.clone(), self.id);
        let (anew, undone) = (Vec::new(), Vec::new());
        Plan { inner, tenant, run, by, reason, key: None, from: None, anew, undone, explores: false }
    }
}

impl<How> BeginAgain<How> {
    /// From this step on: the name of a step, a wait, a call's tool, a child's workflow, with an id if there are several;
    /// without one the first of that name, in the last turn that has it.
    pub fn from_step(mut self, label: impl Into<Label>) -> Self {
        self.plan.from = Some(label.into());
        self
    }

    /// The command's own idempotency key: the same again is not a second command.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.plan.key = Some(key.into());
        self
    }

    /// Does this operation again, on purpose: under the next [revision](Key::revision) of its key. What is recorded
    /// of it stands beside.
    pub fn reissue(mut self, effect: &OperationKey) -> Self {
        self.plan.anew.push(effect.clone());
        self
    }

    /// The effects from that step on that stand in the world, or may: what is not repeated unless you
    /// [say so](Self::reissue), and not undone unless you [say so](Self::compensate). Nothing is begun.
    pub async fn effects(&self) -> Result<Vec<Record>, RunError> {
        let (_, _, past) = self.plan.look().await?;
        let from = self.plan.point(&past)?;
        Ok(past.effects(from).cloned().collect())
    }
}

impl<O> BeginAgain<Fork<O>> {
    /// Only to see what the models would say now. A fork asks them anew from that step on; their new answers are recorded beside the first
    /// ones and never replace them. With this, it is refused where the world has changed since.
    ///
    /// # Errors
    /// [`RunError::EffectRests`] if the run has an effect behind that step: it rests on the first answers. Fork it from a later step.
    pub fn explore(mut self) -> Self {
        self.plan.explores = true;
        self
    }
}

impl IntoFuture for BeginAgain<Retry> {
    type Output = Result<Sent, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let tracker = self.plan.inner.core.tracker.clone();
            // Dropped between the row and the task, this would leave a run that nobody carries out.
            to_the_end(&tracker, self.plan.retry()).await
        })
    }
}

impl<O: DeserializeOwned + Send + 'static> IntoFuture for BeginAgain<Fork<O>> {
    type Output = Result<RunHandle<O>, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (inner, tenant) = (self.plan.inner.clone(), self.plan.tenant.clone());
            let run = to_the_end(&inner.core.tracker.clone(), self.plan.fork()).await?;
            Ok(RunHandle::of(inner, tenant, run))
        })
    }
}

impl Plan {
    fn core(&self) -> &Core {
        &self.inner.core
    }

    /// The run, how it was begun again before, and what it has recorded.
    async fn look(&self) -> Result<(Run, Again, Past), RunError> {
        let (group, tenant) = (&self.core().group, &self.tenant);
        let row = group.run_find(tenant, self.run).await?.ok_or(RunError::Unknown { run: self.run })?;
        if row.state.is_expired() {
            return Err(RunError::Expired { run: self.run });
        }
        let history = group.run_history(tenant, self.run, Turns::between(row.base, u32::MAX)).await?;
        let again = Again::of(marks(self.core(), tenant, &history).await?);
        let mut past = Past::of(row.base, history.steps, &again);
        for call in history.calls {
            past.records.extend(group.record_at(tenant, call.record).await?);
        }
        for used in history.uses {
            past.records.extend(group.record_at(tenant, used.record).await?);
        }
        past.records.sort_by_key(|record| (record.created_at, record.id));
        for child in past.steps.iter().filter_map(begun).collect::<Vec<_>>() {
            past.children.extend(group.run_find(tenant, child).await?.map(|run| (child, run)));
        }
        let ended_well = |child: &&Run| matches!(child.state, RunState::Succeeded { .. });
        for child in past.children.values().filter(ended_well).filter(|child| child.parent == Some(row.id)) {
            let family = family::of(self.core(), child).await?;
            if family.effects.iter().any(|record| matches!(record.state, State::Compensated { .. })) {
                past.undone.insert(child.id);
            }
        }
        for child in past.children.values() {
            // Only such a child is begun again.
            if matches!(child.state, RunState::Failed { .. }) || past.undone.contains(&child.id) {
                past.theirs.insert(child.id, former::records(self.core(), child).await?);
            }
        }
        Ok((row, again, past))
    }

    /// When it is to be begun again.
    fn point(&self, past: &Past) -> Result<Timestamp, RunError> {
        match &self.from {
            Some(label) => past.first(label).ok_or_else(|| {
                let id = label.id.as_ref().map(|id| format!(" #{id}")).unwrap_or_default();
                RunError::NoSuchStep { run: self.run, step: format!("{}{id}", label.name) }
            }),
            None => Ok(past.last_failure().unwrap_or(Timestamp(i64::MAX))),
        }
    }

    /// # Errors
    /// If models are to be asked anew, and an effect rests on what they have said.
    fn may_explore(&self, past: &Past, point: Timestamp) -> Result<(), RunError> {
        let rests = if self.explores { past.effects(point).next() } else { None };
        match rests {
            Some(record) => Err(RunError::EffectRests { run: self.run, key: record.key.to_string() }),
            None => Ok(()),
        }
    }

    fn mark(&self, again: &Again, past: &Past, point: Timestamp) -> Result<Mark, RunError> {
        let mut anew = Vec::new();
        for key in &self.anew {
            let record = past.record(key);
            let Some(record) = record.filter(|record| record.state != State::Started) else {
                return Err(RunError::NoSuchEffect { run: self.run, key: key.to_string() });
            };
            let given = if former::is_named_after_a_run(key) {
                bare(key.as_str()) // no code gives it a revision
            } else {
                again.given_key(key.as_str())
            };
            let given = given.to_owned();
            anew.push(Anew { key: given, revision: next_revision(key.as_str()), record: record.id });
        }
        let from = self.from.as_ref().map(|label| label.name.clone());
        let (by, reason, later) = (self.by.clone(), self.reason.clone(), past.later(point));
        let undone = self.undone.iter().map(ToString::to_string).collect();
        Ok(Mark { by, reason, from, later, anew, undone, ..Mark::default() })
    }

    /// The mark as a checkpoint of a run.
    fn checkpoint(
        &self,
        run: RunId,
        base: u32,
        id: &str,
        mark: &Mark,
    ) -> Result<(Step, Option<Payload>), RunError> {
        Ok(checkpoint(self.core(), (&self.tenant, run, base), id, mark)?)
    }

    /// The id of the command.
    fn id(&self) -> Result<String, RunError> {
        match &self.key {
            Some(key) => {
                checked("command's key", key, Key::MAX_BYTES)?;
                Ok(key.clone())
            }
            None => Ok(self.inner.unique()),
        }
    }

    fn change(&self, large: Option<Payload>) -> Change {
        let mut change = self.core().change(None);
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        change
    }
}
