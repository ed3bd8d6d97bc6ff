//! Queues: runs that are put into one begin when it is their turn. Who that is, is decided in the store; here it is seen
//! to that somebody asks: when a run is queued, when one gives its place free, when a token is due, at each start and at
//! each heartbeat that tells of queued runs. Nothing is asked while nothing is queued.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine::{Engine, Inner};
use super::error::RunError;
use super::live::Live;
use super::run::{End, cancel, pause, written};
use super::workflow::Registered;
use crate::clock::Timestamp;
use crate::exec::last;
use crate::id::{Name, checked};
use crate::ledger::Key;
use crate::store::{Admission, InQueue, Queue, QueueLoad, RunState, Store as _, StoreError, Verdict};

/// So many runs begin by one transaction.
const AT_ONCE: u32 = 64;
/// After a failure it is asked again this much later.
const RETRY: Duration = Duration::from_secs(1);

/// The queues of an engine.
#[derive(Default)]
pub(super) struct Queues {
    declared: BTreeMap<String, Queue>,
    /// The queues that a task asks for, and whether it is to ask once more.
    asking: Mutex<BTreeMap<String, bool>>,
    /// One admission at a time, and what of them has not been read back: from that instant on.
    admitted: tokio::sync::Mutex<BTreeMap<String, Timestamp>>,
}

/// A queue, as an engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its name.
    pub name: String,
    /// It is declared with this engine. The runs of one that nobody declares stay queued.
    pub declared: bool,
    /// So many runs of all tenants wait for their turn.
    pub queued: u64,
    /// So many have a place.
    pub running: u64,
}

/// The queue that somebody chose for a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) queue: Option<String>,
    pub(super) key: Option<String>,
    pub(super) priority: i32,
}

impl Queues {
    /// Declares a queue, or says why not.
    pub(super) fn declare(&mut self, queue: Queue) -> Result<(), String> {
        queue.check()?;
        if queue.name().starts_with('~') {
            return Err("names that begin with '~' are the engine's own".into());
        }
        if self.declared.contains_key(queue.name()) {
            return Err("there is another queue of that name: their limits could not be told apart".into());
        }
        self.declared.insert(queue.name().to_owned(), queue);
        Ok(())
    }

    /// Declares a queue of the engine's own.
    #[cfg(feature = "schedule")]
    pub(super) fn declare_own(&mut self, queue: Queue) {
        self.declared.insert(queue.name().to_owned(), queue);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.declared.contains_key(name)
    }

    fn asking(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run of this queue that parks gives its place free.
    pub(super) fn frees(&self, queue: &InQueue) -> bool {
        self.declared.get(queue.name.as_str()).is_some_and(Queue::frees_while_waiting)
    }
}

impl Engine {
    /// The queues: those that are declared, and those of which there are runs, by name.
    pub async fn queues(&self) -> Result<Vec<QueueStatus>, RunError> {
        let declared = self.inner.queues.declared.keys().cloned();
        let empty = |name: String| QueueStatus { name, declared: true, queued: 0, running: 0 };
        let mut queues: BTreeMap<_, _> = declared.map(|name| (name.clone(), empty(name))).collect();
        for load in self.inner.core.group.queue_load().await? {
            let declared = self.inner.queues.has(&load.queue);
            let QueueLoad { queue: name, queued, running } = load;
            queues.insert(name.clone(), QueueStatus { name, declared, queued, running });
        }
        queues.retain(|name, queue| !name.starts_with('~') || queue.queued + queue.running > 0);
        Ok(queues.into_values().collect())
    }
}

impl Inner {
    /// Where a run is to be queued, if it is: the queue that was chosen, or its workflow's.
    pub(super) fn in_queue(
        &self,
        workflow: &Registered,
        choice: Choice,
    ) -> Result<Option<Box<InQueue>>, RunError> {
        let Choice { queue, key, priority } = choice;
        let Some(name) = queue.or_else(|| workflow.queue.clone()) else {
            if key.is_some() || priority != 0 {
                return Err(RunError::NoQueue);
            }
            return Ok(None);
        };
        if !self.queues.has(&name) {
            let declared =
                self.queues.declared.keys().filter(|name| !name.starts_with('~')).cloned().collect();
            return Err(RunError::UnknownQueue { queue: name, declared });
        }
        if let Some(key) = &key {
            checked("queue key", key, Key::MAX_BYTES)?;
        }
        Ok(Some(Box::new(InQueue { name: Name::new(name)?, key, priority, admitted_at: None })))
    }

    /// A run was queued, or a place has become free.
    pub(super) fn admit_soon(self: &Arc<Self>, queue: &str) {
        if !self.queues.has(queue) || self.core.is_closing() {
            return;
        }
        if let Some(again) = self.queues.asking().get_mut(queue) {
            *again = true;
            return;
        }
        self.queues.asking().insert(queue.to_owned(), false);
        let (inner, queue) = (self.clone(), queue.to_owned());
        let core = Arc::downgrade(&self.core);
        self.core.tracker.spawn(async move {
            last(&core, "queue", || inner.clone().ask(queue.clone())).await;
        });
    }

