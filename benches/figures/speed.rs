//! Rows about speed and processor time: a subject and a raw line in turn, on one runtime, on each runtime.

use std::time::{Duration, Instant};

use counterfoil::Engine;
use counterfoil::flow::EngineBuilder;
use counterfoil::store::chain::ChainKey;
use counterfoil::trace::{Span, SpanSink};
use tokio::runtime::{Builder, Runtime};

use crate::options::Options;
#[cfg(feature = "postgres")]
use crate::pgbench::{CONNECTIONS, Pgbench};
use crate::place::{Database, Home, Place};
use crate::raw::{self, Raw};
use crate::report::{Finding, Values};
use crate::subject::{self, TENANT};

type Findings = Result<Vec<Finding>, String>;

/// The number of slices of a round, of subject and raw line in turn, so that both meet the disk in the same state.
const SLICES: usize = 5;

const SQLITE: Database = Database::Sqlite;

/// The work of a slice, and its amount.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    RawInserts(u32),
    RawTwoTransactions(u32),
    RawGroup {
        tasks: u32,
        rows: u32,
    },
    Guarded(u32),
    /// The same with a recorder of metrics.
    #[cfg(feature = "prometheus")]
    Metered(u32),
    /// The same with a receiver of spans.
    Traced(u32),
    /// The same with encryption.
    #[cfg(feature = "encryption")]
    Encrypted(u32),
    #[cfg(feature = "encryption")]
    EncryptedRuns {
        runs: usize,
        calls: u32,
    },
    /// The same with a chain of evidence.
    Chained(u32),
    ChainedRuns {
        runs: usize,
        calls: u32,
    },
    Payments(u32),
    Queries(u32),
    Plain(u32),
    Asynchronous(u32),
    GuardedRuns {
        runs: usize,
        calls: u32,
    },
    /// Guarded runs, of which one in 16 uses a guard.
    MixedRuns {
        runs: usize,
        calls: u32,
    },
    ArtifactRuns {
        runs: usize,
        calls: u32,
    },
    /// Two-transaction steps of pgbench, this many on each of its connections.
    #[cfg(feature = "postgres")]
    Pgbench(u32),
}

/// The tool for the work: a database of its own, kept open over all rounds.
enum Bench {
    Raw(Option<Raw>),
    Engine(Engine),
    #[cfg(feature = "postgres")]
    Pgbench(Pgbench),
}

/// The time that the work took, over all slices of a round.
#[derive(Default)]
pub(crate) struct Taken {
    count: f64,
    seconds: f64,
    processor_seconds: f64,
}

pub(crate) fn guarded(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Guarded(200), Work::RawInserts(200), |runtime, subject, raw| {
        let measure = format!("sequential guarded calls ÷ raw one-row inserts, {runtime}");
        Finding::ratio("guarded", measure, per_second(subject), per_second(raw)).at_least(0.70, 0.82)
    })
}

pub(crate) fn guarded_two_transactions(options: &Options) -> Findings {
    on_each_runtime(
        options,
        SQLITE,
        Work::Guarded(200),
        Work::RawTwoTransactions(100),
        |runtime, subject, raw| {
            let measure = format!("sequential guarded calls ÷ raw two-transaction steps, {runtime}");
            Finding::ratio("guarded-two-tx", measure, per_second(subject), per_second(raw)).at_least(1.3, 1.6)
        },
    )
}

/// Measures calls that are looked up after a single send: each record has a row for the look beside it.
pub(crate) fn payments(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Payments(200), Work::RawInserts(200), |runtime, subject, raw| {
        let measure = format!("sequential payments of class Lookup ÷ raw one-row inserts, {runtime}");
        Finding::ratio("guarded-payment", measure, per_second(subject), per_second(raw))
    })
}

pub(crate) fn plain(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Plain(5000), Work::RawInserts(200), |runtime, subject, raw| {
        let measure = format!("sequential plain steps ÷ raw one-row inserts, {runtime}");
        Finding::ratio("plain", measure, per_second(subject), per_second(raw)).at_least(8.0, 20.0)
    })
}

pub(crate) fn asynchronous(options: &Options) -> Findings {
    on_each_runtime(
        options,
        SQLITE,
        Work::Asynchronous(200),
        Work::RawInserts(200),
        |runtime, subject, raw| {
            let measure = format!("sequential asynchronous steps ÷ raw one-row inserts, {runtime}");
            Finding::ratio("async", measure, per_second(subject), per_second(raw)).at_least(0.70, 0.85)
        },
    )
}

