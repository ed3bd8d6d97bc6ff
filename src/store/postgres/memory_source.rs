//! Table `memory_source`: who said what is remembered, in which words, and what was answered.

use sqlx::postgres::{PgConnection, PgRow};

use super::memory::{Statement, digest};
use super::pool::Pool;
use super::{Columns, StoreError, escaped};
use crate::clock::Timestamp;
use crate::id::{MemoryId, Tenant};
use crate::store::MemorySource;

/// A key that is taken makes no row.
pub(super) fn statement(source: &MemorySource) -> Statement<'_> {
    sqlx::query(
        "INSERT INTO memory_source (tenant, key, memory, place, request, source, content, confidence, answer, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
    )
    .bind(source.tenant.as_str())
    .bind(escaped(&source.key))
    .bind(source.memory.0)
    .bind(source.place)
    .bind(source.request.as_slice())
    .bind(escaped(&source.source))
    .bind(escaped(&source.content))
    .bind(i64::from(source.confidence))
    .bind(escaped(&source.answer))
    .bind(source.at.0)
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

fn read(row: &PgRow) -> Result<MemorySource, StoreError> {
    let mut c = Columns::of("source of memory", row);
    Ok(MemorySource {
        memory: MemoryId(c.take()?),
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        key: c.text()?,
        place: c.take()?,
        request: c.parse(digest)?,
        source: c.text()?,
        content: c.text()?,
        confidence: c.count()?,
        answer: c.text()?,
        at: Timestamp(c.take()?),
    })
}

pub(super) async fn keyed(
    pool: &Pool,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<MemorySource>, StoreError> {
    let query = || {
        sqlx::query(select!("WHERE tenant = $1 AND key = $2"))
            .bind(tenant.as_str().to_owned())
            .bind(escaped(key).into_owned())
    };
    pool.optional(query).await?.as_ref().map(read).transpose()
}

pub(super) async fn sources(
    pool: &Pool,
    tenant: &Tenant,
    id: MemoryId,
    after: i64,
    limit: u32,
) -> Result<Vec<MemorySource>, StoreError> {
    let query = || {
        sqlx::query(select!("WHERE tenant = $1 AND memory = $2 AND place > $3 ORDER BY place LIMIT $4"))
            .bind(tenant.as_str().to_owned())
            .bind(id.0)
            .bind(after)
            .bind(i64::from(limit))
    };
    pool.all(query).await?.iter().map(read).collect()
}

pub(super) async fn said(
    pool: &Pool,
    tenant: &Tenant,
    id: MemoryId,
    source: &str,
) -> Result<Option<u32>, StoreError> {
    let query = || {
        let query = sqlx::query(
            "SELECT confidence FROM memory_source WHERE tenant = $1 AND memory = $2 AND source = $3 \
             ORDER BY confidence DESC LIMIT 1",
        );
        query.bind(tenant.as_str().to_owned()).bind(id.0).bind(escaped(source).into_owned())
    };
    let row = pool.optional(query).await?;
    row.map(|row| Columns::of("source of memory", &row).count()).transpose()
}

/// It was written before, and its answer was lost.
pub(super) async fn is_written(
    connection: &mut PgConnection,
    source: &MemorySource,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(select!("WHERE tenant = $1 AND key = $2")).persistent(false);
    let row =
        query.bind(source.tenant.as_str()).bind(escaped(&source.key)).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *source)))
}
