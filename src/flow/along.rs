//! Runs that are started, and signals that are sent, in a transaction of the inbox: with the record of the message that asks for them.

use std::sync::Arc;

use super::error::RunError;
use super::inner::Inner;
use super::signal::SendSignal;
use super::start::{NewRun, StartRun};
use crate::exec::Core;
use crate::store::{Change, Refusal, Run, Signal};
use serde::de::DeserializeOwned;

/// The change that a message asks of the engine, ready to be written.
pub(crate) struct Along {
    inner: Arc<Inner>,
    asked: Asked,
    /// To be written in the message's transaction.
    pub(crate) change: Change,
}

enum Asked {
    Start(Box<Run>, Box<NewRun>),
    Signal(Signal),
}

impl<O: DeserializeOwned + 'static> StartRun<O> {
    /// The start as part of another transaction.
    pub(crate) async fn along(self) -> Result<Along, RunError> {
        let (inner, new) = self.checked().await?;
        inner.core.group.room().await;
        let (run, change) = new.row(&inner.core, None);
        Ok(Along { inner, asked: Asked::Start(run, Box::new(new)), change })
    }
}

impl SendSignal {
    /// The signal as part of another transaction. It has the id of its message, unless it has one of its own.
    pub(crate) async fn along(self, message: &str) -> Result<Along, RunError> {
        let (inner, new) = self.or_id(message).checked().await?;
        let (tenant, run) = (new.tenant.clone(), new.run);
        inner.core.group.room().await;
        let (found, last) = inner.addressed(&tenant, run).await?.ok_or(RunError::Unknown { run })?;
        let (signal, large) = inner.behind(last, new);
        if found.state.is_final() && inner.sent_before(&signal).await?.is_none() {
            return Err(RunError::Over { run });
        }
        let mut change = Change { signal: Some(Box::new(signal.clone())), ..inner.core.change(None) };
        change.payloads.extend(large.map(|payload| (tenant, payload)));
        Ok(Along { inner, asked: Asked::Signal(signal), change })
    }
}

impl Along {
    /// True if it would be written to the ledger of this executor.
    pub(crate) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.inner.core, core)
    }

    /// The transaction took place.
    pub(crate) async fn took_place(self) {
        match self.asked {
            Asked::Start(run, _) => self.inner.go_on(run).await,
            Asked::Signal(signal) => self.inner.delivered(signal).await,
        }
    }

    /// Nobody knows whether the transaction took place.
    pub(crate) fn perhaps(self) {
        match self.asked {
            Asked::Start(run, _) => self.inner.perhaps_ours(&run.tenant, run.id),
            Asked::Signal(signal) => self.inner.perhaps_sent(signal),
        }
    }

    /// The change was refused.
    ///
    /// # Errors
    /// Unless the same run was started before, or the same signal sent.
    pub(crate) async fn was_before(&self, refusal: Refusal) -> Result<(), RunError> {
        match &self.asked {
            Asked::Start(run, new) => {
                let first = self.inner.first_under(run, new, refusal).await?;
                new.once(first)
            }
            Asked::Signal(signal) if refusal == Refusal::Exists => {
                let before = self.inner.sent_before(signal).await?;
                before.map(drop).ok_or(RunError::Refused { run: signal.run, refusal })
            }
            Asked::Signal(signal) => Err(RunError::Refused { run: signal.run, refusal }),
        }
    }
}
