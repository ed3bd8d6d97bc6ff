//! Admission: the runs whose turn it is get a place in their queue, and begin.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::exec::last;
use crate::flow::inner::Inner;
use crate::flow::workflow::UNBOUND;
use crate::store::{Admission, Queue, Run, Store as _, StoreError, Verdict};

/// The greatest number of runs that one transaction admits.
const AT_ONCE: u32 = 64;
/// The pause between a failed admission and the next one.
const RETRY: Duration = Duration::from_secs(1);

impl Inner {
    /// Makes sure that a task admits runs of this queue, because one was queued or a place has become free.
    pub(in crate::flow) fn admit_soon(self: &Arc<Self>, queue: &str) {
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

    /// Handles a run that was just queued: a task admits runs of its queue. Other workers are told as well if there is
    /// a limit to the runs that this one may take.
    pub(in crate::flow) async fn queued(self: &Arc<Self>, queue: &str) {
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
                Ok(_) => continue, // more runs may be queued than begin at once
                Err(error) => {
                    log_trouble!(error, queue, "queue admission failed, will retry");
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

    /// Begins as many runs of a queue as its limits allow, and returns their number.
    ///
    /// # Crash
    /// A run gets its place and becomes this worker's in one transaction. From then on it is taken over like any other run.
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
        // The change goes past the group: a batch with an admission in it would be judged change by change.
        if let [Verdict::Refused(refusal)] = &group.store().commit(&[change]).await?[..] {
            tracing::warn!(queue = name, %refusal, "queue admission refused");
            admitted.remove(name);
            return Ok(0);
        }
        // The admitted runs are read from the store. So runs are found as well whose admission was written and whose
        // answer was lost.
        let carried = self.runs.ids();
        let runs = group.queue_admitted(name, core.fence, since.min(at)).await?;
        admitted.remove(name);
        if queue.is_rated()
            && let Some(due) = group.next_due(Timestamp::MIN).await?
        {
            core.agenda.note(due);
        }
        // Runs that this worker had before do not count: after a clock was set back they are read each time, and an
        // admission that counted them would ask for ever.
        let begun = runs.iter().filter(|run| !carried.contains(&run.id)).count();
        for run in runs {
            // A run that was under way before, and is no more, may have ended since its row was read: begun from that
            // row, it would be carried out once more.
            if !carried.contains(&run.id) {
                let Run { tenant, id, workflow, .. } = &run;
                tracing::debug!(%tenant, run = %id, %workflow, queue = name, "run admitted");
            }
            if carried.contains(&run.id) && !self.runs.has_of(&run.tenant, run.id) {
                self.wake(&run.tenant, run.id).await;
            } else if run.version == UNBOUND {
                self.claim(vec![run], |_| {}).await?; // the run is given its version and its deadline first
            } else {
                self.spawn(Box::new(run), None);
            }
        }
        Ok(begun)
    }

    /// Admits runs in all queues in which runs wait.
    pub(in crate::flow) async fn admit_waiting(self: &Arc<Self>) -> Result<(), StoreError> {
        for queue in self.core.group.queue_waiting().await? {
            self.admit_soon(&queue);
        }
        Ok(())
    }

    /// Admits runs of queues where a token of a rate may be due.
    pub(in crate::flow) async fn admit_due(self: &Arc<Self>) -> Result<(), StoreError> {
        for (name, queue) in &self.queues.declared {
            if queue.is_rated() {
                self.admit(name).await?;
            }
        }
        Ok(())
    }

    /// Warns of queued runs whose queue is not declared here. Another version of this program may have queued them.
    pub(in crate::flow) async fn tell_of_unknown_queues(&self) -> Result<(), StoreError> {
        for queue in self.core.group.queue_waiting().await? {
            if !self.queues.has(&queue) {
                tracing::warn!(queue, "queue not declared, its runs are not admitted here");
            }
        }
        Ok(())
    }
}
