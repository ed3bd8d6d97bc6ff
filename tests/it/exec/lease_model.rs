//! The protocol of leases and fences, as a model that is tried in every order of its steps: a worker, the one that
//! takes over, and one operation that must not happen twice. The store and the executor do what is written here.
//!
//! A worker is a process: one that restarts is another worker, and one more would only repeat what the second does.
//! Each step may come late or never: a worker that is killed, stopped or cut off is one whose steps are not taken
//! while time passes and others take theirs. All clocks run at one rate, and no two are compared. A request arrives in
//! less than the settle time after its sender has looked at its lease, or not at all: the one promise about the
//! outside, without which nothing keeps invariant 3.
//!
//! What holds the protocol up is listed as [`Rule`]; a test takes away each, and the checker must find what goes wrong.

use stateright::{Checker as _, HasDiscoveries, Model, Property};

/// How long a lease holds, in ticks.
const LEASE: Time = 1;
/// The settle time, in ticks.
const SETTLE: Time = 2;
/// When the model ends: time for the takeover, the settle time, the second send, and what is late by then.
const HORIZON: Time = 6;
const WORKERS: usize = 2;

type Time = u8;
/// The workers in the order of their enrolment.
type Fence = usize;

/// What the protocol rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A worker sends only when it knows that `started` is durable.
    WaitForStarted,
    /// Directly before it sends, a worker looks whether its lease still holds by its own clock.
    LookAtTheLease,
    /// That clock counts from when the renewal was sent, not from when its answer came.
    CountFromTheSending,
    /// A worker is ended by another one only when its lease is over by the store's clock.
    EndAfterTheLease,
    /// A write is refused if its worker has ended.
    CheckTheFence,
    /// A write holds its worker's row from the check of the fence until it is durable (`FOR SHARE`): whoever ends
    /// the worker waits for it.
    HoldTheFence,
    /// The settle time counts from when the taker knows that the sender was ended, not from the sender's `started`.
    SettleFromTheEnd,
}

/// All rules are kept, but for one perhaps.
#[derive(Clone, Copy, Debug)]
struct Protocol {
    without: Option<Rule>,
}

