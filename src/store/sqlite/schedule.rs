//! Table `schedule`: what is begun at its time.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::{Columns, StoreError, failure, sound};
use crate::clock::Timestamp;
use crate::id::{Name, RunId, Tenant};
use crate::payload::Stored;
use crate::store::{Schedule, ScheduleState};

/// Schedules change rarely: each is a statement of its own, inside the change's savepoint, after it was seen that its
/// worker may write. By the same rule as a run: revision 1 inserts, any other moves on by exactly one.
pub(super) async fn write(connection: &mut SqliteConnection, schedule: &Schedule) -> Result<(), sqlx::Error> {
    let sql = if schedule.revision == 1 {
        "INSERT INTO schedule (tenant, name, workflow, version, rule, input, state, next_at, last_at, last_run, missed, \
         revision, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    } else {
        "UPDATE schedule SET workflow = ?3, version = ?4, rule = ?5, input = ?6, state = ?7, next_at = ?8, last_at = ?9, \
         last_run = ?10, missed = ?11, revision = ?12, created_at = ?13, updated_at = ?14 \
         WHERE tenant = ?1 AND name = ?2 AND revision = ?12 - 1"
    };
    let written = sqlx::query(sql)
        .bind(schedule.tenant.text())
        .bind(schedule.name.text())
        .bind(schedule.workflow.text())
        .bind(i64::from(schedule.version))
        .bind(schedule.rule.clone())
        .bind(schedule.input.column())
        .bind(schedule.state.code())
        .bind(schedule.next_at.map(|at| at.0))
        .bind(schedule.last_at.map(|at| at.0))
        .bind(schedule.last_run.map(|run| run.0))
        .bind(i64::from(schedule.missed))
        .bind(i64::from(schedule.revision))
        .bind(schedule.created_at.0)
        .bind(schedule.updated_at.0)
        .execute(connection)
        .await?;
    if written.rows_affected() == 0 { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
}

fn read(row: &SqliteRow) -> Result<Schedule, StoreError> {
    let mut c = Columns::of("schedule", row);
    Ok(Schedule {
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        name: c.parse(|text: String| Name::new(text).ok())?,
        workflow: c.parse(|text: String| Name::new(text).ok())?,
        version: c.take()?,
        rule: c.take()?,
        input: c.parse(Stored::from_column)?,
        state: c.parse(ScheduleState::from_code)?,
        next_at: c.take::<Option<i64>>()?.map(Timestamp),
        last_at: c.take::<Option<i64>>()?.map(Timestamp),
        last_run: c.take::<Option<i64>>()?.map(RunId),
        missed: c.take()?,
        revision: c.take()?,
        created_at: Timestamp(c.take()?),
        updated_at: Timestamp(c.take()?),
    })
}

/// All queries read the same columns.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT tenant, name, workflow, version, rule, input, state, next_at, last_at, last_run, missed, revision, \
             created_at, updated_at FROM schedule ",
            $tail
        )
    };
}

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    name: &str,
) -> Result<Option<Schedule>, StoreError> {
    let query =
        sqlx::query(select!("WHERE tenant = ? AND name = ?")).bind(tenant.text()).bind(name.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn list(
    pool: &SqlitePool,
    tenant: &Tenant,
    after: &str,
    limit: u32,
) -> Result<Vec<Schedule>, StoreError> {
    let query = sqlx::query(select!("WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?"));
    let query = query.bind(tenant.text()).bind(after.to_owned()).bind(limit);
    Ok(sound(&query.fetch_all(pool).await.map_err(|e| failure(&e))?, read))
}

pub(super) async fn due(
    pool: &SqlitePool,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Schedule>, StoreError> {
    let query = sqlx::query(select!("WHERE next_at <= ? ORDER BY next_at, tenant, name LIMIT ?"));
    let rows = query.bind(until.0).bind(limit).fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(sound(&rows, read))
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    schedule: &Schedule,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(select!("WHERE tenant = ? AND name = ?"));
    let query = query.bind(schedule.tenant.text()).bind(schedule.name.text());
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *schedule)))
}
