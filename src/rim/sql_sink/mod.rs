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
/// The table is yours. By default its columns are those of this definition, and its key tells a replay from a new event:
///
/// ```sql
/// CREATE TABLE event (
///     tenant TEXT NOT NULL, id TEXT NOT NULL, aggregate TEXT NOT NULL, seq BIGINT NOT NULL, kind TEXT NOT NULL,
///     payload TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (tenant, id)
/// );
/// ```
///
/// A row that is there is left as it is. A batch is one transaction; if a row in it is refused, each event is written by itself, so that
/// the refused one holds back its own aggregate alone. Refused is a row that breaks a rule of the table. Whatever else fails (no
/// connection, no table, no right, no time) puts the sink off.
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
    /// Into a table of a SQLite database. A batch that is not written within `timeout` is put off.
    ///
    /// # Errors
    /// If no table can have this name.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(
        pool: sqlx::SqlitePool,
        table: impl Into<String>,
        timeout: Duration,
    ) -> Result<Self, SqlSinkError> {
        Self::new(Database::Sqlite(pool), table.into(), timeout)
    }

    /// Into a table of a PostgreSQL database: `table`, or `schema.table`. A batch that is not written within `timeout` is put off.
    ///
    /// # Errors
    /// If no table can have this name.
    #[cfg(feature = "postgres")]
    pub fn postgres(
        pool: sqlx::PgPool,
        table: impl Into<String>,
        timeout: Duration,
    ) -> Result<Self, SqlSinkError> {
        Self::new(Database::Postgres(pool), table.into(), timeout)
    }

    /// The columns of the table that are written, and what they hold. There must be one for the id. With one for the tenant, the
    /// table's key is both; without, all events are taken for one tenant's.
    ///
    /// # Errors
    /// If no column can have one of these names, or a field that tells rows apart has none.
    pub fn columns<N: Into<String>>(
        self,
        columns: impl IntoIterator<Item = (EventField, N)>,
    ) -> Result<Self, SqlSinkError> {
        let columns = columns.into_iter().map(|(field, name)| (field, name.into())).collect();
        Self { columns, ..self }.stated()
    }

    /// One row for each aggregate instead of one for each event: that of its newest event, by its sequence. An older event never
    /// overwrites a newer one. The table's key is tenant and aggregate.
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
