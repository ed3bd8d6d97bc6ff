//! The publisher: reads the due events, hands them to the sink, and marks the ones that were taken.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::after::{Policy, Tried};
use super::sink::{AnySink, Event, PublishResult, Sink, SinkError};
use super::sweep::{Sweep, Swept};
use crate::clock::Timestamp;
use crate::crash::{CrashPoint, Probe};
use crate::exec::core::Core;
use crate::exec::outcome::ExecError;
use crate::exec::peers::Peers;
use crate::id::QuestionId;
use crate::ledger::Backoff;
use crate::panics::caught;
use crate::store::{
    Change, Due, OrderingKey, OutboxEvent, Question, QuestionKind, Refusal, Store as _, StoreError, Ticket,
    Verdict, WorkerChange,
};

/// The pause after the store failed.
const LATER: Duration = Duration::from_secs(5);
/// The maximum size of the payloads in a batch, in bytes. A larger event is a batch of its own.
const LARGEST: usize = 8 << 20;

/// A sink, and the settings for publishing to it.
///
/// ```
/// # use counterfoil::outbox::{PublishResult, Event, Sink, SinkError};
/// # struct Broker;
/// # impl Sink for Broker {
/// #     async fn publish(&self, _: &[Event]) -> Result<PublishResult, SinkError> { Ok(PublishResult::all()) }
/// # }
/// use std::time::Duration;
/// use counterfoil::{Engine, outbox::Publisher};
///
/// let publisher = Publisher::new(Broker).batch(100).tries(10).keep(Duration::from_hours(24));
/// let engine = Engine::sqlite("agents.db").sink(publisher);
/// ```
#[derive(Clone)]
pub struct Publisher {
    sink: Arc<dyn AnySink>,
    batch: u32,
    policy: Policy,
    timeout: Duration,
    keep: Duration,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("batch", &self.batch)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl<S: Sink> From<S> for Publisher {
    fn from(sink: S) -> Self {
        Self::new(sink)
    }
}

impl Publisher {
    /// A publisher with these defaults: batches of up to 256 events, each cut off after 30 s. Failures are tried again
    /// after 200 ms, doubling up to 5 min, with full jitter. An event that was refused five times is set aside.
    /// Published events are kept for a week.
    pub fn new(sink: impl Sink) -> Self {
        let backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_mins(5) };
        Self {
            sink: Arc::new(sink),
            batch: 256,
            policy: Policy { tries: 5, backoff },
            timeout: Duration::from_secs(30),
            keep: Duration::from_hours(7 * 24),
        }
    }

    /// Sets the maximum number of events in a batch; at least 1.
    #[must_use]
    pub fn batch(mut self, events: u32) -> Self {
        self.batch = events.max(1);
        self
    }

    /// Sets the number of refusals after which an event is set aside, as an open question; at least 1.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.policy.tries = tries.max(1);
        self
    }

    /// Sets the pauses after failures.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.policy.backoff = backoff;
        self
    }

    /// Sets the time after which a batch is cut off and offered again, because nobody knows which events the sink has
    /// taken.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time for which published events are kept, counted from when they were written. After that they are
    /// deleted, a few at a time. Events that are not published are kept for ever.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }
}

/// Runs until the core is gone or closing: publishes whenever it is notified, and when something is due.
pub(crate) async fn publish(core: Weak<Core>, publisher: Publisher) {
    let mut desk = None;
    while let Some(strong) = core.upgrade() {
        let desk = desk.get_or_insert_with(|| Desk::of(&strong, publisher.clone()));
        let next = match desk.round(&strong).await {
            Ok(Next::Gone) => return,
            Ok(Next::Rung) => None,
            Ok(Next::At(at)) => Some(at),
            Err(error) => {
                log_trouble!(error, "outbox not read, will retry");
                Some(strong.now().after(LATER))
            }
        };
        let sleep = next.map(|at| strong.clock.sleep(strong.now().until(at)));
        let bell = strong.group.events().clone();
        drop(strong); // a sleeper must not keep a closed database open
        match sleep {
            None => bell.notified().await,
            Some(sleep) => tokio::select! {
                biased; // no random choice, so that a simulation is repeatable
                () = bell.notified() => {}
                () = sleep => {}
            },
        }
    }
}

