//! Runs that wait as rows: how they are parked, and the row about their memory.

use std::time::Duration;

use counterfoil::RunId;
use counterfoil::flow::{RunState, TenantClient};
use futures_util::future::try_join_all;

use crate::options::Options;
use crate::process::child;
use crate::report::{Finding, Values};
use crate::subject;

/// The event that a run waits for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    Timer,
    Signal,
}

/// Starts this number of runs at once, and returns when all of them wait as rows.
pub(crate) async fn park(tenant: &TenantClient, runs: usize, wait: For) -> Vec<RunId> {
    let started = match wait {
        For::Timer => {
            try_join_all(
                (0..runs).map(|_| async { tenant.run(subject::nap, 1000).start().await.map(|run| run.id()) }),
            )
            .await
        }
        For::Signal => {
            try_join_all(
                (0..runs)
                    .map(|_| async { tenant.run(subject::listen, ()).start().await.map(|run| run.id()) }),
            )
            .await
        }
    };
    let started = started.expect("runs");
    parked(tenant, &started).await;
    started
}

/// Returns when all of these runs wait as rows.
async fn parked(tenant: &TenantClient, runs: &[RunId]) {
    let Some(first) = runs.iter().min() else { return };
    while waiting_from(tenant, *first).await < runs.len() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The number of runs that wait as rows, among this one and those that were started after it.
pub(crate) async fn waiting_from(tenant: &TenantClient, first: RunId) -> usize {
    let (mut waiting, mut after) = (0, RunId(first.0 - 1));
    loop {
        let runs = tenant.runs(Some(after)).await.expect("the runs");
        let Some(last) = runs.last() else { return waiting };
        after = last.id;
        waiting += runs.iter().filter(|run| matches!(run.state, RunState::Waiting { .. })).count();
    }
}

/// The number of runs for which the figure is defined.
const RUNS: u32 = 100_000;

/// Measures in a process of its own, where no memory of earlier work is left in the allocator to be used up first.
pub(crate) fn memory(options: &Options) -> Result<Vec<Finding>, String> {
    let mut bytes = Vec::new();
    for _ in 0..options.rounds.min(2) {
        let folder = options.folder();
        let grown = child("waiting", &folder.path().join("waiting.db"), RUNS)?.memory_mb;
        bytes.push(grown * 1024.0 * 1024.0 / f64::from(RUNS));
    }
    let measure = format!("memory (RSS) per waiting run, {RUNS} runs behind as many");
    Ok(vec![Finding::absolute("memory-waiting", measure, Values::new("B", bytes), None).at_most(200.0, 0.0)])
}
