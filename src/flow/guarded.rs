//! What a guard keeps in rows of its own: read, decided upon and written in one change with the run's record of what was
//! answered. If somebody else has written in between, it is read and decided upon again.

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

/// Each try that fails is one that another has won. Who loses so often is told so.
const TRIES: u32 = 1000;

/// What a guard does, once, under the key of an operation.
pub(crate) trait Guarded: Send + Sync + 'static {
    /// What it answers.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// Why it is refused.
    type Error: From<ExecError> + Send + 'static;

    /// Decides without reading, where what is there is most probably known. Asked once, before [`propose`](Self::propose): if the
    /// write is refused, what is there is read.
    fn guess<'a>(
        &'a self,
        _core: &'a Core,
        _tenant: &'a Tenant,
        _key: &'a str,
    ) -> Guessed<'a, Self::Answer, Self::Error> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What was proposed or guessed last is durable.
    fn written(&self, _core: &Core, _tenant: &Tenant) {}

    /// Reads what is there and decides; may be asked again.
    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Self::Answer>, Self::Error>>;

    /// What an error means in a run: a failure that its code may handle, or the executor's own.
    fn in_run(error: Self::Error) -> Result<Failure, ExecError>;
}

/// What a guard makes of what it has read.
pub(crate) enum Proposal<A> {
    /// It was done before, and this was answered.
    Before(A),
    /// To be written, and answered so. Refused as `Exists` if it is not as it was read.
    Write(Box<Change>, A),
}

/// A guess that is being made, if one is.
pub(crate) type Guessed<'a, A, E> = BoxFuture<'a, Result<Option<Guess<A>>, E>>;

/// What a guard makes of what it has not read.
pub(crate) struct Guess<A> {
    /// What it is about: after a refusal nobody guesses about it any more.
    pub(crate) about: String,
    /// To be written. Refused as `Exists` if what is there is not as it was guessed.
    pub(crate) change: Box<Change>,
    pub(crate) answer: A,
}

/// Done, now or before.
pub(crate) struct Done<A> {
    answer: A,
    before: bool,
}

/// What a guard does for one tenant, under one key.
struct Doing<'a, G> {
    core: &'a Core,
    tenant: &'a Tenant,
    guarded: &'a G,
    key: &'a str,
}

impl<G: Guarded> Doing<'_, G> {
    /// Carries it out; `with` adds what is to become durable with it.
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

    /// False if what is there is not as it was read, or guessed: another was first.
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
    /// Carries out what a guard does, outside of any run. The caller may go away: it is done all the same.
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
    /// What the run carries out, and for whom.
    pub(crate) fn core(&self) -> (Arc<Core>, Tenant) {
        (self.live.core.clone(), self.live.tenant.clone())
    }

    /// The run that it is, or was forked from.
    pub(crate) fn origin(&self) -> crate::id::RunId {
        self.live.named_after().id
    }

    /// The name in keys of effects: of the run that it is, or was forked from, or is begun again for.
    #[cfg_attr(not(feature = "agent"), allow(dead_code, reason = "agents make such keys"))]
    pub(crate) fn effect_name(&self) -> crate::id::RunName {
        self.live.named_after()
    }

    /// The run's own name in keys.
    pub(crate) fn run_name(&self) -> crate::id::RunName {
        self.live.name()
    }

    /// Carries out what a guard does, once for the run: under a key of its own unless one is given.
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

    /// Reads what a guard keeps, and records what was read: on resume the record answers.
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
    /// A future that is dropped leaves its write to its end, and a mark that it was dropped.
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

/// What the executor's error means in a run.
pub(crate) fn exec_in_run(error: ExecError) -> Result<Failure, ExecError> {
    match meaning(error) {
        Meaning::Failure(failure) => Ok(failure),
        Meaning::Stop(error) => Err(error),
    }
}
