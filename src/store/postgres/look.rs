//! Table `look`: records that are looked up again.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::statement::{Batch, Insert, Values};
use super::{Columns, StoreError, sound};
use crate::clock::Timestamp;
use crate::id::{RecordId, Tenant};
use crate::ledger::{Look, Reason};
use crate::store::Change;
use crate::store::row::Put as _;
use crate::store::table::{Column, flag, number, text};

const COLUMNS: &[Column] = &[
    text("tenant"),
    number("record"),
    number("revision"),
    number("reason"),
    number("due_at"),
    number("since"),
    number("made"),
    number("tries"),
    flag("missed"),
];

/// A new one.
pub(super) static INSERT: Insert = Insert {
    name: "look_new",
    table: "look",
    columns: COLUMNS,
    constants: &[],
    tail: "ON CONFLICT DO NOTHING",
    holds: Some("true"),
};

/// Moves one on by exactly one revision. By way of a row that is never inserted, with a revision below zero: see `record`.
pub(super) static MOVE: Insert = Insert {
    name: "look_moved",
    table: "look",
    columns: COLUMNS,
    constants: &[],
    tail: "ON CONFLICT (tenant, record) DO UPDATE SET reason = excluded.reason, due_at = excluded.due_at, \
           since = excluded.since, made = excluded.made, tries = excluded.tries, missed = excluded.missed, \
           revision = -excluded.revision WHERE look.revision = -excluded.revision - 1",
    holds: Some("revision > 0"),
};

/// One is taken off: at the revision before.
pub(super) static TAKE: Insert = Insert {
    name: "look_taken",
    table: "look",
    columns: &[text("tenant"), number("record"), number("revision")],
    constants: &[],
    tail: "look.tenant = taken.tenant AND look.record = taken.record AND look.revision = taken.revision - 1",
    holds: Some("true"),
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().filter_map(|change| change.look.as_deref()).collect();
    rows.sort_by_key(|look| (look.tenant.as_str(), look.record));
    let to_come = rows.iter().filter_map(|look| Some((*look, look.due_at?)));
    let (new, moved): (Vec<_>, Vec<_>) = to_come.partition(|(look, _)| look.revision == 1);
    let bind = |look: &Look, revision: i64, due_at: Timestamp, row: &mut Values<'_>| {
        row.text(look.tenant.as_str())
            .number(look.record.0)
            .number(revision)
            .number(look.reason.code())
            .number(due_at.0)
            .number(look.since.0)
            .number(i64::from(look.made))
            .number(i64::from(look.tries))
            .flag(look.missed);
    };
    batch.insert(&INSERT, &new, |(look, at), row| bind(look, i64::from(look.revision), *at, row));
    batch.insert(&MOVE, &moved, |(look, at), row| bind(look, -i64::from(look.revision), *at, row));
    rows.retain(|look| look.due_at.is_none());
    batch.insert(&TAKE, &rows, |look, row| {
        row.text(look.tenant.as_str()).number(look.record.0).number(i64::from(look.revision));
    });
}

fn read(row: &PgRow) -> Result<Look, StoreError> {
    let mut c = Columns::of("look", row);
    Ok(Look {
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        record: RecordId(c.take()?),
        revision: c.count()?,
        reason: c.parse(Reason::from_code)?,
        due_at: Some(Timestamp(c.take()?)),
        since: Timestamp(c.take()?),
        made: c.count()?,
        tries: c.count()?,
        missed: c.take()?,
    })
}

const FIND: &str = "SELECT tenant, record, revision, reason, due_at, since, made, tries, missed FROM look \
                    WHERE tenant = $1 AND record = $2";

pub(super) async fn find(pool: &Pool, tenant: &Tenant, record: RecordId) -> Result<Option<Look>, StoreError> {
    let query = || sqlx::query(FIND).bind(tenant.as_str()).bind(record.0);
    pool.optional(query).await?.as_ref().map(read).transpose()
}

pub(super) async fn due(pool: &Pool, until: Timestamp, limit: u32) -> Result<Vec<Look>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT tenant, record, revision, reason, due_at, since, made, tries, missed FROM look \
             WHERE due_at <= $1 ORDER BY due_at, tenant, record LIMIT $2",
        )
        .bind(until.0)
        .bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, read))
}

/// The row stands, or is gone, as this change would have left it (see `record::is_written`).
pub(super) async fn is_written(connection: &mut PgConnection, look: &Look) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(FIND).persistent(false).bind(look.tenant.as_str()).bind(look.record.0);
    Ok(match query.fetch_optional(connection).await? {
        Some(row) => read(&row).is_ok_and(|stored| stored == *look),
        None => look.due_at.is_none(),
    })
}
