//! The context: everything durable that a workflow does goes through it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use super::identity::{Identity, Kind};
use super::inner::Inner;
use super::label::Label;
use super::live::{Live, Open, Stop, Wait};
use super::recordable::Recordable;
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::{PastStep, QuestionKind};
use crate::tool::canonical;

/// A run's hold on durability. Cheap to clone; useless once its run has ended.
///
/// Identity is by name and id, never by position: code between steps may change, and steps may be added.
/// A name alone is enough while its uses follow one another; when several are open at once, each needs an id,
/// as in `ctx.step(("resize", &image), …)`.
///
/// Outside the context a workflow body does no I/O and waits for nothing.
#[derive(Clone)]
pub struct Ctx {
    /// The engine that carries the run out, for the other runs that it starts and tells.
    pub(super) engine: Arc<Inner>,
    pub(super) live: Arc<Live>,
    /// Everything that is done through this context is recorded under this number: a turn's, or the run's base.
    pub(super) turn: u32,
}

impl std::fmt::Debug for Ctx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx").field("run", &self.live.id).finish_non_exhaustive()
    }
}

impl Ctx {
    pub(super) fn new(engine: Arc<Inner>, live: Arc<Live>) -> Self {
        Self { turn: live.base, engine, live }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.live.id
    }

    /// The instant at which the run is [cancelled](super::StartRun::deadline) if it has not ended by then (UTC). The same in every life of
    /// the run.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.live.run().deadline
    }

    /// The number under which its calls are recorded: of the turn, or of the run outside of loops.
    pub(crate) const fn scope(&self) -> u32 {
        self.turn
    }

    /// The tenant that owns the run.
    pub fn tenant(&self) -> &Tenant {
        &self.live.tenant
    }

    /// Runs a synchronous closure once and records its result; on resume the record answers. It waits for no
    /// disk: its result becomes durable with whatever next touches the world.
    ///
    /// The input is hashed. If the code gives another input on resume, because its type has a new field for example, the closure is run
    /// again: an equal result is adopted, and a different one blocks the run, with the difference.
    ///
    /// # Crash
    /// Before its record is durable, the closure runs again. It must not touch the world: use a tool for that.
    pub async fn step<I, T>(
        &self,
        label: impl Into<Label>,
        input: &I,
        closure: impl FnOnce(&I) -> T,
    ) -> Result<T, Failure>
    where
        I: Serialize + ?Sized,
        T: Recordable,
    {
        self.stepped(label.into(), input, closure, |_| None).await
    }

    /// A step whose output is recorded, unless `blocked_by` says that the run is blocked by it.
    pub(super) async fn stepped<I, T>(
        &self,
        label: Label,
        input: &I,
        closure: impl FnOnce(&I) -> T,
        blocked_by: impl Fn(&T) -> Option<Failure>,
    ) -> Result<T, Failure>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
    {
        let (open, hash) = self.open_step(label, input).await?;
        if let Some(past) = self.live.recorded(&open).await? {
            if self.live.is_bound(&open.identity, hash, &past) {
                return self.replayed(open, None, past).await;
            }
            // Boxed because it is rare: every step would have to carry the room for it.
            return Box::pin(self.compared(open, hash, past, || closure(input))).await;
        }
        if let Some(check) = &self.live.check {
            self.live.unrecorded(check, &open.identity).await;
        }
        let output = {
            let _inside = self.live.inside();
            closure(input)
        };
        if let Some(failure) = blocked_by(&output) {
            return Err(self.live.unless_mendable(failure).await);
        }
        self.record(open, Some(hash), &output).await
    }

    /// Runs an asynchronous closure and records its result. Because such a closure may do anything, it is first
    /// polled when everything before it is durable, and held back while a resumed run is still replaying.
    ///
    /// # Crash
    /// If the process dies while it runs, it runs again. What touches the world and must not be repeated is a tool.
    pub async fn step_async<I, T, Fut>(
        &self,
        label: impl Into<Label>,
        input: &I,
        closure: impl FnOnce() -> Fut,
    ) -> Result<T, Failure>
    where
        I: Serialize + ?Sized,
        T: Recordable,
        Fut: Future<Output = T>,
    {
        self.stepped_async(label.into(), input, closure, |_| None).await
    }

    /// An asynchronous step whose output is recorded, unless `blocked_by` says that the run is blocked by it.
    pub(super) async fn stepped_async<I, T, Fut>(
        &self,
        label: Label,
        input: &I,
        closure: impl FnOnce() -> Fut,
        blocked_by: impl Fn(&T) -> Option<Failure>,
    ) -> Result<T, Failure>
    where
        I: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        Fut: Future<Output = T>,
    {
        let (open, hash) = self.open_step(label, input).await?;
        if let Some(past) = self.live.recorded(&open).await? {
            return self.replayed(open, Some(hash), past).await;
        }
        self.live.released(&open, None).await;
        if let Err(error) = self.live.flushed().await {
            return Err(self.live.failure(error).await);
        }
        let output = {
            let _resting = open.rest();
            let mut work = std::pin::pin!(closure());
            std::future::poll_fn(|cx| {
                let _inside = self.live.inside();
                work.as_mut().poll(cx)
            })
            .await
        };
        if let Some(failure) = blocked_by(&output) {
            return Err(self.live.unless_mendable(failure).await);
        }
        self.record(open, Some(hash), &output).await
    }

    /// Waits, durably: a crash neither loses nor shortens the wait, and a long one holds no memory. `Duration::MAX` is for
    /// ever.
    pub async fn sleep(&self, duration: Duration) -> Result<(), Failure> {
        self.sleep_named("sleep", duration).await
    }

    /// Waits, under a name: needed where several waits are open at once.
    pub async fn sleep_named(&self, label: impl Into<Label>, duration: Duration) -> Result<(), Failure> {
        self.sleep_until(label, self.live.core.now().after(duration)).await
    }

    /// Waits, durably, until this instant (UTC): a deadline that was computed elsewhere, or one that several waits share.
    /// An instant after the year 2254 never comes.
    pub async fn sleep_until(&self, label: impl Into<Label>, at: Timestamp) -> Result<(), Failure> {
        let open = self.open(Kind::Timer, label).await?;
        let due = match self.live.recorded(&open).await? {
            Some(past) => self.value(&open.identity, past).await?,
            None => {
                // A later instant could not be recorded, and is as good as never.
                let at = Timestamp(at.0.clamp(-Timestamp::LAST.0, Timestamp::LAST.0));
                let due = Payload::stored(at.0.to_string());
                self.live.is_new(&open.identity);
                self.live.checkpoint(&open.identity, None, due).await;
                at
            }
        };
        self.wait_until(&open, due).await;
        open.close();
        Ok(())
    }

    pub(super) async fn wait_until(&self, open: &Open, due: Timestamp) {
        let core = &self.live.core;
        if due >= Timestamp::LAST {
            let _waiting = open.wait(Wait::default());
            return std::future::pending().await;
        }
        loop {
            let left = core.now().until(due);
            if left.is_zero() {
                return;
            }
            let _waiting = open.wait(Wait::until(due));
            self.live.waker.owning(core.clock.sleep(left)).await;
        }
    }

    /// The time, recorded: the same on every resume.
    pub async fn now(&self) -> Result<Timestamp, Failure> {
        let now = self.live.core.now();
        self.drawn("now", || now).await
    }

    /// A random UUID (version 4), recorded: the same on every resume.
    pub async fn uuid(&self) -> Result<uuid::Uuid, Failure> {
        let entropy = self.live.core.entropy.clone();
        self.drawn("uuid", || uuid::Builder::from_random_bytes(entropy.wide_bits().to_be_bytes()).into_uuid())
            .await
    }

    /// Fifty-three random bits, recorded: the same on every resume.
    pub async fn random(&self) -> Result<u64, Failure> {
        let entropy = self.live.core.entropy.clone();
        self.drawn("random", || entropy.bits() >> 11).await
    }

    async fn drawn<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        draw: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        let open = self.open(Kind::Drawn, name).await?;
        match self.live.recorded(&open).await? {
            Some(past) => self.replayed(open, None, past).await,
            None => self.record(open, None, &draw()).await,
        }
    }

    pub(super) async fn open(&self, kind: Kind, label: impl Into<Label>) -> Result<Open, Failure> {
        let Label { name, id } = label.into();
        self.unless_mendable(self.live.open(self.turn, kind, &name, id)).await
    }

    /// What the run's code is given, unless a new build can mend it: then the run is blocked.
    pub(crate) async fn unless_mendable<T>(&self, given: Result<T, Failure>) -> Result<T, Failure> {
        match given {
            Ok(value) => Ok(value),
            Err(failure) => Err(self.live.unless_mendable(failure).await),
        }
    }

    /// A step, and what its input is bound to.
    async fn open_step<I: Serialize + ?Sized>(
        &self,
        label: Label,
        input: &I,
    ) -> Result<(Open, RequestHash), Failure> {
        let hash = RequestHash::of(&label.name, &self.canonical(input).await?);
        Ok((self.open(Kind::Step, label).await?, hash))
    }

    /// The canonical form, secrets as keyed digests.
    pub(super) async fn canonical<I: Serialize + ?Sized>(&self, input: &I) -> Result<Payload, Failure> {
        self.live.canonical(|key| canonical(input, key)).await
    }

    /// Records a result, and gives it back as a resume would: read from its recorded form.
    pub(super) async fn record<T: Serialize + DeserializeOwned>(
        &self,
        open: Open,
        hash: Option<RequestHash>,
        output: &T,
    ) -> Result<T, Failure> {
        let recordable = || -> Result<(T, Payload), Failure> {
            let payload = Payload::of(output)?.within(&self.live.core.limits)?;
            Ok((payload.decode()?, payload))
        };
        let (value, payload) = match recordable() {
            Ok(recordable) => recordable,
            Err(error) => return Err(self.live.shown(open, error).await),
        };
        self.live.checkpoint(&open.identity, hash, payload).await;
        self.live.trace_step(&open);
        open.close();
        Ok(value)
    }

    /// Gives a recorded result back, or blocks the run if it does not belong to this input or this type.
    pub(super) async fn replayed<T: DeserializeOwned>(
        &self,
        open: Open,
        hash: Option<RequestHash>,
        past: PastStep,
    ) -> Result<T, Failure> {
        if let (Some(now), Some(then)) = (hash, past.input_hash)
            && now != then
        {
            // An asynchronous closure may do anything: it is not run again to compare its result.
            let question = format!(
                "{}: the {} has another input than when it was recorded ({then:?} then, {now:?} now): \
                 the code or its input changed. Restore it and go on, or give the step a new name?",
                self.live.id, open.identity
            );
            return self.block(QuestionKind::Diverged, question).await;
        }
        let value = self.value(&open.identity, past).await?;
        open.close();
        Ok(value)
    }

    pub(super) async fn value<T: DeserializeOwned>(
        &self,
        identity: &Identity,
        past: PastStep,
    ) -> Result<T, Failure> {
        let Some(stored) = past.value else {
            let question = format!(
                "{}: the {} was ended from inside its closure (COMMIT or ROLLBACK): what it committed is \
                 durable, its result is not known. Check the tables by hand, then go on or abandon?",
                self.live.id, identity
            );
            return self.block(QuestionKind::Damaged, question).await;
        };
        self.decoded(&identity.to_string(), &stored).await
    }

    /// Reads a stored result as today's type; one that no longer fits blocks the run, and is never executed again.
    pub(super) async fn decoded<T: DeserializeOwned>(
        &self,
        what: &str,
        stored: &Stored,
    ) -> Result<T, Failure> {
        let payload = match self.live.core.load(&self.live.tenant, stored).await {
            Ok(payload) => payload,
            Err(error) => return Err(self.live.failure(error).await),
        };
        match payload.decode() {
            Ok(value) => Ok(value),
            Err(error) => {
                let question = format!(
                    "{}: the recorded result of the {what} no longer fits the code: {error}. \
                     Restore the type and go on, or abandon?",
                    self.live.id
                );
                self.block(QuestionKind::Damaged, question).await
            }
        }
    }

    /// Stops the run with an open question. Never returns.
    pub(super) async fn block<T>(&self, kind: QuestionKind, question: String) -> T {
        self.live.stop(Stop::block(kind, question)).await
    }
}
