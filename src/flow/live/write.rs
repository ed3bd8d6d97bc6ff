//! The writes that an activation queues for the store: checkpoints, and new states of the run's row.

use super::Live;
use super::open::Open;
use crate::exec::ExecError;
use crate::flow::identity::{Identity, Kind};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::{
    Change, PastStep, PublishedValue, Run, Step, StepKind, Store as _, StoreError, Ticket, Verdict,
};
use crate::trace::{Span, SpanKind};

impl Live {
    /// Queues a checkpoint. If the write is refused later, its lane stops the run.
    pub(in crate::flow) async fn checkpoint(
        &self,
        identity: &Identity,
        hash: Option<RequestHash>,
        value: Payload,
    ) {
        if let Some(check) = &self.check {
            return self.unrecorded(check, identity).await;
        }
        self.core.group.room().await;
        if self.unmended().is_some() {
            // A step has used the context in its closure: the mended build is to run it again.
            return std::future::pending().await;
        }
        self.put(identity, hash, value);
        self.progressed();
    }

    /// Queues a published value with its checkpoint. The revision of the value before is read once in an activation:
    /// nobody else publishes for the run.
    pub(in crate::flow) async fn publish(
        &self,
        identity: &Identity,
        value: Payload,
    ) -> Result<(), ExecError> {
        if let Some(check) = &self.check {
            self.unrecorded(check, identity).await;
            return Ok(());
        }
        let name = &identity.name;
        let is_known = self.state().published.contains_key(name);
        if !is_known {
            let last = self.core.group.published_find(&self.tenant, self.id, name).await;
            let last = last.map_err(|source| ExecError::Store { key: self.id.to_string(), source })?;
            let last = last.map_or(0, |last| last.revision);
            self.state().published.entry(name.clone()).or_insert(last);
        }
        self.core.group.room().await;
        if self.unmended().is_some() {
            return std::future::pending().await;
        }
        let null = Stored::Inline(Payload::stored("null"));
        let step = self.step(identity, identity.kind.checkpoint(), None, null);
        let revision = {
            let mut state = self.state();
            let revision = state.published.entry(name.clone()).or_default();
            *revision += 1;
            *revision
        };
        let (tenant, name) = (self.tenant.clone(), name.clone());
        let published = PublishedValue { tenant, run: self.id, name, revision, value, at: step.at };
        let change =
            Change { published: Some(Box::new(published)), ..self.core.change(Some(self.lane)).step(step) };
        drop(self.core.group.submit(change));
        self.progressed();
        Ok(())
    }

    /// True if the run takes a part of the code that was added later: its code is past everything that the run has
    /// recorded. The answer is queued at once, so that it is durable before anything that another branch does because
    /// of it.
    pub(in crate::flow) fn patch(&self, identity: &Identity) -> bool {
        let (is_patched, is_new) = {
            let mut state = self.state();
            let is_past = !state.replay.is_behind();
            let Some(scope) = state.scope(identity.turn, self.base) else { return is_past }; // the use was refused when it was opened
            match scope.patches.get(&identity.name) {
                Some(answered) => (*answered, false),
                None => {
                    scope.patches.insert(identity.name.clone(), is_past);
                    (is_past, true)
                }
            }
        };
        if is_new && self.check.is_none() {
            self.put(identity, None, Payload::stored(is_patched.to_string()));
        }
        is_patched
    }

    /// True if a recorded step is bound to this input: it was recorded with it, or was found to give the same result
    /// with it.
    pub(in crate::flow) fn is_bound(&self, step: &Identity, input: RequestHash, past: &PastStep) -> bool {
        past.input_hash.is_none_or(|then| then == input) || self.state().replay.has_adopted(step, input)
    }

