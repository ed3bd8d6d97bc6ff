//! Table `document`: the rows of guards.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::{Columns, StoreError, failure, sound};
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
use crate::store::Document;

/// They change rarely: each is a statement of its own, inside the change's savepoint, after it was seen that its worker may
/// write. Revision 1 inserts, any other moves on by exactly one.
pub(super) async fn write(connection: &mut SqliteConnection, document: &Document) -> Result<(), sqlx::Error> {
    let sql = if document.revision == 1 {
        "INSERT INTO document (tenant, kind, id, revision, open, body, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
    } else {
        "UPDATE document SET revision = ?4, open = ?5, body = ?6, created_at = ?7, updated_at = ?8 \
         WHERE tenant = ?1 AND kind = ?2 AND id = ?3 AND revision = ?4 - 1"
    };
    let written = sqlx::query(sql)
        .bind(document.tenant.text())
        .bind(document.kind.text())
        .bind(document.id.clone())
        .bind(i64::from(document.revision))
        .bind(document.open)
        .bind(document.body.clone())
        .bind(document.created_at.0)
        .bind(document.updated_at.0)
        .execute(connection)
        .await?;
    if written.rows_affected() == 0 { Err(sqlx::Error::RowNotFound) } else { Ok(()) }
}

fn read(row: &SqliteRow) -> Result<Document, StoreError> {
    let mut c = Columns::of("document", row);
    Ok(Document {
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        kind: c.parse(|text: String| Name::new(text).ok())?,
        id: c.take()?,
        revision: c.take()?,
        open: c.take()?,
        body: c.take()?,
        created_at: Timestamp(c.take()?),
        updated_at: Timestamp(c.take()?),
    })
}

/// All queries read the same columns.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT tenant, kind, id, revision, open, body, created_at, updated_at FROM document WHERE tenant = ? \
             AND kind = ? AND ",
            $tail
        )
    };
}

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    kind: &str,
    id: &str,
) -> Result<Option<Document>, StoreError> {
    let query = sqlx::query(select!("id = ?"));
    let query = query.bind(tenant.text()).bind(kind.to_owned()).bind(id.to_owned());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn list(
    pool: &SqlitePool,
    tenant: &Tenant,
    kind: &str,
    after: &str,
    limit: u32,
) -> Result<Vec<Document>, StoreError> {
    let query = sqlx::query(select!("id > ? ORDER BY id LIMIT ?"));
    let query = query.bind(tenant.text()).bind(kind.to_owned()).bind(after.to_owned()).bind(limit);
    Ok(sound(&query.fetch_all(pool).await.map_err(|e| failure(&e))?, read))
}

pub(super) async fn open(
    pool: &SqlitePool,
    tenant: &Tenant,
    kind: &str,
    after: &str,
    limit: u32,
) -> Result<Vec<Document>, StoreError> {
    // Named, because SQLite takes the primary key otherwise, and reads all that were ever open.
    let query = sqlx::query(
        "SELECT tenant, kind, id, revision, open, body, created_at, updated_at FROM document INDEXED BY document_open \
         WHERE tenant = ? AND kind = ? AND open AND id > ? ORDER BY id LIMIT ?",
    );
    let query = query.bind(tenant.text()).bind(kind.to_owned()).bind(after.to_owned()).bind(limit);
    Ok(sound(&query.fetch_all(pool).await.map_err(|e| failure(&e))?, read))
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    document: &Document,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(select!("id = ?"));
    let query = query.bind(document.tenant.text()).bind(document.kind.text()).bind(document.id.clone());
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *document)))
}
