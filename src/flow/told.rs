//! Messages of a guard (layer 5) to a run, under a name of the engine's own: written in one change with the guard's
//! rows.

use futures_util::future::Either;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::error::RunError;
use super::failure::Failure;
use super::identity::{Identity, Kind};
use super::inbox::Wanted;
use super::label::Label;
use super::signal::NewSignal;
use super::tenant::TenantClient;
use crate::clock::Timestamp;
use crate::exec::{ExecError, to_the_end};
use crate::id::RunId;
use crate::payload::Payload;
use crate::store::{Change, PastStep, StepKind, Store as _, StoreError, Turns, Verdict};

impl Ctx {
    /// Waits for a message of the engine to the run, under a name of the engine's own, however long that takes.
    pub(crate) async fn told<T: DeserializeOwned>(&self, name: &str, id: &str) -> Result<T, Failure> {
        let wanted = Wanted { name: name.to_owned(), id: Some(id.to_owned()) };
        let body = self.receive(Label::from((name, id)), wanted, None).await?;
        self.decoded("signal", &body).await
    }

    /// Waits for such a message, but not longer than until this instant (UTC).
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

impl TenantClient {
    /// Writes rows of a guard, and tells a run of them under a name of the engine's own: the run is told, or is woken.
    ///
    /// # Crash
    /// The rows and the message to the run are one transaction. If the process dies before the run is woken, the next
    /// start finds the message.
    pub(crate) async fn tell<B: Serialize + Sync>(
        &self,
        mut change: Change,
        run: RunId,
        (name, id): (&str, &str),
        body: &B,
    ) -> Result<Verdict, RunError> {
        let (inner, tenant) = self.parts();
        let body = Payload::of(body).map_err(ExecError::from)?;
        let (_, last) = inner.addressed(&tenant, run).await?.ok_or(RunError::Unknown { run })?;
        let new = NewSignal { tenant: tenant.clone(), run, name: name.to_owned(), id: id.to_owned(), body };
        let (signal, large) = inner.behind(last, new);
        change.payloads.extend(large.map(|payload| (tenant, payload)));
        change.signal = Some(Box::new(signal.clone()));
        let tracker = inner.core.tracker.clone();
        // A future dropped between the rows and the wake-up would leave a run that waits for a message which is there.
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

    /// True if the run waits for this message: it has not ended, and has neither dropped the wait nor gone on to
    /// another turn.
    pub(crate) async fn waits_for(
        &self,
        run: RunId,
        turn: u32,
        (name, id): (&str, &str),
    ) -> Result<bool, StoreError> {
        let (inner, tenant) = self.parts();
        let group = &inner.core.group;
        if let Some(live) = inner.runs.live(run) {
            // A wait that was dropped a moment ago is on its way to the disk. If it cannot be written, the run begins
            // anew.
            let _written = live.flushed().await;
        }
        let row = group.run_find(&tenant, run).await?.filter(|row| !row.state.is_final());
        if row.is_none_or(|row| turn != row.base && turn != row.turn) {
            return Ok(false);
        }
        let history = group.run_history(&tenant, run, Turns::between(turn, turn)).await?;
        let wait =
            Identity { turn, kind: Kind::Signal, name: name.to_owned(), id: Identity::given(id.to_owned()) };
        let dropped = |past: &PastStep| {
            past.kind == StepKind::Abandoned && past.name == wait.abandoned_name() && past.id == wait.id
        };
        Ok(!history.steps.iter().any(dropped))
    }
}
