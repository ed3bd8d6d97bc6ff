//! Runs that wait as rows: how they come to wait, and the row about their memory.

use std::time::Duration;

use counterfoil::flow::TenantClient;
use counterfoil::id::RunId;
use counterfoil::store::RunState;
use futures_util::future::try_join_all;

use crate::options::Options;
use crate::process::child;
use crate::report::{Finding, Values};
use crate::subject;

/// What a run waits for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    Timer,
    Signal,
}

/// Starts so many runs at once, and returns when they all wait as rows.
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

/// Returns when all of these wait as rows.
async fn parked(tenant: &TenantClient, runs: &[RunId]) {
    let Some(first) = runs.iter().min() else { return };
    while waiting_from(tenant, *first).await < runs.len() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many runs wait as rows, of this one and those that were started after it.
pub(crate) async fn waiting_from(tenant: &TenantClient, first: RunId) -> usize {
    let (mut waiting, mut after) = (0, RunId(first.0 - 1));
    loop {
        let runs = tenant.runs(Some(after)).await.expect("the runs");
        let Some(last) = runs.last() else { return waiting };
        after = last.id;
        waiting += runs.iter().filter(|run| matches!(run.state, RunState::Waiting { .. })).count();
    }
}

/// As many as the figure is defined for.
const RUNS: u32 = 100_000;

/// In a process of its own: what others left to the allocator would be used up first.
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
