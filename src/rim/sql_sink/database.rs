//! The two kinds of databases that rows are written to.

use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Database as Kind, Encode, Executor, IntoArguments, Pool, Type};

use super::statement::{EventField, Statement};
use crate::outbox::{Event, SinkError};

/// A pool of connections to another database than the ledger's.
#[derive(Clone, Debug)]
pub(super) enum Database {
    #[cfg(feature = "sqlite")]
    Sqlite(Pool<sqlx::Sqlite>),
    #[cfg(feature = "postgres")]
    Postgres(Pool<sqlx::Postgres>),
}

impl Database {
    /// PostgreSQL has a type for JSON.
    pub(super) const fn has_jsonb(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => false,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
        }
    }

    /// Writes the rows of these events, in their order: all of them, or none.
    pub(super) async fn write(&self, statement: &Statement, events: &[Event]) -> Result<(), SinkError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(pool) => write(pool, statement, events, refuses_sqlite).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => write(pool, statement, events, refuses_postgres).await,
        }
    }
}

async fn write<D>(
    pool: &Pool<D>,
    statement: &Statement,
    events: &[Event],
    refuses: fn(&dyn DatabaseError) -> bool,
) -> Result<(), SinkError>
where
    D: Kind,
    D::Arguments: IntoArguments<D>,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> String: Encode<'q, D> + Type<D>,
    for<'q> i64: Encode<'q, D> + Type<D>,
{
    let failed = |error: sqlx::Error| sink_error(&error, refuses);
    let mut transaction = pool.begin().await.map_err(failed)?;
    for event in events {
        let mut query = sqlx::query(AssertSqlSafe(statement.sql.clone()));
        for field in &statement.parameters {
            query = match field {
                EventField::Id => query.bind(event.id.clone()),
                EventField::Tenant => query.bind(event.tenant.as_str().to_owned()),
                EventField::Aggregate => query.bind(event.aggregate.clone()),
                EventField::Seq => query.bind(event.seq),
                EventField::Kind => query.bind(event.kind.clone()),
                EventField::Payload | EventField::PayloadJsonb => {
                    query.bind(event.payload.as_str().to_owned())
                }
                EventField::CreatedAt => query.bind(event.created_at.0),
            };
        }
        query.execute(&mut *transaction).await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

/// A row that breaks a rule is the event's own fault. All else is the database's, or of whoever has set it up: a table that is
/// missing is no reason to set every aggregate aside.
fn sink_error(error: &sqlx::Error, refuses: fn(&dyn DatabaseError) -> bool) -> SinkError {
    match error {
        sqlx::Error::Database(said) if refuses(&**said) => {
            let rule = said.constraint().map(|name| format!(", {name}")).unwrap_or_default();
            // Its words may quote the row.
            SinkError::refused(format!(
                "the row was refused (code {}{rule})",
                said.code().unwrap_or_default()
            ))
        }
        sqlx::Error::Encode(_) => SinkError::refused("the row cannot be written down for this database"),
        error => SinkError::unavailable(error.to_string()),
    }
}

/// Data exceptions, integrity violations, program limits, and what a trigger raises.
#[cfg(feature = "postgres")]
fn refuses_postgres(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| ["22", "23", "54", "P0"].iter().any(|class| code.starts_with(class)))
}

/// `SQLITE_TOOBIG`, `SQLITE_CONSTRAINT` (what a trigger raises is one) and `SQLITE_MISMATCH`, with their extended codes.
#[cfg(feature = "sqlite")]
fn refuses_sqlite(error: &dyn DatabaseError) -> bool {
    let code = error.code().and_then(|code| code.parse::<i32>().ok());
    code.is_some_and(|code| matches!(code & 0xff, 18..=20))
}
