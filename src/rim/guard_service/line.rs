//! The operations in hand: for each its executions, and the attempt or lookup that it offers to a client.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use super::permit::{Permit, Permits};
use super::request::{CallOutcome, Finding, Tasks};
use super::step::{Permitted, Step};
use crate::clock::SharedClock;
use crate::exec::{ExecError, Outcome};
use crate::id::Tenant;
use crate::ledger::OperationKey;
use crate::tool::Call;

/// An attempt or a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Send,
    Look,
}

impl Task {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Look => "look",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Send, Self::Look].into_iter().find(|task| task.name() == name)
    }
}

/// A client that takes tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taker {
    /// A client that has begun the call.
    Caller,
    /// A process that polls for these tasks.
    Poller(Tasks),
}

impl Taker {
    /// True if this client takes the task, while so many clients that have begun the call wait for it.
    const fn takes(self, task: Task, waiting: usize) -> bool {
        match (self, task) {
            (Self::Caller, _) | (Self::Poller(_), Task::Look) => true,
            (Self::Poller(Tasks::Looks), Task::Send) => false,
            (Self::Poller(Tasks::All), Task::Send) => waiting == 0,
        }
    }
}

/// The reply of a client to a task.
#[derive(Debug)]
pub(super) enum Reply {
    Outcome(CallOutcome),
    Finding(Finding),
}

/// One request of an operation that the executor carries out.
pub(super) struct Execution {
    pub(super) input: Value,
    pub(super) ended: OnceLock<Result<Outcome, ExecError>>,
}

/// An operation in hand.
pub(super) struct Line {
    pub(super) tenant: Tenant,
    pub(super) key: OperationKey,
    state: Mutex<State>,
    /// Notified when a task is offered, and when an execution ends.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    executions: Vec<Arc<Execution>>,
    /// The tasks that wait for a client, the oldest first. A lookup beside a question and an attempt may wait at once.
    offers: Vec<Offer>,
    /// The permits of the tasks that clients have taken, by the numbers of their offers.
    taken: HashMap<u64, String>,
    /// The number of the last offer.
    last: u64,
    /// The number of clients that have begun the call and wait for its next step.
    waiting: usize,
}

/// A task that waits for a client.
pub(super) struct Offer {
    number: u64,
    pub(super) task: Task,
    pub(super) tool: String,
    pub(super) input: Value,
    pub(super) call: Call,
    time: Duration,
    reply: oneshot::Sender<Reply>,
}

/// The end of a task that was offered.
pub(super) enum Offered {
    /// The client has replied.
    Replied(Reply),
    /// No client has taken the task, and none can take it any more: nothing was done.
    Untaken,
    /// A client has taken the task, and its reply can no longer come.
    Lost,
}

/// All operations in hand.
pub(super) struct Lines {
    clock: SharedClock,
    in_hand: Mutex<HashMap<(Tenant, OperationKey), Weak<Line>>>,
    pub(super) permits: Permits,
    /// The number of the next lookup. Each has a number of its own: a finding that comes when the time of its lookup is over must not
    /// count for the next one, because "not found" may have been true only then.
    pub(super) looks: AtomicU32,
    /// Notified when a task is offered, or is left by the last client that waited for it.
    pub(super) offered: Notify,
}

impl Lines {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            in_hand: Mutex::default(),
            permits: Permits::default(),
            looks: AtomicU32::default(),
            offered: Notify::new(),
        }
    }

    /// The line of an operation. It stays as long as somebody holds it.
    pub(super) fn of(&self, tenant: &Tenant, key: &OperationKey) -> Arc<Line> {
        let mut lines = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(&(tenant.clone(), key.clone())).and_then(Weak::upgrade) {
            return line;
        }
        // Twice as many as are alive at most, so that the map does not grow with the operations that have ended.
        if lines.len() == lines.capacity() {
            lines.retain(|_, line| line.strong_count() > 0);
        }
        let (tenant, key) = (tenant.clone(), key.clone());
        let place = (tenant.clone(), key.clone());
        let line = Arc::new(Line { tenant, key, state: Mutex::default(), changed: Notify::new() });
        lines.insert(place, Arc::downgrade(&line));
        line
    }

    /// A line of a tenant that offers a task of this tool to this client.
    pub(super) fn offering(&self, tenant: &Tenant, tool: &str, taker: Taker) -> Option<Arc<Line>> {
        let lines = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = lines.iter().filter(|((of, _), _)| of == tenant).filter_map(|(_, line)| line.upgrade());
        let offers = |line: &Arc<Line>| {
            let state = line.state();
            state.offers.iter().any(|offer| offer.tool == tool && taker.takes(offer.task, state.waiting))
        };
        alive.into_iter().find(offers)
    }
}

/// The clients that carry out the tasks of a tool.
#[derive(Clone)]
pub(super) struct Clients {
    pub(super) lines: Arc<Lines>,
    pub(super) tool: String,
    /// The time of a task, unless its call has a deadline.
    pub(super) time: Duration,
}

