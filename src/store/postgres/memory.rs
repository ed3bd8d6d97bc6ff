//! Tables `memory_shelf`, `memory`, `memory_form` and `memory_contradiction`: what is remembered.

use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;

use super::pool::Pool;
use super::{Columns, StoreError, escaped, failure, memory_source, sound};
use crate::clock::Timestamp;
use crate::id::{MemoryId, Name, Tenant};
use crate::store::{Contradiction, Difference, Forgotten, KeyedDigest, Memory, MemoryWrite, Refusal, Shelf};

pub(super) type Statement<'q> = Query<'q, sqlx::Postgres, PgArguments>;

/// Each table is a statement of its own, inside the change's savepoint, after it was seen that its worker may write. What
/// is not as it was when the write was decided upon makes no row: no constraint is violated, which would show in the
/// server's log.
pub(super) async fn write(
    connection: &mut PgConnection,
    write: &MemoryWrite,
) -> Result<Option<Refusal>, sqlx::Error> {
    let taken = Ok(Some(Refusal::Exists));
    // First: from here on until the end of the transaction nobody else writes to the shelf.
    if rows(connection, place_of(write)).await? == 0 || rows(connection, row_of(write)).await? == 0 {
        return taken;
    }
    let Memory { tenant, id, subject, kind, .. } = &write.memory;
    if let Some(form) = &write.form {
        let sql = "INSERT INTO memory_form (tenant, subject, kind, digest, memory) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT DO NOTHING";
        let query = sqlx::query(sql).bind(tenant.as_str()).bind(escaped(subject)).bind(kind.as_str());
        if rows(connection, query.bind(form.as_slice()).bind(id.0)).await? == 0 {
            return taken;
        }
    }
    if let Some(source) = &write.source
        && rows(connection, memory_source::statement(source)).await? == 0
    {
        return taken;
    }
    for mark in write.marks() {
        let sql = "INSERT INTO memory_contradiction (tenant, memory, other, differs) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT DO NOTHING";
        let query = sqlx::query(sql).bind(tenant.as_str()).bind(mark.memory.0).bind(mark.other.0);
        rows(connection, query.bind(mark.differs.code())).await?;
    }
    if write.memory.forgotten.is_some() {
        forget(connection, &write.memory).await?;
    }
    Ok(None)
}

async fn rows(connection: &mut PgConnection, query: Statement<'_>) -> Result<u64, sqlx::Error> {
    Ok(query.persistent(false).execute(connection).await?.rows_affected())
}

fn place_of(write: &MemoryWrite) -> Statement<'_> {
    let Memory { tenant, subject, kind, .. } = &write.memory;
    let sql = if write.place == 1 {
        "INSERT INTO memory_shelf (tenant, subject, kind, place) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
    } else {
        "UPDATE memory_shelf SET place = $4 WHERE tenant = $1 AND subject = $2 AND kind = $3 AND place = $4 - 1"
    };
    sqlx::query(sql).bind(tenant.as_str()).bind(escaped(subject)).bind(kind.as_str()).bind(write.place)
}

fn row_of(write: &MemoryWrite) -> Statement<'_> {
    let sql = if write.is_new() {
        "INSERT INTO memory (tenant, id, subject, kind, place, content, digest, confidence, sources, created_at, updated_at, \
         forgotten_at, forgotten_by, reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         ON CONFLICT DO NOTHING"
    } else {
        "UPDATE memory SET content = $6, digest = $7, confidence = $8, sources = $9, created_at = $10, updated_at = $11, \
         forgotten_at = $12, forgotten_by = $13, reason = $14 WHERE tenant = $1 AND id = $2 AND subject = $3 \
         AND kind = $4 AND place = $5 AND forgotten_at IS NULL"
    };
    let memory = &write.memory;
    let forgotten = memory.forgotten.as_ref();
    sqlx::query(sql)
        .bind(memory.tenant.as_str())
        .bind(memory.id.0)
        .bind(escaped(&memory.subject))
        .bind(memory.kind.as_str())
        .bind(memory.place)
        .bind(escaped(&memory.content))
        .bind(memory.digest.as_slice())
        .bind(i64::from(memory.confidence))
        .bind(i64::from(memory.sources))
        .bind(memory.created_at.0)
        .bind(memory.updated_at.0)
        .bind(forgotten.map(|forgotten| forgotten.at.0))
        .bind(forgotten.map(|forgotten| escaped(&forgotten.by)))
        .bind(forgotten.map(|forgotten| escaped(&forgotten.reason)))
}

/// What may be said again as something new, and the words.
async fn forget(connection: &mut PgConnection, memory: &Memory) -> Result<(), sqlx::Error> {
    for sql in [
        "DELETE FROM memory_form WHERE tenant = $1 AND memory = $2",
        "DELETE FROM memory_contradiction WHERE tenant = $1 AND other = $2 \
         AND memory = ANY(ARRAY(SELECT other FROM memory_contradiction WHERE tenant = $1 AND memory = $2))",
        "DELETE FROM memory_contradiction WHERE tenant = $1 AND memory = $2",
        "UPDATE memory_source SET source = '', content = '' WHERE tenant = $1 AND memory = $2",
    ] {
        rows(connection, sqlx::query(sql).bind(memory.tenant.as_str()).bind(memory.id.0)).await?;
    }
    Ok(())
}