/// Tells other workers of new events, in a shared store, for a worker without a sink.
pub(crate) async fn announce(core: Weak<Core>) {
    let Some(bell) = core.upgrade().map(|core| core.group.events().clone()) else { return };
    loop {
        bell.notified().await;
        let Some(strong) = core.upgrade() else { return };
        if let Err(error) = strong.group.wake_others().await {
            tracing::debug!(%error, "hint to other workers lost");
        }
    }
}

/// The next step of the publisher.
enum Next {
    /// Wait until it is notified.
    Rung,
    /// Wait until it is notified, or until this instant.
    At(Timestamp),
    /// End, because this worker is at its end.
    Gone,
}

/// A publisher at work.
struct Desk {
    publisher: Publisher,
    lane: OrderingKey,
    /// True if this worker is the one that publishes.
    leads: bool,
    /// The number of failures in a row of the sink as a whole. It is not tried before `down_until`.
    down: u32,
    down_until: Option<Timestamp>,
    sweep: Sweep,
}

impl Desk {
    fn of(core: &Core, publisher: Publisher) -> Self {
        let sweep = Sweep::new(publisher.keep);
        Self { publisher, lane: core.new_lane(), leads: false, down: 0, down_until: None, sweep }
    }

    async fn round(&mut self, core: &Core) -> Result<Next, StoreError> {
        let _looking = core.tracker.token(); // closing waits for the batch in flight, and for its marks
        if core.is_closing() {
            return Ok(Next::Gone);
        }
        match self.takes_the_lead(core).await? {
            Lead::Mine => {}
            Lead::Anothers => return Ok(Next::Rung),
            Lead::Lost => return Ok(Next::Gone),
        }
        let mut until = core.now();
        loop {
            let now = core.now();
            if core.is_closing() {
                return Ok(Next::Gone);
            }
            if let Some(at) = self.down_until.filter(|at| now < *at) {
                return Ok(Next::At(at));
            }
            let due = core.group.outbox_due(until.max(now), self.publisher.batch).await?;
            if !due.is_empty() {
                if !self.tries(core, due).await? {
                    return Ok(Next::Gone);
                }
                continue;
            }
            match core.group.outbox_next(until.max(now)).await? {
                // The clock was set back, because no policy gives so long a pause.
                Some(at) if now.until(at) > self.publisher.policy.longest() => until = at,
                next => {
                    let Swept::Until(sweep) = self.sweep.sweeps(core, self.lane).await? else {
                        return Ok(Next::Gone);
                    };
                    let next = [next, sweep].into_iter().flatten().min();
                    return Ok(next.map_or(Next::Rung, Next::At));
                }
            }
        }
    }

    /// Makes this worker the one that publishes, unless another one does.
    async fn takes_the_lead(&mut self, core: &Core) -> Result<Lead, StoreError> {
        if core.hold_lease().await.is_err() {
            return Ok(Lead::Lost);
        }
        let Peers::Shared(_) = &core.peers else { return Ok(Lead::Mine) };
        if self.leads {
            return Ok(Lead::Mine);
        }
        if !core.publishing.is_elsewhere() {
            let mut change = core.change(None);
            change.worker = Some(WorkerChange::Publish);
            match core.group.commit_one(change).await? {
                Verdict::Admitted => {
                    self.leads = true;
                    return Ok(Lead::Mine);
                }
                Verdict::Refused(Refusal::Fenced) => return Ok(Lead::Lost),
                Verdict::Refused(_) => core.publishing.note_elsewhere(true),
            }
        }
        core.group.wake_others().await?;
        Ok(Lead::Anothers)
    }

