//! Payloads that are too large for their rows, and tenants' keys for digests.

use super::StoreError;
use super::ask::{Queries, Reader, Session};
use super::row::Take as _;
use crate::id::Tenant;
use crate::payload::{DigestKey, Payload, PayloadDigest};

pub(super) async fn find<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
    digest: PayloadDigest,
) -> Result<Option<Payload>, StoreError> {
    let sql = "SELECT body FROM payload WHERE tenant = $1 AND digest = $2".to_owned();
    let found = on.fetch(sql, &[tenant.into(), digest.0.as_slice().into()]).await?;
    found.first().map(|row| D::values("payload", row).text().map(Payload::stored)).transpose()
}

pub(super) async fn tenant_key<D: Reader>(
    on: &Queries<D>,
    tenant: &Tenant,
) -> Result<Option<DigestKey>, StoreError> {
    let sql = "SELECT digest_key FROM tenant WHERE tenant = $1".to_owned();
    let found = on.fetch(sql, &[tenant.into()]).await?;
    let key = |bytes: &[u8]| bytes.try_into().ok().map(DigestKey::new);
    found.first().map(|row| D::values("tenant", row).parsed_bytes(key)).transpose()
}

/// Adds one in a transaction of the user's own.
pub(super) async fn add<S: Session>(
    session: &mut S,
    tenant: &Tenant,
    payload: &Payload,
) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO payload (tenant, digest, body, uses) VALUES ($1, $2, $3, 1) \
               ON CONFLICT (tenant, digest) DO UPDATE SET uses = payload.uses + 1";
    let digest = payload.digest();
    let row = [tenant.into(), digest.0.as_slice().into(), payload.text().into()];
    session.finds(sql, &row).await.map(drop)
}
