//! Signals from outside to a run, whatever the run is doing.

use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join};
use serde::Serialize;

use super::name::{NamesSignal, OWN, usable};
use crate::exec::{Core, ExecError, to_the_end};
use crate::flow::command::is_command;
use crate::flow::error::RunError;
use crate::flow::handle::RunHandle;
use crate::flow::inner::Inner;
use crate::flow::keyed::Keyed;
use crate::flow::label::Label;
use crate::flow::start::Canonical;
use crate::flow::wake::hears;
use crate::id::{RunId, Tenant, checked};
use crate::ledger::Key;
use crate::payload::Payload;
use crate::store::{Change, Refusal, Run, Signal, Store as _, StoreError, Verdict};
use crate::tool::canonical;

/// The result of sending a signal or giving a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The signal is durable, and the run will receive it.
    New,
    /// The same signal was sent before: the run receives it once, or has received it.
    Before,
}

impl<O> RunHandle<O> {
    /// Sends a signal to the run, which receives it once by [`Ctx::signal`](crate::Ctx::signal), now or when it waits
    /// for it.
    ///
    /// ```no_run
    /// # async fn paid(run: &counterfoil::flow::RunHandle<()>) -> Result<(), counterfoil::flow::RunError> {
    /// run.signal("paid", 4200).id("evt_1QzR").await?; // the webhook may come twice
    /// # Ok(()) }
    /// ```
    pub fn signal<B>(&self, name: impl NamesSignal<B>, body: B) -> SendSignal
    where
        B: Serialize + Send + Sync + 'static,
    {
        let to =
            Addressee { inner: self.inner.clone(), tenant: self.tenant.clone(), run: Named::Run(self.id) };
        SendSignal::to(to, name, body)
    }
}

/// The run that a signal is sent to, and the engine that sends it.
pub(in crate::flow) struct Addressee {
    pub(in crate::flow) inner: Arc<Inner>,
    pub(in crate::flow) tenant: Tenant,
    pub(in crate::flow) run: Named,
}

/// The name of a run.
pub(in crate::flow) enum Named {
    Run(RunId),
    /// The run of this workflow that was started under this key.
    Keyed(Keyed),
}

/// A signal to be sent. Nothing happens until it is awaited; then it is durable.
///
/// # Errors
/// [`RunError::Over`] if the run has ended, [`RunError::SignalConflict`] if the run was sent another signal under this
/// name and id.
#[must_use = "a signal is not sent until it is awaited"]
pub struct SendSignal {
    to: Addressee,
    name: String,
    id: Option<String>,
    body: Box<Canonical>,
}

impl SendSignal {
    pub(in crate::flow) fn to<B: Serialize + Send + Sync + 'static>(
        to: Addressee,
        name: impl NamesSignal<B>,
        body: B,
    ) -> Self {
        let Label { name, id } = name.label();
        Self { to, name, id, body: Box::new(move |key| canonical(&body, key)) }
    }

    /// The id of the signal: the same name and id again is the same signal, and is received once. Give the id of the
    /// event that the signal tells of, wherever the event may be told of twice. Without an id each signal is a new one.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets this id, unless the signal has one.
    #[cfg(all(feature = "_messages", any(feature = "sqlite", feature = "postgres")))]
    pub(in crate::flow) fn or_id(mut self, id: &str) -> Self {
        self.id.get_or_insert_with(|| id.to_owned());
        self
    }

    /// The signal in its canonical form, if it can be sent.
    pub(in crate::flow) async fn checked(self) -> Result<(Arc<Inner>, NewSignal), RunError> {
        let Self { to: Addressee { inner, tenant, run }, name, id, body } = self;
        usable(&name)?;
        if let Some(id) = &id {
            checked("signal's id", id, Key::MAX_BYTES)?;
        }
        let run = match run {
            Named::Run(run) => run,
            Named::Keyed(keyed) => keyed.id(&inner, &tenant).await?,
        };
        let id = id.unwrap_or_else(|| inner.unique());
        let body: Result<_, RunError> = inner.core.canonical(&tenant, &*body).await;
        let body = body?.within(&inner.core.limits)?;
        Ok((inner, NewSignal { tenant, run, name, id, body }))
    }
}

