//! Group commit: a queue in front of any store. Writes of all runs share transactions, and changes that arrive while
//! one transaction is being written go into the next one.
//!
//! A change that nobody waits for never starts a transaction by itself: it goes out with the next change that
//! somebody waits for, or when it is two [`TICK`]s old. Thus the commit of step N and the `started` of step N+1
//! become durable together.

mod queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};

pub(crate) use self::queue::Held;
use self::queue::{Entry, FLUSH_AT, Queue};
use super::durable::Reports;
use super::outage::{Outage, Side};
use super::{Change, OrderingKey, Refusal, Store, StoreError, StoreFuture, Verdict, durable};
use crate::clock::SharedClock;
use crate::panics::{caught, quietly};

/// The length of a tick. A change that nobody waits for goes out at the second tick that finds it: it is at most two
/// ticks old then. All batches of a tick share one timer, because a timer for each costs as much as queueing its
/// changes.
pub(super) const TICK: Duration = Duration::from_micros(1500);
/// The queue length at which writers wait for room (back-pressure).
const CAPACITY: usize = 1024;
/// The pauses between attempts to write a batch that failed as a whole.
pub(crate) const PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];
/// The pause between attempts to write a batch while another program has the file locked.
const LOCKED: Duration = Duration::from_millis(250);

/// Group commit in front of a store. It is a store itself and passes the same suite.
#[derive(Clone, Debug)]
pub struct Group {
    shared: Arc<Shared>,
    _closing: Arc<Closing>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    clock: SharedClock,
    outage: Arc<Outage>,
    reports: Reports,
    queue: Mutex<Queue>,
    /// Wakes the writer task.
    work: Notify,
    /// Wakes the callers that wait for room.
    room: Notify,
    /// Wakes the callers that wait for the end.
    ended: Notify,
    /// Notified when events that are to be published are durable.
    events: Arc<Notify>,
}

/// Closes the queue when the last handle is dropped; the writer then finishes the queued changes.
#[derive(Debug)]
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.queue().closed = true;
        self.0.work.notify_one();
    }
}

/// A change on its way to disk.
#[derive(Debug)]
#[must_use = "a change that nobody asks about may be refused unseen"]
pub struct Ticket {
    done: oneshot::Receiver<Told>,
    shared: Arc<Shared>,
}

/// The end of a change, as its caller is told of it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) verdict: Result<Verdict, StoreError>,
    /// True if the change was refused, and the answer of a call in it is kept as evidence.
    pub(crate) is_kept: bool,
}

impl Told {
    const fn of(verdict: Result<Verdict, StoreError>) -> Self {
        Self { verdict, is_kept: false }
    }
}

impl Ticket {
    /// Waits until the change is durable or refused. Dropping this future does not take the change back.
    pub async fn durable(self) -> Result<Verdict, StoreError> {
        self.told().await.verdict
    }

    /// The same, with what became of the answer in a refused change.
    pub(crate) async fn told(self) -> Told {
        {
            let mut queue = self.shared.queue();
            if !queue.entries.is_empty() {
                queue.awaited = true;
                drop(queue);
                self.shared.work.notify_one();
            }
        }
        self.done.await.unwrap_or(Told::of(Err(StoreError::Closed)))
    }
}

impl Group {
    /// Starts the writer task, which does all writing to `store` from now on.
    pub fn new(store: Arc<dyn Store>, clock: SharedClock) -> Self {
        let outage = Arc::new(Outage::by(clock.clone()));
        Self::reporting(store, clock, outage, Reports::off())
    }

    /// The same for an engine: the log has each outage once, also of a store that reports by itself when its database is
    /// away.
    pub(crate) fn reporting(
        store: Arc<dyn Store>,
        clock: SharedClock,
        outage: Arc<Outage>,
        reports: Reports,
    ) -> Self {
        let shared = Arc::new(Shared {
            store,
            clock,
            outage,
            reports,
            queue: Mutex::default(),
            work: Notify::new(),
            room: Notify::new(),
            ended: Notify::new(),
            events: Arc::default(),
        });
        tokio::spawn(shared.clone().write());
        Self { _closing: Arc::new(Closing(shared.clone())), shared }
    }

    /// Queues a change behind all earlier ones, at once and without back-pressure: for marks that are left in passing
    /// and cannot wait.
    pub fn submit(&self, change: Change) -> Ticket {
        self.submit_holding(change, None)
    }

