//! The heartbeat of a worker in a shared store. It renews this worker's lease, ends the workers whose lease has run
//! out, and takes over the work that ended workers left. One heartbeat serves all work of a worker.
//!
//! A beat takes two statements, and no others while nothing happens. Hints from other workers bring the next beat
//! forward; nothing depends on them in the end.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::agenda::Due;
use super::clients;
use super::core::Core;
#[cfg(feature = "metrics")]
use super::gauges::number;
use super::lease::Moment;
use super::orphans::take_up_orphans;
use super::peers::{Peers, Shared};
use crate::clock::{Boot, Timestamp};
use crate::id::{Fence, RecordId, RunId};
use crate::store::{ClusterStatus, Side, Store as _, StoreError, Verdict, Worker, WorkerChange};

/// The pause after a beat that failed.
const AGAIN: Duration = Duration::from_millis(250);
/// The time within which several hints count as one.
const TOGETHER: Duration = Duration::from_millis(20);
/// The time that a worker has for taking over another one's work. After that further workers help.
const TAKING_OVER: Duration = Duration::from_secs(30);
/// The number of rows that are read at a time.
const PAGE: u32 = 1000;

/// Runs until the core is gone or closing, or the lease is lost. The only worker of a store listens to clients instead.
pub(crate) async fn beat(core: Weak<Core>, engine: Option<Weak<dyn Due>>) {
    let mut memory = Memory::default();
    while let Some(strong) = core.upgrade() {
        let Peers::Shared(shared) = &strong.peers else {
            drop(strong);
            return clients::hear(core, engine).await;
        };
        let mut beat =
            Beat { core: &strong, shared, engine: engine_of(engine.as_ref()), memory: &mut memory };
        let asked = shared.moment();
        let rest = match beat.once(asked).await {
            Ok(Some(rest)) => {
                strong.group.outage().answered(Side::Write);
                count!(strong.meter, HEARTBEATS, "renewed");
                rest
            }
            Ok(None) => {
                tracing::error!(worker = %strong.fence, "worker lost its lease, sends and writes nothing any more");
                count!(strong.meter, LEASES, "own");
                shared.lease.lose();
                engine_of(engine.as_ref()).inspect(|engine| engine.stop());
                return;
            }
            Err(error) => {
                strong.group.outage().failed(Side::Write, &error);
                log_trouble!(error, worker = %strong.fence, "heartbeat failed, will retry");
                count!(strong.meter, HEARTBEATS, "failed");
                AGAIN
            }
        };
        let rest = rest.saturating_sub(asked.until(shared.moment()));
        let (clock, store) = (strong.clock.clone(), strong.group.store().clone());
        let lease = shared.lease.clone();
        drop(strong); // a sleeper must not keep a closed engine
        tokio::select! {
            biased; // no random choice, so that a simulation is repeatable
            () = clock.rest(rest) => {}
            // A worker that cannot listen is woken all the same, and must not beat without a pause.
            woken = store.woken() => clock.sleep(if woken.is_ok() { TOGETHER } else { rest.max(AGAIN) }).await,
            () = lease.lost() => return, // the engine was shut down
        }
    }
}

fn engine_of(engine: Option<&Weak<dyn Due>>) -> Option<Arc<dyn Due>> {
    engine.and_then(Weak::upgrade)
}

struct Beat<'a> {
    core: &'a Arc<Core>,
    shared: &'a Shared,
    engine: Option<Arc<dyn Due>>,
    memory: &'a mut Memory,
}

/// The knowledge that is kept from one beat to the next.
#[derive(Default)]
struct Memory {
    /// For each ended worker, the instant at which this one last took over its work.
    takeovers: HashMap<Fence, Boot>,
    /// The last beat that reached the store.
    last: Option<Moment>,
    /// The first beat after the store was away for longer than a lease.
    back: Option<Moment>,
    /// The end of this worker's lease, as the store last confirmed it.
    renewed: Option<Timestamp>,
}