impl Protocol {
    fn keeps(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

const INTENT: &str = "invariant 1: nothing is sent before its intent is durable";
const ONCE: &str = "invariant 3: nothing happens twice";
const SILENT: &str = "invariant 6: a worker that was ended sends nothing";
const ZOMBIE: &str = "invariant 6: nothing of an ended worker lands after it was read";

/// Everything there is: the store, the workers, the world, and what is on its way between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    now: Time,
    /// A row and a process for each fence.
    workers: Vec<Worker>,
    /// Whose the run is.
    owner: Fence,
    record: Record,
    requests: Vec<Request>,
    effects: u8,
    violated: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Worker {
    // Its row in the store.
    lease_until: Time,
    ended: bool,
    /// After it was ended, somebody read what it had left.
    read: bool,
    // Its process.
    /// Until when it takes its lease for good.
    may_send_until: Time,
    renewal: Option<Renewal>,
    doing: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Renewal {
    sent: Time,
    /// The store has renewed the lease; the answer is on its way back.
    done: bool,
}

/// What a worker does next, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    /// Its write is on the way to the store, or there already: its fence is checked first, durable it is later.
    Writing { change: Change, checked: bool },
    /// The run is its own, and it reads the record next.
    Owning,
    /// It knows that its `started` is durable, and sends next.
    Permitted,
    /// It has sent, and waits for the answer.
    Calling,
    /// The operation may have happened. The world is asked; that it has not happened is believed from then on.
    Asking { settled: Time },
    /// It has learned that it was ended, or that the operation is done.
    Nothing { ended: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Change {
    /// The run is mine; it was this one's.
    Claim { from: Fence },
    /// The operation is started, by me; the record was this one.
    Start { before: Record },
    /// The operation is done.
    Seal,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Record {
    #[default]
    Absent,
    Started {
        by: Fence,
        attempt: u8,
        at: Time,
    },
    Committed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    by: Fence,
    sent: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    /// The next worker enrols, and claims the run of one that was ended.
    Enrol,
    Renew(Fence),
    RenewalArrives(Fence),
    RenewalIsAnswered(Fence),
    CheckFence(Fence),
    Commit(Fence),
    Read(Fence),
    Send(Fence),
    GiveUp(Fence),
    Ask(Fence),
    /// Its lease is over, and others end it.
    End(Fence),
    /// A request reaches the world, and its sender has the answer.
    Arrive(usize),
}

impl State {
    fn steps(&self, protocol: Protocol) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.now < HORIZON {
            steps.push(Step::Tick);
        }
        if self.workers[self.owner].ended && self.workers.len() < WORKERS {
            steps.push(Step::Enrol);
        }
        for (fence, worker) in self.workers.iter().enumerate() {
            steps.extend(worker.next(fence, self.now, protocol));
            steps.extend(worker.renewal_next(fence, self.now));
            if fence == self.owner && worker.can_be_ended(self.now, protocol) {
                steps.push(Step::End(fence));
            }
        }
        steps.extend((0..self.requests.len()).map(Step::Arrive));
        steps
    }

    fn take(&mut self, step: Step, protocol: Protocol) {
        match step {
            Step::Tick => {
                self.now += 1;
                self.requests.retain(|request| self.now < request.sent + SETTLE);
            }
            Step::Enrol => self.workers.push(Worker {
                lease_until: self.now + LEASE,
                ended: false,
                read: false,
                may_send_until: self.now + LEASE,
                renewal: None,
                doing: Doing::writing(Change::Claim { from: self.owner }),
            }),
            Step::Renew(fence) => {
                self.workers[fence].renewal = Some(Renewal { sent: self.now, done: false });
            }
            Step::RenewalArrives(fence) => self.workers[fence].renewal_arrives(),
            Step::RenewalIsAnswered(fence) => self.workers[fence].renewal_is_answered(self.now, protocol),
            Step::CheckFence(fence) => self.workers[fence].check_fence(protocol),
            Step::Commit(fence) => self.commit(fence, protocol),
            Step::Read(fence) => self.read(fence, protocol),
            Step::Send(fence) => self.send(fence),
            // Its own request may still be on the way, as a dead worker's may.
            Step::GiveUp(fence) => self.workers[fence].doing = Doing::Asking { settled: self.now + SETTLE },
            Step::Ask(fence) => self.ask(fence),
            Step::End(fence) => self.workers[fence].ended = true,
            Step::Arrive(at) => {
                let Request { by, .. } = self.requests.remove(at);
                self.effects += 1;
                self.violate(ONCE, self.effects > 1);
                if self.workers[by].doing == Doing::Calling {
                    self.workers[by].doing = Doing::writing(Change::Seal);
                }
            }
        }
    }

    /// A write whose fence was checked becomes durable, if it fits what is there. A transaction of its own for each;
    /// what it does not fit is refused by revision and by unique keys.
    fn commit(&mut self, fence: Fence, protocol: Protocol) {
        let Doing::Writing { change, .. } = self.workers[fence].doing else { return };
        let fits = match change {
            Change::Claim { from } => self.owner == from,
            Change::Start { before } => self.record == before,
            Change::Seal => self.record != Record::Committed,
        };
        self.violate(ZOMBIE, fits && self.workers[fence].read);
        self.workers[fence].doing = match change {
            _ if !fits => Doing::Nothing { ended: false },
            Change::Claim { .. } => {
                self.owner = fence;
                Doing::Owning
            }
            Change::Start { before } => {
                let attempt = if let Record::Started { attempt, .. } = before { attempt + 1 } else { 1 };
                // Who keeps the rules does not ask when it was, and leaving it out leaves out many states.
                let at = if protocol.keeps(Rule::SettleFromTheEnd) { 0 } else { self.now };
                self.record = Record::Started { by: fence, attempt, at };
                Doing::Permitted
            }
            Change::Seal => {
                self.record = Record::Committed;
                Doing::Nothing { ended: false }
            }
        };
    }

    /// What it finds decides what the new owner does.
    fn read(&mut self, fence: Fence, protocol: Protocol) {
        for worker in &mut self.workers {
            worker.read = worker.ended;
        }
        self.workers[fence].doing = match self.record {
            before @ Record::Absent => Doing::writing(Change::Start { before }),
            Record::Started { at, .. } => {
                let from = if protocol.keeps(Rule::SettleFromTheEnd) { self.now } else { at };
                Doing::Asking { settled: from + SETTLE }
            }
            Record::Committed => Doing::Nothing { ended: false },
        };
    }

    /// The check of the lease and the sending are one step: what lies between them is part of the request's way.
    fn send(&mut self, fence: Fence) {
        self.violate(INTENT, !matches!(self.record, Record::Started { by, .. } if by == fence));
        self.violate(SILENT, self.workers[fence].ended);
        self.workers[fence].doing = Doing::Calling;
        self.requests.push(Request { by: fence, sent: self.now });
    }

    /// A lookup. "It is there" is believed at once; "it is not there", only when nothing can be on its way.
    fn ask(&mut self, fence: Fence) {
        let Doing::Asking { settled } = self.workers[fence].doing else { return };
        if self.effects > 0 {
            self.workers[fence].doing = Doing::writing(Change::Seal);
        } else if self.now >= settled {
            self.workers[fence].doing = Doing::writing(Change::Start { before: self.record });
        }
    }

    fn violate(&mut self, invariant: &'static str, violated: bool) {
        if violated {
            self.violated.push(invariant);
        }
    }
}

impl Doing {
    fn writing(change: Change) -> Self {
        Self::Writing { change, checked: false }
    }
}

impl Worker {
    fn next(&self, fence: Fence, now: Time, protocol: Protocol) -> Vec<Step> {
        let may_send = now <= self.may_send_until || !protocol.keeps(Rule::LookAtTheLease);
        match self.doing {
            Doing::Writing { change: Change::Start { .. }, checked: false }
                if may_send && !protocol.keeps(Rule::WaitForStarted) =>
            {
                vec![Step::CheckFence(fence), Step::Send(fence)]
            }
            Doing::Writing { checked: false, .. } => vec![Step::CheckFence(fence)],
            Doing::Writing { checked: true, .. } => vec![Step::Commit(fence)],
            Doing::Owning => vec![Step::Read(fence)],
            Doing::Permitted if may_send => vec![Step::Send(fence)],
            Doing::Calling => vec![Step::GiveUp(fence)],
            Doing::Asking { .. } => vec![Step::Ask(fence)],
            Doing::Permitted | Doing::Nothing { .. } => vec![],
        }
    }

    fn renewal_next(&self, fence: Fence, now: Time) -> Option<Step> {
        match self.renewal {
            _ if matches!(self.doing, Doing::Nothing { .. }) => None,
            Some(Renewal { done: false, .. }) => Some(Step::RenewalArrives(fence)),
            Some(Renewal { done: true, .. }) => Some(Step::RenewalIsAnswered(fence)),
            None => (self.may_send_until < now + LEASE).then_some(Step::Renew(fence)),
        }
    }

    /// The store counts from the time it told the worker before, which is not earlier than the worker asked.
    fn renewal_arrives(&mut self) {
        let Some(renewal) = &mut self.renewal else { return };
        if self.ended {
            self.doing = Doing::Nothing { ended: true };
        } else {
            renewal.done = true;
            self.lease_until = self.lease_until.max(renewal.sent + LEASE);
        }
    }

    fn renewal_is_answered(&mut self, now: Time, protocol: Protocol) {
        let Some(renewal) = self.renewal.take() else { return };
        self.may_send_until =
            LEASE + if protocol.keeps(Rule::CountFromTheSending) { renewal.sent } else { now };
    }

    fn check_fence(&mut self, protocol: Protocol) {
        if let Doing::Writing { checked, .. } = &mut self.doing {
            *checked = true;
        }
        if self.ended && protocol.keeps(Rule::CheckTheFence) {
            self.doing = Doing::Nothing { ended: true };
        }
    }

    fn can_be_ended(&self, now: Time, protocol: Protocol) -> bool {
        let held =
            protocol.keeps(Rule::HoldTheFence) && matches!(self.doing, Doing::Writing { checked: true, .. });
        let over = self.lease_until < now || !protocol.keeps(Rule::EndAfterTheLease);
        !self.ended && over && !held
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    /// The first worker has enrolled, and the run is its own.
    fn init_states(&self) -> Vec<State> {
        let mut first = State::default();
        first.take(Step::Enrol, *self);
        first.workers[0].doing = Doing::Owning;
        vec![first]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let over =
            !state.violated.is_empty() || state.record == Record::Committed && state.requests.is_empty();
        if !over {
            steps.extend(state.steps(*self));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        next.take(step, *self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(INTENT, |_, state: &State| !state.violated.contains(&INTENT)),
            Property::always(ONCE, |_, state: &State| !state.violated.contains(&ONCE)),
            Property::always(SILENT, |_, state: &State| !state.violated.contains(&SILENT)),
            Property::always(ZOMBIE, |_, state: &State| !state.violated.contains(&ZOMBIE)),
            // What makes the others worth something: it is not that nothing ever happens.
            Property::sometimes("a zombie finds that it was ended", |_, state: &State| {
                state.workers[0].doing == Doing::Nothing { ended: true }
            }),
            Property::sometimes("what a dead worker did is found, and sealed", |_, state: &State| {
                state.record == Record::Committed && state.workers[0].doing == Doing::Permitted
            }),
            Property::sometimes("what did not happen is sent again, and happens once", |_, state: &State| {
                matches!(state.record, Record::Started { by: 1, attempt: 2, .. }) && state.effects == 1
            }),
        ]
    }
}

#[test]
fn no_order_of_steps_sends_twice_or_lets_a_zombie_write() {
    let checker = Protocol { without: None }.checker().threads(2).spawn_bfs().join();
    assert!(checker.unique_state_count() > 100_000, "the model has lost its steps");
    checker.assert_properties();
}

#[test]
fn without_any_one_of_its_rules_the_protocol_fails() {
    for (rule, invariant) in [
        (Rule::WaitForStarted, INTENT),
        (Rule::LookAtTheLease, SILENT),
        (Rule::CountFromTheSending, SILENT),
        (Rule::EndAfterTheLease, SILENT),
        (Rule::CheckTheFence, ZOMBIE),
        (Rule::HoldTheFence, ZOMBIE),
        (Rule::SettleFromTheEnd, ONCE),
    ] {
        let protocol = Protocol { without: Some(rule) };
        let checker =
            protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        assert!(checker.discovery(invariant).is_some(), "{protocol:?} breaks nothing: {invariant}");
    }
}
