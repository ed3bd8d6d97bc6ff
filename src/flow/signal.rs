//! Signals: what is said to a run from outside or by another run, kept until the run receives it, received once.
//!
//! A signal is a row of its own. Who sends one tells the run's task if it is here, or wakes the run if it waits as a row.
//! Both are only hints: a sender that dies in between leaves a signal that the next start, or whoever takes its worker
//! over, finds by its row.

use std::future::{IntoFuture, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Wake as _, Waker};

use futures_util::future::{BoxFuture, try_join};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::lineage::{ENDED, PLACE};
use super::command::is_command;
use super::ctx::Ctx;
use super::engine::Inner;
use super::error::RunError;
use super::failure::{Failure, FailureCode};
use super::handle::RunHandle;
use super::identity::Kind;
use super::inbox::Wanted;
use super::label::Label;
use super::live::{Live, Open, Wait};
use super::start::Canonical;
use crate::exec::{ExecError, to_the_end};
use crate::id::{IdError, Name, RunId, Tenant, checked};
use crate::ledger::Key;
use crate::payload::{Payload, Stored};
use crate::store::{Change, Refusal, Run, RunState, Signal, Step, Store as _, StoreError, Verdict};
use crate::tool::canonical;

/// Names that begin so are the engine's own.
const OWN: char = '~';
/// The signals of so many runs are asked for at once.
const LIVES: usize = 256;

/// What became of a signal that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is durable, and the run will receive it.
    New,
    /// The same signal was sent before: the run receives it once, or has.
    Before,
}

/// What a run was told by another.
enum Told {
    /// The signal, now or by the run that the sender was forked from.
    Signal,
    /// Nothing: there is no such run.
    Nobody,
    /// Another one, by the run that the sender was forked from.
    Another,
}

impl Ctx {
    /// Waits for the next signal of this name, however long that takes, and holds nothing meanwhile. Signals that came
    /// before anybody waited are kept; those of one sender are received in the order in which they were sent.
    ///
    /// # Crash
    /// A signal that was received is received again on resume, and the same one. One that was not is still there.
    pub async fn signal<T: DeserializeOwned>(&self, label: impl Into<Label>) -> Result<T, Failure> {
        let label = label.into();
        usable(&label.name).map_err(|error| unfit(&error))?;
        let wanted = Wanted { name: label.name.clone(), id: None };
        let body = self.receive(label, wanted).await?;
        self.decoded("signal", &body).await
    }

    /// Receives a signal under an identity of its own.
    pub(super) async fn receive(&self, label: Label, wanted: Wanted) -> Result<Stored, Failure> {
        let open = self.open(Kind::Signal, label)?;
        let past = self.live.recorded(&open).await?;
        let body = match past.and_then(|past| past.value) {
            Some(body) => body,
            None => self.live.next_signal(&open, &wanted).await,
        };
        open.close();
        Ok(body)
    }

    /// Says something to another run of the same tenant, once, whatever dies in between.
    ///
    /// # Errors
    /// If there is no such run.
    ///
    /// # Crash
    /// The signal and this run's record of having sent it are one transaction.
    pub async fn send<B: Serialize + ?Sized>(
        &self,
        to: RunId,
        label: impl Into<Label>,
        body: &B,
    ) -> Result<(), Failure> {
        let label = label.into();
        usable(&label.name).map_err(|error| unfit(&error))?;
        let open = self.open(Kind::Sent, label)?;
        if self.live.recorded(&open).await?.is_some() {
            open.close();
            return Ok(());
        }
        let (open, body) = self.live.fitting(open, false, |key| canonical(body, key)).await?;
        self.live.released(&open, None).await;
        let sent = {
            let _resting = open.rest();
            self.live.send(&open, to, body).await
        };
        match sent {
            Ok(Told::Signal) => {
                self.live.progressed();
                open.close();
                Ok(())
            }
            Ok(Told::Nobody) => {
                let nobody = format!("there is no {to} to send a signal to");
                Err(self.live.shown(open, Failure::coded(FailureCode::Invalid, nobody)).await)
            }
            Ok(Told::Another) => {
                let another = format!(
                    "{to} was sent another signal {:?} by the run that this one was forked from: the first one stands",
                    open.identity.name
                );
                Err(self.live.shown(open, Failure::coded(FailureCode::Conflict, another)).await)
            }
            Err(error) => Err(self.live.told(open, error).await),
        }
    }
}

