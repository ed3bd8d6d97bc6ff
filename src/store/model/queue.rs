//! Queues, as every store must keep them.

use std::collections::BTreeMap;

use super::tables::Tables;
use crate::clock::Timestamp;
use crate::id::{Fence, Tenant};
use crate::ledger::queue::{Admission, Bucket, Candidate, Room, Taken};
use crate::store::{InQueue, QueueLoad, Run, RunState};

impl Tables {
    pub(super) fn admit_queued(&mut self, admission: &Admission, fence: Fence) {
        let name = admission.queue.name();
        let bucket = self.queues.get(name).cloned().unwrap_or_default();
        let taken = self.runs.values().filter(|run| has_place(run)).filter_map(|run| {
            let queue = of_queue(run, name)?;
            let own = u32::from(run.fence == fence);
            Some(Taken { tenant: run.tenant.clone(), key: queue.key.clone(), by_all: 1, by_own: own })
        });
        let room = Room::of(admission, bucket, taken.collect());
        let waiting: Vec<_> = self
            .runs
            .values()
            .filter(|run| run.state == RunState::Queued)
            .filter_map(|run| Some((run, of_queue(run, name)?)))
            .collect();
        let mut tenants: Vec<Tenant> = waiting.iter().map(|(run, _)| run.tenant.clone()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        let tenants = room.open(tenants);
        let chosen = if room.left() == 0 || tenants.is_empty() {
            room.nothing(!tenants.is_empty())
        } else {
            let candidates = first_of_each(&room, admission, &tenants, &waiting);
            room.choose(candidates)
        };
        for (_, id) in &chosen.runs {
            if let Some(run) = self.runs.get_mut(id)
                && let Some(queue) = &mut run.queue
            {
                queue.admitted_at = Some(admission.at);
                (run.state, run.fence) = (RunState::Active, fence);
                run.revision += 1;
                run.updated_at = admission.at;
            }
        }
        if chosen.bucket != Bucket::default() {
            self.queues.insert(name.to_owned(), chosen.bucket);
        }
    }

    pub(super) fn queue_waiting(&self) -> Vec<String> {
        let waiting = self.queue_load().into_iter().filter(|load| load.queued > 0);
        waiting.map(|load| load.queue).collect()
    }

    pub(super) fn queue_admitted(&self, queue: &str, fence: Fence, since: Timestamp) -> Vec<Run> {
        let admitted_at = |run: &Run| of_queue(run, queue).and_then(|queue| queue.admitted_at);
        let admitted = |run: &&Run| admitted_at(run).is_some_and(|at| at >= since);
        let active = self.runs.values().filter(|run| run.state == RunState::Active && run.fence == fence);
        let mut admitted: Vec<_> = active.filter(admitted).cloned().collect();
        admitted.sort_by_key(|run| (admitted_at(run), run.tenant.clone(), run.id));
        admitted
    }

    pub(super) fn queue_load(&self) -> Vec<QueueLoad> {
        let mut loads: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for run in self.runs.values() {
            let Some(queue) = &run.queue else { continue };
            let (queued, running) = (u64::from(run.state == RunState::Queued), u64::from(has_place(run)));
            if queued + running > 0 {
                let load = loads.entry(queue.name.as_str().to_owned()).or_default();
                *load = (load.0 + queued, load.1 + running);
            }
        }
        let load = |(queue, (queued, running))| QueueLoad { queue, queued, running };
        loads.into_iter().map(load).collect()
    }
}

fn of_queue<'r>(run: &'r Run, name: &str) -> Option<&'r InQueue> {
    run.queue.as_deref().filter(|queue| queue.name.as_str() == name)
}

fn has_place(run: &Run) -> bool {
    let carried_out = matches!(run.state, RunState::Active | RunState::Waiting { .. });
    carried_out && run.queue.as_ref().is_some_and(|queue| queue.admitted_at.is_some())
}

fn first_of_each(
    room: &Room<'_>,
    admission: &Admission,
    tenants: &[Tenant],
    waiting: &[(&Run, &InQueue)],
) -> Vec<Candidate> {
    let full = room.full_keys();
    let mut candidates = Vec::new();
    for tenant in tenants {
        let is_full = |key: &str| full.contains(&(tenant, key));
        let mut of_tenant: Vec<_> = waiting
            .iter()
            .filter(|(run, queue)| run.tenant == *tenant && !queue.key.as_deref().is_some_and(is_full))
            .filter(|(run, _)| admission.knows(&run.workflow, run.version))
            .map(|(run, queue)| Candidate {
                id: run.id,
                tenant: tenant.clone(),
                key: queue.key.clone(),
                priority: queue.priority,
                created_at: run.created_at,
            })
            .collect();
        of_tenant.sort_by_key(Candidate::order);
        of_tenant.truncate(room.depth(tenants.len()) as usize);
        candidates.extend(of_tenant);
    }
    candidates
}