    /// A run was queued here: where this worker may not take all, others are told.
    pub(super) async fn queued(self: &Arc<Self>, queue: &str) {
        self.admit_soon(queue);
        let limited = self.queues.declared.get(queue).is_some_and(Queue::is_limited_per_worker);
        if limited && self.core.is_shared() {
            let _ = self.core.group.wake_others().await; // only a hint
        }
    }

    async fn ask(self: Arc<Self>, queue: String) {
        loop {
            match self.admit(&queue).await {
                Ok(0) => {}
                Ok(_) => continue, // there may be more than begin at once
                Err(error) => {
                    tracing::warn!(queue, %error, "whose turn it is cannot be found out, asked again later");
                    self.core.clock.sleep(RETRY).await;
                    if !self.core.is_closing() {
                        continue;
                    }
                }
            }
            let mut asking = self.queues.asking();
            match asking.get_mut(&queue) {
                Some(again) if *again && !self.core.is_closing() => *again = false,
                _ => {
                    asking.remove(&queue);
                    return;
                }
            }
        }
    }

    /// Takes as many runs of a queue as its limits allow, and begins them. Says how many.
    ///
    /// # Crash
    /// A run has its place and is this worker's in one transaction: from then on it is taken over like any other.
    async fn admit(self: &Arc<Self>, name: &str) -> Result<usize, StoreError> {
        let Some(queue) = self.queues.declared.get(name) else { return Ok(0) };
        let (core, group) = (&self.core, &self.core.group);
        let mut admitted = self.queues.admitted.lock().await;
        let unread = admitted.get(name).copied();
        if core.is_closing() || (unread.is_none() && !group.queue_waiting().await?.iter().any(|q| q == name))
        {
            return Ok(0);
        }
        let at = core.now();
        let since = *admitted.entry(name.to_owned()).or_insert(at);
        let mut change = core.change(None);
        let known = core.is_shared().then(|| self.workflows.carried());
        change.admission = Some(Box::new(Admission { queue: queue.clone(), at, most: AT_ONCE, known }));
        // Past the group: there it would have every change of its batch judged by itself.
        if let [Verdict::Refused(refusal)] = &group.store().commit(&[change]).await?[..] {
            tracing::warn!(queue = name, %refusal, "nothing was admitted");
            admitted.remove(name);
            return Ok(0);
        }
        // Which they are is read: what an answer told that was lost is found, too.
        let carried: HashSet<_> = self.active().keys().copied().collect();
        let runs = group.queue_admitted(name, core.fence, since.min(at)).await?;
        admitted.remove(name);
        if queue.is_rated()
            && let Some(due) = group.next_due(Timestamp::MIN).await?
        {
            core.agenda.note(due);
        }
        // Not those that this worker had before: after a clock was set back they are read each time, and whoever counted them would
        // ask for ever.
        let begun = runs.iter().filter(|run| !carried.contains(&run.id)).count();
        for run in runs {
            // One that was under way before, and is no more, may have ended since it was read: begun from what was read, it
            // would be carried out once more.
            if carried.contains(&run.id) && !self.is_active(&run.tenant, run.id) {
                self.wake(&run.tenant, run.id).await;
            } else {
                self.spawn(Box::new(run), None);
            }
        }
        Ok(begun)
    }

    /// Looks after the queues in which runs wait.
    pub(super) async fn admit_waiting(self: &Arc<Self>) -> Result<(), StoreError> {
        for queue in self.core.group.queue_waiting().await? {
            self.admit_soon(&queue);
        }
        Ok(())
    }

    /// The same where a token may be due.
    pub(super) async fn admit_due(self: &Arc<Self>) -> Result<(), StoreError> {
        for (name, queue) in &self.queues.declared {
            if queue.is_rated() {
                self.admit(name).await?;
            }
        }
        Ok(())
    }

    /// Runs that were queued by another version of this program, perhaps: they stay where they are, and are listed.
    pub(super) async fn tell_of_unknown_queues(&self) -> Result<(), StoreError> {
        for queue in self.core.group.queue_waiting().await? {
            if !self.queues.has(&queue) {
                tracing::warn!(queue, "runs wait in a queue that is not declared: nothing admits them here");
            }
        }
        Ok(())
    }
}

/// A run without a place in its queue is here to hear a command, and does nothing else. It queues up again if there is
/// none: it has waited and given its place free, or was halted and goes on.
pub(super) async fn without_place(live: &Arc<Live>) -> End {
    live.end(); // whoever says something to it from here on is told that it came too late
    if let Some(signal) = live.pause_pending() {
        return pause(live, signal).await;
    }
    if live.cancel_pending().is_some() {
        return cancel(live).await;
    }
    let queue = live.run().queue;
    match written(live, live.change_run(|run| run.state = RunState::Queued).durable().await) {
        Ok(()) => {
            if let Some(queue) = queue {
                live.engine.admit_soon(queue.name.as_str());
            }
            End::Parked
        }
        Err(error) => End::Failed(error),
    }
}
