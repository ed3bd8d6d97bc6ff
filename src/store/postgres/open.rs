//! Opening: the databases that are refused, and the migrations.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};
use tokio::sync::Mutex;

use super::connect::{Connector, Patience, Purpose};
use super::pool::Pool;
use super::{Fate, Postgres, Writer, failure, fate, listen};
use crate::payload::{Payload, hex};
use crate::store::migration::{MIGRATIONS, latest};
use crate::store::sql::ask::Queries;
use crate::store::{OpenError, StoreError};

/// A mark among the migrations: a move is filling the database, and no engine opens it until the move is done. An
/// engine that does not know the mark takes it for a migration of the future.
pub(super) const FILLING: i64 = 1_000_000;

/// The purpose of opening a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Work,
    /// Nothing is written, and no migration is made.
    Examination,
    #[cfg(feature = "sqlite")]
    Transfer,
}

/// The options for opening the database.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is one independent choice of the user")]
pub struct Options {
    /// The schema that holds the tables, created if it is missing and put first in the search path. Default:
    /// `counterfoil`. `None`: the first schema in the search path of the role.
    pub schema: Option<String>,
    /// The number of connections for reading, opened on demand. Default: 4.
    pub readers: u32,
    /// The number of connections for the user's own transactions, opened on demand. Default: 16, the number of
    /// messages that a queue consumer has in flight.
    pub guests: u32,
    /// The time for which an unused connection for reading or for the user's own transactions stays open. Default:
    /// 30 s.
    pub idle_for: Duration,
    /// Another URL to listen for hints on: no hint arrives through a pooler that shares connections between clients.
    pub listener: Option<String>,
    /// True if other workers are told at once that there is work for them, by `NOTIFY`. Otherwise they only poll.
    /// Default: true.
    pub notify: bool,
    /// True to go on although the server acknowledges commits that are not on disk yet (`synchronous_commit` weaker
    /// than `on`). After a crash of the server a call that was made may then be unknown, and be made again. Default:
    /// false.
    pub allow_async_commit: bool,
    /// True to go on although no standby confirms commits (`synchronous_standby_names` is empty) while the URL names
    /// several hosts. After the promotion of a standby a call that was made may then be unknown, and be made again.
    /// Default: false.
    pub allow_async_standby: bool,
    /// True if the server is a distributed one: each transaction writes rows of one tenant, beside those of workers and
    /// queues, which belong to none, and nothing is used that such servers lack. Designed for such servers, but not
    /// tested on any. Default: false.
    pub distributed: bool,
    /// The time within which a host must accept a connection. Default: 5 s.
    pub connect_timeout: Duration,
    /// The time for which a write waits for another session that has locked its rows, before the write is tried
    /// again. Default: 5 s.
    pub lock_timeout: Duration,
    /// The time limit of a statement. A statement that takes longer is cancelled and tried again. Default: 15 s.
    pub answer_timeout: Duration,
    /// The time for which everything is tried again while the database cannot be reached, or no connection is free.
    /// Default: 30 s.
    pub retry_for: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: Some("counterfoil".into()),
            readers: 4,
            guests: 16,
            idle_for: Duration::from_secs(30),
            listener: None,
            notify: true,
            allow_async_commit: false,
            allow_async_standby: false,
            distributed: false,
            connect_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(15),
            retry_for: Duration::from_secs(30),
        }
    }
}

pub(super) async fn open(url: &str, options: Options, opening: Opening) -> Result<Postgres, StoreError> {
    let connector = Arc::new(Connector::new(url, options)?);
    let mut connection = prepare(&connector, Purpose::Writing, opening).await?;
    let hints = listen::Hints::new(connector.clone(), &mut connection).await?;
    let writer = Writer { connection: Some(connection), ..Writer::default() };
    let pool = |purpose, size| Pool::new(connector.clone(), purpose, size);
    Ok(Postgres {
        writers: Mutex::new(Some([writer, Writer::default()])),
        readers: Queries(pool(Purpose::Reading, connector.options.readers)),
        guests: Arc::new(pool(Purpose::Guest, connector.options.guests)),
        hints,
        connector,
    })
}

