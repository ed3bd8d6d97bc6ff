//! The whole history of a run.

use std::sync::LazyLock;

use futures_util::TryStreamExt as _;
use sqlx::{Either, Executor as _, SqlitePool};

use super::{Columns, StoreError, failure, row};
use crate::id::{RunId, Tenant};
use crate::store::cell::Declared as _;
use crate::store::sql::history::{CALLS, STEPS, USES};
use crate::store::{History, PastCall, PastStep, PastUse, Signal, Turns};

/// A query for the signals that a run has not received, in the order of receipt. The arguments begin with the tenant.
pub(super) static PENDING: LazyLock<String> = LazyLock::new(|| {
    Signal::TABLE.select(
        "INDEXED BY signal_pending WHERE tenant = ?1 AND run = ?2 AND NOT received ORDER BY place, name, id",
    )
});

/// Four queries, whatever the number of steps, as one text: each text costs a wake-up in both directions between the
/// caller and the driver's thread, and most runs that wake have recorded little.
static HISTORY: LazyLock<String> = LazyLock::new(|| [STEPS, CALLS, USES, &PENDING].join("; "));

pub(super) async fn history(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: RunId,
    turns: Turns,
) -> Result<History, StoreError> {
    let query = sqlx::query(HISTORY.as_str())
        .bind(tenant.text())
        .bind(id.0)
        .bind(i64::from(turns.base))
        .bind(i64::from(turns.first))
        .bind(i64::from(turns.last));
    let mut answers = pool.fetch_many(query);
    let (mut history, mut of) = (History::default(), 0);
    while let Some(answer) = answers.try_next().await.map_err(|e| failure(&e))? {
        match (of, answer) {
            (_, Either::Left(_end)) => of += 1,
            (0, Either::Right(row)) => history.steps.push(PastStep::take(&mut Columns::of("step", &row))?),
            (1, Either::Right(row)) => history.calls.push(PastCall::take(&mut Columns::of("record", &row))?),
            (2, Either::Right(row)) => history.uses.push(PastUse::take(&mut Columns::of("use", &row))?),
            (_, Either::Right(row)) => history.signals.push(row::read(&row)?),
        }
    }
    Ok(history)
}