    /// Tries a batch, and marks the result. False if this worker is at its end.
    async fn tries(&mut self, core: &Core, due: Vec<Due>) -> Result<bool, StoreError> {
        let Loaded { due, batch, held_back } = loaded(core, due).await?;
        if !self.hold_back(core, &held_back).await? {
            return Ok(false);
        }
        if batch.is_empty() {
            return Ok(true);
        }
        let acked = match self.offers(core, &batch).await {
            Ok(acked) => acked,
            Err(error) => {
                self.down = self.down.saturating_add(1);
                let pause = self.publisher.policy.pause(self.down, &error, core.entropy.bits());
                tracing::warn!(%error, events = batch.len(), ?pause, "sink took nothing, will retry");
                for due in &due {
                    count(core, due, due.events.len(), "not taken");
                }
                self.down_until = Some(core.now().after(pause));
                return Ok(true);
            }
        };
        (self.down, self.down_until) = (0, None);
        self.sweep.note(core.now());
        let (mut first, mut marks) = (0, Vec::with_capacity(due.len()));
        for due in &due {
            let tried = Tried::of(&acked, first, due.events.len());
            first += due.events.len();
            count(core, due, tried.taken, "taken");
            marks.push(core.group.submit(self.mark(core, due, &tried)));
        }
        self.are_marked(core, marks).await
    }

    /// Marks aggregates whose next event cannot be read: they are due again after a pause. Without the mark they would fill the
    /// next batch as well, and the events of all others would wait. False if this worker is at its end.
    async fn hold_back(&mut self, core: &Core, held_back: &[(Due, SinkError)]) -> Result<bool, StoreError> {
        let mark = |(due, failure): &(Due, SinkError)| {
            let tried = Tried { taken: 0, failure: Some(failure) };
            core.group.submit(self.mark(core, due, &tried))
        };
        let marks = held_back.iter().map(mark).collect();
        self.are_marked(core, marks).await
    }

    /// The change that marks what became of the events of an aggregate.
    fn mark(&self, core: &Core, due: &Due, tried: &Tried<'_>) -> Change {
        let mut mark = self.publisher.policy.after(&due.aggregate, tried, core.now(), core.entropy.bits());
        let mut change = core.change(Some(self.lane));
        if let Some((failure, event)) = tried.failure.zip(due.events.get(tried.taken)) {
            tracing::warn!(tenant = %event.tenant, event = event.id, tries = mark.tries, error = %failure, "event not published, will retry");
            count(core, due, 1, "not taken");
            if self.publisher.policy.gives_up(&mark) {
                let question = unpublished(core, event, mark.refusals, failure);
                mark.escalation = Some(question.id);
                count(core, due, 1, "set aside");
                change = change.escalation(question);
            }
        }
        change.aggregates.push(mark);
        change
    }

    /// Waits until marks are durable. False if this worker is at its end.
    async fn are_marked(&mut self, core: &Core, marks: Vec<Ticket>) -> Result<bool, StoreError> {
        for mark in marks {
            match mark.durable().await? {
                Verdict::Admitted => {}
                Verdict::Refused(Refusal::Fenced) => return Ok(false),
                // A person has answered a question about the aggregate: its events are read and offered again.
                Verdict::Refused(refusal) => {
                    tracing::info!(%refusal, "events not marked as published, will be offered again");
                    core.group.end_lane(self.lane);
                    self.lane = core.new_lane();
                }
            }
        }
        Ok(true)
    }

    async fn offers(&self, core: &Core, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let late = core.clock.sleep(self.publisher.timeout);
        tokio::select! {
            biased; // no random choice, so that a simulation is repeatable
            acked = caught(self.publishes(core.registry.probe(), batch)) => {
                acked.unwrap_or_else(|panic| Err(SinkError::unavailable(format!("the sink panicked: {panic}"))))
            }
            () = late => Err(SinkError::unavailable(format!("no answer within {:?}", self.publisher.timeout))),
        }
    }

