//! The limits on calls. Each call passes the gate of its tool and that of its provider before its attempt is written,
//! so that nothing waits between the `started` record and the call.
//!
//! A gate has a token bucket, a circuit breaker and a queue in which tenants take turns. The bucket holds this worker's
//! share of the declared rate: in a shared store, each heartbeat tells the number of workers. Tools that declare no
//! limits pass no gate.

mod gate;
mod purse;
mod queue_up;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gate::{Gate, Ticket};
pub(crate) use purse::Purse;
use purse::Taken;

use crate::clock::{Boot, Timestamp};
use crate::ledger::{CircuitState, Health, Quota};
use crate::tool::{Registry, ToolError, ToolSpec};

/// All gates of an executor, by name: those of tools, and those of providers.
#[derive(Debug, Default)]
pub(super) struct Gates {
    of_tools: BTreeMap<String, Arc<Gate>>,
    of_providers: BTreeMap<String, Arc<Gate>>,
}

impl Gates {
    /// The gates for the limits of the registered tools. A worker that is alone has the whole rate; beside others it
    /// waits for the first heartbeat.
    pub(super) fn of(registry: &Registry, is_alone: bool, now: Boot) -> Self {
        let mut gates = Self::default();
        let workers = u32::from(is_alone);
        for spec in registry.specs() {
            let Quota { own, provider, .. } = &spec.quota;
            if !own.is_none() {
                let name = spec.name.to_string();
                gates.of_tools.insert(name.clone(), Arc::new(Gate::new(name, *own, workers, now)));
            }
            if let Some((name, all)) = provider {
                let gate = || Arc::new(Gate::new(name.to_string(), *all, workers, now));
                gates.of_providers.entry(name.to_string()).or_insert_with(gate);
            }
        }
        gates
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Gate>> {
        self.of_tools.values().chain(self.of_providers.values())
    }

    /// Sets the number of living workers, this one among them.
    pub(super) fn shared_by(&self, workers: usize) {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
        self.all().for_each(|gate| gate.shared_by(workers));
    }

    /// Closes all gates: no call is let through any more.
    pub(super) fn close(&self) {
        self.all().for_each(|gate| gate.close());
    }

    /// The gates that a call of this tool has to pass.
    fn before(&self, spec: &ToolSpec) -> impl Iterator<Item = &Arc<Gate>> {
        let provider = spec.quota.provider.as_ref().and_then(|(name, _)| self.of_providers.get(&**name));
        self.of_tools.get(spec.name.as_str()).into_iter().chain(provider)
    }

    /// The reports of all gates, by these clocks.
    pub(super) fn reports(&self, wall: Timestamp, boot: Boot) -> Vec<ThrottleReport> {
        let report = |gate: &Arc<Gate>, is_provider| {
            let (circuit, waiting) = gate.look();
            let (state, until) = match circuit.state() {
                CircuitState::Closed => (BreakerState::Closed, None),
                CircuitState::Open { until } => (BreakerState::Open, Some(wall.after(boot.until(until)))),
                CircuitState::HalfOpen { .. } => (BreakerState::HalfOpen, None),
            };
            let lasted = i64::try_from(circuit.since().until(boot).as_micros()).unwrap_or(i64::MAX);
            ThrottleReport {
                name: gate.name.clone(),
                is_provider,
                state,
                since: Timestamp(wall.0.saturating_sub(lasted)),
                until,
                failures: gate.throttle.breaker.map_or(0, |rule| circuit.failures(&rule, boot)),
                waiting,
            }
        };
        let of_tools = self.of_tools.values().map(|gate| report(gate, false));
        of_tools.chain(self.of_providers.values().map(|gate| report(gate, true))).collect()
    }
}

/// The limits that a call has passed, held until the call has been sent. `None` for a tool without limits.
pub(super) type Pass = Option<Box<Passed>>;

/// The tickets of the gates, and the share of the budget: see [`Pass`].
#[derive(Debug, Default)]
pub(super) struct Passed {
    tickets: Vec<Ticket>,
    taken: Option<Taken>,
    /// The end of the operation's time to be sent, if that time is limited.
    pub(super) deadline: Option<Timestamp>,
}

impl Passed {
    /// Notes that the attempt is durable: its record counts it from now on.
    pub(super) fn is_spent(&mut self) {
        if let Some(taken) = &mut self.taken {
            taken.is_spent();
        }
    }

    /// Reports the provider's health to the breakers, as the answer shows it.
    pub(super) fn tell(self, health: Health, now: Boot) {
        self.tickets.into_iter().for_each(|ticket| ticket.tell(health, now));
    }
}

/// The provider's health, as an answer shows it.
pub(super) fn health<T>(result: &Result<T, ToolError>) -> Health {
    result.as_ref().map_or_else(|error| error.kind.health(), |_| Health::Well)
}

/// The result of waiting for the turn of a call.
pub(super) enum Turn {
    Go(Pass),
    /// The wait would have taken too long. Come again after this time.
    Later(Duration),
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls go out.
    Closed,
    /// Calls wait for the breaker.
    Open,
    /// One call has gone ahead; the others wait for its outcome.
    HalfOpen,
}

/// The state of the limits of a tool, or of all tools of a provider.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ThrottleReport {
    /// The name of the tool or of the provider.
    pub name: String,
    /// True if the limits are a provider's, shared by all tools that name it.
    pub is_provider: bool,
    /// The state of the breaker; closed if there is none.
    pub state: BreakerState,
    /// The instant of the last change of the breaker's state (UTC).
    pub since: Timestamp,
    /// The instant at which the next call may go ahead (UTC), if the breaker is open.
    pub until: Option<Timestamp>,
    /// The number of failures that the breaker remembers.
    pub failures: u32,
    /// The number of waiting calls. Runs that wait for long are parked, and not counted.
    pub waiting: usize,
}
