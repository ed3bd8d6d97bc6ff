//! Erasing a tenant.

use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::id::Tenant;
use crate::store::UnderWay;
use crate::store::erase::{ALL, UNDER_WAY};

/// What keeps it from going.
pub(super) async fn under_way(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
) -> Result<Option<UnderWay>, sqlx::Error> {
    for (what, sql) in UNDER_WAY {
        if connection.fetch_optional(sqlx::query(sql).bind(tenant.text())).await?.is_some() {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

pub(super) async fn erase(connection: &mut SqliteConnection, tenant: &Tenant) -> Result<(), sqlx::Error> {
    for sql in ALL {
        connection.execute(sqlx::query(sql).bind(tenant.text())).await?;
    }
    Ok(())
}
