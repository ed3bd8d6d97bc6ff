//! A sink into a table of another database: a replay changes nothing.

mod database;
mod statement;

use std::time::Duration;

use database::Database;
pub use statement::{EventField, SqlSinkError};
use statement::{Rows, Statement};

use super::in_order::by_aggregate;
use crate::clock::{Clock as _, SystemClock};
use crate::exec::outbox::{Event, PublishResult, Sink, SinkError};

/// Writes each event as a row into a table of another database. Feature `sink-sql`.
///
/// The table is yours. By default its columns are those of this definition, whose key distinguishes a replay from a
/// new event:
///
/// ```sql
/// CREATE TABLE event (
///     tenant TEXT NOT NULL, id TEXT NOT NULL, aggregate TEXT NOT NULL, seq BIGINT NOT NULL, kind TEXT NOT NULL,
///     payload TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (tenant, id)
/// );
/// ```
///
/// An existing row is unchanged. A batch is one transaction; if a row in it is refused, each event is written
/// separately, so that the refused event holds back only its own aggregate. A row that violates a constraint of the
/// table is refused. Any other failure (no connection, no table, no permission, no time) defers the sink.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use std::time::Duration;
/// use counterfoil::{Engine, EventField, SqlSink};
/// use sqlx::SqlitePool;
///
/// let reports = SqlitePool::connect_lazy("sqlite:reports.db")?;
/// let sink = SqlSink::sqlite(reports, "event", Duration::from_secs(5))?
///     .columns([(EventField::Tenant, "customer"), (EventField::Id, "event_id"), (EventField::Payload, "body")])?;
/// let engine = Engine::sqlite("agents.db").sink(sink);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqlSink {
    database: Database,
    table: String,
    columns: Vec<(EventField, String)>,
    rows: Rows,
    statement: Statement,
    timeout: Duration,
}

impl SqlSink {
    /// A sink into a table of a SQLite database. A batch that is not written within `timeout` is deferred.
    ///
    /// # Errors
    /// If the name cannot be that of a table.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(
        pool: sqlx::SqlitePool,
        table: impl Into<String>,
        timeout: Duration,
    ) -> Result<Self, SqlSinkError> {
        Self::new(Database::Sqlite(pool), table.into(), timeout)
    }

    /// A sink into a table of a PostgreSQL database: `table`, or `schema.table`. A batch that is not written within
    /// `timeout` is deferred.
    ///
    /// # Errors
    /// If the name cannot be that of a table.
    #[cfg(feature = "postgres")]
    pub fn postgres(
        pool: sqlx::PgPool,
        table: impl Into<String>,
        timeout: Duration,
    ) -> Result<Self, SqlSinkError> {
        Self::new(Database::Postgres(pool), table.into(), timeout)
    }

    /// Sets the columns of the table, and their contents. A column for the id is required. With a column for the
    /// tenant, the table's key is tenant and id; without one, all events are taken to be those of one tenant.
    ///
    /// # Errors
    /// If a name cannot be that of a column, or a field of the key has no column.
    pub fn columns<N: Into<String>>(
        self,
        columns: impl IntoIterator<Item = (EventField, N)>,
    ) -> Result<Self, SqlSinkError> {
        let columns = columns.into_iter().map(|(field, name)| (field, name.into())).collect();
        Self { columns, ..self }.stated()
    }

    /// Writes one row for each aggregate instead of one for each event: that of its newest event, by its sequence. An
    /// older event never overwrites a newer one. The table's key is tenant and aggregate.
    ///
    /// # Errors
    /// If no column holds the aggregate, or the sequence.
    pub fn newest_of_each_aggregate(self) -> Result<Self, SqlSinkError> {
        Self { rows: Rows::OfAggregates, ..self }.stated()
    }

    fn new(database: Database, table: String, timeout: Duration) -> Result<Self, SqlSinkError> {
        let columns = [
            (EventField::Tenant, "tenant"),
            (EventField::Id, "id"),
            (EventField::Aggregate, "aggregate"),
            (EventField::Seq, "seq"),
            (EventField::Kind, "kind"),
            (EventField::Payload, "payload"),
            (EventField::CreatedAt, "created_at"),
        ];
        let columns: Vec<_> = columns.map(|(field, name)| (field, name.to_owned())).into();
        let rows = Rows::OfEvents;
        let statement = Statement::new(&table, &columns, rows, database.has_jsonb())?;
        Ok(Self { database, table, columns, rows, statement, timeout })
    }

    fn stated(self) -> Result<Self, SqlSinkError> {
        let statement = Statement::new(&self.table, &self.columns, self.rows, self.database.has_jsonb())?;
        Ok(Self { statement, ..self })
    }

    async fn write(&self, events: &[Event]) -> Result<(), SinkError> {
        tokio::select! {
            biased;
            written = self.database.write(&self.statement, events) => written,
            () = SystemClock.sleep(self.timeout) => Err(SinkError::unavailable("the database answers late")),
        }
    }
}

impl Sink for SqlSink {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        match self.write(batch).await {
            Ok(()) => Ok(PublishResult::all()),
            Err(error) if error.is_refusal() => {
                by_aggregate(batch, |event| Box::pin(self.write(std::slice::from_ref(event)))).await
            }
            Err(error) => Err(error),
        }
    }
}
