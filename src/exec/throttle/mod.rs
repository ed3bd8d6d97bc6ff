//! What holds calls back (EXE-4, EXE-9): each passes the gate of its tool and that of its provider before its attempt is
//! written, so that nothing waits between the `started` record and the call.
//!
//! A gate has a bucket, a circuit and a line in which tenants take turns. The bucket holds this worker's part of the
//! declared rate: of a store that several share, each heartbeat tells among how many. Tools that declare nothing pass
//! by all of it.

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
    /// Of what the registered tools declare. Alone, the whole rate is this worker's; beside others it waits to be told.
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

    /// So many workers live, this one among them.
    pub(super) fn shared_by(&self, workers: usize) {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
        self.all().for_each(|gate| gate.shared_by(workers));
    }

    /// Nobody is let through any more.
    pub(super) fn close(&self) {
        self.all().for_each(|gate| gate.close());
    }

    /// Those that a call of this tool has to pass.
    fn before(&self, spec: &ToolSpec) -> impl Iterator<Item = &Arc<Gate>> {
        let provider = spec.quota.provider.as_ref().and_then(|(name, _)| self.of_providers.get(&**name));
        self.of_tools.get(spec.name.as_str()).into_iter().chain(provider)
    }

    /// What stands before calls, by these clocks.
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

/// What a call has passed, until it has been sent. Nothing, where nothing is declared.
pub(super) type Pass = Option<Box<Passed>>;

/// See [`Pass`].
#[derive(Debug, Default)]
pub(super) struct Passed {
    tickets: Vec<Ticket>,
    taken: Option<Taken>,
    /// When the operation's time to be sent is over, if that is limited.
    pub(super) deadline: Option<Timestamp>,
}

impl Passed {
    /// The attempt is durable, and counts from now on in its record.
    pub(super) fn is_spent(&mut self) {
        if let Some(taken) = &mut self.taken {
            taken.is_spent();
        }
    }

    /// What its answer says about the provider.
    pub(super) fn tell(self, health: Health, now: Boot) {
        self.tickets.into_iter().for_each(|ticket| ticket.tell(health, now));
    }
}

/// What an answer says about the provider.
pub(super) fn health<T>(result: &Result<T, ToolError>) -> Health {
    result.as_ref().map_or_else(|error| error.kind.health(), |_| Health::Well)
}

/// How it came out before the gates.
pub(super) enum Turn {
    Go(Pass),
    /// It would have taken too long to wait for.
    Later(Duration),
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls go out.
    Closed,
    /// Calls wait.
    Open,
    /// One call has gone ahead; the others wait for what becomes of it.
    HalfOpen,
}

/// What stands before the calls of a tool, or of all tools of a provider.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ThrottleReport {
    /// The tool or the provider.
    pub name: String,
    /// It is a provider's, and stands before all tools that name it.
    pub is_provider: bool,
    /// Where its breaker stands; closed if it has none.
    pub state: BreakerState,
    /// Since when.
    pub since: Timestamp,
    /// When the next call may go ahead, if the circuit is open.
    pub until: Option<Timestamp>,
    /// So many failures are remembered.
    pub failures: u32,
    /// So many calls wait here. Runs that wait for long are parked, and not among them.
    pub waiting: usize,
}
