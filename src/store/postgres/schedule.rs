//! Table `schedule`: what is begun at its time.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::{Columns, StoreError, escaped, sound};
use crate::clock::Timestamp;
use crate::id::{Name, RunId, Tenant};
use crate::payload::Stored;
use crate::store::{Refusal, Schedule, ScheduleState};

/// Schedules change rarely: each is a statement of its own, inside the change's savepoint, after it was seen that its
/// worker may write. By the same rule as a run: revision 1 inserts, any other moves on by exactly one.
pub(super) async fn write(
    connection: &mut PgConnection,
    schedule: &Schedule,
) -> Result<Option<Refusal>, sqlx::Error> {
    let (sql, refusal) = if schedule.revision == 1 {
        let sql = "INSERT INTO schedule (tenant, name, workflow, version, rule, input, state, next_at, last_at, last_run, \
                   missed, revision, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
                   $13, $14) ON CONFLICT DO NOTHING";
        (sql, Refusal::Exists)
    } else {
        let sql = "UPDATE schedule SET workflow = $3, version = $4, rule = $5, input = $6, state = $7, next_at = $8, \
                   last_at = $9, last_run = $10, missed = $11, revision = $12, created_at = $13, updated_at = $14 \
                   WHERE tenant = $1 AND name = $2 AND revision = $12 - 1";
        (sql, Refusal::Stale)
    };
    let written = sqlx::query(sql)
        .bind(schedule.tenant.as_str())
        .bind(schedule.name.as_str())
        .bind(schedule.workflow.as_str())
        .bind(i64::from(schedule.version))
        .bind(escaped(&schedule.rule).into_owned())
        .bind(escaped(&schedule.input.column()).into_owned())
        .bind(schedule.state.code())
        .bind(schedule.next_at.map(|at| at.0))
        .bind(schedule.last_at.map(|at| at.0))
        .bind(schedule.last_run.map(|run| run.0))
        .bind(i64::from(schedule.missed))
        .bind(i64::from(schedule.revision))
        .bind(schedule.created_at.0)
        .bind(schedule.updated_at.0)
        .persistent(false)
        .execute(connection)
        .await?;
    Ok((written.rows_affected() == 0).then_some(refusal))
}

fn read(row: &PgRow) -> Result<Schedule, StoreError> {
    let mut c = Columns::of("schedule", row);
    Ok(Schedule {
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        name: c.parse_text(|text| Name::new(text).ok())?,
        workflow: c.parse_text(|text| Name::new(text).ok())?,
        version: c.count()?,
        rule: c.text()?,
        input: c.parse_text(Stored::from_column)?,
        state: c.parse(ScheduleState::from_code)?,
        next_at: c.take::<Option<i64>>()?.map(Timestamp),
        last_at: c.take::<Option<i64>>()?.map(Timestamp),
        last_run: c.take::<Option<i64>>()?.map(RunId),
        missed: c.count()?,
        revision: c.count()?,
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

pub(super) async fn find(pool: &Pool, tenant: &Tenant, name: &str) -> Result<Option<Schedule>, StoreError> {
    let query = || {
        sqlx::query(select!("WHERE tenant = $1 AND name = $2"))
            .bind(tenant.as_str().to_owned())
            .bind(escaped(name).into_owned())
    };
    pool.optional(query).await?.as_ref().map(read).transpose()
}

pub(super) async fn list(
    pool: &Pool,
    tenant: &Tenant,
    after: &str,
    limit: u32,
) -> Result<Vec<Schedule>, StoreError> {
    let query = || {
        sqlx::query(select!("WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3"))
            .bind(tenant.as_str().to_owned())
            .bind(escaped(after).into_owned())
            .bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, read))
}

pub(super) async fn due(pool: &Pool, until: Timestamp, limit: u32) -> Result<Vec<Schedule>, StoreError> {
    let query = || {
        sqlx::query(select!("WHERE next_at <= $1 ORDER BY next_at, tenant, name LIMIT $2"))
            .bind(until.0)
            .bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, read))
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut PgConnection,
    schedule: &Schedule,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(select!("WHERE tenant = $1 AND name = $2"));
    let query = query.bind(schedule.tenant.as_str()).bind(schedule.name.as_str()).persistent(false);
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *schedule)))
}
