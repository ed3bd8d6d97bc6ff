//! Tables `memory_shelf`, `memory`, `memory_form` and `memory_contradiction`: what is remembered.

use std::collections::BTreeSet;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::{Columns, StoreError, failure, memory_source, sound};
use crate::clock::Timestamp;
use crate::id::{MemoryId, Name, Tenant};
use crate::store::{Contradiction, Difference, Forgotten, KeyedDigest, Memory, MemoryWrite, Shelf};

/// Each table is a statement of its own, inside the change's savepoint, after it was seen that its worker may write. What
/// is not as it was when the write was decided upon makes no row, or violates a key.
pub(super) async fn write(connection: &mut SqliteConnection, write: &MemoryWrite) -> Result<(), sqlx::Error> {
    take_place(connection, write).await?;
    put(connection, write).await?;
    let Memory { tenant, id, subject, kind, .. } = &write.memory;
    if let Some(form) = write.form {
        sqlx::query("INSERT INTO memory_form (tenant, subject, kind, digest, memory) VALUES (?, ?, ?, ?, ?)")
            .bind(tenant.text())
            .bind(subject.clone())
            .bind(kind.text())
            .bind(form.to_vec())
            .bind(id.0)
            .execute(&mut *connection)
            .await?;
    }
    if let Some(source) = &write.source {
        memory_source::write(connection, source).await?;
    }
    for mark in write.marks() {
        sqlx::query(
            "INSERT INTO memory_contradiction (tenant, memory, other, differs) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        )
            .bind(tenant.text())
            .bind(mark.memory.0)
            .bind(mark.other.0)
            .bind(mark.differs.code())
            .execute(&mut *connection)
            .await?;
    }
    if write.memory.forgotten.is_some() {
        forget(connection, &write.memory).await?;
    }
    Ok(())
}

async fn take_place(connection: &mut SqliteConnection, write: &MemoryWrite) -> Result<(), sqlx::Error> {
    let Memory { tenant, subject, kind, .. } = &write.memory;
    let sql = if write.place == 1 {
        "INSERT INTO memory_shelf (tenant, subject, kind, place) VALUES (?1, ?2, ?3, ?4)"
    } else {
        "UPDATE memory_shelf SET place = ?4 WHERE tenant = ?1 AND subject = ?2 AND kind = ?3 AND place = ?4 - 1"
    };
    let query =
        sqlx::query(sql).bind(tenant.text()).bind(subject.clone()).bind(kind.text()).bind(write.place);
    one(query.execute(connection).await?.rows_affected())
}

async fn put(connection: &mut SqliteConnection, write: &MemoryWrite) -> Result<(), sqlx::Error> {
    let sql = if write.is_new() {
        "INSERT INTO memory (tenant, id, subject, kind, place, content, digest, confidence, sources, created_at, updated_at, \
         forgotten_at, forgotten_by, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    } else {
        "UPDATE memory SET content = ?6, digest = ?7, confidence = ?8, sources = ?9, created_at = ?10, updated_at = ?11, \
         forgotten_at = ?12, forgotten_by = ?13, reason = ?14 WHERE tenant = ?1 AND id = ?2 AND subject = ?3 \
         AND kind = ?4 AND place = ?5 AND forgotten_at IS NULL"
    };
    let memory = &write.memory;
    let forgotten = memory.forgotten.as_ref();
    let written = sqlx::query(sql)
        .bind(memory.tenant.text())
        .bind(memory.id.0)
        .bind(memory.subject.clone())
        .bind(memory.kind.text())
        .bind(memory.place)
        .bind(memory.content.clone())
        .bind(memory.digest.to_vec())
        .bind(i64::from(memory.confidence))
        .bind(i64::from(memory.sources))
        .bind(memory.created_at.0)
        .bind(memory.updated_at.0)
        .bind(forgotten.map(|forgotten| forgotten.at.0))
        .bind(forgotten.map(|forgotten| forgotten.by.clone()))
        .bind(forgotten.map(|forgotten| forgotten.reason.clone()))
        .execute(connection)
        .await?;
    one(written.rows_affected())
}

/// What may be said again as something new, and the words.
async fn forget(connection: &mut SqliteConnection, memory: &Memory) -> Result<(), sqlx::Error> {
    for sql in [
        "DELETE FROM memory_form WHERE tenant = ? AND memory = ?",
        "DELETE FROM memory_contradiction WHERE tenant = ?1 AND other = ?2 \
         AND memory IN (SELECT other FROM memory_contradiction WHERE tenant = ?1 AND memory = ?2)",
        "DELETE FROM memory_contradiction WHERE tenant = ? AND memory = ?",
        "UPDATE memory_source SET source = '', content = '' WHERE tenant = ? AND memory = ?",
    ] {
        let query = sqlx::query(sql).bind(memory.tenant.text()).bind(memory.id.0);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// A row that is not as it should be was not written.
const fn one(written: u64) -> Result<(), sqlx::Error> {
    if written == 0 { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
}

pub(super) fn digest(bytes: Vec<u8>) -> Option<KeyedDigest> {
    bytes.try_into().ok()
}

fn read(row: &SqliteRow) -> Result<Memory, StoreError> {
    let mut c = Columns::of("memory", row);
    let mut memory = Memory {
        id: MemoryId(c.take()?),
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        subject: c.take()?,
        kind: c.parse(|text: String| Name::new(text).ok())?,
        place: c.take()?,
        content: c.take()?,
        digest: c.parse(digest)?,
        confidence: c.take()?,
        sources: c.take()?,
        created_at: Timestamp(c.take()?),
        updated_at: Timestamp(c.take()?),
        forgotten: None,
    };
    let at: Option<i64> = c.take()?;
    if let Some(at) = at {
        memory.forgotten = Some(Forgotten { by: c.take()?, reason: c.take()?, at: Timestamp(at) });
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

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: MemoryId,
) -> Result<Option<Memory>, StoreError> {
    let query =
        sqlx::query(select!("memory m WHERE m.tenant = ? AND m.id = ?")).bind(tenant.text()).bind(id.0);
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

/// The place first: what is written in between shows by it.
pub(super) async fn shelf(
    pool: &SqlitePool,
    tenant: &Tenant,
    subject: &str,
    kind: &str,
    form: &KeyedDigest,
    newest: u32,
) -> Result<Shelf, StoreError> {
    let place =
        sqlx::query_scalar("SELECT place FROM memory_shelf WHERE tenant = ? AND subject = ? AND kind = ?")
            .bind(tenant.text())
            .bind(subject.to_owned())
            .bind(kind.to_owned())
            .fetch_optional(pool)
            .await
            .map_err(|e| failure(&e))?;
    let Some(place) = place else { return Ok(Shelf::default()) };
    let same = sqlx::query(select!(
        "memory_form f CROSS JOIN memory m ON m.tenant = f.tenant AND m.id = f.memory \
         WHERE f.tenant = ? AND f.subject = ? AND f.kind = ? AND f.digest = ?"
    ))
    .bind(tenant.text())
    .bind(subject.to_owned())
    .bind(kind.to_owned())
    .bind(form.to_vec())
    .fetch_optional(pool)
    .await
    .map_err(|e| failure(&e))?;
    let same = same.as_ref().map(read).transpose()?;
    Ok(Shelf { place, same, newest: list(pool, tenant, subject, kind, i64::MAX, newest).await? })
}

pub(super) async fn list(
    pool: &SqlitePool,
    tenant: &Tenant,
    subject: &str,
    kind: &str,
    before: i64,
    limit: u32,
) -> Result<Vec<Memory>, StoreError> {
    use sqlx::Row as _;
    let mut before = before;
    loop {
        let query = sqlx::query(select!(
            "memory m WHERE m.tenant = ? AND m.subject = ? AND m.kind = ? AND m.place < ? AND m.forgotten_at IS NULL \
             ORDER BY m.place DESC LIMIT ?"
        ))
        .bind(tenant.text())
        .bind(subject.to_owned())
        .bind(kind.to_owned())
        .bind(before)
        .bind(limit);
        let rows = query.fetch_all(pool).await.map_err(|e| failure(&e))?;
        let Some(last) = rows.last() else { return Ok(Vec::new()) };
        before = last.try_get_unchecked(4).map_err(|e| failure(&e))?;
        let sound = sound(&rows, read);
        if !sound.is_empty() {
            return Ok(sound); // an empty page would say that the list ends here
        }
    }
}

pub(super) async fn contradictions(
    pool: &SqlitePool,
    tenant: &Tenant,
    ids: &[MemoryId],
) -> Result<Vec<Contradiction>, StoreError> {
    let mut found = Vec::new();
    for id in ids.iter().collect::<BTreeSet<_>>() {
        let query = sqlx::query(
            "SELECT memory, other, differs FROM memory_contradiction WHERE tenant = ? AND memory = ? ORDER BY other",
        );
        let rows = query.bind(tenant.text()).bind(id.0).fetch_all(pool).await.map_err(|e| failure(&e))?;
        for row in &rows {
            let mut c = Columns::of("contradiction of memory", row);
            found.push(Contradiction {
                memory: MemoryId(c.take()?),
                other: MemoryId(c.take()?),
                differs: c.parse(Difference::from_code)?,
            });
        }
    }
    Ok(found)
}

/// It was written before, and its answer was lost (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    write: &MemoryWrite,
) -> Result<bool, sqlx::Error> {
    if let Some(source) = &write.source {
        return memory_source::is_written(connection, source).await;
    }
    let query = sqlx::query(select!("memory m WHERE m.tenant = ? AND m.id = ?"));
    let query = query.bind(write.memory.tenant.text()).bind(write.memory.id.0);
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == write.memory)))
}
