//! Payloads that are too large for their rows.

use super::ask::Session;
use crate::id::Tenant;
use crate::payload::Payload;

/// Adds one in a transaction of the user's own.
pub(in crate::store) async fn add<S: Session>(
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
