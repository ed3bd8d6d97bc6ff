//! Guards' rows of their own: read, decided upon, and written in one change with the run's record of the answer. If
//! another writer came in between, they are read and decided upon again.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::failure::{Failure, Meaning, meaning};
use super::identity::Kind;
use super::label::Label;
use super::live::{Live, Open};
use super::tenant::TenantClient;
use crate::exec::{Core, ExecError, to_the_end};
use crate::id::Tenant;
use crate::ledger::RequestHash;
use crate::payload::Payload;
use crate::store::{Change, Refusal, Verdict};

/// The number of tries before a guard reports that it lost. Each failed try is one that another writer has won.
const TRIES: u32 = 1000;

/// An action of a guard, done once under the key of an operation.
pub(crate) trait Guarded: Send + Sync + 'static {
    /// The answer of the action.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// The reason why the action was refused.
    type Error: From<ExecError> + Send + 'static;

    /// Decides without reading, if the present rows are most probably known. Called once, before
    /// [`propose`](Self::propose): if the write is refused, the rows are read.
    fn guess<'a>(
        &'a self,
        _core: &'a Core,
        _tenant: &'a Tenant,
        _key: &'a str,
    ) -> Guessed<'a, Self::Answer, Self::Error> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Tells the guard that its last proposal or guess is durable.
    fn written(&self, _core: &Core, _tenant: &Tenant) {}

    /// Reads the present rows and decides. It may be called again.
    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Self::Answer>, Self::Error>>;

    /// The meaning of an error in a run: a failure that its code may handle, or an error of the executor.
    fn in_run(error: Self::Error) -> Result<Failure, ExecError>;
}

/// The decision of a guard after reading.
pub(crate) enum Proposal<A> {
    /// The action was done before, and this was the answer.
    Before(A),
    /// A change to be written, and its answer. The store refuses it as `Exists` if the rows are not as they were read.
    Write(Box<Change>, A),
}

/// A future guess of a guard. `None` if it makes none.
pub(crate) type Guessed<'a, A, E> = BoxFuture<'a, Result<Option<Guess<A>>, E>>;

/// The decision of a guard without reading.
pub(crate) struct Guess<A> {
    /// The subject of the guess: after a refusal no guess is made about it any more.
    pub(crate) about: String,
    /// The change to be written. The store refuses it as `Exists` if the rows are not as they were guessed.
    pub(crate) change: Box<Change>,
    pub(crate) answer: A,
}

/// An action that is done, now or before.
pub(crate) struct Done<A> {
    answer: A,
    before: bool,
}

/// An action of a guard for one tenant, under one key.
struct Doing<'a, G> {
    core: &'a Core,
    tenant: &'a Tenant,
    guarded: &'a G,
    key: &'a str,
}

impl<G: Guarded> Doing<'_, G> {
    /// Carries the action out. `with` adds what is to become durable with it.
    async fn done(
        self,
        with: impl Fn(Change, &G::Answer) -> Result<Change, ExecError>,
    ) -> Result<Done<G::Answer>, G::Error> {
        let Self { core, tenant, guarded, key } = self;
        if let Some(Guess { about, change, answer }) = guarded.guess(core, tenant, key).await? {
            if self.is_written(with(*change, &answer)?).await? {
                return Ok(Done { answer, before: false });
            }
            core.guesses.was_wrong(tenant, about);
        }
        for _ in 0..TRIES {
            let (change, answer) = match guarded.propose(core, tenant, key).await? {
                Proposal::Before(answer) => return Ok(Done { answer, before: true }),
                Proposal::Write(change, answer) => (change, answer),
            };
            if self.is_written(with(*change, &answer)?).await? {
                return Ok(Done { answer, before: false });
            }
        }
        Err(ExecError::Refused { key: key.to_owned(), refusal: Refusal::Exists }.into())
    }

    /// Writes the change. Returns false if the rows are not as they were read or guessed: another writer was first.
    async fn is_written(&self, change: Change) -> Result<bool, G::Error> {
        let Self { core, tenant, guarded, key } = self;
        core.group.room().await;
        let verdict = core.group.commit_one(change).await;
        match verdict.map_err(|source| ExecError::Store { key: (*key).to_owned(), source })? {
            Verdict::Admitted => {
                guarded.written(core, tenant);
                Ok(true)
            }
            Verdict::Refused(Refusal::Exists) => Ok(false),
            Verdict::Refused(refusal) => Err(ExecError::Refused { key: (*key).to_owned(), refusal }.into()),
        }
    }
}