fn unfit(error: &IdError) -> Failure {
    Failure::coded(FailureCode::Invalid, error.to_string())
}

/// The run waits as a row, and a signal or a command wakes it.
fn hears(run: &Run, command: bool) -> bool {
    matches!(run.state, RunState::Waiting { on, .. } if on.signal || command)
}

/// A name that users may give a signal.
fn usable(name: &str) -> Result<(), IdError> {
    checked("signal", name, Name::MAX_BYTES)?;
    if name.starts_with(OWN) {
        return Err(IdError::Reserved { what: "signal" });
    }
    Ok(())
}

impl Live {
    /// The next one that is wanted, as soon as there is one. Its receipt is queued when this returns.
    async fn next_signal(&self, open: &Open, wanted: &Wanted) -> Stored {
        if self.check.is_some() {
            let _waiting = open.wait(Wait { signal: Some(wanted.clone()), ..Wait::default() });
            return std::future::pending().await; // a replay check receives nothing
        }
        // Not while the run replays: a select that was lost in an earlier life would take a signal and drop it.
        self.released(open, None).await;
        loop {
            {
                let _waiting = open.wait(Wait { signal: Some(wanted.clone()), ..Wait::default() });
                poll_fn(|cx| {
                    let mut state = self.state();
                    if state.inbox.has(wanted) {
                        return Poll::Ready(());
                    }
                    state.inbox.listen(cx.waker());
                    Poll::Pending
                })
                .await;
            }
            self.engine.core.group.room().await;
            // From here on without an await: a future dropped in between would have taken a signal and lost it.
            let taken = self.state().inbox.take(wanted);
            if let Some(signal) = taken {
                let kind = open.identity.kind.checkpoint();
                let step = self.step(&open.identity, kind, None, signal.body.clone());
                let body = signal.body.clone();
                let is_end = wanted.name == ENDED && !self.engine.core.is_shared();
                let place = is_end.then(|| self.place_of_end(&step));
                let mut change = self.engine.core.change(Some(self.lane)).step(step);
                change.steps.extend(place);
                change.received = Some(Box::new(signal));
                drop(self.engine.core.group.submit(change));
                self.progressed();
                return body;
            }
        }
    }

    /// Where the end of a child stands among what this run does. The ids of records tell their order, and the clock of an
    /// only worker, which may be set back, does not.
    fn place_of_end(&self, received: &Step) -> Step {
        let place = Payload::stored(self.engine.core.ids.next().to_string());
        let (id, value) = (format!("{}{PLACE}", received.id), Some(Stored::Inline(place)));
        Step { id, value, ..received.clone() }
    }

    async fn send(&self, open: &Open, to: RunId, body: Payload) -> Result<Told, ExecError> {
        let core = &self.engine.core;
        let failed = |source| ExecError::Store { key: to.to_string(), source };
        let Some((_, last)) = self.engine.addressed(&self.tenant, to).await.map_err(failed)? else {
            return Ok(Told::Nobody);
        };
        let name = open.identity.name.clone();
        // Made of what identifies it in this run, so that a second try is the same signal.
        let id = format!("{OWN}{}/{}", self.named_after(), open.identity.in_turn());
        let (signal, large) = self.engine.behind(last, &self.tenant, to, name, id, body);
        let null = Stored::Inline(Payload::stored("null"));
        let identity = &open.identity;
        let step = self.step(identity, identity.kind.checkpoint(), None, null);
        let mut change = core.change(Some(self.lane)).step(step);
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        change.signal = Some(Box::new(signal.clone()));
        let (engine, told) = (self.engine.clone(), signal.clone());
        // Dropped between the row and the wake-up, as what loses a select is, this would leave a run that waits for what
        // it has.
        let sent = to_the_end(&core.tracker, async move {
            let verdict = engine.core.group.commit_one(change).await;
            match &verdict {
                Ok(Verdict::Admitted) => engine.delivered(told).await,
                _ => engine.perhaps_sent(told),
            }
            verdict
        });
        match sent.await.map_err(failed)? {
            Verdict::Admitted => Ok(Told::Signal),
            Verdict::Refused(Refusal::Exists) => {
                let first = core.group.signal_find(&self.tenant, to, &signal.name, &signal.id).await;
                if first.map_err(failed)?.is_none_or(|first| first.body != signal.body) {
                    return Ok(Told::Another);
                }
                self.checkpoint(identity, None, Payload::stored("null")).await;
                Ok(Told::Signal)
            }
            Verdict::Refused(refusal) => Err(ExecError::Refused { key: open.identity.to_string(), refusal }),
        }
    }

