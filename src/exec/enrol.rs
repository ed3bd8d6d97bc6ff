//! The enrolment of a worker with its store.

use std::sync::Arc;

use super::core::{Core, Parts};
use super::lease::{Lease, Moment};
use super::peers::{Peers, Shared};
use super::store_clock::StoreClock;
use crate::store::{Change, Store as _, StoreError, Verdict, WorkerChange};

impl Core {
    /// Enrols as a worker. In an embedded store it is the only one: its lock was taken, so the earlier worker is dead.
    /// In a shared store there may be others.
    ///
    /// # Crash
    /// Enrolment and the fencing of all others are one transaction.
    pub(crate) async fn enrol(mut parts: Parts) -> Result<Arc<Self>, StoreError> {
        let Parts { group, clock, entropy, lease, .. } = &parts;
        let lease = *lease;
        // The random part tells this process from another one with the same pid, on the same host or on another one.
        let name = format!("{}-{:016x}", std::process::id(), entropy.bits());
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
        let changes: Vec<_> =
            changes.into_iter().map(|worker| Change { worker: Some(worker), ..Change::default() }).collect();
        // Not through the queue, which may cut a batch in two.
        for verdict in group.store().commit(&changes).await? {
            if let Verdict::Refused(refusal) = verdict {
                return Err(StoreError::Io { detail: format!("this worker cannot enrol: {refusal}") });
            }
        }
        let worker = group.worker_find(&name).await?;
        let fence = worker
            .map(|worker| worker.fence)
            .ok_or_else(|| StoreError::Io { detail: "this worker enrolled and is not there".into() })?;
        if let Peers::Shared(shared) = &peers {
            parts.clock = shared.clock.clone();
        }
        let restored = parts.restored;
        let core = Self::of(parts, fence, peers);
        core.recognise(restored).await?;
        core.declare_all().await?;
        Ok(core)
    }
}
