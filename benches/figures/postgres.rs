//! The rows of the PostgreSQL table: the same work as on SQLite, against raw lines on the same server.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};

use crate::messages;
use crate::options::Options;
use crate::place::{Database, Home, Place, url};
use crate::report::{Finding, Values};
use crate::resume::{self, Recorded};
use crate::signals::{self, Sender};
use crate::speed::{RAW_GROUP, Work, multi_thread, on_each_runtime, per_second};
use crate::waiting::For;
use crate::{idle, raw, speed, subject, timers};

type Findings = Result<Vec<Finding>, String>;

const DATABASE: Database = Database::Postgres;
const RUNS_64: Work = Work::GuardedRuns { runs: 64, calls: 100 };

/// Measures so many calls that the first work of a connection does not count: each statement is parsed and planned
/// once.
pub(crate) fn guarded(options: &Options) -> Findings {
    on_each_runtime(
        options,
        DATABASE,
        Work::Guarded(1000),
        Work::RawInserts(1000),
        |runtime, subject, raw| {
            let measure = format!("PostgreSQL: sequential guarded calls ÷ raw one-row inserts, {runtime}");
            Finding::ratio("postgres-guarded", measure, per_second(subject), per_second(raw))
                .at_least(0.65, 0.80)
        },
    )
}

pub(crate) fn payments(options: &Options) -> Findings {
    on_each_runtime(
        options,
        DATABASE,
        Work::Payments(1000),
        Work::RawInserts(1000),
        |runtime, subject, raw| {
            let measure =
                format!("PostgreSQL: sequential payments of class Lookup ÷ raw one-row inserts, {runtime}");
            Finding::ratio("postgres-payment", measure, per_second(subject), per_second(raw))
        },
    )
}

pub(crate) fn runs_64(options: &Options) -> Findings {
    on_each_runtime(options, DATABASE, RUNS_64, RAW_GROUP, |runtime, subject, raw| {
        let measure = format!("PostgreSQL: 64 runs, guarded calls ÷ rows of raw group commit, {runtime}");
        Finding::ratio("postgres-runs-64", measure, per_second(subject), per_second(raw)).at_least(0.25, 0.45)
    })
}

pub(crate) fn mixed(options: &Options) -> Findings {
    speed::guards(options, DATABASE, "postgres-mixed")
}

pub(crate) fn artifacts(options: &Options) -> Findings {
    speed::of_artifacts(options, DATABASE, "postgres-artifacts")
}

pub(crate) fn two_transactions(options: &Options) -> Findings {
    on_each_runtime(options, DATABASE, RUNS_64, Work::Pgbench(50), |runtime, subject, raw| {
        let measure =
            format!("PostgreSQL: 64 runs, guarded calls ÷ pgbench steps, 32 connections, {runtime}");
        Finding::ratio("postgres-two-tx", measure, per_second(subject), per_second(raw)).at_least(2.5, 4.0)
    })
}

/// The number of recorded steps. With only a thousand, opening the connections takes far longer than reading, and never
/// equally long.
const RECORDED: u32 = 10_000;

pub(crate) fn resume_plain(options: &Options) -> Findings {
    let (subject, raw) = resume::measure(options, DATABASE, Recorded::Plain, RECORDED)?;
    let measure =
        format!("PostgreSQL: resume, extra time per plain step ÷ raw read of a row, {RECORDED} steps");
    Ok(vec![Finding::ratio("postgres-resume-plain", measure, subject, raw).at_most(3.0, 2.0)])
}

pub(crate) fn resume_guarded(options: &Options) -> Findings {
    let (subject, raw) = resume::measure(options, DATABASE, Recorded::Guarded, RECORDED)?;
    let measure =
        format!("PostgreSQL: resume, extra time per guarded call ÷ raw read of a row, {RECORDED} calls");
    Ok(vec![Finding::ratio("postgres-resume-guarded", measure, subject, raw).at_most(5.0, 3.5)])
}

pub(crate) fn timers(options: &Options) -> Findings {
    let (subject, raw) = timers::measure(options, DATABASE)?;
    let measure =
        format!("PostgreSQL: {} timers due at once: wake-ups ÷ rows of raw group commit", timers::RUNS);
    Ok(vec![Finding::ratio("postgres-timers", measure, subject, raw).at_least(0.03, 0.10)])
}

/// Measures events from their runs to a sink.
pub(crate) fn outbox(options: &Options) -> Findings {
    messages::published(options, DATABASE, "postgres-outbox")
}

