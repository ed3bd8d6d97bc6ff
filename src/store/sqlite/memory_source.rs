//! Table `memory_source`: who said what is remembered, in which words, and what was answered.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::memory::digest;
use super::{Columns, StoreError, failure};
use crate::clock::Timestamp;
use crate::id::{MemoryId, Tenant};
use crate::store::MemorySource;

/// A key that is taken violates its index.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    source: &MemorySource,
) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO memory_source (tenant, key, memory, place, request, source, content, confidence, answer, at) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let query = sqlx::query(sql)
        .bind(source.tenant.text())
        .bind(source.key.clone())
        .bind(source.memory.0)
        .bind(source.place)
        .bind(source.request.to_vec())
        .bind(source.source.clone())
        .bind(source.content.clone())
        .bind(i64::from(source.confidence))
        .bind(source.answer.clone())
        .bind(source.at.0);
    query.execute(connection).await.map(drop)
}

/// All queries read the same columns, the memory's id first: it names a row that is damaged.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT memory, tenant, key, place, request, source, content, confidence, answer, at FROM memory_source ",
            $tail
        )
    };
}

fn read(row: &SqliteRow) -> Result<MemorySource, StoreError> {
    let mut c = Columns::of("source of memory", row);
    Ok(MemorySource {
        memory: MemoryId(c.take()?),
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        key: c.take()?,
        place: c.take()?,
        request: c.parse(digest)?,
        source: c.take()?,
        content: c.take()?,
        confidence: c.take()?,
        answer: c.take()?,
        at: Timestamp(c.take()?),
    })
}

pub(super) async fn keyed(
    pool: &SqlitePool,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<MemorySource>, StoreError> {
    let query = sqlx::query(select!("WHERE tenant = ? AND key = ?")).bind(tenant.text()).bind(key.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn sources(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: MemoryId,
    after: i64,
    limit: u32,
) -> Result<Vec<MemorySource>, StoreError> {
    let query = sqlx::query(select!("WHERE tenant = ? AND memory = ? AND place > ? ORDER BY place LIMIT ?"));
    let query = query.bind(tenant.text()).bind(id.0).bind(after).bind(limit);
    query.fetch_all(pool).await.map_err(|e| failure(&e))?.iter().map(read).collect()
}

pub(super) async fn said(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: MemoryId,
    source: &str,
) -> Result<Option<u32>, StoreError> {
    let query = sqlx::query_scalar(
        "SELECT confidence FROM memory_source WHERE tenant = ? AND memory = ? AND source = ? \
         ORDER BY confidence DESC LIMIT 1",
    );
    let query = query.bind(tenant.text()).bind(id.0).bind(source.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))
}

/// It was written before, and its answer was lost.
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    source: &MemorySource,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(select!("WHERE tenant = ? AND key = ?"));
    let row = query.bind(source.tenant.text()).bind(source.key.clone()).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *source)))
}