impl IntoFuture for SendSignal {
    type Output = Result<Sent, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (inner, new) = self.checked().await?;
            // A future dropped between the row and the wake-up would leave a run that waits for a signal which is
            // there.
            let tracker = inner.core.tracker.clone();
            to_the_end(&tracker, async move { inner.send(new).await }).await
        })
    }
}

/// A signal that was checked and may be sent.
pub(in crate::flow) struct NewSignal {
    pub(in crate::flow) tenant: Tenant,
    pub(in crate::flow) run: RunId,
    pub(in crate::flow) name: String,
    pub(in crate::flow) id: String,
    pub(in crate::flow) body: Payload,
}

impl Inner {
    /// The run that is to be sent a signal, and the place of the last signal that it has not received.
    pub(in crate::flow) async fn addressed(
        &self,
        tenant: &Tenant,
        run: RunId,
    ) -> Result<Option<(Run, Option<i64>)>, StoreError> {
        let group = &self.core.group;
        let (run, last) = try_join(group.run_find(tenant, run), group.signal_last(tenant, run)).await?;
        Ok(run.map(|run| (run, last)))
    }

    /// The signal placed behind those that the run has not received, the last of which has the place `last`. The places
    /// of received signals do not matter any more.
    pub(in crate::flow) fn behind(&self, last: Option<i64>, new: NewSignal) -> (Signal, Option<Payload>) {
        let NewSignal { tenant, run, name, id, body } = new;
        let place = last.map_or(0, |last| last + 1);
        let (body, large) = self.core.storable(body);
        (Signal { tenant, run, name, id, place, body, at: self.core.now() }, large)
    }

    /// A unique id for a signal or a command that was given none.
    pub(in crate::flow) fn unique(&self) -> String {
        format!("{OWN}{:032x}", self.core.entropy.wide_bits())
    }

    /// Sends a signal. If the sender goes away, the signal is sent all the same.
    pub(in crate::flow) async fn send(self: &Arc<Self>, new: NewSignal) -> Result<Sent, RunError> {
        let (tenant, run) = (new.tenant.clone(), new.run);
        let (mut found, last) = self.addressed(&tenant, run).await?.ok_or(RunError::Unknown { run })?;
        let (signal, large) = self.behind(last, new);
        if found.state.is_expired() {
            return Err(RunError::Expired { run });
        }
        if found.state.is_final() {
            return self.sent_before(&signal).await?.ok_or(RunError::Over { run });
        }
        let mut change = Change { signal: Some(Box::new(signal.clone())), ..self.core.change(None) };
        change.payloads.extend(large.map(|payload| (tenant.clone(), payload)));
        let asleep = hears(&found, is_command(&signal)) && !self.runs.has(run);
        if asleep && self.may_claim(&found) {
            // The run is woken in one transaction with the signal, which takes half the time of two.
            self.make_active(&mut found);
            let woken = self.core.group.commit_one(change.clone().run(found.clone())).await;
            if let Ok(Verdict::Admitted) = woken {
                self.go_on(Box::new(found)).await;
                return Ok(Sent::New);
            }
            self.perhaps_ours(&tenant, run);
            // Something else has woken the run meanwhile, or this signal exists already: a write without the run tells
            // which.
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

    /// Compares a signal with the one of the same name and id that the run was sent before, if any. The first one
    /// counts.
    pub(in crate::flow) async fn sent_before(&self, signal: &Signal) -> Result<Option<Sent>, RunError> {
        let Signal { tenant, run, name, id, .. } = signal;
        let Some(first) = self.core.group.signal_find(tenant, *run, name, id).await? else { return Ok(None) };
        if is_repeated(&self.core, &first, signal).await? {
            return Ok(Some(Sent::Before));
        }
        Err(RunError::SignalConflict { run: *run, name: name.clone(), id: id.clone() })
    }
}

/// True if the signal says what the first one of its name and id said. Of one that has expired only a digest is left.
pub(super) async fn is_repeated(core: &Core, first: &Signal, signal: &Signal) -> Result<bool, ExecError> {
    if first.body == signal.body || !first.is_expired() {
        return Ok(first.body == signal.body);
    }
    Ok(first.body == signal.left(&core.tenant_key(&signal.tenant).await?))
}
