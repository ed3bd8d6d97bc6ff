//! The enrolment of a worker with its store.

use std::sync::Arc;

use super::core::{Core, Parts};
use super::lease::{Lease, Moment};
use super::peers::{Peers, Shared};
use super::store_clock::StoreClock;
use crate::clock::Clock as _;
use crate::id::{Entropy, Fence};
use crate::store::{Change, Document, Group, Store as _, StoreError, Verdict, WorkerChange};

impl Core {
    /// Enrols as a worker. In an embedded store it is the only one: its lock was taken, so the earlier worker is dead.
    /// In a shared store there may be others.
    ///
    /// # Crash
    /// Enrolment and the fencing of all others are one transaction.
    pub(crate) async fn enrol(mut parts: Parts) -> Result<Arc<Self>, StoreError> {
        let Parts { group, clock, entropy, lease, .. } = &parts;
        let lease = *lease;
        let name = unique_name(parts.name.as_deref(), &**entropy);
        let mut changes = Vec::new();
        let (peers, at, lease_until) = if group.is_shared() {
            let asked = Moment::of(&**clock);
            let time = group.pulse().await?.time;
            let clock = Arc::new(StoreClock::measured(clock.clone(), asked.boot(), time, clock.boot()));
            (
                Peers::Shared(Shared::new(Lease::new(lease, asked), clock, asked.boot())),
                time,
                Some(time.after(lease)),
            )
        } else {
            let at = clock.now();
            changes.push(WorkerChange::FenceOthers { at });
            (Peers::Alone { since: clock.boot() }, at, None)
        };
        changes.push(WorkerChange::Enrol { name: name.clone(), at, lease_until });
        let fence = announce(group, changes, &name).await?;
        if let Peers::Shared(shared) = &peers {
            parts.clock = shared.clock.clone();
        }
        let (restored, marks) = (parts.restored, std::mem::take(&mut parts.marks));
        let core = Self::of(parts, fence, peers);
        core.write_marks(marks).await?;
        core.recognise(restored).await?;
        core.declare_all().await?;
        // A process that was not given the rule must not decide in its place.
        core.write_marks(core.mark_of_rule().await?.into_iter().collect()).await?;
        Ok(core)
    }

    /// Attaches as a client, beside the workers. A client has no lease: its rows are complete when they are durable,
    /// and workers carry out what follows from them.
    ///
    /// # Crash
    /// The row of a client that died without a word harms nobody.
    pub(crate) async fn attach(mut parts: Parts) -> Result<Arc<Self>, StoreError> {
        let Parts { group, clock, entropy, .. } = &parts;
        let (name, asked) = (unique_name(parts.name.as_deref(), &**entropy), clock.boot());
        let (at, shared) = if group.is_shared() {
            let time = group.pulse().await?.time;
            (time, Some(Arc::new(StoreClock::measured(clock.clone(), asked, time, clock.boot()))))
        } else {
            (clock.now(), None)
        };
        let fence = announce(group, vec![WorkerChange::Attach { name: name.clone(), at }], &name).await?;
        if let Some(clock) = &shared {
            parts.clock = clock.clone();
        }
        let marks = std::mem::take(&mut parts.marks);
        let core = Self::of(parts, fence, Peers::Client { since: asked, clock: shared });
        core.write_marks(marks).await?;
        Ok(core)
    }

    /// Marks the ledger, before anything else is written into it. Of two processes that do so at once the second one finds
    /// the mark of the first, and fails unless it is the same.
    async fn write_marks(&self, marks: Vec<Document>) -> Result<(), StoreError> {
        for mark in marks {
            let change = Change { documents: vec![mark.clone()], ..self.change(None) };
            if self.group.commit_one(change).await?.is_admitted() {
                continue;
            }
            let stored = self.group.document_find(&mark.tenant, mark.kind.as_str(), &mark.id).await?;
            if stored.is_none_or(|stored| stored.body != mark.body) {
                let detail = format!(
                    "another process gave the ledger its {} at the same time: open it again",
                    mark.id
                );
                return Err(StoreError::Io { detail });
            }
        }
        Ok(())
    }

    /// Measures the store's clock, as the heartbeat of a worker does.
    pub(crate) async fn measure_time(&self) -> Result<(), StoreError> {
        if let Peers::Client { clock: Some(clock), .. } = &self.peers {
            let asked = clock.boot();
            clock.measure(asked, self.group.pulse().await?.time, clock.boot());
        }
        Ok(())
    }
}

/// A unique name for this process, which begins with the name that it was given, if it was given one. The random part
/// tells it from another one with the same pid, on the same host or on another one.
fn unique_name(given: Option<&str>, entropy: &dyn Entropy) -> String {
    let own = format!("{}-{:016x}", std::process::id(), entropy.bits());
    given.map_or_else(|| own.clone(), |given| format!("{given}/{own}"))
}

/// Writes the changes by which this process becomes known under its name, and reads the fence that it was given.
async fn announce(group: &Group, changes: Vec<WorkerChange>, name: &str) -> Result<Fence, StoreError> {
    let of = |worker| Change { worker: Some(worker), ..Change::default() };
    let changes: Vec<_> = changes.into_iter().map(of).collect();
    // Not through the queue, which may cut a batch in two.
    for verdict in group.store().commit(&changes).await? {
        if let Verdict::Refused(refusal) = verdict {
            return Err(StoreError::Io { detail: format!("this process cannot enrol: {refusal}") });
        }
    }
    let worker = group.worker_find(name).await?;
    worker
        .map(|worker| worker.fence)
        .ok_or_else(|| StoreError::Io { detail: "this process enrolled and is not there".into() })
}
