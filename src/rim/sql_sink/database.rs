//! The two kinds of databases that rows are written to.

use sqlx::error::DatabaseError;
use sqlx::{AssertSqlSafe, Database as Kind, Encode, Executor, IntoArguments, Pool, Type};

use super::statement::{EventField, Statement};
use crate::exec::outbox::{Event, SinkError};

/// A pool of connections to another database than the ledger's.
#[derive(Clone, Debug)]
pub(super) enum Database {
    #[cfg(feature = "sqlite")]
    Sqlite(Pool<sqlx::Sqlite>),
    #[cfg(feature = "postgres")]
    Postgres(Pool<sqlx::Postgres>),
}

impl Database {
    /// True if the database has a type for JSON, as PostgreSQL has.
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
            Self::Sqlite(pool) => write(pool, statement, events, refusal_by_sqlite).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(pool) => write(pool, statement, events, refusal_by_postgres).await,
        }
    }
}

async fn write<D>(
    pool: &Pool<D>,
    statement: &Statement,
    events: &[Event],
    refusal: Refusal,
) -> Result<(), SinkError>
where
    D: Kind,
    D::Arguments: IntoArguments<D>,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> String: Encode<'q, D> + Type<D>,
    for<'q> i64: Encode<'q, D> + Type<D>,
{
    let failed = |error: sqlx::Error| sink_error(&error, refusal);
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

/// The reason why a row was refused, without the row's data; `None` if the error is not about the row.
type Refusal = fn(&dyn DatabaseError) -> Option<String>;

/// The error of the sink. A row that violates a constraint is the event's own fault. All other errors are those of
/// the database or its setup: a missing table is no reason to set every aggregate aside.
fn sink_error(error: &sqlx::Error, refusal: Refusal) -> SinkError {
    match error {
        sqlx::Error::Database(said) => match refusal(&**said) {
            Some(why) => SinkError::refused(format!("the row was refused: {why}")),
            None => SinkError::unavailable(error.to_string()),
        },
        sqlx::Error::Encode(_) => SinkError::refused("the row cannot be written down for this database"),
        error => SinkError::unavailable(error.to_string()),
    }
}

/// Integrity violations, program limits, errors that a trigger raises, and data exceptions, whose messages quote the
/// data.
#[cfg(feature = "postgres")]
fn refusal_by_postgres(error: &dyn DatabaseError) -> Option<String> {
    let code = error.code()?;
    match code.get(..2)? {
        "23" | "54" | "P0" => Some(format!("{} ({code})", error.message())),
        "22" => Some(format!("data exception ({code})")),
        _ => None,
    }
}

/// `SQLITE_TOOBIG`, `SQLITE_CONSTRAINT` (also for errors that a trigger raises) and `SQLITE_MISMATCH`, with their
/// extended codes.
#[cfg(feature = "sqlite")]
fn refusal_by_sqlite(error: &dyn DatabaseError) -> Option<String> {
    let code: i32 = error.code()?.parse().ok()?;
    matches!(code & 0xff, 18..=20).then(|| error.message().to_owned())
}
