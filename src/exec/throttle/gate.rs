//! A gate: the queue before a tool or a provider, with its token bucket and its circuit breaker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Boot, Clock};
use crate::id::Tenant;
use crate::ledger::{BreakerPermit, Bucket, Circuit, CircuitState, Health, Rate, Throttle};

/// A place in the queue: by turn, and within a turn by arrival.
type Place = (u64, u64);

/// The limits before the calls of a tool, or of all tools of a provider.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) name: String,
    pub(super) throttle: Throttle,
    line: Mutex<Line>,
}

/// The waiting calls, and the limits that they wait for.
#[derive(Debug)]
struct Line {
    bucket: Option<Bucket>,
    circuit: Circuit,
    /// The number of workers that share the rate; 0 before the first heartbeat.
    workers: u32,
    waiting: BTreeMap<Place, Arc<Notify>>,
    /// The last turn of each tenant. Tenants take turns: each is served once before any is served again, however many
    /// calls it has.
    turns: BTreeMap<Tenant, u64>,
    /// The turn that is being served.
    turn: u64,
    arrivals: u64,
    /// The instant up to which tokens are promised to calls that were sent away.
    promised: Boot,
    is_closed: bool,
}

/// The result of waiting at a gate.
pub(super) enum Entered {
    Through(Ticket),
    /// Come again after this time: the wait would have taken too long.
    Later(Duration),
    /// The engine is shutting down.
    Closed,
}

enum Look {
    Go(Option<BreakerPermit>),
    /// First in the queue: look again after this time, or when notified.
    Sleep(Duration),
    /// Not first: look again when notified, or when the patience is over.
    Behind(Option<Duration>),
    Later(Duration),
    Closed,
}

impl Gate {
    pub(super) fn new(name: String, throttle: Throttle, workers: u32, now: Boot) -> Self {
        let line = Line {
            bucket: throttle.rate.as_ref().map(|rate| Bucket::beginning(&rate.shared_by(workers), now)),
            circuit: Circuit::closed(now),
            workers,
            waiting: BTreeMap::new(),
            turns: BTreeMap::new(),
            turn: 0,
            arrivals: 0,
            promised: now,
            is_closed: false,
        };
        Self { name, throttle, line: Mutex::new(line) }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a call of this tenant, for at most `patience` if there is one.
    pub(super) async fn enter(
        self: &Arc<Self>,
        tenant: &Tenant,
        patience: Option<Duration>,
        clock: &dyn Clock,
    ) -> Entered {
        let come = clock.boot();
        let mut standing: Option<Standing> = None;
        loop {
            let now = clock.boot();
            let left = patience.map(|patience| patience.saturating_sub(come.until(now)));
            let look = {
                let mut line = self.line();
                let place = standing.as_ref().map(|standing| standing.place);
                line.look(&self.throttle, (tenant, place), left, now)
            };
            match look {
                Look::Go(permit) => {
                    return Entered::Through(Ticket { gate: self.clone(), permit, at: now });
                }
                Look::Later(wait) => return Entered::Later(wait),
                Look::Closed => return Entered::Closed,
                Look::Sleep(_) | Look::Behind(_) if standing.is_none() => {
                    standing = Some(self.stand(tenant)); // and look again: another call may have come before
                }
                Look::Behind(None) => something_of(standing.as_ref()).notified().await,
                Look::Sleep(wait) | Look::Behind(Some(wait)) => {
                    let something = something_of(standing.as_ref());
                    tokio::select! {
                        biased; // no random choice, so that a simulation is repeatable
                        () = something.notified() => {}
                        () = clock.sleep(wait) => {}
                    }
                }
            }
        }
    }

    fn stand(self: &Arc<Self>, tenant: &Tenant) -> Standing {
        let something = Arc::new(Notify::new());
        let place = self.line().stand(tenant, something.clone());
        Standing { gate: self.clone(), place, something }
    }

    /// Reports the outcome of a call to the breaker.
    fn tell(&self, permit: BreakerPermit, health: Health, now: Boot) {
        let Some(rule) = &self.throttle.breaker else { return };
        let mut line = self.line();
        let before = line.circuit.state();
        line.circuit.report(rule, permit, health, now);
        let after = line.circuit.state();
        if before == after {
            return;
        }
        match after {
            CircuitState::Closed => {
                tracing::info!(gate = self.name, "breaker closed, calls go out again");
            }
            CircuitState::Open { until } => {
                let (waiting, for_ms) = (line.waiting.len(), now.until(until).as_millis());
                tracing::warn!(gate = self.name, waiting, for_ms, "breaker open, calls wait");
            }
            CircuitState::HalfOpen { .. } => {}
        }
        line.wake_all(); // calls that must not wait so long do not have to wait here
    }

    /// Sets the number of workers that share the rate.
    pub(super) fn shared_by(&self, workers: u32) {
        let mut line = self.line();
        if line.workers != workers {
            line.workers = workers;
            line.wake_all();
        }
    }

    /// Closes the gate: no call is let through any more.
    pub(super) fn close(&self) {
        let mut line = self.line();
        line.is_closed = true;
        line.wake_all();
    }

    /// The circuit, and the number of waiting calls.
    pub(super) fn look(&self) -> (Circuit, usize) {
        let line = self.line();
        (line.circuit, line.waiting.len())
    }
}

impl Line {
    fn look(
        &mut self,
        throttle: &Throttle,
        (tenant, place): (&Tenant, Option<Place>),
        left: Option<Duration>,
        now: Boot,
    ) -> Look {
        if self.is_closed {
            return Look::Closed;
        }
        if throttle.rate.is_some() && self.workers == 0 {
            return Look::Behind(None); // the first heartbeat tells
        }
        let rate = throttle.rate.map(|rate| rate.shared_by(self.workers));
        let before = self.waiting.range(..place.unwrap_or_else(|| self.next_place(tenant))).count();
        let wait = self.wait(rate.as_ref(), before, now);
        // Whoever goes past waiting calls takes a place first, by which its tenant's turn counts.
        let is_counted = place.is_some() || self.waiting.is_empty();
        if is_counted && before == 0 && wait.is_zero() {
            return Look::Go(self.go(throttle, rate.as_ref(), place, now));
        }
        if left.is_some_and(|left| wait > left) {
            return Look::Later(self.promise(throttle, rate.as_ref(), wait, now));
        }
        if before == 0 { Look::Sleep(wait) } else { Look::Behind(left) }
    }