/// Measures messages, one after the other.
pub(crate) fn inbox(options: &Options) -> Findings {
    messages::processed::<sqlx::PgConnection>(options, DATABASE, "postgres-inbox")
}

pub(crate) fn signals(options: &Options) -> Findings {
    let finding = |(sender, who)| {
        let (subject, raw) = signals::measure(options, DATABASE, sender)?;
        let measure =
            format!("PostgreSQL: signal sent by {who} until received by a waiting run ÷ a durable insert");
        Ok(Finding::ratio("postgres-signals", measure, subject, raw).at_most(6.0, 3.0))
    };
    [(Sender::Same, "its worker"), (Sender::Another, "another worker")].into_iter().map(finding).collect()
}

/// Measures the statements of an idle worker: a heartbeat sends two, each one statement on the wire.
pub(crate) fn idle(options: &Options) -> Findings {
    let finding = |(runs, wait, what)| {
        let home = Home::of(DATABASE, options)?;
        let asked = multi_thread().block_on(idle::asked_a_minute(&home.place("idle"), runs, wait));
        let measure = format!("PostgreSQL: statements per minute of an idle worker with {runs} {what}");
        let subject = Values::new("a minute", vec![asked]);
        Ok(Finding::absolute("postgres-idle", measure, subject, None).at_most(120.0, 30.0))
    };
    [
        (0, For::Timer, "waiting runs"),
        (10_000, For::Timer, "runs waiting for timers"),
        (10_000, For::Signal, "runs waiting for signals"),
    ]
    .into_iter()
    .map(finding)
    .collect()
}

/// Measures the commits of a thousand calls: those of an engine that makes a thousand, less those of one that makes
/// none. They are the server's count of all transactions in this database (`pg_stat_database.xact_commit`), including
/// those that only read and those of other sessions.
pub(crate) fn commits(options: &Options) -> Findings {
    const CALLS: u32 = 1000;
    let home = Home::of(DATABASE, options)?;
    let (ours, raws) = (home.place("subject"), home.place("raw"));
    let url = url()?;
    let (subject, raw) = multi_thread().block_on(async {
        let (mut subject, mut raw) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            let mut marks = vec![committed(&url).await];
            for calls in [0, CALLS] {
                guarded_calls(&ours, calls).await;
                marks.push(committed(&url).await);
            }
            for rows in [0, CALLS] {
                raw_inserts(&raws, rows).await;
                marks.push(committed(&url).await);
            }
            let spent: Vec<_> = marks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            if round > 0 {
                subject.push((spent[1] - spent[0]) as f64 / f64::from(CALLS));
                raw.push((spent[3] - spent[2]) as f64 / f64::from(CALLS));
            }
        }
        (subject, raw)
    });
    let measure = "PostgreSQL: commits per guarded call in a row, 1000 calls".to_owned();
    let raw = Some(Values::new("a row", raw));
    let subject = Values::new("a call", subject);
    Ok(vec![Finding::absolute("postgres-commits", measure, subject, raw).at_most(1.05, 1.01)])
}

async fn guarded_calls(place: &Place, n: u32) {
    let engine = subject::engine(place).await;
    let tenant = engine.tenant(subject::TENANT).expect("a tenant");
    tenant.run(subject::guarded, n).await.expect("a run");
    engine.shutdown(subject::DRAIN).await;
}

async fn raw_inserts(place: &Place, n: u32) {
    let mut raw = raw::open(place).await;
    raw.inserts(n).await;
    raw.close().await;
}

async fn committed(url: &str) -> i64 {
    let [committed, _] = transactions(url).await;
    committed
}

/// The numbers of transactions in this database that were committed and that were rolled back so far. A statement
/// outside of a transaction counts as one.
///
/// Counted once all other sessions have ended: a session reports its transactions to the server's statistics at its
/// end, and before that at any time.
pub(crate) async fn transactions(url: &str) -> [i64; 2] {
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    // One transaction for all looks, counted only after its own answer: the same in every difference.
    let mut looking = connection.begin().await.expect("a transaction");
    loop {
        sqlx::query("SELECT pg_stat_clear_snapshot()").execute(&mut *looking).await.expect("an answer");
        let others: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )
        .fetch_one(&mut *looking)
        .await
        .expect("the sessions");
        if others == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (committed, rolled_back) = sqlx::query_as(
        "SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(&mut *looking)
    .await
    .expect("the counts");
    looking.commit().await.expect("an answer");
    connection.close().await.expect("closed");
    [committed, rolled_back]
}