impl TenantClient {
    /// Carries out a guard's action outside of any run. If the caller goes away, the action is done all the same.
    pub(crate) async fn guarded<G: Guarded>(&self, key: String, guarded: G) -> Result<G::Answer, G::Error> {
        let (core, tenant) = self.core();
        let tracker = core.tracker.clone();
        let done = to_the_end(&tracker, async move {
            let doing = Doing { core: &core, tenant: &tenant, guarded: &guarded, key: &key };
            doing.done(|change, _| Ok(change)).await
        });
        done.await.map(|done| done.answer)
    }
}

impl Ctx {
    /// The core that carries the run out, and the run's tenant.
    pub(crate) fn core(&self) -> (Arc<Core>, Tenant) {
        (self.live.core.clone(), self.live.tenant.clone())
    }

    /// The id of this run, or of the run that it was forked from.
    pub(crate) fn origin(&self) -> crate::id::RunId {
        self.live.named_after().id
    }

    /// The name in keys of effects: of this run, or of the run that it was forked from or is begun again for.
    #[cfg_attr(not(feature = "agent"), allow(dead_code, reason = "agents make such keys"))]
    pub(crate) fn effect_name(&self) -> crate::id::RunName {
        self.live.named_after()
    }

    /// The run's own name in keys.
    pub(crate) fn run_name(&self) -> crate::id::RunName {
        self.live.name()
    }

    /// Carries out a guard's action, once for the run. Default key: one of the run's own.
    ///
    /// # Crash
    /// The guard's rows and the run's record of the answer are one transaction.
    pub(crate) async fn guarded<G: Guarded>(
        &self,
        label: Label,
        bound_to: &impl Serialize,
        key: Option<String>,
        guarded: G,
    ) -> Result<G::Answer, Failure> {
        let hash = RequestHash::of(&label.name, &self.canonical(bound_to).await?);
        let open = self.open(Kind::Guard, label).await?;
        if let Some(past) = self.live.recorded(&open).await? {
            return self.replayed(open, Some(hash), past).await;
        }
        self.live.released(&open, None).await;
        let own = || format!("~{}/{}", self.live.name(), self.live.recorded_as(&open.identity).place());
        let key = key.unwrap_or_else(own);
        let done = {
            let _resting = open.rest();
            self.live.guarded(&open, hash, key, guarded).await
        };
        match done {
            Ok(Done { answer, before: false }) => {
                self.live.progressed();
                open.close();
                Ok(answer)
            }
            Ok(Done { answer, before: true }) => self.record(open, Some(hash), &answer).await,
            Err(error) => Err(match G::in_run(error) {
                Ok(failure) => self.live.shown(open, failure).await,
                Err(error) => self.live.told(open, error).await,
            }),
        }
    }

    /// Reads rows of a guard, and records the result: on resume the record answers.
    pub(crate) async fn guarded_read<T, E>(
        &self,
        label: Label,
        bound_to: &impl Serialize,
        read: impl Future<Output = Result<T, E>>,
        in_run: impl Fn(E) -> Result<Failure, ExecError>,
    ) -> Result<T, Failure>
    where
        T: Serialize + DeserializeOwned,
    {
        let hash = RequestHash::of(&label.name, &self.canonical(bound_to).await?);
        let open = self.open(Kind::Step, label).await?;
        if let Some(past) = self.live.recorded(&open).await? {
            return self.replayed(open, Some(hash), past).await;
        }
        self.live.released(&open, None).await;
        let found = {
            let _resting = open.rest();
            read.await
        };
        match found.map_err(in_run) {
            Ok(found) => self.record(open, Some(hash), &found).await,
            Err(Ok(failure)) => Err(self.live.shown(open, failure).await),
            Err(Err(error)) => Err(self.live.told(open, error).await),
        }
    }
}

impl Live {
    /// Carries out a guard's action for a run. If the future is dropped, its write goes on to its end, and the drop
    /// leaves a mark.
    async fn guarded<G: Guarded>(
        self: &Arc<Self>,
        open: &Open,
        hash: RequestHash,
        key: String,
        guarded: G,
    ) -> Result<Done<G::Answer>, G::Error> {
        let (live, identity) = (self.clone(), open.identity.clone());
        to_the_end(&self.core.tracker, async move {
            let core = &live.core;
            let with = |change: Change, answer: &G::Answer| {
                let payload = Payload::of(answer)?.within(&core.limits)?;
                let (value, large) = core.storable(payload);
                let step = live.step(&identity, identity.kind.checkpoint(), Some(hash), value);
                let mut change = change.in_lane(Some(live.lane)).step(step);
                change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
                Ok(change)
            };
            Doing { core, tenant: &live.tenant, guarded: &guarded, key: &key }.done(with).await
        })
        .await
    }
}

/// The meaning of an executor's error in a run.
pub(crate) fn exec_in_run(error: ExecError) -> Result<Failure, ExecError> {
    match meaning(error) {
        Meaning::Failure(failure) => Ok(failure),
        Meaning::Stop(error) => Err(error),
    }
}
