//! The figures of the core, on SQLite and on PostgreSQL, as ratios against raw sqlx, from one run on one disk.
//!
//! ```sh
//! cargo bench                       # every row
//! cargo bench -- --only guarded     # rows whose name begins so
//! cargo bench --features sim -- --only simulator
//! .ci/with-postgres --durable cargo bench --features postgres -- --only postgres
//! ```
//!
//! `--rounds N` (5), `--dir PATH` (a folder beside the binary: never a RAM disk), `--json`. `--small` fills in a
//! hundredth of the rows, also in a debug build: it shows that a row can be measured, and its figures mean nothing.
//!
//! Each round measures the subject and its raw line one after the other, and takes their ratio. The printed value is
//! the median of the rounds with the least and the greatest. A figure that misses its `must` in every round fails the
//! benchmark. The first round is thrown away: it grows the WAL to its steady size, so these are figures of a database
//! in use and not of a new one. The PostgreSQL is the one that `TEST_DATABASE_URL` names; it must sync, as with
//! `--durable`.

#![allow(missing_docs, reason = "a program")]
#![allow(clippy::unnecessary_wraps, reason = "all rows of the table have one form")]
#![allow(clippy::elidable_lifetime_names, reason = "as the trait writes them")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot go on stops")]
#![allow(clippy::cast_precision_loss, reason = "counts far below 2^53")]

mod child;
mod disk;
mod finished;
#[cfg(feature = "mcp")]
mod gateway;
#[cfg(all(feature = "api", feature = "guard-service"))]
mod guard_service;
#[cfg(feature = "http")]
mod http;
mod idle;
mod lists;
mod messages;
#[cfg(feature = "nats")]
mod nats;
mod options;
#[cfg(feature = "postgres")]
mod pgbench;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
mod process;
mod raw;
#[cfg(feature = "memory")]
mod remember;
mod report;
mod resume;
#[cfg(any(feature = "nats", feature = "redis"))]
mod server;
mod signals;
#[cfg(feature = "sim")]
mod simulator;
mod speed;
mod subject;
mod sweep;
#[cfg(feature = "postgres")]
mod takeover;
mod timers;
mod tree;
mod waiting;
#[cfg(feature = "webhook")]
mod webhooks;
#[cfg(feature = "http")]
mod wire;

use options::Options;
use report::{Finding, Report};

/// A row of the table: its name for `--only`, and the function that measures it.
type Row = (&'static str, fn(&Options) -> Result<Vec<Finding>, String>);

const ROWS: &[Row] = &[
    ("guarded", speed::guarded),
    ("guarded-two-tx", speed::guarded_two_transactions),
    ("guarded-payment", speed::payments),
    ("syncs", process::syncs),
    ("plain", speed::plain),
    ("async", speed::asynchronous),
    ("queries", speed::queries),
    #[cfg(feature = "prometheus")]
    ("metrics", speed::metered),
    ("spans", speed::traced),
    #[cfg(feature = "encryption")]
    ("encrypted", speed::encrypted),
    ("chained", speed::chained),
    ("runs-64", speed::runs_64),
    ("runs-1000", speed::runs_1000),
    ("mixed", speed::mixed),
    ("artifacts", speed::artifacts),
    ("cpu", speed::cpu),
    ("resume-plain", resume::plain),
    ("resume-guarded", resume::guarded),
    ("resume-turns", resume::turns),
    ("timers", timers::wake_ups),
    ("signals", signals::received),
    ("outbox", messages::outbox),
    ("inbox", messages::inbox),
    #[cfg(feature = "http")]
    ("http-replay", http::replay),
    #[cfg(feature = "http")]
    ("http-first", http::first),
    #[cfg(feature = "webhook")]
    ("webhook-storm", webhooks::sqlite),
    #[cfg(all(feature = "redis", feature = "webhook"))]
    ("webhook-fenced", webhooks::fenced::sqlite),
    #[cfg(feature = "nats")]
    ("nats", nats::sqlite),
    ("sweep", sweep::sqlite),
    ("finished", finished::sqlite),
    ("lists", lists::sqlite),
    #[cfg(all(feature = "api", feature = "guard-service"))]
    ("guard-service", guard_service::calls),
    #[cfg(feature = "mcp")]
    ("gateway", gateway::latency),
    ("start", process::start),
    ("memory", process::memory),
    ("memory-waiting", waiting::memory),
    ("disk", disk::bytes),
    #[cfg(feature = "memory")]
    ("remember", remember::growth),
    ("idle", idle::statements),
    ("crates", tree::crates),
    #[cfg(feature = "sim")]
    ("simulator", simulator::schedules),
    #[cfg(feature = "sim")]
    ("simulator-case-notice", simulator::case_notice),
    #[cfg(feature = "postgres")]
    ("postgres-guarded", postgres::guarded),
    #[cfg(feature = "postgres")]
    ("postgres-payment", postgres::payments),
    #[cfg(feature = "postgres")]
    ("postgres-commits", postgres::commits),
    #[cfg(feature = "postgres")]
    ("postgres-runs-64", postgres::runs_64),
    #[cfg(feature = "postgres")]
    ("postgres-mixed", postgres::mixed),
    #[cfg(feature = "postgres")]
    ("postgres-artifacts", postgres::artifacts),
    #[cfg(feature = "postgres")]
    ("postgres-two-tx", postgres::two_transactions),
    #[cfg(feature = "postgres")]
    ("postgres-resume-plain", postgres::resume_plain),
    #[cfg(feature = "postgres")]
    ("postgres-resume-guarded", postgres::resume_guarded),
    #[cfg(feature = "postgres")]
    ("postgres-timers", postgres::timers),
    #[cfg(feature = "postgres")]
    ("postgres-signals", postgres::signals),
    #[cfg(feature = "postgres")]
    ("postgres-outbox", postgres::outbox),
    #[cfg(feature = "postgres")]
    ("postgres-inbox", postgres::inbox),
    #[cfg(all(feature = "postgres", feature = "webhook"))]
    ("postgres-webhook-storm", webhooks::postgres),
    #[cfg(all(feature = "postgres", feature = "redis", feature = "webhook"))]
    ("postgres-webhook-fenced", webhooks::fenced::postgres),
    #[cfg(all(feature = "nats", feature = "postgres"))]
    ("postgres-nats", nats::postgres),
    #[cfg(feature = "postgres")]
    ("postgres-sweep", sweep::postgres),
    #[cfg(feature = "postgres")]
    ("postgres-finished", finished::postgres),
    #[cfg(feature = "postgres")]
    ("postgres-lists", lists::postgres),
    #[cfg(feature = "postgres")]
    ("takeover", takeover::killed),
    #[cfg(feature = "postgres")]
    ("postgres-idle", postgres::idle),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = match options::parse(std::env::args().skip(1))? {
        options::Task::Child(task) => return child::run(&task),
        options::Task::Measure(options) => options,
    };
    if cfg!(debug_assertions) && !options.small {
        eprintln!("nothing measured: this is a debug build; use `cargo bench`");
        return Ok(());
    }
    let rows: Vec<_> = ROWS.iter().filter(|(name, _)| options.wants(name)).collect();
    if rows.is_empty() {
        let names: Vec<_> = ROWS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no such row; there are: {}", names.join(", ")).into());
    }
    let mut report = Report::new(&options);
    for (name, measure) in rows {
        eprintln!("measuring {name} …");
        match measure(&options) {
            Ok(findings) => report.add(findings),
            Err(error) => report.failed(name, error),
        }
    }
    report.print();
    let wrong = report.wrong();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}