/// Measures calls that are recorded once, with their outcome.
pub(crate) fn queries(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Queries(200), Work::Asynchronous(200), |runtime, subject, raw| {
        let measure = format!("sequential calls of a read-only tool ÷ asynchronous steps, {runtime}");
        Finding::ratio("queries", measure, per_second(subject), per_second(raw)).at_least(0.95, 1.0)
    })
}

/// Measures the cost of the metrics of a call, which Prometheus scrapes.
#[cfg(feature = "prometheus")]
pub(crate) fn metered(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Metered(200), Work::Guarded(200), |runtime, subject, raw| {
        let measure = format!("sequential guarded calls with metrics ÷ without, {runtime}");
        Finding::ratio("metrics", measure, per_second(subject), per_second(raw)).at_least(0.95, 0.98)
    })
}

/// Measures the cost of the spans of a call, which are dropped.
pub(crate) fn traced(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Traced(200), Work::Guarded(200), |runtime, subject, raw| {
        let measure = format!("sequential guarded calls with spans ÷ without, {runtime}");
        Finding::ratio("spans", measure, per_second(subject), per_second(raw)).at_least(0.80, 0.90)
    })
}

/// Measures the cost of encryption.
#[cfg(feature = "encryption")]
pub(crate) fn encrypted(options: &Options) -> Findings {
    let many = Work::EncryptedRuns { runs: 64, calls: 100 };
    wrapped(options, "encrypted", "encrypted ÷ plain", Work::Encrypted(200), many)
}

/// Measures the cost of a chain of evidence.
pub(crate) fn chained(options: &Options) -> Findings {
    let many = Work::ChainedRuns { runs: 64, calls: 100 };
    wrapped(options, "chained", "with a chain of evidence ÷ without", Work::Chained(200), many)
}

/// Measures the cost of a wrapper of the store: of calls one after the other, and of many at once.
fn wrapped(options: &Options, row: &'static str, words: &str, one: Work, many: Work) -> Findings {
    let finding = |measure: String, subject: &[Taken], raw: &[Taken]| {
        Finding::ratio(row, measure, per_second(subject), per_second(raw)).at_least(0.85, 0.95)
    };
    let one = on_each_runtime(options, SQLITE, one, Work::Guarded(200), |runtime, subject, raw| {
        finding(format!("sequential guarded calls {words}, {runtime}"), subject, raw)
    });
    let plain = Work::GuardedRuns { runs: 64, calls: 100 };
    let many = on_each_runtime(options, SQLITE, many, plain, |runtime, subject, raw| {
        finding(format!("64 runs, guarded calls {words}, {runtime}"), subject, raw)
    });
    Ok(one?.into_iter().chain(many?).collect())
}

/// Receives spans, and drops them.
struct Dropped;

impl SpanSink for Dropped {
    fn record(&self, _span: Span) {}
}

pub(crate) const RAW_GROUP: Work = Work::RawGroup { tasks: 64, rows: 6400 };

pub(crate) fn runs_64(options: &Options) -> Findings {
    on_each_runtime(
        options,
        SQLITE,
        Work::GuardedRuns { runs: 64, calls: 100 },
        RAW_GROUP,
        |runtime, subject, raw| {
            let measure = format!("64 runs, guarded calls ÷ rows of raw group commit, {runtime}");
            Finding::ratio("runs-64", measure, per_second(subject), per_second(raw)).at_least(0.35, 0.55)
        },
    )
}

/// Measures the cost for runs without a guard beside one run that uses one.
pub(crate) fn mixed(options: &Options) -> Findings {
    guards(options, SQLITE, "mixed")
}

pub(crate) fn artifacts(options: &Options) -> Findings {
    of_artifacts(options, SQLITE, "artifacts")
}

const CALLS_64: Work = Work::GuardedRuns { runs: 64, calls: 100 };

pub(crate) fn guards(options: &Options, database: Database, name: &'static str) -> Findings {
    let work = Work::MixedRuns { runs: 64, calls: 100 };
    on_each_runtime(options, database, work, CALLS_64, |runtime, subject, raw| {
        let measure =
            format!("64 runs, one in 16 with artifacts, events or memories ÷ guarded calls alone, {runtime}");
        Finding::ratio(name, measure, per_second(subject), per_second(raw)).at_least(0.75, 0.90)
    })
}

