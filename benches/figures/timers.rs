//! Rows about timers: the speed of waking runs that are all due at one instant.

use std::time::{Duration, Instant};

use counterfoil::Engine;
use counterfoil::flow::RunHandle;
use counterfoil::{Clock as _, SystemClock, Timestamp};
use futures_util::future::try_join_all;

use crate::options::Options;
use crate::place::{Database, Home};
use crate::raw;
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};
use crate::waiting::waiting_from;

pub(crate) const RUNS: usize = 10_000;
/// The time for starting and parking all runs. A machine that does not manage it is given twice as much from then on.
const AHEAD: Duration = Duration::from_secs(4);

pub(crate) fn wake_ups(options: &Options) -> Result<Vec<Finding>, String> {
    let (subject, raw) = measure(options, Database::Sqlite)?;
    let measure = format!("{RUNS} timers due at once: wake-ups ÷ rows of raw group commit");
    Ok(vec![Finding::ratio("timers", measure, subject, raw).at_least(0.03, 0.10)])
}

/// Wake-ups per second, from the instant at which all are due until the last run goes on after its timer, and rows per
/// second of raw group commit with 64 tasks, in each round.
pub(crate) fn measure(options: &Options, database: Database) -> Result<(Values, Values), String> {
    let home = Home::of(database, options)?;
    let runtime = multi_thread();
    let measured = runtime.spawn({
        let (rounds, subject, raw) = (options.rounds, home.place("subject"), home.place("raw"));
        async move {
            let engine = subject::engine(&subject).await;
            let mut raw = raw::open(&raw).await;
            let (mut wake_ups, mut rows, mut ahead) = (Vec::new(), Vec::new(), AHEAD);
            for round in 0..=rounds {
                let woken_in = woken(&engine, &mut ahead).await;
                let start = Instant::now();
                raw = raw.group(64, 6400).await;
                let written_in = start.elapsed();
                if round > 0 {
                    wake_ups.push(RUNS as f64 / woken_in.as_secs_f64());
                    rows.push(6400.0 / written_in.as_secs_f64());
                }
            }
            raw.close().await;
            engine.shutdown(subject::DRAIN).await;
            (wake_ups, rows)
        }
    });
    let (wake_ups, rows) = runtime.block_on(measured).expect("the rounds");
    Ok((Values::new("/s", wake_ups), Values::new("/s", rows)))
}

/// The time that it takes to wake all runs.
async fn woken(engine: &Engine, ahead: &mut Duration) -> Duration {
    let tenant = engine.tenant(TENANT).expect("a tenant");
    loop {
        let last = subject::arrival_of(RUNS);
        let at = SystemClock.now().after(*ahead);
        let started = try_join_all((0..RUNS).map(|_| tenant.run(subject::alarm, at).start())).await;
        let runs = started.expect("runs");
        let first = runs.iter().map(RunHandle::id).min().expect("some");
        let parked = async {
            while waiting_from(&tenant, first).await < RUNS {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let in_time = tokio::time::timeout(left(at), parked).await.is_ok();
        let (due, left) = (Instant::now(), left(at));
        let woken = (last.await.expect("the last one") - due).saturating_sub(left);
        // The ends of the runs are no part of the measure, here or in the next round.
        try_join_all(runs.iter().map(RunHandle::result)).await.expect("all end well");
        if in_time {
            return woken;
        }
        *ahead *= 2;
    }
}

fn left(at: Timestamp) -> Duration {
    SystemClock.now().until(at)
}