impl Clients {
    /// Offers a task until a client takes it and replies, or until no client has taken it within half of its time.
    ///
    /// The executor drops this future when the time of the task is over. From then on the permit counts no more.
    pub(super) async fn offer(self, task: Task, call: Call, input: Value) -> Offered {
        let Self { lines, tool, time } = self;
        let line = lines.of(call.tenant(), call.operation_key());
        let (reply, replied) = oneshot::channel();
        let time = call.time_left().unwrap_or(time);
        let number = line.state().offer(|number| Offer { number, task, tool, input, call, time, reply });
        let _withdrawn = Withdrawn { lines: &lines, line: &line, number };
        line.changed.notify_waiters();
        lines.offered.notify_waiters();
        let mut replied = std::pin::pin!(replied);
        tokio::select! {
            biased;
            reply = &mut replied => return reply.map_or(Offered::Lost, Offered::Replied),
            () = lines.clock.sleep(time / 2) => {}
        }
        if line.state().withdraw(number) {
            return Offered::Untaken;
        }
        replied.await.map_or(Offered::Lost, Offered::Replied)
    }
}

/// A client that waits for the next step of a call that it has begun.
pub(super) struct Waiting<'a> {
    line: &'a Line,
    offered: &'a Notify,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let is_left = {
            let mut state = self.line.state();
            state.waiting -= 1;
            state.waiting == 0 && !state.offers.is_empty()
        };
        // An attempt that was offered to the client is one for a poller now, and nobody offers it anew.
        if is_left {
            self.offered.notify_waiters();
        }
    }
}

/// Withdraws a task that is over. Another task of the same operation goes on: its permit stays good, because its client may have
/// sent already.
struct Withdrawn<'a> {
    lines: &'a Lines,
    line: &'a Arc<Line>,
    number: u64,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        let permit = {
            let mut state = self.line.state();
            state.withdraw(self.number);
            state.taken.remove(&self.number)
        };
        if let Some(permit) = permit {
            self.lines.permits.forget(&permit);
        }
    }
}

impl State {
    /// Offers a task under a number of its own.
    fn offer(&mut self, offer: impl FnOnce(u64) -> Offer) -> u64 {
        self.last += 1;
        self.offers.push(offer(self.last));
        self.last
    }

    /// Withdraws an offer. False if a client has taken it.
    fn withdraw(&mut self, number: u64) -> bool {
        let place = self.offers.iter().position(|offer| offer.number == number);
        place.map(|place| self.offers.remove(place)).is_some()
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a client that has begun the call, while it waits for the next step. `offered` is notified if it leaves a task.
    pub(super) fn wait<'a>(&'a self, offered: &'a Notify) -> Waiting<'a> {
        self.state().waiting += 1;
        Waiting { line: self, offered }
    }

    /// The execution of this input, and whether it begins with this call.
    pub(super) fn execution(&self, input: &Value) -> (Arc<Execution>, bool) {
        let mut state = self.state();
        if let Some(there) = state.executions.iter().find(|there| there.input == *input) {
            return (there.clone(), false);
        }
        let begun = Arc::new(Execution { input: input.clone(), ended: OnceLock::new() });
        state.executions.push(begun.clone());
        (begun, true)
    }

    /// The execution of this input that is under way, if there is one.
    pub(super) fn under_way(&self, input: &Value) -> Option<Arc<Execution>> {
        self.state().executions.iter().find(|there| there.input == *input).cloned()
    }

    /// Ends an execution.
    pub(super) fn end(&self, execution: &Arc<Execution>, outcome: Result<Outcome, ExecError>) {
        let _ = execution.ended.set(outcome); // it ends once
        self.state().executions.retain(|there| !Arc::ptr_eq(there, execution));
        self.changed.notify_waiters();
    }

    /// Takes a task that is offered to this client under a permit: one of this input, if there is an input. `waited`: how long the client's
    /// request has waited for it.
    pub(super) fn take(
        self: &Arc<Self>,
        permits: &Permits,
        (taker, input): (Taker, Option<&Value>),
        waited: Duration,
        permit: impl FnOnce(Task, &Call) -> String,
    ) -> Option<Step> {
        let mut state = self.state();
        let waiting = state.waiting;
        let is_wanted = |offer: &Offer| {
            taker.takes(offer.task, waiting) && input.is_none_or(|input| offer.input == *input)
        };
        let place = state.offers.iter().position(is_wanted)?;
        let Offer { number, task, tool, input, call, time, reply } = state.offers.remove(place);
        let permit = permit(task, &call);
        let usable = call.time_left().unwrap_or(time) + waited;
        state.taken.insert(number, permit.clone());
        let permitted = Permitted {
            permit: permit.clone(),
            tool,
            key: self.key.to_string(),
            input: input.clone(),
            idempotency_key: call.key().to_owned(),
            attempt: call.attempt(),
            use_ms: u64::try_from(usable.as_millis()).unwrap_or(u64::MAX),
            first_sent: call.first_sent().map(|at| at.to_string()),
            external_ref: call.external_ref().map(str::to_owned),
        };
        permits.open(permit, Permit { task, taker, line: self.clone(), input, reply });
        Some(if task == Task::Send { Step::Send(permitted) } else { Step::Look(permitted) })
    }
}
