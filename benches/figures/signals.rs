//! Rows about signals: the time until a run that waits as a row has received a signal.

use std::time::{Duration, Instant};

use counterfoil::Engine;
use counterfoil::RunId;

use crate::options::Options;
use crate::place::{Database, Home};
use crate::raw;
use crate::report::{Finding, Values, median};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};
use crate::waiting::{For, park};

/// The number of signals per round, each beside an insert; their medians count.
const SIGNALS: usize = 100;
/// The pause before each signal and insert, after which earlier writers are at rest.
const PAUSE: Duration = Duration::from_millis(10);

/// The sender of the signals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The engine that has carried the run out so far.
    Same,
    /// Another engine, on the same store.
    #[cfg(feature = "postgres")]
    Another,
}

pub(crate) fn received(options: &Options) -> Result<Vec<Finding>, String> {
    let (subject, raw) = measure(options, Database::Sqlite, Sender::Same)?;
    let measure = "signal sent until received by a waiting run, idle engine ÷ a durable insert".to_owned();
    Ok(vec![Finding::ratio("signals", measure, subject, raw).at_most(6.0, 3.0)])
}

/// Microseconds from sending a signal until its run goes on with it, and those of a raw one-row insert.
pub(crate) fn measure(
    options: &Options,
    database: Database,
    sender: Sender,
) -> Result<(Values, Values), String> {
    let home = Home::of(database, options)?;
    let runtime = multi_thread();
    let measured = runtime.spawn({
        let (rounds, subject, raw) = (options.rounds, home.place("subject"), home.place("raw"));
        async move {
            let engine = subject::engine(&subject).await;
            let sending = match sender {
                Sender::Same => engine.clone(),
                #[cfg(feature = "postgres")]
                Sender::Another => subject::engine(&subject).await,
            };
            let mut raw = raw::open(&raw).await;
            let (mut signals, mut inserts) = (Vec::new(), Vec::new());
            for round in 0..=rounds {
                let runs = park(&engine.tenant(TENANT).expect("a tenant"), SIGNALS, For::Signal).await;
                let (mut received, mut inserted) = (Vec::new(), Vec::new());
                for run in runs {
                    tokio::time::sleep(PAUSE).await;
                    received.push(microseconds(say(&sending, run).await));
                    tokio::time::sleep(PAUSE).await;
                    let start = Instant::now();
                    raw.inserts(1).await;
                    inserted.push(microseconds(start.elapsed()));
                }
                if round > 0 {
                    signals.push(median(&received));
                    inserts.push(median(&inserted));
                }
            }
            raw.close().await;
            sending.shutdown(subject::DRAIN).await;
            engine.shutdown(subject::DRAIN).await;
            (signals, inserts)
        }
    });
    let (signals, inserts) = runtime.block_on(measured).expect("the rounds");
    Ok((Values::new("µs", signals), Values::new("µs", inserts)))
}

/// The time until a waiting run has received a signal. Returns when the run has ended.
async fn say(engine: &Engine, run: RunId) -> Duration {
    let run = engine.tenant(TENANT).expect("a tenant").handle::<u32>(run);
    let received = subject::arrival();
    let start = Instant::now();
    run.signal("say", 7).await.expect("it is sent");
    let elapsed = received.await.expect("it is received") - start;
    assert_eq!(run.result().await.expect("the run ends well"), 7);
    elapsed
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
