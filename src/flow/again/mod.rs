//! Beginning again from a step: retry (the same run goes on) and fork (a new run does). The computations of the run
//! from that step on are done again. Its effects in the world are kept and not repeated, unless the command says so of
//! an effect.

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
pub(super) use mark::{AGAIN, Again, Mark, Place, Unstable};
use mark::{Anew, Order, Verb, bare, next_revision};
pub(super) use marks::{checkpoint, marks};
use past::Past;
pub use resume::Resume;

use super::child::lineage::begun;
use super::error::RunError;
use super::family;
use super::handle::RunHandle;
use super::history::PastCall;
use super::inner::Inner;
use super::label::Label;
use super::signal::Sent;
use crate::clock::Timestamp;
use crate::exec::{Core, to_the_end};
use crate::id::{RunId, Tenant};
use crate::ledger::{OperationKey, State};
use crate::payload::Payload;
use crate::store::{Change, Run, RunState, Step, Store as _, Turns};

/// A retry: the run itself goes on.
#[derive(Debug)]
pub struct Retry;
/// A fork: a new run goes on from the records of another run.
#[derive(Debug)]
pub struct Fork<O>(PhantomData<fn() -> O>);

/// A command to begin a run again. Nothing happens until it is awaited; then it is durable.
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
    /// True if the fork is refused when an effect rests on the models' answers.
    explores: bool,
}

impl<O> RunHandle<O> {
    /// Lets a run that failed, or was blocked, go on from the call or child that failed last, or from [another
    /// step](BeginAgain::from_step). The computations of the run from there on are done again. Failed calls are made
    /// again. Children that failed, or were undone with the run, are begun again. Committed effects are kept and not
    /// repeated, and neither are those of a child that is begun again: see [`effects`](BeginAgain::effects) and
    /// [`reissue`](BeginAgain::reissue).
    ///
    /// # Errors
    /// [`RunError::NotRetryable`] if the run is under way, has succeeded, is a child whose failure its parent knows, or
    /// would have to go back to a turn that is over: [`fork`](Self::fork) such a run.
    ///
    /// # Crash
    /// The command and the run's new state are one transaction.
    pub fn retry(&self, by: impl Into<String>, reason: impl Into<String>) -> BeginAgain<Retry> {
        self.again(by.into(), reason.into())
    }

    /// Begins a new run that goes on from a step of this run, whatever state this run is in: from the call or child
    /// that failed last, or from [another step](BeginAgain::from_step). The new run finds the checkpoints before that
    /// step. Its calls are answered from the records of this run's effects, before and after that step, and nothing is
    /// repeated. It has the [labels](super::StartRun::label) of this run.
    ///
    /// # Errors
    /// [`RunError::ChildRunning`] while a child that this run has begun is under way.
    ///
    /// # Crash
    /// The new run exists with everything that it is given, or not at all.
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
    /// The step to go on from: the name of a step, a wait, a call's tool or a child's workflow, with an id if several
    /// have that name. Without an id, the first use of the name in the last turn that has one.
    pub fn from_step(mut self, label: impl Into<Label>) -> Self {
        self.plan.from = Some(label.into());
        self
    }

    /// The idempotency key of the command: the same command under the same key is not a second one. A key that begins
    /// with `~` is refused.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.plan.key = Some(key.into());
        self
    }

    /// Does this operation again, on purpose: under the next [revision](crate::Key::revision) of its key. The first record is
    /// kept beside the new one.
    pub fn reissue(mut self, effect: &OperationKey) -> Self {
        self.plan.anew.push(effect.clone());
        self
    }

    /// The effects from that step on that exist in the world, or may exist. They are not repeated without
    /// [`reissue`](Self::reissue), and not undone without [`compensate`](Self::compensate). This begins no run.
    pub async fn effects(&self) -> Result<Vec<PastCall>, RunError> {
        let (_, _, past) = self.plan.look().await?;
        let from = self.plan.point(&past)?;
        Ok(past.effects(from).map(PastCall::from).collect())
    }
}

impl<O> BeginAgain<Fork<O>> {
    /// Restricts the fork to looking at the models' present answers: it is refused if the world has changed since that
    /// step. Every fork asks the models anew from that step on; their new answers are recorded beside the first ones
    /// and never replace them.
    ///
    /// # Errors
    /// [`RunError::EffectRests`] if the run has an effect behind that step, which rests on the first answers. Fork the
    /// run from a later step.
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
            // A future dropped between the row and the task would leave a run that no worker carries out.
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

    /// Reads the run, its marks, and its recorded past.
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
            // Only a child that failed or was undone is begun again.
            if matches!(child.state, RunState::Failed { .. }) || past.undone.contains(&child.id) {
                past.theirs.insert(child.id, former::records(self.core(), child).await?);
            }
        }
        Ok((row, again, past))
    }

    /// The instant of the step to go on from, or the end of time if the run has no failure.
    fn point(&self, past: &Past) -> Result<Timestamp, RunError> {
        match &self.from {
            Some(label) => past.first(label).ok_or_else(|| {
                let id = label.id.as_ref().map(|id| format!(" #{id}")).unwrap_or_default();
                RunError::NoSuchStep { run: self.run, step: format!("{}{id}", label.name) }
            }),
            None => Ok(past.last_failure().unwrap_or(Timestamp(i64::MAX))),
        }
    }

    /// Checks that no effect rests on the models' answers, if the fork is only to look at new ones.
    ///
    /// # Errors
    /// [`RunError::EffectRests`] if an effect does.
    fn may_explore(&self, past: &Past, point: Timestamp) -> Result<(), RunError> {
        let rests = if self.explores { past.effects(point).next() } else { None };
        match rests {
            Some(record) => Err(RunError::EffectRests { run: self.run, key: record.key.to_string() }),
            None => Ok(()),
        }
    }

    /// The command as it is given.
    fn order(&self, verb: Verb) -> Order {
        let texts = |keys: &[OperationKey]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        Order {
            verb,
            from: self.from.as_ref().map(|label| (label.name.clone(), label.id.clone())),
            anew: texts(&self.anew),
            undone: texts(&self.undone),
            explores: self.explores,
        }
    }

    fn mark(&self, verb: Verb, again: &Again, past: &Past, point: Timestamp) -> Result<Mark, RunError> {
        let mut anew = Vec::new();
        for key in &self.anew {
            let record = past.record(key);
            let Some(record) = record.filter(|record| record.state != State::Started) else {
                return Err(RunError::NoSuchEffect { run: self.run, key: key.to_string() });
            };
            let given = if former::is_named_after_a_run(key) {
                bare(key.as_str()) // the code gives such a key no revision
            } else {
                again.given_key(key.as_str())
            };
            let given = given.to_owned();
            anew.push(Anew { key: given, revision: next_revision(key.as_str()), record: record.id });
        }
        let from = self.from.as_ref().map(|label| label.name.clone());
        let (by, reason, later) = (self.by.clone(), self.reason.clone(), past.later(point));
        let order = self.order(verb);
        let undone = order.undone.clone();
        Ok(Mark { by, reason, from, later, anew, undone, order: Some(order), ..Mark::default() })
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

    /// The id of the command: its key, or a unique id.
    fn id(&self) -> Result<String, RunError> {
        Ok(self.inner.command_id(self.key.clone())?)
    }

    fn change(&self, large: Option<Payload>) -> Change {
        let mut change = self.core().change(None);
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        change
    }
}