pub(super) fn digest(bytes: Vec<u8>) -> Option<KeyedDigest> {
    bytes.try_into().ok()
}

fn read(row: &PgRow) -> Result<Memory, StoreError> {
    let mut c = Columns::of("memory", row);
    let mut memory = Memory {
        id: MemoryId(c.take()?),
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        subject: c.text()?,
        kind: c.parse_text(|text| Name::new(text).ok())?,
        place: c.take()?,
        content: c.text()?,
        digest: c.parse(digest)?,
        confidence: c.count()?,
        sources: c.count()?,
        created_at: Timestamp(c.take()?),
        updated_at: Timestamp(c.take()?),
        forgotten: None,
    };
    let at: Option<i64> = c.take()?;
    if let Some(at) = at {
        memory.forgotten = Some(Forgotten { by: c.text()?, reason: c.text()?, at: Timestamp(at) });
    }
    Ok(memory)
}

/// All queries read the same columns, the id first: it names a row that is damaged.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT m.id, m.tenant, m.subject, m.kind, m.place, m.content, m.digest, m.confidence, m.sources, m.created_at, \
             m.updated_at, m.forgotten_at, m.forgotten_by, m.reason FROM ",
            $tail
        )
    };
}

pub(super) async fn find(pool: &Pool, tenant: &Tenant, id: MemoryId) -> Result<Option<Memory>, StoreError> {
    let query = || {
        sqlx::query(select!("memory m WHERE m.tenant = $1 AND m.id = $2"))
            .bind(tenant.as_str().to_owned())
            .bind(id.0)
    };
    pool.optional(query).await?.as_ref().map(read).transpose()
}

/// The place first: what is written in between shows by it.
pub(super) async fn shelf(
    pool: &Pool,
    tenant: &Tenant,
    subject: &str,
    kind: &str,
    form: &KeyedDigest,
    newest: u32,
) -> Result<Shelf, StoreError> {
    use sqlx::Row as _;
    let on_it = |sql: &'static str| {
        let query = sqlx::query(sql).bind(tenant.as_str().to_owned()).bind(escaped(subject).into_owned());
        query.bind(escaped(kind).into_owned())
    };
    let sql = "SELECT place FROM memory_shelf WHERE tenant = $1 AND subject = $2 AND kind = $3";
    let Some(row) = pool.optional(|| on_it(sql)).await? else { return Ok(Shelf::default()) };
    let place = row.try_get(0).map_err(|e| failure(&e))?;
    let sql = select!(
        "memory_form f JOIN memory m ON m.tenant = f.tenant AND m.id = f.memory \
         WHERE f.tenant = $1 AND f.subject = $2 AND f.kind = $3 AND f.digest = $4"
    );
    let same = pool.optional(|| on_it(sql).bind(form.to_vec())).await?;
    let same = same.as_ref().map(read).transpose()?;
    Ok(Shelf { place, same, newest: list(pool, tenant, subject, kind, i64::MAX, newest).await? })
}

pub(super) async fn list(
    pool: &Pool,
    tenant: &Tenant,
    subject: &str,
    kind: &str,
    before: i64,
    limit: u32,
) -> Result<Vec<Memory>, StoreError> {
    use sqlx::Row as _;
    let mut before = before;
    loop {
        let query = || {
            sqlx::query(select!(
                "memory m WHERE m.tenant = $1 AND m.subject = $2 AND m.kind = $3 AND m.place < $4 \
                 AND m.forgotten_at IS NULL ORDER BY m.place DESC LIMIT $5"
            ))
            .bind(tenant.as_str().to_owned())
            .bind(escaped(subject).into_owned())
            .bind(escaped(kind).into_owned())
            .bind(before)
            .bind(i64::from(limit))
        };
        let rows = pool.all(query).await?;
        let Some(last) = rows.last() else { return Ok(Vec::new()) };
        before = last.try_get_unchecked(4).map_err(|e| failure(&e))?;
        let sound = sound(&rows, read);
        if !sound.is_empty() {
            return Ok(sound); // an empty page would say that the list ends here
        }
    }
}

pub(super) async fn contradictions(
    pool: &Pool,
    tenant: &Tenant,
    ids: &[MemoryId],
) -> Result<Vec<Contradiction>, StoreError> {
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    let query = || {
        sqlx::query(
            "SELECT memory, other, differs FROM memory_contradiction WHERE tenant = $1 AND memory = ANY($2) \
             ORDER BY memory, other",
        )
        .bind(tenant.as_str().to_owned())
        .bind(ids.clone())
    };
    let read = |row: &PgRow| {
        let mut c = Columns::of("contradiction of memory", row);
        Ok(Contradiction {
            memory: MemoryId(c.take()?),
            other: MemoryId(c.take()?),
            differs: c.parse(Difference::from_code)?,
        })
    };
    pool.all(query).await?.iter().map(read).collect()
}

/// It was written before, and its answer was lost (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut PgConnection,
    write: &MemoryWrite,
) -> Result<bool, sqlx::Error> {
    if let Some(source) = &write.source {
        return memory_source::is_written(connection, source).await;
    }
    let query = sqlx::query(select!("memory m WHERE m.tenant = $1 AND m.id = $2")).persistent(false);
    let query = query.bind(write.memory.tenant.as_str()).bind(write.memory.id.0);
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == write.memory)))
}
