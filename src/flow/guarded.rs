//! What guards (layer 5) build on: a row of their own is written in one transaction with the checkpoint of the run that asks
//! for it, or with what a run is told.

use std::sync::Arc;

use futures_util::future::Either;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::{Ctx, Label};
use super::failure::Failure;
use super::handle::{ForTenant, RunError};
use super::inbox::Wanted;
use super::live::{Live, Open};
use super::replay::{Identity, Kind};
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError, to_the_end};
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Payload;
use crate::store::{Change, Document, PastStep, StepKind, Store as _, StoreError, Turns, Verdict};

impl Ctx {
    /// Does something of a guard's once, about this digest of a content: another one on resume halts the run. `decide` says
    /// what it comes to, and the guard's row that goes with it, if one does.
    ///
    /// # Crash
    /// What it comes to and the row are one transaction. On resume the record answers, and the row is left alone.
    pub(crate) async fn guarded<T, Fut>(
        &self,
        label: Label,
        about: &str,
        decide: impl FnOnce(Arc<Core>, Asking) -> Fut,
    ) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = Result<Guarded<T>, ExecError>>,
    {
        let hash = RequestHash::of(&label.name, &Payload::of(about)?);
        let (live, open) = (&self.live, self.open(Kind::Step, label)?);
        if let Some(past) = live.recorded(&open).await {
            return self.replayed(open, Some(hash), past).await;
        }
        if let Some(check) = &live.check {
            check.unrecorded(&open.identity).await;
        }
        live.released(&open, None).await;
        let core = live.engine.core.clone();
        let written = {
            let _resting = open.rest();
            core.group.room().await;
            let id = live.recorded_as(&open.identity).id;
            match decide(core, Asking { run: live.id, turn: self.turn, id }).await {
                Ok(guarded) => live.write_guarded(&open, hash, guarded).await,
                Err(error) => Err(error),
            }
        };
        match written {
            Ok(value) => {
                live.progressed();
                open.close();
                Ok(value)
            }
            Err(error) => Err(open.failed(live.failure(error).await)),
        }
    }

    /// Waits for what the engine says to the run under a name of its own, however long that takes.
    pub(crate) async fn told<T: DeserializeOwned>(&self, name: &str, id: &str) -> Result<T, Failure> {
        let wanted = Wanted { name: name.to_owned(), id: Some(id.to_owned()) };
        let body = self.receive(Label::from((name, id)), wanted).await?;
        self.decoded("signal", &body).await
    }

    /// The same, but not longer than until this instant.
    pub(crate) async fn told_before<T: DeserializeOwned + Send>(
        &self,
        name: &str,
        id: &str,
        at: Timestamp,
    ) -> Result<Option<T>, Failure> {
        let too_late = self.sleep_until(Label::from((name, id)), at);
        match self.select(Label::from((name, id)), self.told(name, id), too_late).await? {
            Either::Left(told) => told.map(Some),
            Either::Right(slept) => slept.map(|()| None),
        }
    }
}

impl Live {
    /// The checkpoint of what something of a guard's came to, with the guard's row. Durable when this returns: others act
    /// on it.
    async fn write_guarded<T: Serialize>(
        &self,
        open: &Open,
        hash: RequestHash,
        guarded: Guarded<T>,
    ) -> Result<T, ExecError> {
        let (core, Guarded { value, document, payloads }) = (&self.engine.core, guarded);
        let (stored, large) = core.storable(Payload::of(&value)?.within(&core.limits)?);
        let step = self.step(&open.identity, StepKind::Step, Some(hash), stored);
        let mut change = core.change(Some(self.lane)).step(step);
        change
            .payloads
            .extend(large.into_iter().chain(payloads).map(|payload| (self.tenant.clone(), payload)));
        change.document = document.map(Box::new);
        let key = || open.identity.to_string();
        match core.group.commit_one(change).await {
            Ok(Verdict::Admitted) => Ok(value),
            Ok(Verdict::Refused(refusal)) => Err(ExecError::Refused { key: key(), refusal }),
            Err(source) => Err(ExecError::Store { key: key(), source }),
        }
    }
}

/// What something of a guard's comes to, and what is written with it.
pub(crate) struct Guarded<T> {
    pub(crate) value: T,
    /// The guard's row, if it changes.
    pub(crate) document: Option<Document>,
    /// What the row names by its digest.
    pub(crate) payloads: Vec<Payload>,
}

impl<T> Guarded<T> {
    pub(crate) const fn of(value: T, document: Option<Document>) -> Self {
        Self { value, document, payloads: Vec::new() }
    }
}

/// Which run asks for something of a guard's, in which turn, and under which id.
pub(crate) struct Asking {
    pub(crate) run: RunId,
    pub(crate) turn: u32,
    pub(crate) id: String,
}

impl ForTenant {
    pub(crate) fn core(&self) -> Arc<Core> {
        self.parts().0.core.clone()
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.parts().1
    }

    /// Writes something of a guard's, and tells a run of it under a name of the engine's own: the run hears it, or is woken.
    ///
    /// # Crash
    /// What is written and what the run is told are one transaction; who dies before the run was woken leaves a signal that
    /// the next start finds.
    pub(crate) async fn tell<B: Serialize + Sync>(
        &self,
        mut change: Change,
        run: RunId,
        (name, id): (&str, &str),
        body: &B,
    ) -> Result<Verdict, RunError> {
        let (inner, tenant) = self.parts();
        let body = Payload::of(body).map_err(ExecError::from)?;
        let (_, pending) = inner.addressed(&tenant, run).await?.ok_or(RunError::Unknown { run })?;
        let (signal, large) = inner.behind(&pending, &tenant, run, name.to_owned(), id.to_owned(), body);
        change.payloads.extend(large.map(|payload| (tenant, payload)));
        change.signal = Some(Box::new(signal.clone()));
        let tracker = inner.core.tracker.clone();
        // Dropped between the rows and the wake-up, this would leave a run that waits for what it has.
        let told = to_the_end(&tracker, async move {
            let verdict = inner.core.group.commit_one(change).await;
            match &verdict {
                Ok(Verdict::Admitted) => inner.delivered(signal).await,
                _ => inner.perhaps_sent(signal),
            }
            verdict
        });
        Ok(told.await?)
    }

    /// The run waits to be told this: it has not ended, and has neither dropped the wait nor gone on to another turn since.
    pub(crate) async fn waits_for(
        &self,
        run: RunId,
        turn: u32,
        (name, id): (&str, &str),
    ) -> Result<bool, StoreError> {
        let (inner, tenant) = self.parts();
        let group = &inner.core.group;
        if let Some(live) = inner.lives().into_iter().find(|live| live.id == run) {
            // What it has dropped a moment ago is on its way to the disk. If it cannot be written, the run begins anew.
            let _written = live.flushed().await;
        }
        let row = group.run_find(&tenant, run).await?.filter(|row| !row.state.is_final());
        if row.is_none_or(|row| turn != row.base && turn != row.turn) {
            return Ok(false);
        }
        let history = group.run_history(&tenant, run, Turns::between(turn, turn)).await?;
        let wait = Identity { turn, kind: Kind::Signal, name: name.to_owned(), id: id.to_owned() };
        let dropped = |past: &PastStep| {
            past.kind == StepKind::Abandoned && past.name == wait.abandoned_name() && past.id == wait.id
        };
        Ok(!history.steps.iter().any(dropped))
    }
}