    /// Queues a change like [`submit`](Self::submit) and drops `held` when it is durable or refused: callers that
    /// were kept out then read the change.
    pub(crate) fn submit_holding(&self, mut change: Change, held: Option<Held>) -> Ticket {
        self.shared.store.prepare(&mut change); // outside the lock, and not in the writer task, for which all runs wait
        let (done, ticket) = oneshot::channel();
        let ticket = Ticket { done: ticket, shared: self.shared.clone() };
        let mut queue = self.shared.queue();
        if queue.closed {
            return ticket; // `done` is dropped: the ticket reports that the queue is closed
        }
        queue.entries.push_back(Entry { change, done, held });
        queue.queued += 1;
        if queue.deep_sleep || queue.entries.len() == FLUSH_AT {
            drop(queue);
            self.shared.work.notify_one();
        }
        ticket
    }

    /// Waits until the queue has room. A caller that builds its change only after this wait, and then
    /// [submits](Self::submit) it at once, need not hold the change meanwhile: with thousands of runs in the queue,
    /// that is most of their memory.
    pub(crate) async fn room(&self) {
        while self.is_full() {
            // The wait is boxed because it is rare.
            Box::pin(async {
                let room = self.shared.room.notified();
                if self.is_full() {
                    room.await;
                }
            })
            .await;
        }
    }

    fn is_full(&self) -> bool {
        let queue = self.shared.queue();
        queue.entries.len() >= CAPACITY && !queue.closed
    }

    /// Queues a change as soon as there is room.
    pub async fn submit_with_room(&self, change: Change) -> Ticket {
        self.room().await;
        self.submit(change)
    }

    /// Queues a change and waits until it is durable, or refused.
    pub async fn commit_one(&self, change: Change) -> Result<Verdict, StoreError> {
        self.submit_with_room(change).await.durable().await
    }

    /// Forgets a lane that has ended, so that stopped lanes do not accumulate. Changes of the lane that are queued by
    /// now are still refused behind a refused change.
    pub fn end_lane(&self, lane: OrderingKey) {
        let mut queue = self.shared.queue();
        let queued = queue.queued;
        queue.ending.push_back((queued, lane));
        queue.forget_ended();
    }

    /// The engine is about to close: from now on no write waits until a file that another program has locked is free.
    pub(crate) fn hurry(&self) {
        self.shared.queue().hurried = true;
    }

    /// Takes no more changes, and resolves when all changes queued before are durable.
    pub async fn close(&self) {
        self.shared.queue().closed = true;
        self.shared.work.notify_one();
        loop {
            let ended = self.shared.ended.notified();
            if self.shared.queue().ended {
                return;
            }
            ended.await;
        }
    }

    /// Notified when events that are to be published are durable, and whenever their publisher is to look.
    pub(crate) fn events(&self) -> &Arc<Notify> {
        &self.shared.events
    }

    /// The store behind the queue.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The number of changes that wait to be written.
    #[cfg(feature = "metrics")]
    pub(crate) fn queued(&self) -> usize {
        self.shared.queue().entries.len()
    }

    /// Whether the database is away, for those who write past the queue.
    pub(crate) fn outage(&self) -> &Outage {
        &self.shared.outage
    }
}