    /// Hands the run what was said to it. False if this activation has ended, and cannot receive it.
    pub(super) fn deliver(&self, signal: Signal) -> bool {
        let command = is_command(&signal);
        let listening = {
            let mut state = self.state();
            if state.ended {
                return false;
            }
            state.inbox.deliver(signal)
        };
        self.waker.is_own();
        listening.into_iter().for_each(Waker::wake);
        if command {
            self.waker.wake_by_ref(); // nothing in its code waits for it
        }
        true
    }
}

impl Inner {
    /// A run that is to be told something, and the last place of what it was told and has not received.
    pub(super) async fn addressed(
        &self,
        tenant: &Tenant,
        run: RunId,
    ) -> Result<Option<(Run, Option<i64>)>, StoreError> {
        let group = &self.core.group;
        let (run, last) = try_join(group.run_find(tenant, run), group.signal_last(tenant, run)).await?;
        Ok(run.map(|run| (run, last)))
    }

    /// A signal behind those that the run has not received. One that it has received is no matter of order any more.
    pub(super) fn behind(
        &self,
        last: Option<i64>,
        tenant: &Tenant,
        run: RunId,
        name: String,
        id: String,
        body: Payload,
    ) -> (Signal, Option<Payload>) {
        let place = last.map_or(0, |last| last + 1);
        let (body, large) = self.core.storable(body);
        let at = self.core.now();
        (Signal { tenant: tenant.clone(), run, name, id, place, body, at }, large)
    }

    /// A signal is durable: its run is told, or woken. Only a hint.
    pub(super) fn delivered(self: &Arc<Self>, signal: Signal) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (tenant, run, command) = (signal.tenant.clone(), signal.run, is_command(&signal));
            if let Some(activity) = self.active().get_mut(&run) {
                activity.deliver(signal);
                return;
            }
            match self.core.group.run_find(&tenant, run).await {
                Ok(Some(run)) if hears(&run, command) => self.wake_from(run).await,
                Ok(Some(run)) if command && run.state == RunState::Queued => self.wake(&tenant, run.id).await,
                Ok(Some(run)) if run.state == RunState::Active && self.core.is_shared() => {
                    let _ = self.core.group.wake_others().await; // its worker looks at each beat anyway
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%tenant, %run, %error, "cannot be told of a signal"),
            }
        })
    }

    /// An id that nobody gave, and nobody gives again.
    pub(super) fn unique(&self) -> String {
        format!("{OWN}{:032x}", self.core.entropy.wide_bits())
    }

    /// What other workers said to runs that are carried out here.
    pub(super) async fn look_for_signals(&self) -> Result<(), StoreError> {
        let lives = self.lives();
        for lives in lives.chunks(LIVES) {
            let runs: Vec<_> = lives.iter().map(|live| (live.tenant.clone(), live.id)).collect();
            for signal in self.core.group.signal_pending(&runs).await? {
                if let Some(live) = lives.iter().find(|live| live.id == signal.run) {
                    live.deliver(signal);
                }
            }
        }
        Ok(())
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        tenant: &Tenant,
        run: RunId,
        name: String,
        id: String,
        body: Payload,
    ) -> Result<Sent, RunError> {
        let (mut found, last) = self.addressed(tenant, run).await?.ok_or(RunError::Unknown { run })?;
        let (signal, large) = self.behind(last, tenant, run, name, id, body);
        if found.state.is_final() {
            return self.sent_before(&signal).await?.ok_or(RunError::Over { run });
        }
        let mut change = Change { signal: Some(Box::new(signal.clone())), ..self.core.change(None) };
        change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
        let asleep = hears(&found, is_command(&signal)) && !self.active().contains_key(&run);
        if asleep && self.may_claim(&found) {
            // Woken in one transaction with the signal, which is half of what two would take.
            self.make_active(&mut found);
            let woken = self.core.group.commit_one(change.clone().run(found.clone())).await;
            if let Ok(Verdict::Admitted) = woken {
                self.spawn(Box::new(found), None);
                return Ok(Sent::New);
            }
            self.perhaps_ours(tenant, run);
            // Something else has woken it meanwhile, or this signal is there already: it is told which without the run.
            let _refused = woken?;
        }
        match self.core.group.commit_one(change).await {
            Ok(Verdict::Admitted) => {
                self.delivered(signal).await;
                Ok(Sent::New)
            }
            Ok(Verdict::Refused(Refusal::Exists)) => {
                self.perhaps_sent(signal.clone());
                let refused = RunError::Refused { run, refusal: Refusal::Exists };
                self.sent_before(&signal).await?.ok_or(refused)
            }
            Ok(Verdict::Refused(refusal)) => Err(RunError::Refused { run, refusal }),
            Err(error) => {
                self.perhaps_sent(signal);
                Err(error.into())
            }
        }
    }

    /// The run was sent a signal of this name and id before. The first one stands.
    pub(super) async fn sent_before(&self, signal: &Signal) -> Result<Option<Sent>, RunError> {
        let Signal { tenant, run, name, id, .. } = signal;
        match self.core.group.signal_find(tenant, *run, name, id).await? {
            None => Ok(None),
            Some(first) if first.body == signal.body => Ok(Some(Sent::Before)),
            Some(_) => Err(RunError::SignalConflict { run: *run, name: name.clone(), id: id.clone() }),
        }
    }
}