pub(crate) fn of_artifacts(options: &Options, database: Database, name: &'static str) -> Findings {
    let work = Work::ArtifactRuns { runs: 64, calls: 100 };
    on_each_runtime(options, database, work, CALLS_64, |runtime, subject, raw| {
        let measure = format!("64 runs, artifacts ÷ guarded calls, {runtime}");
        Finding::ratio(name, measure, per_second(subject), per_second(raw)).at_least(0.60, 0.80)
    })
}

pub(crate) fn runs_1000(options: &Options) -> Findings {
    on_each_runtime(
        options,
        SQLITE,
        Work::GuardedRuns { runs: 1000, calls: 10 },
        RAW_GROUP,
        |runtime, subject, raw| {
            let measure = format!("1000 runs, guarded calls ÷ rows of raw group commit, {runtime}");
            Finding::ratio("runs-1000", measure, per_second(subject), per_second(raw)).at_least(0.45, 0.70)
        },
    )
}

pub(crate) fn cpu(options: &Options) -> Findings {
    on_each_runtime(options, SQLITE, Work::Guarded(200), Work::RawInserts(200), |runtime, subject, raw| {
        let measure = format!("CPU per guarded call ÷ CPU per raw insert, {runtime}");
        Finding::ratio("cpu", measure, processor(subject), processor(raw)).at_most(1.9, 1.5)
    })
}

pub(crate) fn per_second(taken: &[Taken]) -> Values {
    Values::new("/s", taken.iter().map(|taken| taken.count / taken.seconds).collect())
}

fn processor(taken: &[Taken]) -> Values {
    Values::new("µs", taken.iter().map(|taken| taken.processor_seconds * 1e6 / taken.count).collect())
}

pub(crate) fn on_each_runtime(
    options: &Options,
    database: Database,
    subject: Work,
    raw: Work,
    finding: impl Fn(&str, &[Taken], &[Taken]) -> Finding,
) -> Findings {
    let runtimes = [("current_thread", current_thread()), ("multi_thread", multi_thread())];
    let measured = runtimes.into_iter().map(|(name, runtime)| {
        let (subject, raw) = in_turn(options, database, &runtime, subject, raw)?;
        Ok(finding(name, &subject, &raw))
    });
    measured.collect()
}

pub(crate) fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A runtime with two workers, beside the driver's own thread.
pub(crate) fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Measures subject and raw line in turn, in each round but the warm-up.
fn in_turn(
    options: &Options,
    database: Database,
    runtime: &Runtime,
    subject: Work,
    raw: Work,
) -> Result<(Vec<Taken>, Vec<Taken>), String> {
    let home = Home::of(database, options)?;
    let mut benches = [open(runtime, &home, "subject", subject)?, open(runtime, &home, "raw", raw)?];
    let (mut subjects, mut raws) = (Vec::new(), Vec::new());
    for round in 0..=options.rounds {
        let mut taken = [Taken::default(), Taken::default()];
        for _ in 0..SLICES {
            for ((bench, work), taken) in benches.iter_mut().zip([subject, raw]).zip(&mut taken) {
                measure(runtime, bench, work, taken)?;
            }
        }
        if round > 0 {
            let [subject, raw] = taken;
            subjects.push(subject);
            raws.push(raw);
        }
    }
    runtime.block_on(async {
        for bench in benches {
            match bench {
                Bench::Engine(engine) => engine.shutdown(subject::DRAIN).await,
                Bench::Raw(raw) => raw.expect("it is given back").close().await,
                #[cfg(feature = "postgres")]
                Bench::Pgbench(_) => {}
            }
        }
    });
    Ok((subjects, raws))
}

fn open(runtime: &Runtime, home: &Home, name: &str, work: Work) -> Result<Bench, String> {
    let place = home.place(name);
    runtime.block_on(async {
        match work {
            Work::RawInserts(_) | Work::RawTwoTransactions(_) | Work::RawGroup { .. } => {
                Ok(Bench::Raw(Some(raw::open(&place).await)))
            }
            #[cfg(feature = "postgres")]
            Work::Pgbench(_) => {
                raw::open(&place).await.close().await; // for its table
                Pgbench::of(&place).map(Bench::Pgbench)
            }
            _ => Ok(Bench::Engine(watched(&place, work).start().await.expect("an engine"))),
        }
    })
}