/// A first connection to a database that is not refused, with its schema up to date.
pub(super) async fn prepare(
    connector: &Connector,
    purpose: Purpose,
    opening: Opening,
) -> Result<PgConnection, StoreError> {
    connector.refuse_transaction_pooling().await?;
    let mut connection = connector.connect(purpose).await.map_err(|error| match error {
        StoreError::Unreachable { detail } => {
            OpenError::Unreachable { path: connector.place(), detail }.into()
        }
        StoreError::Io { detail } => OpenError::Unusable { path: connector.place(), detail }.into(),
        error => error,
    })?;
    connector.refuse_async_standby(&mut connection).await?;
    warn_of_fsync(connector, &mut connection).await?;
    let mut patience = Patience::of(connector.options.retry_for);
    while let Err(error) = migrate(connector, &mut connection, opening).await {
        // Another process made the same step at the same time.
        let MigrateError::Driver(error) = error else { return Err(error.into_store(connector)) };
        let raced = matches!(fate(&error), Fate::Again | Fate::Verdict)
            || ["42P06", "42P07", "42710"].contains(&code(&error).as_str());
        let _ = connection.execute("ROLLBACK").await; // if the connection is lost, the next statement reports it
        if !raced || !patience.again().await {
            return Err(MigrateError::Driver(error).into_store(connector));
        }
    }
    Ok(connection)
}

/// Warns if the server runs without fsync. This is meant mostly for tests: a server in memory cannot be told from one
/// that risks its data.
async fn warn_of_fsync(connector: &Connector, connection: &mut PgConnection) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT current_setting('fsync', true)").fetch_one(connection).await;
    let fsync: Option<String> = row.and_then(|row| row.try_get(0)).map_err(|e| failure(&e))?;
    if fsync.as_deref() == Some("off") {
        let database = connector.place();
        tracing::warn!(database, "fsync is off, a power failure may lose committed data");
    }
    Ok(())
}

enum MigrateError {
    Driver(sqlx::Error),
    Open(OpenError),
}

