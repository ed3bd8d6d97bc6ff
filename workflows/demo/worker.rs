//! The child's side of many workers: one of several processes that carry out the same runs on one ledger.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil::flow::{EngineBuilder, RunError, TenantClient};
use counterfoil::sim::{CrashPoint, Watch};
use counterfoil::store::Store;
#[cfg(feature = "postgres")]
use counterfoil::store::postgres::{Options, Postgres};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::{Clock as _, SystemClock, Timestamp};
use counterfoil::{Engine, Tenant};
use futures_util::StreamExt as _;
use futures_util::stream;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use tokio::signal::unix::{SignalKind, signal};

use super::Failed;
use super::case_notice::Case;
use super::case_notice::classes::{SendLookup, case_notice_by, operation};
use super::case_notice::client::{Http, Place, Provider};
use super::role::{Message, TENANT, say};

/// The exit code of a worker that was fenced: another one has taken its work over.
pub const FENCED: i32 = 76;

/// Where the ledger is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ledger {
    Sqlite(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres {
        url: String,
        schema: String,
    },
}

impl Ledger {
    /// Makes the tables that the workflow's own transaction needs, where two that make them at once are in each
    /// other's way.
    pub async fn prepare(&self) -> Result<(), Failed> {
        match self {
            Self::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Self::Postgres { url, schema } => {
                drop(self.open().await?);
                let mut connection = <sqlx::PgConnection as sqlx::Connection>::connect(url).await?;
                let table =
                    format!("CREATE TABLE {schema}.closed_case (id TEXT PRIMARY KEY, receipt TEXT NOT NULL)");
                sqlx::raw_sql(sqlx::AssertSqlSafe(table)).execute(&mut connection).await?;
                Ok(())
            }
        }
    }

    /// The store, only to look at: what it may lose is no concern.
    pub async fn open(&self) -> Result<Arc<dyn Store>, Failed> {
        Ok(match self {
            Self::Sqlite(path) => Arc::new(Sqlite::open(path).await?),
            #[cfg(feature = "postgres")]
            Self::Postgres { url, schema } => {
                let schema = Some(schema.clone());
                let options = Options { schema, allow_async_standby: true, ..Options::default() };
                Arc::new(Postgres::open_with(url, options).await?)
            }
        })
    }
}

/// What a worker has to do: to begin its share of the runs, if an earlier life has not, and to carry out whatever
/// runs it has, until it is told to go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shift {
    pub ledger: Ledger,
    pub provider: String,
    /// The runs that this worker begins, one after the other from then on, for so long.
    pub cases: Vec<String>,
    pub from: Timestamp,
    pub lasting: Duration,
    /// Stand still when this crash point is first crossed, until somebody lets it go on.
    pub stop: Option<String>,
    /// See `Engine::lease`.
    pub lease: Duration,
    /// See [`Provider`].
    pub settle: Duration,
}

/// The case of this name.
pub fn case(id: &str) -> Case {
    Case { id: id.to_owned(), recipient: "ann".to_owned(), finding: "your permit is granted".to_owned() }
}

fn engine(shift: &Shift, provider: Provider) -> EngineBuilder {
    let engine = match &shift.ledger {
        Ledger::Sqlite(path) => {
            Engine::sqlite(path).workflow("case_notice", 1, case_notice_by::<SendLookup, SqliteConnection>)
        }
        #[cfg(feature = "postgres")]
        Ledger::Postgres { url, schema } => {
            let options = Options { schema: Some(schema.clone()), ..Options::default() };
            Engine::postgres_with(url, options).workflow(
                "case_notice",
                1,
                case_notice_by::<SendLookup, sqlx::PgConnection>,
            )
        }
    };
    // The storm kills more processes than a run may take down with it, and on a busy machine before anything got anywhere.
    engine.lease(shift.lease).max_recovery_attempts(u32::MAX).tool(SendLookup { provider })
}

/// Stands still at a crash point, as a process does that is suspended, or swapped out, or in a paused machine.
struct StopAt {
    point: CrashPoint,
    stopped: AtomicBool,
}

