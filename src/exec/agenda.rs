//! What is due later: confirming lookups, and the timers of waiting runs. One sleeper for all of them, woken
//! by its own process; it asks the database nothing while nothing is due.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Notify;

use super::core::Core;
use super::reconcile;
use super::recorded::recorded;
use crate::clock::Timestamp;
use crate::ledger::{Event, Record, apply};
use crate::store::Store as _;

/// So many due things are taken up at once.
const AT_ONCE: u32 = 64;
/// When the store cannot be asked what is due next, or a lookup has to be repeated.
const LATER: Duration = Duration::from_secs(5);
/// A confirming lookup that does not answer is made again after so long.
const POSTPONED: Duration = Duration::from_mins(1);

/// Whoever else has things that become due.
pub(crate) trait Due: Send + Sync {
    /// Takes up what is due at `now`. `false` if it could take up nothing.
    fn take_up(self: Arc<Self>, now: Timestamp) -> BoxFuture<'static, bool>;
}

/// When to look at the clock again.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    earliest: Mutex<Option<Timestamp>>,
    sooner: Notify,
}

impl Agenda {
    /// Something is due at this instant.
    pub(crate) fn note(&self, at: Timestamp) {
        let mut earliest = self.earliest.lock().unwrap_or_else(PoisonError::into_inner);
        if earliest.is_none_or(|known| at < known) {
            *earliest = Some(at);
            drop(earliest);
            self.sooner.notify_one();
        }
    }

    /// Makes the sleeper look again.
    pub(crate) fn wake(&self) {
        self.sooner.notify_one();
    }

    fn take(&self) -> Option<Timestamp> {
        self.earliest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn sleep(&self, sleep: Option<BoxFuture<'static, ()>>) {
        match sleep {
            None => self.sooner.notified().await,
            Some(sleep) => tokio::select! {
                () = sleep => {}
                () = self.sooner.notified() => {}
            },
        }
    }

    fn peek(&self) -> Option<Timestamp> {
        *self.earliest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until the core is gone.
pub(crate) async fn run(core: Weak<Core>, due: Option<Weak<dyn Due>>) {
    if let Some(core) = core.upgrade() {
        note_next(&core, None).await;
    }
    while let Some(strong) = core.upgrade() {
        let now = strong.now();
        match strong.agenda.peek() {
            Some(at) if at <= now => {
                strong.agenda.take();
                let mut taken = confirm_due(&strong, now).await;
                if let Some(due) = due.as_ref().and_then(Weak::upgrade) {
                    taken |= due.take_up(now).await;
                }
                // What is due and cannot be taken up (its row is damaged, the disk is full) is due again at once.
                note_next(&strong, (!taken).then_some(now)).await;
            }
            next => {
                let sleep = next.map(|at| strong.clock.sleep(now.until(at)));
                let agenda = strong.agenda.clone();
                drop(strong); // a sleeper must not keep a closed database open
                agenda.sleep(sleep).await;
            }
        }
    }
}

/// Notes when something is due next. What was due by `stuck` is tried again later.
async fn note_next(core: &Core, stuck: Option<Timestamp>) {
    match core.group.next_due().await {
        Ok(Some(at)) if stuck.is_some_and(|then| at <= then) => core.agenda.note(core.now().after(LATER)),
        Ok(Some(at)) => core.agenda.note(at),
        Ok(None) => {}
        Err(error) => {
            tracing::error!(%error, "cannot read what is due next, asking again later");
            core.agenda.note(core.now().after(LATER));
        }
    }
}

/// `false` if nothing could be taken up.
async fn confirm_due(core: &Arc<Core>, now: Timestamp) -> bool {
    let records = match core.group.record_unconfirmed(now, AT_ONCE).await {
        Ok(records) => records,
        Err(error) => {
            tracing::error!(%error, "cannot read the confirming lookups that are due");
            return false;
        }
    };
    let mut taken = false;
    for record in records {
        // Postponed before it is made: a lookup that hangs or fails is made again then, and not at once and for
        // ever; and it holds up nothing else that is due.
        let at = now.after(POSTPONED);
        let Some(record) = postponed(core, record, at).await else { continue };
        taken = true;
        let core = core.clone();
        core.tracker.clone().spawn(async move {
            let confirmed = match recorded(&core, &record).await {
                Ok(Ok(op)) => reconcile::confirm(&core, &op, &record).await,
                Ok(Err(_gone)) => Ok(()), // until its tool is here again
                Err(error) => Err(error),
            };
            if let Err(error) = confirmed {
                tracing::error!(tenant = %record.tenant, key = %record.key, %error, "a confirming lookup could not be recorded");
            }
        });
    }
    taken
}

async fn postponed(core: &Core, record: Record, at: Timestamp) -> Option<Record> {
    let event = Event::ConfirmLater { at };
    let postponed = apply(&record, event, core.fence, core.now()).ok()?;
    match core.commit(&record.key, core.change(None).record(postponed.clone())).await {
        Ok(()) => Some(postponed),
        Err(error) => {
            tracing::warn!(key = %record.key, %error, "a confirming lookup could not be postponed");
            None
        }
    }
}