    /// Hands a batch to the sink. The sink has a crash point of its own, because it passes neither a tool nor the
    /// store.
    async fn publishes(&self, probe: &Probe, batch: &[Event]) -> Result<PublishResult, SinkError> {
        probe.cross(CrashPoint::BeforePublish).await;
        let acked = self.publisher.sink.publish(batch).await;
        probe.cross(CrashPoint::AfterPublish).await;
        acked
    }
}

enum Lead {
    Mine,
    Anothers,
    /// This worker has lost its lease.
    Lost,
}

/// The events to publish.
#[derive(Default)]
struct Loaded {
    /// The aggregates with the events that are in the batch.
    due: Vec<Due>,
    batch: Vec<Event>,
    /// The aggregates whose next event cannot be read, with the reason.
    held_back: Vec<(Due, SinkError)>,
}

/// Loads the events to publish. Events that would make the batch too large are left for the next one.
async fn loaded(core: &Core, all: Vec<Due>) -> Result<Loaded, StoreError> {
    let (mut found, mut bytes, mut is_full) = (Loaded::default(), 0, false);
    for mut of_aggregate in all {
        // The store or the decryption has left the events out, and has logged why.
        let mut unreadable =
            of_aggregate.events.is_empty().then(|| SinkError::unavailable("the row cannot be read"));
        let mut taken = 0;
        for event in &of_aggregate.events {
            if is_full {
                break;
            }
            let event = match published(core, event).await {
                Ok(event) => event,
                Err(error @ (StoreError::Corrupt { .. } | StoreError::NoKey { .. })) => {
                    tracing::error!(tenant = %event.tenant, event = event.id, %error, "event damaged, its aggregate is held back");
                    // A person decides about a damaged event. A missing key is waited for, and without it no question can be written.
                    unreadable = Some(match error {
                        StoreError::Corrupt { .. } => SinkError::refused(error.to_string()),
                        _ => SinkError::unavailable(error.to_string()),
                    });
                    break;
                }
                Err(error) => return Err(error),
            };
            bytes += event.payload.as_str().len();
            is_full = bytes > LARGEST;
            if is_full && !found.batch.is_empty() {
                break;
            }
            found.batch.push(event);
            taken += 1;
        }
        if taken > 0 {
            of_aggregate.events.truncate(taken);
            found.due.push(of_aggregate);
        } else if let Some(failure) = unreadable {
            found.held_back.push((of_aggregate, failure));
        }
    }
    Ok(found)
}

async fn published(core: &Core, event: &OutboxEvent) -> Result<Event, StoreError> {
    let payload = core.load(&event.tenant, &event.payload).await.map_err(|error| match error {
        ExecError::Store { source, .. } => source,
        other => StoreError::Corrupt { row: format!("outbox {}", event.id), detail: other.to_string() },
    })?;
    let OutboxEvent { tenant, id, aggregate, seq, kind, created_at, .. } = event.clone();
    Ok(Event { tenant, id, aggregate, seq, kind, payload, created_at })
}

/// Counts events of an aggregate by what became of them.
fn count(core: &Core, due: &Due, events: usize, result: &str) {
    count!(by events as u64; core.meter, EVENTS of &due.aggregate.tenant, result);
}

/// The question about an event that the sink refuses.
fn unpublished(core: &Core, event: &OutboxEvent, refusals: u32, failure: &SinkError) -> Question {
    let id = QuestionId(core.ids.next());
    let OutboxEvent { aggregate, seq, kind, .. } = event;
    let question = format!(
        "event {} ({kind}, {aggregate} #{seq}) was refused {refusals} times, the last time so: {failure}. It is set aside, \
         and what follows it about {aggregate} waits. Mend the cause and answer `again` to have it published, or \
         `skip` to leave it out?",
        event.id
    );
    tracing::error!(tenant = %event.tenant, event = event.id, question = %id, error = %failure, "event set aside");
    Question {
        id,
        tenant: event.tenant.clone(),
        record: None,
        run: None,
        kind: QuestionKind::Unpublished,
        question,
        opened_at: core.now(),
        waiting: None,
        answer: None,
    }
}