    /// Records that this input gives a step its recorded result, so that the next resume need not find that out.
    pub(in crate::flow) fn adopt(&self, step: &Identity, input: RequestHash) {
        if let Some(check) = &self.check {
            return check.adopts(step);
        }
        tracing::info!(
            tenant = %self.tenant, run = %self.id, %step,
            "step adopted: its input changed, its result did not"
        );
        let mark = Identity { id: step.adopted_id(input), ..step.clone() };
        let value = Stored::Inline(Payload::stored("null"));
        let step = self.step(&mark, StepKind::Adopted, Some(input), value);
        drop(self.core.group.submit(self.core.change(Some(self.lane)).step(step)));
    }

    /// Tells of a step that this activation has made.
    pub(in crate::flow) fn trace_step(&self, open: &Open) {
        let Some(began) = open.began.filter(|_| open.identity.kind == Kind::Step) else { return };
        let identity = &open.identity;
        let place = identity.place();
        let context = || self.trace.within(&[b"step", &identity.turn.to_be_bytes(), place.as_bytes()]);
        self.core.spans.record(context, |context| Span {
            context,
            parent: Some(self.trace.span),
            kind: SpanKind::Step,
            name: identity.name.clone(),
            began,
            ended: self.core.now(),
            failure: None,
            fields: vec![
                ("tenant", self.tenant.to_string()),
                ("run", self.id.to_string()),
                ("step", place.clone()),
                ("worker", self.core.fence.to_string()),
            ],
        });
    }

    fn put(&self, identity: &Identity, hash: Option<RequestHash>, value: Payload) {
        let (value, large) = self.core.storable(value);
        let step = self.step(identity, identity.kind.checkpoint(), hash, value);
        let mut change = self.core.change(Some(self.lane)).step(step);
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        drop(self.core.group.submit(change));
    }

    /// Builds a checkpoint of an identity, of this kind.
    pub(in crate::flow) fn step(
        &self,
        identity: &Identity,
        kind: StepKind,
        input_hash: Option<RequestHash>,
        value: impl Into<Option<Stored>>,
    ) -> Step {
        let mut state = self.state();
        let at = state.later(self.core.now());
        Step {
            tenant: self.tenant.clone(),
            run: self.id,
            turn: identity.turn,
            kind,
            name: identity.name.clone(),
            id: state.replay.again.recorded_id(identity.turn, kind, &identity.name, &identity.id),
            input_hash,
            value: value.into(),
            at,
        }
    }

    /// Notes that the run made progress: the deaths of its earlier processes no longer count against it.
    pub(in crate::flow) fn progressed(&self) {
        if self.state().run.deaths > 0 {
            drop(self.change_run(|run| run.deaths = 0));
        }
    }

    /// The next state of the run's row, to be written with other changes.
    pub(in crate::flow) fn next_run(&self, change: impl FnOnce(&mut Run)) -> Run {
        self.state().next_run(self.core.now(), change)
    }

    /// Queues a new state of the run's row.
    pub(in crate::flow) fn change_run(&self, change: impl FnOnce(&mut Run)) -> Ticket {
        self.change_run_with(self.core.change(Some(self.lane)), change)
    }

    /// Queues a new state of the run's row as a part of a change.
    pub(in crate::flow) fn change_run_with(&self, with: Change, change: impl FnOnce(&mut Run)) -> Ticket {
        let mut state = self.state();
        // The change is queued before the lock is released, so that revisions arrive in their order.
        let run = state.next_run(self.core.now(), change);
        self.core.group.submit(with.run(run))
    }

    /// Waits until everything that the run has queued is durable. The wait costs nothing if nothing is queued.
    pub(in crate::flow) async fn flushed(&self) -> Result<(), ExecError> {
        let barrier = self.core.change(Some(self.lane));
        self.written(self.core.group.commit_one(barrier).await)
    }

    /// The result of a write of this run, with a refusal as an error of the executor.
    pub(in crate::flow) fn written(&self, verdict: Result<Verdict, StoreError>) -> Result<(), ExecError> {
        let key = || self.id.to_string();
        match verdict {
            Ok(Verdict::Admitted) => Ok(()),
            Ok(Verdict::Refused(refusal)) => Err(ExecError::Refused { key: key(), refusal }),
            Err(source) => Err(ExecError::Store { key: key(), source }),
        }
    }
}