impl From<sqlx::Error> for MigrateError {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl MigrateError {
    fn into_store(self, connector: &Connector) -> StoreError {
        match self {
            Self::Open(error) => error.into(),
            Self::Driver(error) if fate(&error) == Fate::Final => {
                OpenError::Unusable { path: connector.place(), detail: error.to_string() }.into()
            }
            Self::Driver(error) => failure(&error),
        }
    }
}

/// Applies the missing migrations. Each one is a transaction that begins with its row in the table of migrations: the
/// process that inserts the row makes the migration, and others wait for its end. So no lock must be acquired, or can
/// be left behind.
async fn migrate(
    connector: &Connector,
    connection: &mut PgConnection,
    opening: Opening,
) -> Result<(), MigrateError> {
    if opening == Opening::Examination {
        return examine(connector, connection).await;
    }
    prepare_schema(connector, connection).await?;
    let mut applied = applied(connection).await?;
    if opening != Opening::Work {
        applied.retain(|found| found.number != FILLING);
    }
    refuse_strange(connector, &applied)?;
    for migration in
        MIGRATIONS.iter().filter(|migration| applied.iter().all(|a| a.number != migration.number))
    {
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        // No limits: a DDL statement may take longer than any other statement of the engine.
        connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
        let done =
            sqlx::query("INSERT INTO migration (number, name, digest, works_from) VALUES ($1, $2, $3, $4)")
                .bind(migration.number)
                .bind(migration.name)
                .bind(digest(migration.postgres))
                .bind(migration.works_from);
        done.execute(&mut *connection).await?;
        sqlx::raw_sql(migration.postgres).execute(&mut *connection).await?;
        connection.execute("COMMIT").await?;
    }
    Ok(())
}

/// Refuses a database without a ledger, and one whose schema is older than this engine's. Nothing is written.
async fn examine(connector: &Connector, connection: &mut PgConnection) -> Result<(), MigrateError> {
    let unusable =
        |detail: String| MigrateError::Open(OpenError::Unusable { path: connector.place(), detail });
    let there = sqlx::query(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = current_schema() AND c.relname = 'migration'",
    );
    if there.fetch_optional(&mut *connection).await?.is_none() {
        return Err(unusable("it holds no ledger in this schema".to_owned()));
    }
    let applied = applied(connection).await?;
    refuse_strange(connector, &applied)?;
    let missing = MIGRATIONS.iter().find(|known| applied.iter().all(|found| found.number != known.number));
    missing.map_or(Ok(()), |missing| {
        let detail = format!(
            "its schema lacks the migration {} ({}), and this program needs {}: start an engine of this version on it",
            missing.number,
            missing.name,
            latest()
        );
        Err(unusable(detail))
    })
}

async fn prepare_schema(connector: &Connector, connection: &mut PgConnection) -> Result<(), MigrateError> {
    if let Some(schema) = &connector.options.schema {
        let there = sqlx::query("SELECT 1 FROM pg_namespace WHERE nspname = $1").bind(schema.clone());
        if there.fetch_optional(&mut *connection).await?.is_none() {
            let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}"); // a plain identifier: see `connect`
            sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *connection).await?;
        }
    }
    // IF NOT EXISTS alone is not enough: a role without the right to create can still work on existing tables.
    let there = sqlx::query(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = current_schema() AND c.relname = 'migration'",
    );
    if there.fetch_optional(&mut *connection).await?.is_none() {
        let create = "CREATE TABLE IF NOT EXISTS migration (number BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, \
                      digest TEXT NOT NULL, works_from BIGINT NOT NULL)";
        connection.execute(create).await?;
    }
    Ok(())
}

/// A migration that the database has.
struct Applied {
    number: i64,
    name: String,
    digest: String,
    works_from: i64,
}

async fn applied(connection: &mut PgConnection) -> Result<Vec<Applied>, sqlx::Error> {
    let rows = sqlx::query("SELECT number, name, digest, works_from FROM migration ORDER BY number");
    let read = |row: &sqlx::postgres::PgRow| {
        Ok(Applied {
            number: row.try_get(0)?,
            name: row.try_get(1)?,
            digest: row.try_get(2)?,
            works_from: row.try_get(3)?,
        })
    };
    rows.fetch_all(connection).await?.iter().map(read).collect()
}

/// Refuses tables that are not of this engine, and migrations of a future that this engine cannot work with.
fn refuse_strange(connector: &Connector, applied: &[Applied]) -> Result<(), MigrateError> {
    let path = || connector.place();
    for found in applied {
        match MIGRATIONS.iter().find(|migration| migration.number == found.number) {
            Some(known) if known.name == found.name && digest(known.postgres) == found.digest => {}
            Some(known) => {
                let detail = format!(
                    "its migration {} is {:?} and not {:?} of this engine, or its text differs",
                    found.number, found.name, known.name
                );
                return Err(MigrateError::Open(OpenError::Strange { path: path(), detail }));
            }
            None if found.number == FILLING => {
                let error = OpenError::Filling { path: path(), source_name: found.digest.clone() };
                return Err(MigrateError::Open(error));
            }
            None if found.number > latest() && found.works_from <= latest() => {}
            None => {
                let error = OpenError::FromTheFuture { path: path(), found: found.number, known: latest() };
                return Err(MigrateError::Open(error));
            }
        }
    }
    Ok(())
}

fn digest(sql: &str) -> String {
    hex(&Payload::stored(sql).digest().0)
}

fn code(error: &sqlx::Error) -> String {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).unwrap_or_default().into_owned()
}
