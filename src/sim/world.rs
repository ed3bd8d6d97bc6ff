//! The outside world: it counts its effects, and outlives every process that touches it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::SimClock;
use super::schedule::{Fault, Incident, Schedule};
use super::service::{Offer, Service, State as ServiceState};
use super::timeline::{Event, Happened};
use super::wire::Request;
use crate::clock::Clock as _;
use crate::exec::outbox;
use crate::id::Tenant;
use crate::ledger::{Contract, ContractClass, EffectClass, LookupOffer, OperationKey, Record};
use crate::tool::{Call, ToolError, ToolSpec};

/// The first part of the key of an effect that was made by hand. No key of the engine begins with it.
const BY_HAND: &str = "~hand:";

/// An effect in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The name of the system.
    pub system: String,
    /// The subject of the effect, in the words of the business. Effects with the same reference are duplicates.
    pub reference: String,
    /// The provider's id for the effect.
    pub id: String,
    /// The tenant that owns the call.
    pub tenant: Tenant,
    /// The key of the operation.
    pub operation: OperationKey,
    /// The account at the provider; empty if the provider has only one.
    pub account: String,
    /// The time since the machine was started.
    pub at: Duration,
}

/// The outside world of a simulation. Clones are the same world.
///
/// A world has [services](Self::service) with declared capabilities. For a provider of your own, [`send`](Self::send)
/// defines the effect of a request, and [`find`](Self::find) looks up its effects.
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
    /// The numbers of the requests that have met their fault.
    met: BTreeSet<u32>,
    requests: u32,
    /// The number of the first failing lookup of each outage, with its duration.
    lookups_down: BTreeMap<u32, Duration>,
    lookups: u32,
    /// The end of the present outage of lookups.
    down_until: Duration,
    requested: BTreeSet<(Tenant, OperationKey)>,
    contracts: BTreeMap<String, ContractClass>,
    /// The contract and the effect class under which each operation was called.
    asked: BTreeMap<(Tenant, OperationKey), (Contract, EffectClass)>,
    /// The faults of each request that can be detected.
    knowable: BTreeMap<u32, Knowable>,
    /// The effects that happened and were lost.
    forgotten: Vec<Effect>,
    log: Vec<Event>,
    life: u32,
    newest: u32,
    /// True if events are published to a sink of this world.
    listens: bool,
    heard: Vec<outbox::Event>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("effects", &self.state().effects).finish_non_exhaustive()
    }
}

/// The faults of a request that can be detected, by the contract of its tool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Knowable {
    /// True if the provider detects copies of a request: a proxy may double it.
    pub(super) doubled: bool,
    /// True if a doubled request can be detected at a provider that detects no copies.
    pub(super) twice: bool,
    /// True if the loss of an answered effect can be detected.
    pub(super) forgets: bool,
    /// The maximum delay of a request that can be detected, in seconds; 0 if none can.
    pub(super) landing: u32,
}

impl Knowable {
    fn of(contract: &Contract, effect: EffectClass) -> Self {
        let twice = contract.looks_for_copies(effect);
        let forgets = twice && contract.lookup == LookupOffer::Strong && contract.shown_for.is_none();
        if contract.lookup == LookupOffer::None && !contract.class.collides() {
            return Self::default(); // nobody can know what arrives after a person's answer
        }
        let within = contract.horizon().min(contract.key_window.unwrap_or(Duration::MAX));
        let landing = u32::try_from((within * 3 / 4).as_secs()).unwrap_or(u32::MAX);
        Self { doubled: false, twice, forgets, landing }
    }
}

/// The target of an effect: the account at an external system, if it has several, and the provider's reference.
#[derive(Clone, Copy)]
struct Target<'a> {
    system: &'a str,
    account: &'a str,
    reference: &'a str,
}