impl<O> RunHandle<O> {
    /// Says something to the run: it receives it by [`Ctx::signal`], once, now or when it waits for it.
    ///
    /// ```no_run
    /// # async fn paid(run: &counterfoil::flow::RunHandle<()>) -> Result<(), counterfoil::flow::RunError> {
    /// run.signal("paid", 4200).id("evt_1QzR").await?; // the webhook may come twice
    /// # Ok(()) }
    /// ```
    pub fn signal<B>(&self, name: impl Into<String>, body: B) -> SendSignal
    where
        B: Serialize + Send + Sync + 'static,
    {
        SendSignal {
            inner: self.inner.clone(),
            tenant: self.tenant.clone(),
            run: self.id,
            name: name.into(),
            id: None,
            body: Box::new(move |key| canonical(&body, key)),
        }
    }
}

/// A signal to be sent. Nothing happens before it is awaited; then it is durable.
///
/// # Errors
/// [`RunError::Over`] if the run has ended, [`RunError::SignalConflict`] if it was sent another one under this name and id.
#[must_use = "a signal is not sent until it is awaited"]
pub struct SendSignal {
    inner: Arc<Inner>,
    tenant: Tenant,
    run: RunId,
    name: String,
    id: Option<String>,
    body: Box<Canonical>,
}

impl SendSignal {
    /// Which one it is: the same name and id again is the same signal, and received once. Give the id of the event that
    /// it tells of wherever that event may be told of twice. Without one each signal is a new one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The same, with this id unless it has one.
    #[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
    pub(super) fn or_id(mut self, id: &str) -> Self {
        self.id.get_or_insert_with(|| id.to_owned());
        self
    }

    /// What is to be sent, if it can be.
    pub(super) async fn checked(self) -> Result<(Arc<Inner>, NewSignal), RunError> {
        let Self { inner, tenant, run, name, id, body } = self;
        usable(&name)?;
        if let Some(id) = &id {
            checked("signal's id", id, Key::MAX_BYTES)?;
        }
        let id = id.unwrap_or_else(|| inner.unique());
        let body: Result<_, RunError> = inner.core.canonical(&tenant, &*body).await;
        let body = body?.within(&inner.core.limits)?;
        Ok((inner, NewSignal { tenant, run, name, id, body }))
    }
}

/// A signal that may be sent.
pub(super) struct NewSignal {
    pub(super) tenant: Tenant,
    pub(super) run: RunId,
    pub(super) name: String,
    pub(super) id: String,
    pub(super) body: Payload,
}

impl IntoFuture for SendSignal {
    type Output = Result<Sent, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (inner, NewSignal { tenant, run, name, id, body }) = self.checked().await?;
            // Dropped between the row and the wake-up, this would leave a run that waits for what it has.
            let tracker = inner.core.tracker.clone();
            to_the_end(&tracker, async move { inner.send(&tenant, run, name, id, body).await }).await
        })
    }
}
