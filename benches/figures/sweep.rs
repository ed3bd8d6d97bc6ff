//! The row about retention: the effect on callers while a million expired records are swept.

use std::time::Instant;

use counterfoil::{Engine, Key, Tenant, ToolRequest};
use futures_util::future::join_all;

use crate::messages::Own;
use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::report::{Finding, Values, p99};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT, text};

/// The number of expired records when the first round begins.
const RECORDS: u32 = 1_000_000;
/// The number of concurrent callers, and the calls of each in a round.
const CALLERS: usize = 16;
const CALLS: usize = 250;

pub(crate) fn sqlite(options: &Options) -> Result<Vec<Finding>, String> {
    noticed::<sqlx::SqliteConnection>(options, Database::Sqlite, "sweep", SQLITE)
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres(options: &Options) -> Result<Vec<Finding>, String> {
    noticed::<sqlx::PgConnection>(options, Database::Postgres, "postgres-sweep", POSTGRES)
}

const SQLITE: &str = "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, \
    fence, revision, born, attempts, spent, status, basis, outcome, kept_until, created_at, updated_at, in_doubt) \
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) \
    SELECT i, 'acme', 'touch:' || i, 'touch', 4, '\"x\"', zeroblob(33), 1, 1, 2, 1, 1, 0, 2, 0, '\"x\"', i, i, i, 0 FROM n";

#[cfg(feature = "postgres")]
const POSTGRES: &str = "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, \
    fence, revision, attempts, status, basis, outcome, kept_until, created_at, updated_at) \
    SELECT i, 'acme', 'touch:' || i, 'touch', 4, '\"x\"', decode(repeat('00', 33), 'hex'), 1, 1, 2, 1, 2, 0, '\"x\"', \
    i, i, i FROM generate_series(1, 1000000) i; ANALYZE record";

fn noticed<C: Own>(
    options: &Options,
    database: Database,
    row: &'static str,
    fill: &'static str,
) -> Result<Vec<Finding>, String> {
    let home = Home::of(database, options)?;
    let place = home.place("swept");
    let (with, without) = multi_thread().block_on(async {
        engine(&place, false).await.shutdown(subject::DRAIN).await;
        C::open(&place).await.run(fill).await.expect("a million records");
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for round in 0..=options.rounds {
            for (sweeps, p99) in [(false, &mut without), (true, &mut with)] {
                let engine = engine(&place, sweeps).await;
                let took = p99_of_calls(&engine, (round, sweeps)).await;
                engine.shutdown(subject::DRAIN).await;
                if round > 0 {
                    p99.push(took);
                }
            }
        }
        (with, without)
    });
    let measure = format!(
        "p99 of guarded calls by {CALLERS} callers while {RECORDS} expired records are swept ÷ without"
    );
    let (with, without) = (Values::new("µs", with), Values::new("µs", without));
    Ok(vec![Finding::ratio(row, measure, with, without).at_most(2.0, 1.3)])
}

async fn engine(place: &Place, sweeps: bool) -> Engine {
    let builder = subject::builder(place);
    let builder = builder.sweep(sweeps);
    builder.start().await.expect("an engine")
}

async fn p99_of_calls(engine: &Engine, round: (usize, bool)) -> f64 {
    let (executor, tenant) = (engine.executor(), Tenant::new(TENANT).expect("a tenant"));
    let caller = |caller: usize| {
        let (executor, tenant) = (executor.clone(), tenant.clone());
        async move {
            let mut took = Vec::with_capacity(CALLS);
            for call in 0..CALLS {
                let key = Key::of("touch").operation(format!("{round:?} {caller} {call}"));
                let request = ToolRequest::new(tenant.clone(), "touch", text().into()).key(key);
                let start = Instant::now();
                let outcome = executor.execute(request).await.expect("an outcome");
                took.push(start.elapsed().as_secs_f64() * 1e6);
                assert!(outcome.answer().is_some_and(|answer| answer.first), "it is done");
            }
            took
        }
    };
    let callers = (0..CALLERS).map(|nth| tokio::spawn(caller(nth)));
    p99(join_all(callers).await.into_iter().flat_map(|took| took.expect("a caller")).collect())
}