impl World {
    pub(super) fn new(clock: SimClock, schedule: &Schedule) -> Self {
        let faults = schedule.incidents().iter().filter_map(|incident| match incident {
            Incident::Fault { request, fault } => Some((*request, *fault)),
            _ => None,
        });
        let lookups_down = schedule.incidents().iter().filter_map(|incident| match incident {
            Incident::LookupDown { lookup, seconds } => {
                Some((*lookup, Duration::from_secs(u64::from(*seconds))))
            }
            _ => None,
        });
        let lookups_down = lookups_down.collect();
        let state = State { faults: faults.collect(), lookups_down, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), clock }
    }

    /// An external system of this name: created on first use, and the same one from then on.
    pub fn service(&self, name: &str, offer: Offer) -> Service {
        let state = self.state().services.entry(name.to_owned()).or_default().clone();
        Service::new(self.clone(), name, offer, state)
    }

    /// Makes an effect. Returns the provider's id for the effect.
    pub(super) fn happened(&self, request: &Request, system: &str, account: &str, reference: &str) -> String {
        self.add(request.tenant(), request.operation(), Target { system, account, reference })
    }

    fn add(&self, tenant: &Tenant, operation: &OperationKey, target: Target<'_>) -> String {
        let Target { system, account, reference } = target;
        let at = self.clock.elapsed();
        let (id, number) = {
            let mut state = self.state();
            let id = format!("{system}-{}", state.effects.len() + 1);
            let its = |effect: &&Effect| (&effect.tenant, &effect.operation) == (tenant, operation);
            let number = state.effects.iter().filter(its).count() + 1;
            state.effects.push(Effect {
                system: system.to_owned(),
                reference: reference.to_owned(),
                id: id.clone(),
                tenant: tenant.clone(),
                operation: operation.clone(),
                account: account.to_owned(),
                at,
            });
            (id, number)
        };
        let system = if account.is_empty() { system.to_owned() } else { format!("{system} ({account})") };
        let (reference, shown) = (reference.to_owned(), id.clone());
        self.note(Happened::Effect { system, reference, id: shown, number });
        id
    }

    /// Makes an effect by hand, without an operation of the engine. Returns the provider's id for the effect.
    pub fn by_hand(&self, tenant: &Tenant, system: &str, reference: &str) -> String {
        let operation = OperationKey::stored(format!("{BY_HAND}{system}:{reference}"));
        self.add(tenant, &operation, Target { system, account: "", reference })
    }

    /// Loses the last effect of an operation.
    pub(super) fn forgets(&self, call: &Call) {
        let mut state = self.state();
        let its =
            |effect: &Effect| (&effect.tenant, &effect.operation) == (call.tenant(), call.operation_key());
        if let Some(last) = state.effects.iter().rposition(its) {
            let lost = state.effects.remove(last);
            state.forgotten.push(lost);
        }
    }

    /// The operations with an effect that happened and was lost.
    pub(super) fn forgotten(&self) -> BTreeSet<(Tenant, OperationKey)> {
        let state = self.state();
        state.forgotten.iter().map(|effect| (effect.tenant.clone(), effect.operation.clone())).collect()
    }

    /// The effects at a system about one reference that happened and were lost.
    pub(super) fn forgotten_about(&self, system: &str, reference: &str) -> Vec<Effect> {
        let state = self.state();
        let lost = state.forgotten.iter().filter(|e| e.system == system && e.reference == reference);
        lost.cloned().collect()
    }

    /// The number of effects at a system about one reference.
    pub fn count(&self, system: &str, reference: &str) -> usize {
        self.found(system, reference).len()
    }

    /// The effects at a system about one reference, in their order.
    pub fn found(&self, system: &str, reference: &str) -> Vec<Effect> {
        let state = self.state();
        let found = state.effects.iter().filter(|e| e.system == system && e.reference == reference);
        found.cloned().collect()
    }

    /// All effects, in their order.
    pub fn effects(&self) -> Vec<Effect> {
        self.state().effects.clone()
    }

    /// The present life of the process, from 1: for a tool that is given another account after a restart.
    pub fn life(&self) -> u32 {
        self.state().life
    }

    /// Waits in the world's time: for a slow provider.
    pub async fn sleep(&self, by: Duration) {
        self.clock.sleep(by).await;
    }

    /// The clock of the world, which is also the engine's.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Notes the contract of a tool that is about to be called.
    pub(super) fn is_asked(&self, call: &Call, tool: &ToolSpec) {
        let place = (call.tenant().clone(), call.operation_key().clone());
        self.state().asked.insert(place, (tool.contract.clone(), tool.effect));
    }

    /// Numbers a request, and returns its fault. A fault that nobody could detect is left out.
    pub(super) fn next_request(&self, call: &Call, tells_copies: bool) -> Option<Fault> {
        let mut state = self.state();
        let place = (call.tenant().clone(), call.operation_key().clone());
        let knowable = state.asked.get(&place).map(|(contract, effect)| Knowable::of(contract, *effect));
        let knowable = knowable.unwrap_or_default();
        state.requested.insert(place);
        state.requests += 1;
        let number = state.requests;
        let twice = knowable.twice && !tells_copies;
        state.knowable.insert(number, Knowable { doubled: tells_copies, twice, ..knowable });
        let fault = state.faults.get(&number).copied().filter(|fault| match fault {
            Fault::Doubled => tells_copies,
            Fault::Twice => tells_copies || knowable.twice,
            Fault::Forgets => knowable.forgets,
            _ => true,
        });
        state.met.extend(fault.map(|_| number));
        fault
    }

    /// The faults that can be detected, for each request that was made to a tool's provider.
    pub(super) fn knowable(&self) -> BTreeMap<u32, Knowable> {
        self.state().knowable.clone()
    }

    /// Numbers a request that is no call, and returns its fault.
    pub(super) fn next_fault(&self) -> Option<Fault> {
        let mut state = self.state();
        state.requests += 1;
        let number = state.requests;
        let fault = state.faults.get(&number).copied();
        state.met.extend(fault.map(|_| number));
        fault
    }

    /// True if the request of this number has met its fault.
    pub(super) fn has_met(&self, request: u32) -> bool {
        self.state().met.contains(&request)
    }

    /// The number of requests of lookups.
    pub(super) fn lookups(&self) -> u32 {
        self.state().lookups
    }

    /// Numbers the request of a lookup.
    ///
    /// # Errors
    /// During an outage of lookups.
    pub(super) fn is_looked_up(&self) -> Result<(), ToolError> {
        let now = self.clock.elapsed();
        let mut state = self.state();
        state.lookups += 1;
        let number = state.lookups;
        if let Some(down) = state.lookups_down.get(&number).copied() {
            state.down_until = state.down_until.max(now + down);
        }
        let is_down = now < state.down_until;
        drop(state);
        if is_down {
            self.note(Happened::NotLookedUp);
            return Err(ToolError::http(503, "simulated"));
        }
        Ok(())
    }

    pub(super) fn is_published_to(&self) {
        self.state().listens = true;
    }

    pub(super) fn hears(&self, event: outbox::Event) {
        let what = format!("{} #{}: {}", event.aggregate, event.seq, event.kind);
        self.note(Happened::Told { who: "the sink".to_owned(), what });
        self.state().heard.push(event);
    }

    /// The events that were published to the [sink](Self::sink) so far, one for each delivery: for a consumer that is
    /// simulated [beside](super::Simulation::with_actor) the engine.
    pub fn published(&self) -> Vec<outbox::Event> {
        self.state().heard.clone()
    }

    /// The events that were published, one for each delivery; `None` if there is no sink.
    pub(super) fn heard(&self) -> Option<Vec<outbox::Event>> {
        let state = self.state();
        state.listens.then(|| state.heard.clone())
    }

    /// True if a provider got a request for an effect of the operation.
    pub(super) fn was_requested(&self, place: &(Tenant, OperationKey)) -> bool {
        self.state().requested.contains(place)
    }

    /// True if a tool was called for the operation, whichever provider the tool has.
    pub(super) fn was_called(&self, place: &(Tenant, OperationKey)) -> bool {
        self.state().asked.contains_key(place)
    }

    /// True if the record holds the id of an effect that was made [by hand](Self::by_hand).
    pub(super) fn is_by_hand(&self, record: &Record) -> bool {
        let is_its = |effect: &Effect| {
            Some(&effect.id) == record.external_ref.as_ref() && effect.operation.as_str().starts_with(BY_HAND)
        };
        self.state().effects.iter().any(is_its)
    }

    /// Notes the contract classes of an engine's tools.
    pub(super) fn declare<'a>(&self, tools: impl IntoIterator<Item = &'a ToolSpec>) {
        let contracts = tools.into_iter().map(|tool| (tool.name.to_string(), tool.contract.class));
        self.state().contracts.extend(contracts);
    }

    /// The contract class that a tool declares.
    pub(super) fn contract(&self, tool: &str) -> Option<ContractClass> {
        self.state().contracts.get(tool).copied()
    }

    /// True if the operation may happen twice: by its effect class, or by its contract.
    pub(super) fn may_repeat(&self, record: &Record) -> bool {
        let contract = self.contract(record.operation.as_str());
        record.class.repeatable() || contract == Some(ContractClass::Idempotent)
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

    /// Sets the life to which the following events belong.
    pub(super) fn acts(&self, life: u32) {
        let mut state = self.state();
        (state.life, state.newest) = (life, state.newest.max(life));
    }

    /// True if the acting process was paused, and has been taken for dead.
    pub(super) fn is_zombie(&self) -> bool {
        let state = self.state();
        state.life < state.newest
    }

    pub(super) fn take_log(&self) -> Vec<Event> {
        std::mem::take(&mut self.state().log)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
