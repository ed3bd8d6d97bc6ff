//! Tables `payload` and `tenant`.

use sqlx::postgres::PgConnection;

use super::statement::{Batch, Insert, PLAIN};
use crate::id::Tenant;
use crate::payload::PayloadDigest;
use crate::store::Change;
use crate::store::row::Put as _;
use crate::store::table::{bytes, number, text};

/// Content-addressed: what is there already is the same, and has more uses.
pub(super) static INSERT: Insert = Insert {
    name: "payloads",
    table: "payload",
    columns: &[text("tenant"), bytes("digest"), text("body"), number("uses")],
    tail: "ON CONFLICT (tenant, digest) DO UPDATE SET uses = payload.uses + excluded.uses",
    holds: None,
    ..PLAIN
};

/// The first key of a tenant stays.
pub(super) static INSERT_TENANT: Insert = Insert {
    name: "tenants",
    table: "tenant",
    columns: &[text("tenant"), bytes("digest_key")],
    holds: None,
    ..PLAIN
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows = changes.iter().flat_map(|c| &c.payloads);
    let mut rows: Vec<_> = rows.map(|(tenant, payload)| (tenant, payload.digest().0, payload)).collect();
    rows.sort_by_key(|(tenant, digest, _)| (tenant.as_str(), *digest));
    // Each once, for a statement cannot write a row twice.
    let rows: Vec<_> = rows.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)).collect();
    batch.insert(&INSERT, &rows, |alike, row| {
        let (tenant, digest, payload) = &alike[0];
        row.text(tenant.as_str()).bytes(digest).text(payload.as_str());
        row.number(i64::try_from(alike.len()).unwrap_or(i64::MAX));
    });
    let mut rows: Vec<_> = changes.iter().filter_map(|c| c.tenant_key.as_ref()).collect();
    rows.sort_by_key(|(tenant, _)| tenant.as_str());
    batch.insert(&INSERT_TENANT, &rows, |(tenant, key), row| {
        row.text(tenant.as_str()).bytes(key.bytes());
    });
}

/// One use less of each, which may stand there several times; with the last one it goes.
pub(super) async fn release(
    connection: &mut PgConnection,
    uses: &[(&Tenant, PayloadDigest)],
) -> Result<(), sqlx::Error> {
    for sql in [
        "UPDATE payload p SET uses = p.uses - n.uses FROM (SELECT tenant, digest, count(*) AS uses \
         FROM (SELECT unnest($1::text[]) AS tenant, unnest($2::bytea[]) AS digest) u GROUP BY tenant, digest) n \
         WHERE p.tenant = n.tenant AND p.digest = n.digest",
        "DELETE FROM payload p USING (SELECT unnest($1::text[]) AS tenant, unnest($2::bytea[]) AS digest) n \
         WHERE p.tenant = n.tenant AND p.digest = n.digest AND p.uses <= 0",
    ] {
        let tenants: Vec<_> = uses.iter().map(|(tenant, _)| tenant.as_str().to_owned()).collect();
        let digests: Vec<_> = uses.iter().map(|(_, digest)| digest.0.to_vec()).collect();
        let query = sqlx::query(sql).bind(tenants).bind(digests).persistent(false);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
