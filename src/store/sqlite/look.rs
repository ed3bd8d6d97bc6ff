//! Table `look`: records that are looked up again.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::statement::{Batch, Insert};
use super::{Columns, StoreError, failure, sound};
use crate::clock::Timestamp;
use crate::id::{RecordId, Tenant};
use crate::ledger::{Look, Reason};
use crate::store::Change;

/// Inserts a look at revision 1, or moves one on by exactly one revision; without an instant it goes. A fenced worker's
/// record becomes NULL, and so does a revision that does not follow; where there is none to move on, a trigger objects.
static UPSERT: Insert = Insert {
    head: "INSERT INTO look (tenant, record, revision, reason, due_at, since, made, tries, missed) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column10 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6, column7, column8, column9",
    columns: 10,
    tail: "ON CONFLICT (tenant, record) DO UPDATE SET reason = excluded.reason, due_at = excluded.due_at, \
           since = excluded.since, made = excluded.made, tries = excluded.tries, missed = excluded.missed, \
           revision = CASE WHEN look.revision = excluded.revision - 1 THEN excluded.revision END",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows: Vec<_> = changes.iter().filter_map(|c| Some((c.look.as_deref()?, c.fence))).collect();
    batch.insert(&UPSERT, &rows, |(look, writer), row| {
        row.value(look.tenant.text())
            .value(look.record.0)
            .value(i64::from(look.revision))
            .value(look.reason.code())
            .value(look.due_at.map(|at| at.0))
            .value(look.since.0)
            .value(i64::from(look.made))
            .value(i64::from(look.tries))
            .value(i64::from(look.missed))
            .value(writer.map(|fence| fence.0));
    });
}

fn read(row: &SqliteRow) -> Result<Look, StoreError> {
    let mut c = Columns::of("look", row);
    Ok(Look {
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        record: RecordId(c.take()?),
        revision: c.take()?,
        reason: c.parse(Reason::from_code)?,
        due_at: c.take::<Option<i64>>()?.map(Timestamp),
        since: Timestamp(c.take()?),
        made: c.take()?,
        tries: c.take()?,
        missed: c.take()?,
    })
}

const FIND: &str = "SELECT tenant, record, revision, reason, due_at, since, made, tries, missed FROM look \
                    WHERE tenant = ? AND record = ?";

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    record: RecordId,
) -> Result<Option<Look>, StoreError> {
    let query = sqlx::query(FIND).bind(tenant.text()).bind(record.0);
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn due(pool: &SqlitePool, until: Timestamp, limit: u32) -> Result<Vec<Look>, StoreError> {
    let query = sqlx::query(
        "SELECT tenant, record, revision, reason, due_at, since, made, tries, missed FROM look \
         WHERE due_at <= ? ORDER BY due_at, tenant, record LIMIT ?",
    );
    let rows = query.bind(until.0).bind(limit).fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(sound(&rows, read))
}

/// The row stands, or is gone, as this change would have left it (see `record::is_written`).
pub(super) async fn is_written(connection: &mut SqliteConnection, look: &Look) -> Result<bool, sqlx::Error> {
    let row =
        sqlx::query(FIND).bind(look.tenant.text()).bind(look.record.0).fetch_optional(connection).await?;
    Ok(match row {
        Some(row) => read(&row).is_ok_and(|stored| stored == *look),
        None => look.due_at.is_none(),
    })
}