impl Memory {
    /// Notes that a beat has reached the store. True if leases that have run out may be ended. While the store was away
    /// no lease could be renewed, and the first worker to come back would end all others: so they get the time of one
    /// lease.
    fn may_end_others(&mut self, asked: Moment, lease: Duration) -> bool {
        if self.last.is_some_and(|last| last.until(asked) > lease) {
            self.back = Some(asked);
        }
        self.last = Some(asked);
        self.back.is_none_or(|back| back.until(asked) >= lease)
    }
}

impl Beat<'_> {
    /// Makes one beat. Returns the pause before the next one; `None` if the lease is lost.
    async fn once(&mut self, asked: Moment) -> Result<Option<Duration>, StoreError> {
        let pulse = self.core.group.pulse().await?;
        if self.shared.clock.measure(asked.boot(), pulse.time, self.core.clock.boot()) {
            self.core.agenda.wake(); // it may be sleeping for too long
        }
        self.look_for_restore(&pulse).await?;
        let until = pulse.time.after(self.shared.lease.length());
        if !self.tell(WorkerChange::Renew { until }).await? {
            return Ok(None);
        }
        self.shared.lease.renewed(asked);
        self.memory.renewed = Some(until);
        if let Some(due) = pulse.next_due {
            self.core.agenda.note(due);
        }
        if let Some(engine) = &self.engine {
            engine.clone().look(pulse.queued, pulse.resumable).await?;
        }
        self.look_at_outbox(&pulse);
        self.core.gates.shared_by(pulse.workers.iter().filter(|worker| worker.ended_at.is_none()).count());
        #[cfg(feature = "metrics")]
        self.count_workers(&pulse);
        let may_end = self.memory.may_end_others(asked, self.shared.lease.length());
        for worker in &pulse.workers {
            self.look_at(worker, pulse.time, may_end).await?;
        }
        Ok(Some(self.rest(&pulse, may_end)))
    }

    #[cfg(feature = "metrics")]
    fn count_workers(&self, pulse: &ClusterStatus) {
        let is_late = |worker: &&Worker| worker.lease_until.is_some_and(|until| until < pulse.time);
        let at_work = || pulse.workers.iter().filter(|worker| worker.ended_at.is_none());
        gauge!(number(at_work().filter(|worker| !is_late(worker)).count()); self.core.meter, WORKERS, "live");
        gauge!(number(at_work().filter(is_late).count()); self.core.meter, WORKERS, "late");
    }

    /// Finds out that the store went back to an older state: then this worker's row is older than its last write.
    async fn look_for_restore(&mut self, pulse: &ClusterStatus) -> Result<(), StoreError> {
        let mine = pulse.workers.iter().find(|worker| worker.fence == self.core.fence);
        let stored = mine.and_then(|worker| worker.lease_until);
        if stored.zip(self.memory.renewed).is_some_and(|(stored, renewed)| stored < renewed) {
            self.core.went_back().await?;
            self.memory.renewed = None; // the question is opened once
        }
        if pulse.restored {
            self.core.note_restored();
        }
        Ok(())
    }

    /// Wakes this worker's publisher if there are unpublished events and no other worker publishes.
    fn look_at_outbox(&self, pulse: &ClusterStatus) {
        let publishes = |worker: &&Worker| worker.publishes && worker.ended_at.is_none();
        let leader = pulse.workers.iter().find(publishes).map(|worker| worker.fence);
        let elsewhere = leader.is_some_and(|fence| fence != self.core.fence);
        self.core.publishing.note_elsewhere(elsewhere);
        if pulse.unpublished && !elsewhere && self.core.publishing.is_able() {
            self.core.group.events().notify_one();
        }
    }

    /// Writes past the queue, where the write would wait behind the work that it keeps alive. True if it was admitted.
    async fn tell(&self, worker: WorkerChange) -> Result<bool, StoreError> {
        let mut change = self.core.change(None);
        change.worker = Some(worker);
        let verdicts = self.core.group.store().commit(&[change]).await?;
        Ok(verdicts.first().is_some_and(Verdict::is_admitted))
    }

    async fn look_at(&mut self, worker: &Worker, time: Timestamp, may_end: bool) -> Result<(), StoreError> {
        if worker.fence == self.core.fence {
            return Ok(());
        }
        let now = self.core.clock.boot();
        let is_mine = match worker.ended_at {
            None if may_end && worker.lease_until.is_some_and(|until| until < time) => {
                if !self.tell(WorkerChange::End { fence: worker.fence, at: time }).await? {
                    return Ok(()); // it is alive after all, or another worker was faster
                }
                tracing::warn!(worker = %worker.fence, name = worker.name, "lease of a worker ran out, its work is taken over");
                count!(self.core.meter, LEASES, "another");
                true
            }
            None => return Ok(()),
            // A worker that signed off has left its work to all others.
            Some(_) => worker.retired,
        };
        self.shared.note_ended(worker.fence, self.core.clock.boot());
        // The work that this worker goes on with is later than the ended one's work.
        self.shared.clock.heard(worker.ended_at.unwrap_or(time));
        if worker.publishes && worker.ended_at.is_none() && self.core.publishing.is_able() {
            self.core.publishing.note_elsewhere(false); // the publisher was ended just now
            self.core.group.events().notify_one();
        }
        let is_due = match self.memory.takeovers.get(&worker.fence) {
            None => is_mine,
            Some(last) => last.until(now) > TAKING_OVER,
        };
        if is_due {
            self.take_over().await?;
            self.memory.takeovers.insert(worker.fence, now);
        }
        self.core.late.notify_one(); // it may have had a late answer since: the question about it is found there
        // A worker that another one has ended is taken over by that one, which has `TAKING_OVER` from now on.
        self.memory.takeovers.entry(worker.fence).or_insert(now);
        if self.is_settled(worker.fence).await?
            && self.tell(WorkerChange::Settle { fence: worker.fence }).await?
        {
            self.memory.takeovers.remove(&worker.fence);
        }
        Ok(())
    }

    /// Takes over the work that ended workers left, as far as no other worker was faster.
    async fn take_over(&self) -> Result<(), StoreError> {
        if let Some(engine) = self.engine.clone() {
            engine.take_over().await?;
        }
        take_up_orphans(self.core).await
    }

    /// True if no work of an ended worker waits to be taken over.
    async fn is_settled(&self, fence: Fence) -> Result<bool, StoreError> {
        let is_whole = |listed: usize| u32::try_from(listed).is_ok_and(|listed| listed < PAGE);
        let runs = self.core.group.run_orphans(RunId(i64::MIN), PAGE).await?;
        if !is_whole(runs.len()) || runs.iter().any(|run| run.fence == fence) {
            return Ok(false);
        }
        let records = self.core.group.record_orphans(RecordId(i64::MIN), PAGE).await?;
        Ok(is_whole(records.len()) && !records.iter().any(|record| record.fence == fence))
    }

    /// The pause until the next beat, or until the next lease of another worker runs out. A small part is random, so
    /// that workers that were started together do not beat together for ever.
    fn rest(&self, pulse: &ClusterStatus, may_end: bool) -> Duration {
        let others = pulse.workers.iter().filter(|w| w.fence != self.core.fence && w.ended_at.is_none());
        let next_end = others.filter_map(|worker| worker.lease_until).min().filter(|_| may_end);
        // Two fifths of the lease and up to a tenth more: two beats fit into the usable part of the lease, so that one
        // may fail.
        let drawn = u32::try_from(self.core.entropy.bits() % 100).unwrap_or(0) + 1000;
        let beat = self.shared.lease.length() * 2 / 5 * drawn / 1000;
        next_end.map_or(beat, |end| beat.min(pulse.time.until(end) + TOGETHER))
    }
}