    /// The place of the next call of this tenant: after the tenant's own calls, and before those that other tenants make
    /// out of turn.
    fn next_place(&self, tenant: &Tenant) -> Place {
        let served = self.turns.get(tenant).copied().unwrap_or(0).max(self.turn);
        (served + 1, self.arrivals + 1)
    }

    /// An estimate of the wait at this place.
    fn wait(&self, rate: Option<&Rate>, before: usize, now: Boot) -> Duration {
        let by_circuit = self.circuit.wait(now);
        let (Some(rate), Some(bucket)) = (rate, &self.bucket) else { return by_circuit };
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        let by_rate = bucket.wait(rate, now).saturating_add(rate.interval().saturating_mul(before));
        by_circuit.max(by_rate)
    }

    fn go(
        &mut self,
        throttle: &Throttle,
        rate: Option<&Rate>,
        place: Option<Place>,
        now: Boot,
    ) -> Option<BreakerPermit> {
        if let (Some(rate), Some(bucket)) = (rate, &mut self.bucket) {
            bucket.take(rate, now);
        }
        if let Some((turn, _)) = place {
            self.turn = self.turn.max(turn);
        }
        throttle.breaker.as_ref().and_then(|rule| self.circuit.pass(rule, now))
    }

    /// The time after which a call that is sent away may come again. Such calls come back one after another, not all at
    /// once.
    fn promise(&mut self, throttle: &Throttle, rate: Option<&Rate>, wait: Duration, now: Boot) -> Duration {
        let spread = rate.map(Rate::interval).or(throttle.breaker.map(|rule| rule.open_for / 100));
        let at = self.promised.max(Boot(now.0.saturating_add(wait)));
        self.promised = Boot(at.0.saturating_add(spread.unwrap_or_default()));
        now.until(at)
    }

    fn stand(&mut self, tenant: &Tenant, something: Arc<Notify>) -> Place {
        let place = self.next_place(tenant);
        self.turns.insert(tenant.clone(), place.0);
        self.arrivals = place.1;
        self.waiting.insert(place, something);
        place
    }

    fn leave(&mut self, place: Place) {
        self.waiting.remove(&place);
        match self.waiting.first_key_value() {
            Some((_, first)) => first.notify_one(),
            None => self.turns.clear(),
        }
    }

    fn wake_all(&self) {
        self.waiting.values().for_each(|something| something.notify_one());
    }
}

/// The notification that wakes a call in the queue.
fn something_of(standing: Option<&Standing>) -> Arc<Notify> {
    standing.map(|standing| standing.something.clone()).unwrap_or_default()
}

/// A call in the queue. When it leaves, also because its caller is gone, the next one looks.
struct Standing {
    gate: Arc<Gate>,
    place: Place,
    something: Arc<Notify>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.gate.line().leave(self.place);
    }
}

/// A permit for one call. Dropped without a report, it counts neither as a success nor as a failure for the breaker.
#[derive(Debug)]
pub(super) struct Ticket {
    gate: Arc<Gate>,
    permit: Option<BreakerPermit>,
    at: Boot,
}

impl Ticket {
    pub(super) fn tell(mut self, health: Health, now: Boot) {
        if let Some(permit) = self.permit.take() {
            self.gate.tell(permit, health, now);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.gate.tell(permit, Health::Unknown, self.at);
        }
    }
}
