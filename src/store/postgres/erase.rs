//! Erasing a tenant.

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::statement::Statements;
use super::{Postgres, StoreError, failure, judge};
use crate::id::Tenant;
use crate::store::sql::erase::under_way;
use crate::store::{Change, UnderWay, Verdict};

/// Erases a tenant on a connection that does not write for others, without a time limit.
pub(super) async fn commit(store: &Postgres, change: &Change) -> Result<Verdict, StoreError> {
    let mut lent = store.readers.lend().await.map_err(|trouble| trouble.error)?;
    let connection = &mut lent.connection;
    let erased = async {
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0").await?;
        let refusal = judge::admit(connection, &mut Statements::default(), change).await?;
        connection.execute("COMMIT").await?;
        Ok(refusal)
    };
    let refusal = erased.await.map_err(|error: sqlx::Error| failure(&error))?;
    lent.give_back();
    Ok(refusal.map_or(Verdict::Admitted, Verdict::Refused))
}

/// Erases the tenant, and looks again afterwards for rows that prevent it: a run that begins meanwhile must not lose
/// the rows that it rests on.
pub(super) async fn erase(
    connection: &mut PgConnection,
    tenant: &Tenant,
) -> Result<Option<UnderWay>, sqlx::Error> {
    let before = under_way(connection, tenant).await?;
    if before.is_some() {
        return Ok(before);
    }
    crate::store::sql::erase::erase(connection, tenant).await?;
    under_way(connection, tenant).await
}
