//! The outside world: it counts what happens to it, and outlives every process that touches it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::SimClock;
use super::schedule::{Fault, Incident, Schedule};
use super::service::{Offer, Service, State as ServiceState};
use super::timeline::{Event, Happened};
use crate::clock::Clock as _;
use crate::id::Tenant;
use crate::ledger::OperationKey;
use crate::tool::Call;

/// Something that happened out there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Where.
    pub system: String,
    /// What it is about, in the business's own words: whoever counts duplicates counts these.
    pub reference: String,
    /// The provider's id for it.
    pub id: String,
    /// Whose call it was.
    pub tenant: Tenant,
    /// Which operation it was.
    pub operation: OperationKey,
}

/// The outside world of a simulation. Clones are the same world.
///
/// It has [services](Self::service) that behave as told; a model of a provider of your own needs no more than
/// [`happen`](Self::happen) where it has its effect, and [`count`](Self::count) where it looks one up.
#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    clock: SimClock,
}

#[derive(Default)]
struct State {
    effects: Vec<Effect>,
    services: BTreeMap<String, Arc<Mutex<ServiceState>>>,
    faults: BTreeMap<u32, Fault>,
    requests: u32,
    requested: BTreeSet<(Tenant, OperationKey)>,
    log: Vec<Event>,
    life: u32,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("effects", &self.state().effects).finish_non_exhaustive()
    }
}

impl World {
    pub(super) fn new(clock: SimClock, schedule: &Schedule) -> Self {
        let faults = schedule.incidents().iter().filter_map(|incident| match incident {
            Incident::Fault { request, fault } => Some((*request, *fault)),
            _ => None,
        });
        let state = State { faults: faults.collect(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// An external system of this name: made when it is first asked for, the same one from then on.
    pub fn service(&self, name: &str, offer: Offer) -> Service {
        let state = self.state().services.entry(name.to_owned()).or_default().clone();
        Service::new(self.clone(), name, offer, state)
    }

    /// An effect happens: for a provider that you model yourself. Returns the provider's id for it.
    pub fn happen(&self, call: &Call, system: &str, reference: &str) -> String {
        self.happened(call.tenant(), call.operation_key(), system, reference)
    }

    pub(super) fn happened(
        &self,
        tenant: &Tenant,
        operation: &OperationKey,
        system: &str,
        reference: &str,
    ) -> String {
        let id = {
            let mut state = self.state();
            let id = format!("{system}-{}", state.effects.len() + 1);
            state.effects.push(Effect {
                system: system.to_owned(),
                reference: reference.to_owned(),
                id: id.clone(),
                tenant: tenant.clone(),
                operation: operation.clone(),
            });
            id
        };
        self.note(Happened::Effect {
            system: system.to_owned(),
            reference: reference.to_owned(),
            id: id.clone(),
        });
        id
    }

    /// How often something happened.
    pub fn count(&self, system: &str, reference: &str) -> usize {
        self.found(system, reference).len()
    }

    /// The effects at a system about one reference, in their order.
    pub fn found(&self, system: &str, reference: &str) -> Vec<Effect> {
        let state = self.state();
        let found = state.effects.iter().filter(|e| e.system == system && e.reference == reference);
        found.cloned().collect()
    }

    /// Everything that happened, in its order.
    pub fn effects(&self) -> Vec<Effect> {
        self.state().effects.clone()
    }

    /// Takes its time, in the world's time: a provider that is slow.
    pub async fn sleep(&self, by: Duration) {
        self.clock.sleep(by).await;
    }

    /// The world's time, which is the engine's, too.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Numbers a request, and says what becomes of it.
    pub(super) fn next_request(&self, call: &Call) -> Option<Fault> {
        let mut state = self.state();
        state.requested.insert((call.tenant().clone(), call.operation_key().clone()));
        state.requests += 1;
        let number = state.requests;
        state.faults.get(&number).copied()
    }

    /// The operations for which a service was asked for an effect.
    pub(super) fn requested(&self) -> BTreeSet<(Tenant, OperationKey)> {
        self.state().requested.clone()
    }

    pub(super) fn requests(&self) -> u32 {
        self.state().requests
    }

    pub(super) fn note(&self, what: Happened) {
        let at = self.clock.elapsed();
        let mut state = self.state();
        let life = state.life;
        state.log.push(Event { at, life, what });
    }

    /// What happens from now on happens in this life.
    pub(super) fn acts(&self, life: u32) {
        self.state().life = life;
    }

    pub(super) fn take_log(&self) -> Vec<Event> {
        std::mem::take(&mut self.state().log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
