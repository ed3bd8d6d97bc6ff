//! Erasing a tenant.

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::statement::Statements;
use super::{Postgres, StoreError, failure, judge};
use crate::id::Tenant;
use crate::store::sql::erase::under_way;
use crate::store::{Change, UnderWay, Verdict};

/// On a connection beside those that write for others, and for as long as it takes.
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

/// What keeps it from going, looked for once more when all has gone: what begins meanwhile must not lose what it rests on.
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