/// The engine for this work, with whatever watches it.
fn watched(place: &Place, work: Work) -> EngineBuilder {
    let builder = subject::builder(place);
    match work {
        #[cfg(feature = "prometheus")]
        Work::Metered(_) => builder.metrics(counterfoil::metrics::Prometheus::default().metrics()),
        Work::Traced(_) => builder.spans(Dropped),
        #[cfg(feature = "encryption")]
        Work::Encrypted(_) | Work::EncryptedRuns { .. } => {
            use counterfoil::store::encryption::{EncryptionKey, TenantKeys};
            builder.encrypted(TenantKeys::new(EncryptionKey::new("k1", [7; 32]).expect("an id")))
        }
        Work::Chained(_) | Work::ChainedRuns { .. } => builder.evidence_chain(ChainKey::new([7; 32])),
        _ => builder,
    }
}

fn measure(runtime: &Runtime, bench: &mut Bench, work: Work, taken: &mut Taken) -> Result<(), String> {
    let (processor, start) = (processor_time(), Instant::now());
    let count = match bench {
        Bench::Engine(engine) => drive(runtime, engine.clone(), work),
        Bench::Raw(slot) => {
            let raw = slot.take().expect("it is given back");
            let (raw, count) = drive_raw(runtime, raw, work);
            *slot = Some(raw);
            count
        }
        // pgbench reports its own time, without connecting.
        #[cfg(feature = "postgres")]
        Bench::Pgbench(pgbench) => {
            let Work::Pgbench(each) = work else { unreachable!("work of another") };
            taken.count += f64::from(CONNECTIONS * each);
            taken.seconds += pgbench.seconds(each)?;
            return Ok(());
        }
    };
    taken.count += f64::from(count);
    taken.seconds += start.elapsed().as_secs_f64();
    taken.processor_seconds += processor_time().saturating_sub(processor).as_secs_f64();
    Ok(())
}

/// Drives the raw line as a task, like the engine's runs.
fn drive_raw(runtime: &Runtime, mut raw: Raw, work: Work) -> (Raw, u32) {
    let driven = runtime.spawn(async move {
        match work {
            Work::RawInserts(n) => {
                raw.inserts(n).await;
                (raw, n)
            }
            Work::RawTwoTransactions(n) => {
                raw.two_transactions(n).await;
                (raw, n)
            }
            Work::RawGroup { tasks, rows } => (raw.group(tasks, rows).await, rows),
            _ => unreachable!("work of an engine"),
        }
    });
    runtime.block_on(driven).expect("a raw line")
}

fn drive(runtime: &Runtime, engine: Engine, work: Work) -> u32 {
    let driven = runtime.spawn(async move {
        let tenant = engine.tenant(TENANT).expect("a tenant");
        let (bytes, n) = match work {
            Work::Guarded(n) | Work::Traced(n) => (tenant.run(subject::guarded, n).await, n),
            #[cfg(feature = "prometheus")]
            Work::Metered(n) => (tenant.run(subject::guarded, n).await, n),
            #[cfg(feature = "encryption")]
            Work::Encrypted(n) => (tenant.run(subject::guarded, n).await, n),
            #[cfg(feature = "encryption")]
            Work::EncryptedRuns { runs, calls } => {
                subject::guarded_runs(&engine, runs, calls).await;
                return u32::try_from(runs).expect("few runs") * calls;
            }
            Work::Chained(n) => (tenant.run(subject::guarded, n).await, n),
            Work::Payments(n) => (tenant.run(subject::payments, n).await, n),
            Work::Queries(n) => (tenant.run(subject::queries, n).await, n),
            Work::Plain(n) => (tenant.run(subject::plain, n).await, n),
            Work::Asynchronous(n) => (tenant.run(subject::asynchronous, n).await, n),
            Work::GuardedRuns { runs, calls } | Work::ChainedRuns { runs, calls } => {
                subject::guarded_runs(&engine, runs, calls).await;
                return u32::try_from(runs).expect("few runs") * calls;
            }
            Work::MixedRuns { runs, calls } => {
                subject::mixed_runs(&engine, runs, calls).await;
                return u32::try_from(runs).expect("few runs") * calls;
            }
            Work::ArtifactRuns { runs, calls } => {
                subject::artifact_runs(&engine, runs, calls).await;
                return u32::try_from(runs).expect("few runs") * calls;
            }
            _ => unreachable!("work of a raw line"),
        };
        assert_eq!(bytes.expect("the run ends well"), n as usize * subject::text().len());
        n
    });
    runtime.block_on(driven).expect("a run")
}

/// The processor time of all threads of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("time runs forward");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("below a second"))
}
