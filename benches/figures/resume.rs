//! Rows about resuming: the time that a recorded step adds from opening the engine until the run is where it was.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::raw;
use crate::report::{Finding, Values, median};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The number of resumes per round, each beside one of a run without steps; their medians count.
const REPEATS: usize = 5;

#[derive(Clone, Copy)]
pub(crate) enum Recorded {
    Plain,
    Guarded,
    Turns,
}

pub(crate) fn plain(options: &Options) -> Result<Vec<Finding>, String> {
    let finding = |n| {
        let (subject, raw) = measure(options, Database::Sqlite, Recorded::Plain, n)?;
        let measure = format!("resume, extra time per plain step ÷ raw read of a row, {n} steps");
        Ok(Finding::ratio("resume-plain", measure, subject, raw).at_most(3.0, 1.6))
    };
    [1000, 10_000].into_iter().map(finding).collect()
}

pub(crate) fn guarded(options: &Options) -> Result<Vec<Finding>, String> {
    let finding = |n| {
        let (subject, raw) = measure(options, Database::Sqlite, Recorded::Guarded, n)?;
        let measure = format!("resume, extra time per guarded call ÷ raw read of a row, {n} calls");
        Ok(Finding::ratio("resume-guarded", measure, subject, raw).at_most(4.0, 2.6))
    };
    [1000, 10_000].into_iter().map(finding).collect()
}

pub(crate) fn turns(options: &Options) -> Result<Vec<Finding>, String> {
    let home = Home::of(Database::Sqlite, options)?;
    let [long, short] = ["long", "short"].map(|name| home.place(name));
    let runtime = multi_thread();
    runtime.block_on(async {
        record(&long, Recorded::Turns, 10_000).await;
        record(&short, Recorded::Turns, 10).await;
    });
    let (mut late, mut early) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        let milliseconds = |place| resume(&runtime, place).as_secs_f64() * 1e3;
        // In turn, so that both meet the machine in the same state; often, because each takes a few milliseconds.
        let (in_late, in_early): (Vec<_>, Vec<_>) =
            (0..4 * REPEATS).map(|_| (milliseconds(&long), milliseconds(&short))).unzip();
        if round > 0 {
            late.push(median(&in_late));
            early.push(median(&in_early));
        }
    }
    let (late, early) = (Values::new("ms", late), Values::new("ms", early));
    let measure = "resume of a loop in turn 10,000 ÷ in turn 10".to_owned();
    Ok(vec![Finding::ratio("resume-turns", measure, late, early).at_most(1.5, 1.1)])
}

/// Microseconds per step, and per row of a raw read, in each round.
pub(crate) fn measure(
    options: &Options,
    database: Database,
    recorded: Recorded,
    n: u32,
) -> Result<(Values, Values), String> {
    let home = Home::of(database, options)?;
    let [long, empty, rows] = ["long", "empty", "rows"].map(|name| home.place(name));
    let runtime = multi_thread();
    runtime.block_on(async {
        record(&long, recorded, n).await;
        record(&empty, recorded, 0).await;
        let mut raw = raw::open(&rows).await;
        raw = raw.group(50, n).await; // divides both
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
    Ok((Values::new("µs", subjects), Values::new("µs", baseline)))
}

/// Leaves an active run with `n` recorded steps.
async fn record(place: &Place, recorded: Recorded, n: u32) {
    let engine = subject::engine(place).await;
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let arrived = subject::arrival();
    let started = match recorded {
        Recorded::Plain => tenant.run(subject::plain_and_stay, n).start().await,
        Recorded::Guarded => tenant.run(subject::guarded_and_stay, n).start().await,
        Recorded::Turns => tenant.run(subject::turns_and_stay, n).start().await,
    };
    started.expect("a run");
    arrived.await.expect("it comes to its end");
    engine.shutdown(subject::DRAIN).await;
}

/// The time from the start of an engine until the run is where it was.
fn resume(runtime: &Runtime, place: &Place) -> Duration {
    let arrived = subject::arrival();
    let resumed = runtime.spawn({
        let place = place.clone();
        async move {
            let start = Instant::now();
            let engine = subject::engine(&place).await;
            let end = arrived.await.expect("the run is resumed");
            engine.shutdown(subject::DRAIN).await;
            end - start
        }
    });
    runtime.block_on(resumed).expect("a resume")
}

/// The time to read all rows in one query, decoded, on a connection that has not read them before, like the engine's.
fn read(runtime: &Runtime, place: &Place, n: u32) -> Duration {
    let reading = runtime.spawn({
        let place = place.clone();
        async move {
            let mut raw = raw::open(&place).await;
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
