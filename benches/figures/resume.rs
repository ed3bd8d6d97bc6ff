//! Rows about resuming: what a recorded step adds to the time from opening the engine until the run is where it was.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::options::Options;
use crate::raw;
use crate::report::{Finding, Values, median};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// Resumes per round, each beside one of a run without steps; their median counts.
const REPEATS: usize = 5;

#[derive(Clone, Copy)]
enum Recorded {
    Plain,
    Guarded,
}

pub(crate) fn plain(options: &Options) -> Result<Vec<Finding>, String> {
    let finding = |n| {
        let (subject, raw) = measure(options, Recorded::Plain, n);
        let measure = format!("resume, extra time per plain step ÷ raw read of a row, {n} steps");
        Finding::ratio("resume-plain", measure, subject, raw).at_most(3.0, 1.6)
    };
    Ok([1000, 10_000].map(finding).into())
}

pub(crate) fn guarded(options: &Options) -> Result<Vec<Finding>, String> {
    let finding = |n| {
        let (subject, raw) = measure(options, Recorded::Guarded, n);
        let measure = format!("resume, extra time per guarded call ÷ raw read of a row, {n} calls");
        Finding::ratio("resume-guarded", measure, subject, raw).at_most(4.0, 2.6)
    };
    Ok([1000, 10_000].map(finding).into())
}

fn measure(options: &Options, recorded: Recorded, n: u32) -> (Values, Values) {
    let folder = options.folder();
    let [long, empty, rows] = ["long.db", "empty.db", "rows.db"].map(|name| folder.path().join(name));
    let runtime = multi_thread();
    runtime.block_on(async {
        record(&long, recorded, n).await;
        record(&empty, recorded, 0).await;
        let mut raw = raw::open(&rows).await;
        raw = raw.group(1, n).await;
        raw.close().await;
    });
    let (mut subjects, mut baseline) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        let extra: Vec<_> = (0..REPEATS)
            .map(|_| resume(&runtime, &long).as_secs_f64() - resume(&runtime, &empty).as_secs_f64())
            .collect();
        let read: Vec<_> = (0..REPEATS).map(|_| read(&runtime, &rows, n).as_secs_f64()).collect();
        if round > 0 {
            subjects.push(median(&extra) * 1e6 / f64::from(n));
            baseline.push(median(&read) * 1e6 / f64::from(n));
        }
    }
    (Values::new("µs", subjects), Values::new("µs", baseline))
}

/// Leaves an active run with `n` recorded steps behind.
async fn record(db: &Path, recorded: Recorded, n: u32) {
    let engine = subject::engine(db).await;
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let arrived = subject::arrival();
    let started = match recorded {
        Recorded::Plain => tenant.run(subject::plain_and_stay, n).start().await,
        Recorded::Guarded => tenant.run(subject::guarded_and_stay, n).start().await,
    };
    started.expect("a run");
    arrived.await.expect("it comes to its end");
    engine.shutdown(Duration::ZERO).await;
}

/// From the start of an engine until the run is where it was.
fn resume(runtime: &Runtime, db: &Path) -> Duration {
    let arrived = subject::arrival();
    let resumed = runtime.spawn({
        let db = db.to_owned();
        async move {
            let start = Instant::now();
            let engine = subject::engine(&db).await;
            let end = arrived.await.expect("the run is resumed");
            engine.shutdown(Duration::ZERO).await;
            end - start
        }
    });
    runtime.block_on(resumed).expect("a resume")
}

/// All rows in one query, decoded, on a connection that has not read them before, as the engine's has not.
fn read(runtime: &Runtime, db: &Path, n: u32) -> Duration {
    let reading = runtime.spawn({
        let db = db.to_owned();
        async move {
            let mut raw = raw::open(&db).await;
            let start = Instant::now();
            let rows = raw.read().await;
            let elapsed = start.elapsed();
            assert_eq!(rows.len(), n as usize);
            raw.close().await;
            elapsed
        }
    });
    runtime.block_on(reading).expect("a read")
}