impl Watch for StopAt {
    fn at(&self, point: CrashPoint) {
        if point == self.point && !self.stopped.swap(true, Ordering::AcqRel) {
            // Every thread of it, until SIGCONT. That it cannot be sent is no reason to go on.
            if let Err(error) = kill_process(getpid(), Signal::STOP) {
                panic!("this process cannot stop itself: {error}");
            }
            // Another thread may be the one that takes the signal, and this one must not run on meanwhile.
            #[allow(clippy::disallowed_methods, reason = "a real process that really stands still")]
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Looks up once more what the workers have recorded as done, until every question that follows is open.
pub async fn audit(shift: &Shift) -> Result<(), Failed> {
    let mut provider = Provider::new(Place::Http(Http::new(&shift.provider)?), shift.settle);
    provider.patience = shift.settle;
    let engine = engine(shift, provider).start().await?;
    let (executor, tenant) = (engine.executor(), Tenant::new(TENANT)?);
    executor.audit(&tenant, Timestamp::MIN).await?;
    for id in &shift.cases {
        // What is missing is looked up a second time, one settle time later, before a person is asked.
        let key = operation(&case(id))?;
        while executor.next_look(&tenant, &key).await?.is_some_and(|look| look.missed) {
            SystemClock.sleep(Duration::from_millis(50)).await;
        }
    }
    engine.shutdown(Duration::from_secs(3)).await;
    Ok(())
}

/// Begins a case, or finds the run that an earlier life of this worker has begun, and waits for its end, whoever carries it out.
async fn carry_out(ledger: &Ledger, tenant: &TenantClient, id: &str) -> Result<(), RunError> {
    match ledger {
        Ledger::Sqlite(_) => {
            tenant.run(case_notice_by::<SendLookup, SqliteConnection>, case(id)).key(id).await.map(drop)
        }
        #[cfg(feature = "postgres")]
        Ledger::Postgres { .. } => {
            tenant.run(case_notice_by::<SendLookup, sqlx::PgConnection>, case(id)).key(id).await.map(drop)
        }
    }
}

pub async fn work(shift: &Shift) -> Result<i32, Failed> {
    let mut term = signal(SignalKind::terminate())?;
    let mut provider = Provider::new(Place::Http(Http::new(&shift.provider)?), shift.settle);
    // Longer than a busy machine keeps an answer back: a lookup without one four times over is a person's to make.
    provider.patience = shift.settle;
    let mut engine = engine(shift, provider);
    if let Some(point) = &shift.stop {
        engine = engine.watch(Arc::new(StopAt { point: point.parse()?, stopped: AtomicBool::new(false) }));
    }
    let engine = engine.start().await?;
    say(&Message::Working)?;
    let tenant = engine.tenant(TENANT)?;
    let through = async {
        let all =
            stream::iter(shift.cases.iter().zip(0_u32..)).for_each_concurrent(None, async |(id, number)| {
                let begins =
                    shift.from.after(shift.lasting * number / u32::try_from(shift.cases.len()).unwrap_or(1));
                SystemClock.sleep(SystemClock.now().until(begins)).await;
                loop {
                    match carry_out(&shift.ledger, &tenant, id).await {
                        Ok(()) => break,
                        // A worker that is told to go, or was fenced, does not see the end of its runs.
                        Err(RunError::Closed { .. }) => std::future::pending::<()>().await,
                        Err(error @ (RunError::Failed { .. } | RunError::Blocked { .. })) => {
                            eprintln!("{id}: {error}");
                            break;
                        }
                        // That the ledger cannot be reached, or refuses this worker, is not the end of the run.
                        Err(error) => {
                            eprintln!("{id}: {error}");
                            SystemClock.sleep(Duration::from_millis(200)).await;
                        }
                    }
                }
            });
        all.await;
        if let Err(error) = say(&Message::Through) {
            eprintln!("the parent does not listen: {error}");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = through => unreachable!("it waits to be told to go"),
        () = engine.fenced() => {
            engine.shutdown(Duration::from_secs(3)).await; // an answer that is still to come is kept as evidence
            Ok(FENCED)
        }
        _ = term.recv() => {
            engine.shutdown(Duration::from_secs(3)).await;
            Ok(0)
        }
    }
}
