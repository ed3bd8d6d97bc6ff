//! Erasing a tenant.

use sqlx::Executor as _;

use super::statement::Statements;
use super::{Postgres, StoreError, failure, judge};
use crate::store::{Change, Verdict};

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
