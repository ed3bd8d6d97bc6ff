//! Lookup of a row, by a statement of your own.

use std::time::Duration;

use sqlx::{FromRow, Pool};

use super::seen::{LookupTarget, Match, Tally, unclear};
use crate::ledger::{ErrorKind, LookupOffer, LookupResult, Sight};
use crate::store::Queried;
use crate::tool::ToolError;

/// Rows in a database of others, by a statement whose only parameter is our key.
///
/// Rows in the ledger's own database need no lookup: use [`Ctx::transaction`](crate::Ctx::transaction).
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use counterfoil::ledger::LookupResult;
/// use counterfoil::tool::lookup::{Rows, Match};
/// use sqlx::SqlitePool;
///
/// # let folder = tempfile::tempdir()?;
/// # let pool = SqlitePool::connect(&format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").display())).await?;
/// # sqlx::raw_sql("CREATE TABLE payment (id INTEGER PRIMARY KEY, reference TEXT, amount INTEGER);
/// #     INSERT INTO payment VALUES (1, 'ref-9', 4900)").execute(&pool).await?;
/// let lookup = Rows::new(pool, "SELECT id, amount FROM payment WHERE reference = $1 ORDER BY id");
/// let ours = |(id, amount): (i64, i64)| match amount {
///     4900 => Match::ours(id, id.to_string()),
///     amount => Match::Conflict(format!("its amount is {amount}")),
/// };
/// let found = lookup.find("ref-9", ours).await?; // in `reconcile`: `call` instead of a reference
/// assert_eq!(found, LookupResult::Committed { output: 1, external_ref: Some("1".into()) });
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Rows<DB: Queried> {
    pool: Pool<DB>,
    statement: &'static str,
}

impl<DB: Queried> Clone for Rows<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), statement: self.statement }
    }
}

/// The maximum number of rows. A statement that returns more does not look up by the key.
const ROWS: usize = 1000;

impl<DB: Queried> Rows<DB> {
    /// The sight of this lookup.
    pub const SIGHT: Sight = Sight {
        by: "a row by SQL",
        offer: LookupOffer::Strong,
        settle: Duration::from_mins(1),
        outlives_sender: true,
        knows: &["which rows are committed under our key at the moment of the lookup"],
        blind_spots: &[
            "a transaction of the dead sender that the server still carries out: keep the server's time limits on \
             statements and idle transactions below the settle time",
            "a lagging copy behind a proxy (a PostgreSQL standby that is asked directly is noticed)",
            "rows that were deleted, moved or archived since",
            "rows that row-level security hides from this user",
            "commits that a failover lost: asynchronous replicas take them back",
        ],
    };

    /// A lookup by this statement, whose parameter 1 (`$1`) is the key. The statement must return the first row first,
    /// and change nothing.
    pub const fn new(pool: Pool<DB>, statement: &'static str) -> Self {
        Self { pool, statement }
    }

    /// Looks for the effect. `judge` compares the fields that must be equal besides the key, and makes the output.
    ///
    /// # Errors
    /// [`ToolError`] if the database cannot tell: it fails, it lags, or there are more than 1000 rows.
    pub async fn find<'a, R, T: Send>(
        &self,
        sought: impl Into<LookupTarget<'a>> + Send,
        judge: impl FnMut(R) -> Match<T> + Send,
    ) -> Result<LookupResult<T>, ToolError>
    where
        R: for<'r> FromRow<'r, DB::Row> + Send + Unpin,
    {
        let sought = sought.into();
        if DB::lags(&self.pool).await.map_err(|e| failed(&e))? {
            return Err(unclear("the database is a standby, and may lag behind its primary"));
        }
        let rows =
            DB::ask(&self.pool, self.statement, sought.token, ROWS + 1).await.map_err(|e| failed(&e))?;
        if rows.len() > ROWS {
            return Err(unclear(format!("more than {ROWS} rows: the statement does not look up by the key")));
        }
        let mut tally = Tally::new();
        rows.into_iter().map(judge).for_each(|seen| tally.take(seen));
        tally.finding(sought.noted)
    }
}

fn failed(error: &sqlx::Error) -> ToolError {
    let kind = match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => ErrorKind::Unreachable,
        _ => ErrorKind::Server,
    };
    ToolError::new(kind, error.to_string())
}
