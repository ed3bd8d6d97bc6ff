//! Tables `payload` and `tenant`.

use sqlx::sqlite::SqliteConnection;

use super::statement::{Batch, Insert};
use crate::id::Tenant;
use crate::payload::PayloadDigest;
use crate::store::Change;

/// Content-addressed: what is there already is the same, and has one use more.
static INSERT: Insert = Insert {
    head: "INSERT INTO payload (tenant, digest, body, uses) SELECT column1, column2, column3, 1",
    columns: 3,
    tail: "ON CONFLICT DO UPDATE SET uses = uses + 1",
};

/// The first key of a tenant stays.
static INSERT_TENANT: Insert = Insert {
    head: "INSERT INTO tenant (tenant, digest_key) SELECT column1, column2",
    columns: 2,
    tail: "ON CONFLICT DO NOTHING",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows: Vec<_> = changes.iter().flat_map(|c| &c.payloads).collect();
    batch.insert(&INSERT, &rows, |(tenant, payload), row| {
        row.value(tenant.text()).value(payload.digest().0.to_vec()).value(payload.text());
    });
    let rows: Vec<_> = changes.iter().filter_map(|c| c.tenant_key.as_ref()).collect();
    batch.insert(&INSERT_TENANT, &rows, |(tenant, key), row| {
        row.value(tenant.text()).value(key.bytes().to_vec());
    });
}

/// One use less; with the last one it goes.
pub(super) async fn release(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    digest: PayloadDigest,
) -> Result<(), sqlx::Error> {
    for sql in [
        "UPDATE payload SET uses = uses - 1 WHERE tenant = ?1 AND digest = ?2",
        "DELETE FROM payload WHERE tenant = ?1 AND digest = ?2 AND uses <= 0",
    ] {
        let query = sqlx::query(sql).bind(tenant.text()).bind(digest.0.to_vec());
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
