//! `counterfoil queues` and `workers`: the ledger as a whole, over all tenants.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::ledger::Whole;
use super::shown;
use crate::clock::Timestamp;
use crate::store::{QueueLoad, Store as _, Worker};

/// The database whose queues or workers are listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    whole: Whole,
}

pub(super) fn queues(options: &Options) -> ExitCode {
    options.whole.run(async |client| {
        let loads = client.core().0.group.queue_load().await?;
        let shown = |QueueLoad { queue, queued, running }: &QueueLoad| json!({ "name": queue, "queued": queued, "running": running });
        if options.whole.json {
            return Ok(loads.iter().map(shown).try_for_each(|load| shown::json(&load))?);
        }
        let row = |load: QueueLoad| [load.queue, load.queued.to_string(), load.running.to_string()];
        Ok(shown::table(["QUEUE", "QUEUED", "RUNNING"], loads.into_iter().map(row).collect())?)
    })
}

pub(super) fn workers(options: &Options) -> ExitCode {
    options.whole.run(async |client| {
        let status = client.core().0.group.pulse().await?;
        let (time, workers) = (status.time, status.workers);
        if options.whole.json {
            return Ok(workers.iter().try_for_each(|worker| {
                shown::json(&json!({
                    "number": worker.fence,
                    "name": worker.name,
                    "version": worker.version,
                    "state": state(worker, time),
                    "publishes": worker.publishes,
                    "enrolled_at": worker.enrolled_at.to_string(),
                    "lease_until": worker.lease_until.map(|at| at.to_string()),
                    "ended_at": worker.ended_at.map(|at| at.to_string()),
                }))
            })?);
        }
        let row = |worker: Worker| {
            let state = state(&worker, time).to_owned();
            let lease = worker.lease_until.map(|at| at.to_string()).unwrap_or_default();
            let version = worker.version.unwrap_or_default();
            [worker.fence.to_string(), worker.name, version, worker.enrolled_at.to_string(), lease, state]
        };
        let heads = ["WORKER", "NAME", "VERSION", "SINCE", "LEASE UNTIL", "STATE"];
        Ok(shown::table(heads, workers.into_iter().map(row).collect())?)
    })
}

/// The state of a worker at this instant by the store's clock, in words. A worker without a lease has a lock on its
/// file instead, so its row does not say if it lives.
fn state(worker: &Worker, time: Timestamp) -> &'static str {
    match (worker.ended_at, worker.lease_until) {
        (Some(_), _) if worker.retired => "ended",
        (Some(_), _) => "lost, its work is taken over",
        (None, Some(until)) if until < time => "lease over",
        (None, _) => "enrolled",
    }
}
