//! The row about finished runs: the latency of a run beside a million runs that have ended, and in an empty database.

use std::time::Instant;

use counterfoil::Engine;

use crate::messages::Own;
use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::report::{Finding, Values, median};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT};

/// The number of runs that have ended, each with a call, a checkpoint and a label.
pub(crate) const FINISHED: u32 = 1_000_000;
/// The start of the first of them, in microseconds (UTC). It is in the far future, so that none of them is swept.
pub(crate) const BEGAN: i64 = 4_000_000_000_000_000;
/// The number of runs in a round, one after the other.
const RUNS: usize = 500;

pub(crate) fn sqlite(options: &Options) -> Result<Vec<Finding>, String> {
    beside::<sqlx::SqliteConnection>(options, Database::Sqlite, "finished")
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(options: &Options) -> Result<Vec<Finding>, String> {
    beside::<sqlx::PgConnection>(options, Database::Postgres, "postgres-finished")
}

/// The runs of this number, each a second after the one before it.
const RUN: &str = "INSERT INTO run (id, tenant, workflow, version, key, input, input_hash, state, waits_on, outcome, fence, \
    revision, deaths, created_at, updated_at, unsettled, number) \
    SELECT i, 'acme', 'guarded', 1, 'start ' || i, '1', HASH, 3, 0, '98', 1, 1, 0, BEGAN + i, BEGAN + i, FALSE, i FROM n";
const STEP: &str = "INSERT INTO step (tenant, run, kind, name, id, value, at) \
    SELECT 'acme', i, 1, 'touch', '0', '\"x\"', i FROM n";
const RECORD: &str = "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, run, step, \
    fence, revision, attempts, status, basis, outcome, created_at, updated_atMORE) \
    SELECT i, 'acme', 'touch:' || i, 'touch', 4, '\"x\"', HASH, 1, i, 'touch/0', 1, 2, 1, 2, 0, '\"x\"', i, iVALUES FROM n";
/// A thousand labels, each of as many runs.
const LABEL: &str = "INSERT INTO run_label (tenant, run, name, value, started_at) \
    SELECT 'acme', i, 'customer', 'c-' || (i % 1000), BEGAN + i FROM n";

/// Runs that have ended, to be filled into a database.
pub(crate) struct Filled(u32);

impl Filled {
    pub(crate) const fn with(runs: u32) -> Self {
        Self(runs)
    }

    /// Makes the tables, and fills them.
    pub(crate) async fn fill<C: Own>(self, place: &Place) {
        subject::engine(place).await.shutdown(subject::DRAIN).await;
        let mut own = C::open(place).await;
        for statement in [RUN, STEP, RECORD, LABEL, "ANALYZE"] {
            // Statements of the connection are static, and these are as few as the rows of the bench.
            let statement = self.in_words_of(place, statement).leak();
            own.run(statement).await.expect("runs that have ended");
        }
    }

    fn in_words_of(&self, place: &Place, statement: &str) -> String {
        let (numbers, hash, more) = match place {
            Place::File(_) => (
                format!(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})",
                    self.0
                ),
                "zeroblob(33)",
                [", born, spent, in_doubt", ", 1, 0, 0"],
            ),
            #[cfg(feature = "postgres")]
            Place::Schema { .. } => (
                format!("WITH n AS (SELECT i FROM generate_series(1::bigint, {}) i)", self.0),
                "decode(repeat('00', 33), 'hex')",
                ["", ""],
            ),
        };
        let statement = statement.replace("HASH", hash).replace("BEGAN", &BEGAN.to_string());
        let statement = statement.replace("MORE", more[0]).replace("VALUES", more[1]);
        if statement.starts_with("INSERT") { format!("{numbers} {statement}") } else { statement }
    }
}

fn beside<C: Own>(options: &Options, database: Database, row: &'static str) -> Result<Vec<Finding>, String> {
    let home = Home::of(database, options)?;
    let [full, empty] = ["full", "empty"].map(|name| home.place(name));
    let finished = options.number(FINISHED);
    let [beside, without] = multi_thread().block_on(async {
        Filled::with(finished).fill::<C>(&full).await;
        let mut rounds = [const { Vec::new() }; 2];
        for round in 0..=options.rounds {
            for (place, took) in [&full, &empty].into_iter().zip(&mut rounds) {
                let median = run_by_run(place).await;
                if round > 0 {
                    took.push(median);
                }
            }
        }
        rounds.map(|took| Values::new("µs", took))
    });
    let measure = format!("a run with a guarded call beside {finished} runs that have ended ÷ without them");
    Ok(vec![Finding::ratio(row, measure, beside, without).at_most(1.5, 1.1)])
}

/// The median time from the start of a run until its result.
async fn run_by_run(place: &Place) -> f64 {
    let engine: Engine = subject::engine(place).await;
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let mut took = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        tenant.run(subject::guarded, 1).await.expect("a result");
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    engine.shutdown(subject::DRAIN).await;
    median(&took)
}
