//! Table `document`: the rows of guards.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::{Columns, StoreError, escaped, sound};
use crate::clock::Timestamp;
use crate::id::{Name, Tenant};
use crate::store::{Document, Refusal};

/// They change rarely: each is a statement of its own, inside the change's savepoint, after it was seen that its worker may
/// write. Revision 1 inserts, any other moves on by exactly one.
pub(super) async fn write(
    connection: &mut PgConnection,
    document: &Document,
) -> Result<Option<Refusal>, sqlx::Error> {
    let sql = if document.revision == 1 {
        "INSERT INTO document (tenant, kind, id, revision, open, body, created_at, updated_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING"
    } else {
        "UPDATE document SET revision = $4, open = $5, body = $6, created_at = $7, updated_at = $8 \
                   WHERE tenant = $1 AND kind = $2 AND id = $3 AND revision = $4 - 1"
    };
    let written = sqlx::query(sql)
        .bind(document.tenant.as_str())
        .bind(document.kind.as_str())
        .bind(escaped(&document.id).into_owned())
        .bind(i64::from(document.revision))
        .bind(document.open)
        .bind(escaped(&document.body).into_owned())
        .bind(document.created_at.0)
        .bind(document.updated_at.0)
        .persistent(false)
        .execute(connection)
        .await?;
    Ok((written.rows_affected() == 0).then_some(Refusal::Exists))
}

fn read(row: &PgRow) -> Result<Document, StoreError> {
    let mut c = Columns::of("document", row);
    Ok(Document {
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        kind: c.parse_text(|text| Name::new(text).ok())?,
        id: c.text()?,
        revision: c.count()?,
        open: c.take()?,
        body: c.text()?,
        created_at: Timestamp(c.take()?),
        updated_at: Timestamp(c.take()?),
    })
}

/// All queries read the same columns.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT tenant, kind, id, revision, open, body, created_at, updated_at FROM document WHERE tenant = $1 \
             AND kind = $2 AND ",
            $tail
        )
    };
}

pub(super) async fn find(
    pool: &Pool,
    tenant: &Tenant,
    kind: &str,
    id: &str,
) -> Result<Option<Document>, StoreError> {
    let query = || {
        let query = sqlx::query(select!("id = $3")).bind(tenant.as_str().to_owned());
        query.bind(kind.to_owned()).bind(escaped(id).into_owned())
    };
    pool.optional(query).await?.as_ref().map(read).transpose()
}

pub(super) async fn list(
    pool: &Pool,
    tenant: &Tenant,
    kind: &str,
    after: &str,
    limit: u32,
) -> Result<Vec<Document>, StoreError> {
    let query = || {
        let query = sqlx::query(select!("id > $3 ORDER BY id LIMIT $4")).bind(tenant.as_str().to_owned());
        query.bind(kind.to_owned()).bind(escaped(after).into_owned()).bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, read))
}

pub(super) async fn open(
    pool: &Pool,
    tenant: &Tenant,
    kind: &str,
    after: &str,
    limit: u32,
) -> Result<Vec<Document>, StoreError> {
    let query = || {
        let query = sqlx::query(select!("open AND id > $3 ORDER BY id LIMIT $4"));
        let query = query.bind(tenant.as_str().to_owned()).bind(kind.to_owned());
        query.bind(escaped(after).into_owned()).bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, read))
}

/// The row stands as this change would have written it (see `record::is_written`).
pub(super) async fn is_written(
    connection: &mut PgConnection,
    document: &Document,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(select!("id = $3")).bind(document.tenant.as_str()).bind(document.kind.as_str());
    let row = query.bind(escaped(&document.id)).persistent(false).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored == *document)))
}
