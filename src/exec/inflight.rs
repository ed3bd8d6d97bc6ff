//! The operations in flight in this process: two callers with one key at once are one call and one wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::request::Wait;
use super::shield::Unattended;
use crate::clock::Clock;
use crate::id::Tenant;
use crate::ledger::OperationKey;

type Place = (Tenant, OperationKey);

/// The time after which a waiting caller drives the call of another caller, who may keep the future and not poll it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The operations in flight in this process.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<HashMap<Place, Arc<Busy>>>);

/// An operation in flight.
#[derive(Default)]
struct Busy {
    /// Notified when the operation is free again.
    freed: Notify,
    /// The work of the operation, if it is done in its caller's task.
    work: OnceLock<Weak<dyn Unattended>>,
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Busy").finish_non_exhaustive()
    }
}

/// The right to carry out one operation; given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    place: Place,
    all: Arc<InFlight>,
    busy: Arc<Busy>,
}

/// A handle by which the user of a slot names its work.
pub(super) struct Holder(Arc<Busy>);

impl Holder {
    /// Names the work that is done with the slot.
    pub(super) fn is(self, work: Weak<dyn Unattended>) {
        let _ = self.0.work.set(work);
    }
}

impl Slot {
    pub(super) fn holder(&self) -> Holder {
        Holder(self.busy.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(busy) = self.all.lock().remove(&self.place) {
            busy.freed.notify_waiters();
        }
    }
}

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Arc<Busy>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work whose caller was woken and has not polled since, in the order of the keys, so that a simulation is
    /// repeatable.
    pub(super) fn woken(&self) -> Vec<Arc<dyn Unattended>> {
        let all = self.lock();
        let work = |busy: &Busy| busy.work.get().and_then(Weak::upgrade).filter(|work| work.is_woken());
        let mut woken: Vec<_> = all.iter().filter_map(|(place, busy)| Some((place, work(busy)?))).collect();
        woken.sort_by_key(|(place, _)| *place);
        woken.into_iter().map(|(_, work)| work).collect()
    }

    /// Takes the slot, or waits for its holder. `None` if the wait takes too long.
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
            // Boxed because this case is rare: every call would reserve its memory.
            Err(_) => Box::pin(self.taken(&place, wait, clock)).await,
        }
    }

    /// Takes the slot. `None` if another caller held it and has given it back.
    #[cfg(feature = "_messages")]
    pub(super) async fn enter_free(
        self: &Arc<Self>,
        tenant: &Tenant,
        key: OperationKey,
        clock: &dyn Clock,
    ) -> Option<Slot> {
        let place = (tenant.clone(), key);
        loop {
            let busy = match self.take(&place) {
                Ok(slot) => return Some(slot),
                Err(busy) => busy,
            };
            let freed = busy.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.is_held(&place, &busy) {
                busy.freed(freed, clock).await;
                return None;
            }
        }
    }

    /// Takes the slot, or returns its holder.
    fn take(self: &Arc<Self>, place: &Place) -> Result<Slot, Arc<Busy>> {
        match self.lock().entry(place.clone()) {
            Entry::Vacant(free) => {
                let busy = free.insert(Arc::default()).clone();
                Ok(Slot { place: place.clone(), all: self.clone(), busy })
            }
            Entry::Occupied(busy) => Err(busy.get().clone()),
        }
    }

    /// True if this holder still has the slot. A slot that was freed between two looks may have been taken by another
    /// caller since, and a wait for the former holder would never end.
    fn is_held(&self, place: &Place, by: &Arc<Busy>) -> bool {
        self.lock().get(place).is_some_and(|now| Arc::ptr_eq(now, by))
    }

    /// Waits for the holder of the slot, and takes the slot.
    async fn taken(self: &Arc<Self>, place: &Place, wait: Wait, clock: &dyn Clock) -> Option<Slot> {
        let mut limit = None;
        loop {
            let busy = match self.take(place) {
                Ok(slot) => return Some(slot),
                Err(busy) => busy,
            };
            let freed = busy.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if !self.is_held(place, &busy) {
                continue;
            }
            match wait {
                Wait::No => return None,
                Wait::ForOutcome => busy.freed(freed, clock).await,
                Wait::AtMost(at_most) => {
                    let limit = limit.get_or_insert_with(|| clock.sleep(at_most));
                    tokio::select! {
                        biased; // no random choice, so that a simulation is repeatable
                        () = busy.freed(freed, clock) => {}
                        () = limit => return None,
                    }
                }
            }
        }
    }
}

impl Busy {
    /// Waits until the operation is free, and drives its work if its caller takes too long.
    async fn freed(&self, freed: Pin<&mut Notified<'_>>, clock: &dyn Clock) {
        let mut freed = freed;
        tokio::select! {
            biased;
            () = freed.as_mut() => return,
            () = clock.sleep(PATIENCE) => {}
        }
        if let Some(work) = self.work.get().and_then(Weak::upgrade) {
            work.go_on();
        }
        freed.await;
    }
}
