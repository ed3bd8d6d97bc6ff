//! Signals: what is said to a run from outside or by another run, kept until the run receives it, received once.
//!
//! A signal is a row of its own. Who sends one tells the run's task if it is here, or wakes the run if it waits as a row.
//! Both are only hints: a sender that dies in between leaves a signal that the next start, or whoever takes its worker
//! over, finds by its row.

pub(super) mod aside;
pub(super) mod name;
mod send;
mod wait;

use serde::Serialize;

use self::aside::Reads;
pub(super) use self::name::OWN;
use self::name::usable;
pub use self::name::{NamesSignal, SignalName};
pub(super) use self::send::{Addressee, Named, NewSignal};
pub use self::send::{SendSignal, Sent};
pub use self::wait::SignalWait;
use super::ctx::Ctx;
use super::failure::{Failure, FailureCode};
use super::identity::Kind;
use super::inbox::Wanted;
use super::label::Label;
use super::live::Open;
use crate::exec::{ExecError, to_the_end};
use crate::id::RunId;
use crate::payload::{Payload, Stored};
use crate::store::{Refusal, Store as _, Verdict};
use crate::tool::canonical;

/// A message that a run got from another run.
enum Told {
    /// The signal, now or by the run that the sender was forked from.
    Signal,
    /// Nothing: there is no such run.
    Nobody,
    /// Another one, by the run that the sender was forked from.
    Another,
}

impl Ctx {
    /// Receives a signal under an identity of its own. One that `reads` refuses is set aside.
    pub(super) async fn receive(
        &self,
        label: Label,
        wanted: Wanted,
        reads: Option<Reads>,
    ) -> Result<Stored, Failure> {
        let open = self.open(Kind::Signal, label).await?;
        let past = self.live.recorded(&open).await?;
        let body = match past.and_then(|past| past.value) {
            Some(body) => body,
            None => self.live.next_signal(&open, &wanted, reads).await?,
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
        self.unless_mendable(usable(&label.name).map_err(Failure::from)).await?;
        let open = self.open(Kind::Sent, label).await?;
        if self.live.recorded(&open).await?.is_some() {
            open.close();
            return Ok(());
        }
        let (open, body) = self.live.fitting(open, false, |key| canonical(body, key)).await?;
        self.live.released(&open, None).await;
        let sent = {
            let _resting = open.rest();
            self.tell_run(&open, to, body).await
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

    /// Says it, in one change with this run's record of having said it.
    async fn tell_run(&self, open: &Open, to: RunId, body: Payload) -> Result<Told, ExecError> {
        let (core, live) = (&self.live.core, &self.live);
        let failed = |source| ExecError::Store { key: to.to_string(), source };
        let Some((_, last)) = self.engine.addressed(&live.tenant, to).await.map_err(failed)? else {
            return Ok(Told::Nobody);
        };
        let identity = &open.identity;
        // Made of what identifies it in this run, so that a second try is the same signal.
        let id = format!("{OWN}{}/{}", live.named_after(), identity.in_turn());
        let new = NewSignal { tenant: live.tenant.clone(), run: to, name: identity.name.clone(), id, body };
        let (signal, large) = self.engine.behind(last, new);
        let null = Stored::Inline(Payload::stored("null"));
        let step = live.step(identity, identity.kind.checkpoint(), None, null);
        let mut change = core.change(Some(live.lane)).step(step);
        change.payloads.extend(large.map(|payload| (live.tenant.clone(), payload)));
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
                let first = core.group.signal_find(&live.tenant, to, &signal.name, &signal.id).await;
                let is_repeated = match first.map_err(failed)? {
                    Some(first) => send::is_repeated(core, &first, &signal).await?,
                    None => false,
                };
                if !is_repeated {
                    return Ok(Told::Another);
                }
                live.checkpoint(identity, None, Payload::stored("null")).await;
                Ok(Told::Signal)
            }
            Verdict::Refused(refusal) => Err(ExecError::Refused { key: identity.to_string(), refusal }),
        }
    }
}
