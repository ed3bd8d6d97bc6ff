//! Rows about messages: the speed of events through the outbox, and the cost of processing a message once.

use std::sync::Arc;
use std::time::Instant;

use counterfoil::exec::OwnConnection;
use counterfoil::outbox::{Event, PublishResult, Sink, SinkError};
use counterfoil::{Ctx, Engine, Failure, Tenant};
use futures_util::future::{BoxFuture, try_join_all};
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::Semaphore;

use crate::options::Options;
use crate::place::{Database, Home, Place};
use crate::raw;
use crate::report::{Finding, Values};
use crate::speed::multi_thread;
use crate::subject::{self, TENANT, text};

/// The number of concurrent runs, and the events of each.
const RUNS: usize = 64;
const EVENTS: u32 = 100;
/// The number of messages in a round, one after the other.
const MESSAGES: u32 = 300;

pub(crate) fn outbox(options: &Options) -> Result<Vec<Finding>, String> {
    published(options, Database::Sqlite, "outbox")
}

pub(crate) fn inbox(options: &Options) -> Result<Vec<Finding>, String> {
    processed::<SqliteConnection>(options, Database::Sqlite, "inbox")
}

/// A sink that takes everything at once, and counts it.
#[derive(Clone)]
struct Counts(Arc<Semaphore>);

impl Sink for Counts {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        self.0.add_permits(batch.len());
        Ok(PublishResult::all())
    }
}

async fn tell(ctx: Ctx, (order, events): (usize, u32)) -> Result<(), Failure> {
    let aggregate = format!("order/{order}");
    for _ in 0..events {
        ctx.emit(&aggregate, "touched", &text()).await?;
    }
    Ok(())
}

/// Measures from the start of the runs that emit the events until the sink has taken the last event.
pub(crate) fn published(
    options: &Options,
    database: Database,
    name: &'static str,
) -> Result<Vec<Finding>, String> {
    let home = Home::of(database, options)?;
    let measured = multi_thread().block_on({
        let (rounds, subject, raw) = (options.rounds, home.place("subject"), home.place("raw"));
        async move {
            let counts = Counts(Arc::new(Semaphore::new(0)));
            let engine = subject::builder(&subject).workflow("tell", 1, tell).sink(counts.clone());
            let engine = engine.start().await.expect("an engine");
            let mut raw = raw::open(&raw).await;
            let (mut subjects, mut raws) = (Vec::new(), Vec::new());
            let events = u32::try_from(RUNS).expect("few") * EVENTS;
            for round in 0..=rounds {
                let start = Instant::now();
                tells(&engine).await;
                counts.0.acquire_many(events).await.expect("it is open").forget();
                let subject = f64::from(events) / start.elapsed().as_secs_f64();
                let start = Instant::now();
                raw = raw.group(64, events).await;
                let row = f64::from(events) / start.elapsed().as_secs_f64();
                if round > 0 {
                    subjects.push(subject);
                    raws.push(row);
                }
            }
            raw.close().await;
            engine.shutdown(subject::DRAIN).await;
            (subjects, raws)
        }
    });
    let measure =
        "events emitted and published to a sink that takes all ÷ rows of raw group commit".to_owned();
    let (subject, raw) = (Values::new("/s", measured.0), Values::new("/s", measured.1));
    Ok(vec![Finding::ratio(name, measure, subject, raw).at_least(0.15, 0.30)])
}

async fn tells(engine: &Engine) {
    let tenant = engine.tenant(TENANT).expect("a tenant");
    let runs = (0..RUNS).map(|order| tenant.run(tell, (order, EVENTS)).into_future());
    try_join_all(runs).await.expect("all runs end well");
}

/// A connection to the measured database, as its user opens it.
pub(crate) trait Own: OwnConnection + 'static {
    fn open(place: &Place) -> impl Future<Output = Self>;
    fn run<'c>(&'c mut self, sql: &'static str) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}

impl Own for SqliteConnection {
    async fn open(place: &Place) -> Self {
        raw::sqlite::connect(place.file()).await
    }

    fn run<'c>(&'c mut self, sql: &'static str) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move { self.execute(sql).await.map(drop) })
    }
}

#[cfg(feature = "postgres")]
impl Own for sqlx::PgConnection {
    async fn open(place: &Place) -> Self {
        use sqlx::{AssertSqlSafe, Connection as _};
        let Place::Schema { url, name } = place else { panic!("it is a schema") };
        let mut connection = Self::connect(url).await.expect("the server");
        let schema = AssertSqlSafe(format!("CREATE SCHEMA IF NOT EXISTS {name}; SET search_path TO {name}"));
        sqlx::raw_sql(schema).execute(&mut connection).await.expect("a schema");
        connection
    }

    fn run<'c>(&'c mut self, sql: &'static str) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        Box::pin(async move { self.execute(sql).await.map(drop) })
    }
}

pub(crate) const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS entry (what TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS seen (id BIGINT PRIMARY KEY)",
];
pub(crate) const ENTER: &str = "INSERT INTO entry VALUES ('a row of the effect')";
const SEEN: &str = "INSERT INTO seen SELECT coalesce(max(id), 0) + 1 FROM seen";

/// Measures messages one after the other, each with one statement of its own; the raw line writes the mark by hand.
pub(crate) fn processed<C: Own>(
    options: &Options,
    database: Database,
    name: &'static str,
) -> Result<Vec<Finding>, String> {
    let home = Home::of(database, options)?;
    let measured = multi_thread().block_on(async {
        let (rounds, place) = (options.rounds, home.place("subject"));
        let engine = subject::engine(&place).await;
        let mut own = C::open(&place).await;
        own.run(TABLES[0]).await.expect("a table");
        let mut raw = C::open(&home.place("raw")).await;
        for table in TABLES {
            raw.run(table).await.expect("a table");
        }
        let (executor, tenant) = (engine.executor(), Tenant::new(TENANT).expect("a tenant"));
        let (mut subjects, mut raws) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let start = Instant::now();
            for message in 0..MESSAGES {
                let id = format!("{round}-{message}");
                let done = executor.process_once(&tenant, "figures", id, |db: &mut C| db.run(ENTER));
                let _ = done.await.expect("it is processed");
            }
            let subject = f64::from(MESSAGES) / start.elapsed().as_secs_f64();
            let start = Instant::now();
            for _ in 0..MESSAGES {
                for sql in ["BEGIN", SEEN, ENTER, "COMMIT"] {
                    raw.run(sql).await.expect("a statement");
                }
            }
            let row = f64::from(MESSAGES) / start.elapsed().as_secs_f64();
            if round > 0 {
                subjects.push(subject);
                raws.push(row);
            }
        }
        engine.shutdown(subject::DRAIN).await;
        (subjects, raws)
    });
    let measure = "process_once in sequence ÷ a raw transaction of two statements".to_owned();
    let (subject, raw) = (Values::new("/s", measured.0), Values::new("/s", measured.1));
    Ok(vec![Finding::ratio(name, measure, subject, raw).at_least(0.6, 0.85)])
}