/// A guard for the end of the writer. If a store panicked, or the runtime was shut down, changes are left over:
/// callers that wait for one are told, instead of waiting for ever.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.0.queue();
            (queue.closed, queue.ended) = (true, true);
            std::mem::take(&mut queue.entries)
        };
        drop(left); // outside the lock, because this wakes waiting callers
        self.0.room.notify_waiters();
        self.0.ended.notify_waiters();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // No code that holds this lock can panic halfway through a change of the queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer task: it writes one transaction after the other.
    async fn write(self: Arc<Self>) {
        let _end = End(&self);
        let mut tick = None;
        loop {
            let batch = match caught(self.next_batch(&mut tick)).await {
                Ok(Some(batch)) => batch,
                Ok(None) => return,
                // The clock panicked: the queued changes are written at the next tick, or when a caller waits for
                // them.
                Err(panic) => {
                    quietly(|| tracing::error!(panic, "clock panicked"));
                    tick = None;
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let (mut changes, mut waiting, mut held) = (Vec::with_capacity(batch.len()), vec![], vec![]);
            for entry in batch {
                changes.push(entry.change);
                waiting.push(entry.done);
                held.extend(entry.held);
            }
            // The panic may come from the store, the clock, or a subscriber of the log. It ends the runs that wait
            // for this batch where they are durable, but not the writer, for which all other runs wait.
            if let Err(detail) = caught(self.commit(&changes, &mut waiting)).await {
                self.stop_lanes(&changes, |_| true);
                for done in waiting {
                    let panicked = Err(StoreError::Panicked { detail: detail.clone() });
                    let _ = done.send(Told::of(panicked)); // nobody may be waiting
                }
                quietly(|| tracing::error!(panic = detail, changes = changes.len(), "write panicked"));
            }
            if changes.iter().any(|change| !change.events.is_empty()) {
                self.events.notify_one(); // only now, because a publisher that looks earlier finds nothing
            }
            {
                let mut queue = self.queue();
                queue.judged += changes.len() as u64;
                queue.forget_ended();
            }
            drop(held); // callers that were kept out find the written change
        }
    }

    /// Waits until a transaction is due, and takes its changes out of the queue.
    async fn next_batch(&self, tick: &mut Option<BoxFuture<'static, ()>>) -> Option<Vec<Entry>> {
        // After a batch the sleep is light: a change that arrives now is found at the next tick, and its writer need
        // not wake this task. The sleep becomes deep only after a tick without a change.
        let (mut light, mut seen) = (true, 0);
        loop {
            let work = self.work.notified();
            if self.queue().still_gathers(&mut seen) {
                tokio::task::yield_now().await;
                continue;
            }
            {
                let mut queue = self.queue();
                if queue.is_due() {
                    let batch = queue.take();
                    drop(queue);
                    self.room.notify_waiters();
                    return Some(batch);
                }
                if queue.closed {
                    return None;
                }
                queue.deep_sleep = tick.is_none() && !light && queue.entries.is_empty();
                if tick.is_none() && !queue.deep_sleep {
                    *tick = Some(self.clock.sleep(TICK));
                }
            }
            match tick {
                None => work.await,
                Some(timer) => tokio::select! {
                    biased;
                    () = work => {}
                    () = timer => {
                        *tick = None;
                        light = self.queue().tick();
                    }
                },
            }
        }
    }

    /// Writes a batch and tells all waiting callers. A batch that fails as a whole is tried again, then cut in two,
    /// down to the change that causes the failure; the order is kept throughout.
    async fn commit(&self, changes: &[Change], waiting: &mut Vec<oneshot::Sender<Told>>) {
        let mut parts = vec![changes];
        // The pauses are for the batch as a whole: if every part began again, a dead disk would be reported only
        // after minutes.
        let mut pauses = PAUSES.iter();
        let mut answers = Vec::with_capacity(changes.len());
        while let Some(part) = parts.pop() {
            match self.try_commit(part, &mut pauses).await {
                Ok(verdicts) => {
                    self.stop_lanes(part, |i| part[i].stops_lane(&verdicts[i]));
                    answers.extend(verdicts.into_iter().map(Ok));
                }
                // A full disk affects every part alike; any other error may come from one change.
                Err(StoreError::Io { .. } | StoreError::Corrupt { .. }) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Err(error) => {
                    quietly(|| log_trouble!(error, changes = part.len(), "write failed"));
                    self.stop_lanes(part, |_| true);
                    answers.extend(part.iter().map(|_| Err(error.clone())));
                }
            }
        }
        let kept = self.salvage(changes, &answers).await;
        // Before those are told who wait: the log has the events in the order in which they follow from one another.
        quietly(|| {
            let durable = |answer: &Result<Verdict, StoreError>| matches!(answer, Ok(Verdict::Admitted));
            changes
                .iter()
                .zip(&answers)
                .filter(|(_, answer)| durable(answer))
                .for_each(|(change, _)| durable::note(change, &self.reports.meter, &self.reports.spans));
        });
        for (at, (done, verdict)) in waiting.drain(..).zip(answers).enumerate() {
            let _ = done.send(Told { verdict, is_kept: kept.contains(&at) }); // nobody may be waiting
        }
    }

    /// Keeps the late answers in refused changes: a fenced worker may no longer change a record, but the answer to
    /// its call must not be lost. The evidence is durable before any caller is told of the refusal. Returns the positions
    /// of the changes whose answers are kept.
    async fn salvage(&self, changes: &[Change], answers: &[Result<Verdict, StoreError>]) -> Vec<usize> {
        let refused = |answer: &Result<Verdict, StoreError>| {
            matches!(answer, Ok(Verdict::Refused(Refusal::Fenced | Refusal::Stale | Refusal::Predecessor)))
        };
        let mut kept = Vec::new();
        for (at, (change, answer)) in changes.iter().zip(answers).enumerate() {
            if !refused(answer) {
                continue;
            }
            let Some(evidence) = change.late_evidence() else { continue };
            tracing::warn!(tenant = %evidence.tenant, record = %evidence.record, "late answer kept as evidence");
            let evidence = Some(Box::new(evidence));
            let change =
                Change { evidence, contract: change.contract, form: change.form, ..Change::default() };
            // The evidence may be the only trace of an effect: it is tried as long as any other write.
            match self.try_commit(&[change], &mut PAUSES.iter()).await {
                Ok(verdicts) if verdicts.iter().all(Verdict::is_admitted) => kept.push(at),
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "late answer lost"),
            }
        }
        kept
    }

    async fn try_commit(
        &self,
        changes: &[Change],
        pauses: &mut impl Iterator<Item = &Duration>,
    ) -> Result<Vec<Verdict>, StoreError> {
        loop {
            let (verdicts, held): (Vec<_>, _) = self.without_stopped(changes);
            let begun = self.clock.boot();
            let error = match self.store.commit(held.as_deref().unwrap_or(changes)).await {
                Ok(written) => {
                    self.outage.answered(Side::Write);
                    let took = begun.until(self.clock.boot());
                    observe!(took.as_secs_f64(); self.reports.meter, WRITE_SECONDS);
                    observe!(f64::from(u32::try_from(changes.len()).unwrap_or(u32::MAX)); self.reports.meter, WRITE_CHANGES);
                    return Ok(merge(verdicts, written));
                }
                Err(error) => error,
            };
            self.outage.failed(Side::Write, &error);
            // Another program has the file locked, and nothing else can be written until it is done. The batch may
            // hold the answers of calls: giving up would lose them, and a person would be asked about each.
            let is_locked = matches!(error, StoreError::Busy { .. }) && !self.store.is_shared();
            let waits = is_locked && {
                let queue = self.queue();
                !queue.hurried && !queue.closed
            };
            let pause = if waits { Some(&LOCKED) } else { pauses.next().filter(|_| error.is_transient()) };
            let Some(pause) = pause else { return Err(error) };
            self.clock.sleep(*pause).await;
        }
    }

    /// Finds the changes that are refused unseen because their lane has stopped, and the other changes if any is
    /// refused.
    fn without_stopped(&self, changes: &[Change]) -> (Vec<bool>, Option<Vec<Change>>) {
        let queue = self.queue();
        let stopped: Vec<bool> = changes
            .iter()
            .map(|change| change.lane.is_some_and(|lane| queue.stopped.contains(&lane)))
            .collect();
        let any = stopped.contains(&true);
        let rest = changes.iter().zip(&stopped).filter(|(_, stopped)| !**stopped).map(|(c, _)| c.clone());
        let rest = any.then(|| rest.collect());
        (stopped, rest)
    }

    fn stop_lanes(&self, changes: &[Change], stops: impl Fn(usize) -> bool) {
        for (i, change) in changes.iter().enumerate() {
            if let Some(lane) = change.lane
                && stops(i)
            {
                self.queue().stopped.insert(lane);
            }
        }
    }
}

/// Merges the verdicts of the written changes with those of the stopped ones.
fn merge(stopped: Vec<bool>, written: Vec<Verdict>) -> Vec<Verdict> {
    let mut written = written.into_iter();
    stopped
        .into_iter()
        .map(|stopped| {
            let verdict = if stopped { None } else { written.next() };
            verdict.unwrap_or(Verdict::Refused(Refusal::Predecessor))
        })
        .collect()
}

impl Store for Group {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let tickets: Vec<_> = changes.iter().map(|change| self.submit(change.clone())).collect();
            let mut verdicts = Vec::with_capacity(tickets.len());
            for ticket in tickets {
                verdicts.push(ticket.durable().await?);
            }
            Ok(verdicts)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.shared.store)
    }
}
