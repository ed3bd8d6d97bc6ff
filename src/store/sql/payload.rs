//! Payloads that are too large for their rows.

use super::ask::Session;
use crate::id::Tenant;
use crate::payload::{Payload, PayloadDigest};
use crate::store::Change;
use crate::store::row::Given;

/// Adds a payload in a transaction of the user's own.
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

/// Takes one use from a payload, and deletes the payload after its last use.
pub(in crate::store) const RELEASE: [&str; 2] = [
    "UPDATE payload SET uses = uses - 1 WHERE tenant = $1 AND digest = $2",
    "DELETE FROM payload WHERE tenant = $1 AND digest = $2 AND uses <= 0",
];

pub(in crate::store) async fn release<S: Session>(
    session: &mut S,
    tenant: &Given<'_>,
    digest: PayloadDigest,
) -> Result<(), sqlx::Error> {
    for sql in RELEASE {
        session.finds(sql, &[tenant.clone(), digest.0.as_slice().into()]).await?;
    }
    Ok(())
}

/// Counts the payloads that rows of this change refer to and that other rows brought: a fork's checkpoints, a
/// schedule's input.
pub(in crate::store) async fn refer<S: Session>(session: &mut S, change: &Change) -> Result<(), sqlx::Error> {
    let sql = "UPDATE payload SET uses = uses + 1 WHERE tenant = $1 AND digest = $2";
    for (tenant, digest) in change.copied() {
        session.finds(sql, &[tenant.into(), digest.0.as_slice().into()]).await?;
    }
    Ok(())
}
