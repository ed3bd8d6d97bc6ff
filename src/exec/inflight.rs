//! Who is carrying out what in this process: two callers with one key at once are one call and one wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::id::Tenant;
use crate::ledger::OperationKey;

type Place = (Tenant, OperationKey);

/// How long to wait for another caller that has the same operation in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: answer [`InProgress`](super::Outcome::InProgress) at once.
    No,
    /// At most so long.
    AtMost(Duration),
    /// Until it has an outcome.
    ForOutcome,
}

/// The operations in hand.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<HashMap<Place, Arc<Notify>>>);

/// The right to carry out one operation; given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    place: Place,
    all: Arc<InFlight>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(waiting) = self.all.lock().remove(&self.place) {
            waiting.notify_waiters();
        }
    }
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the slot, or waits for whoever has it; `None` if that takes too long.
    pub(super) async fn enter(
        self: &Arc<Self>,
        tenant: &Tenant,
        key: &OperationKey,
        wait: Wait,
        clock: &dyn Clock,
    ) -> Option<Slot> {
        let place = (tenant.clone(), key.clone());
        match self.take(&place) {
            Ok(slot) => Some(slot),
            // Boxed because it is rare: every call would have to carry the room for it.
            Err(_) => Box::pin(self.taken(&place, wait, clock)).await,
        }
    }

    /// Takes the slot, or says who has it.
    fn take(self: &Arc<Self>, place: &Place) -> Result<Slot, Arc<Notify>> {
        match self.lock().entry(place.clone()) {
            Entry::Vacant(free) => {
                free.insert(Arc::default());
                Ok(Slot { place: place.clone(), all: self.clone() })
            }
            Entry::Occupied(busy) => Err(busy.get().clone()),
        }
    }

    /// Waits for whoever has the slot, and takes it.
    async fn taken(self: &Arc<Self>, place: &Place, wait: Wait, clock: &dyn Clock) -> Option<Slot> {
        let mut limit = None;
        loop {
            let busy = match self.take(place) {
                Ok(slot) => return Some(slot),
                Err(busy) => busy,
            };
            let freed = busy.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            // Freed between the two looks, and perhaps taken by another caller since: whoever waits for the former
            // holder would wait for ever.
            if !self.lock().get(place).is_some_and(|now| Arc::ptr_eq(now, &busy)) {
                continue;
            }
            match wait {
                Wait::No => return None,
                Wait::ForOutcome => freed.await,
                Wait::AtMost(at_most) => {
                    let limit = limit.get_or_insert_with(|| clock.sleep(at_most));
                    tokio::select! {
                        biased; // chance is drawn in one place only, or no simulation could be repeated
                        () = freed => {}
                        () = limit => return None,
                    }
                }
            }
        }
    }
}
