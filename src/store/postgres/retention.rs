//! Retirement of records and runs, beside the other writes.

use std::collections::BTreeMap;

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::commit::write_wave;
use super::connect::within;
use super::pool::Trouble;
use super::statement::Statements;
use super::{Postgres as Store, StoreError, failure};
use crate::id::Tenant;
use crate::store::sql::{retention, worker};
use crate::store::{Change, Refusal, Verdict};

/// Retires records and runs beside other writes and without waiting for the disk: rows that a crash brings back are
/// retired again.
pub(super) async fn commit(store: &Store, change: &Change) -> Result<Verdict, StoreError> {
    let options = &store.connector.options;
    let mut lent = store.readers.lend().await.map_err(|trouble| trouble.error)?;
    // The server limits each statement by itself. A connection that failed halfway is not given back.
    let apart = if options.distributed { by_tenant(change) } else { Vec::new() };
    let parts = if options.distributed { &apart[..] } else { std::slice::from_ref(change) };
    for part in parts {
        let written = within(options.answer_timeout * 8, write(&mut lent.connection, part)).await;
        match written.ok_or_else(|| Trouble::late(options.answer_timeout * 8).error)? {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Refused(Refusal::Fenced)),
            Err(error) => return Err(failure(&error)),
        }
    }
    lent.give_back();
    Ok(Verdict::Admitted)
}

/// Splits the change by tenant: a distributed database wants one tenant in each transaction.
fn by_tenant(change: &Change) -> Vec<Change> {
    let empty = || Change { fence: change.fence, ..Change::default() };
    let mut parts: BTreeMap<&Tenant, Change> = BTreeMap::new();
    for retired in &change.retired {
        parts.entry(&retired.tenant).or_insert_with(empty).retired.push(retired.clone());
    }
    for retired in &change.retired_runs {
        parts.entry(&retired.run.tenant).or_insert_with(empty).retired_runs.push(retired.clone());
    }
    for expired in &change.expired_signals {
        parts.entry(&expired.signal.tenant).or_insert_with(empty).expired_signals.push(expired.clone());
    }
    if let Some(link) = &change.link {
        parts.entry(&link.tenant).or_insert_with(empty).link = Some(link.clone());
    }
    let mut parts: Vec<_> = parts.into_values().collect();
    // The link comes first: if the process dies before the last part, it tells of rows that are gone.
    parts.sort_by_key(|part| part.link.is_none());
    parts
}

async fn write(connection: &mut PgConnection, change: &Change) -> Result<bool, sqlx::Error> {
    connection.execute("BEGIN; SET LOCAL synchronous_commit = off").await?;
    let alive = match change.fence {
        Some(fence) => worker::is_alive(connection, fence).await?,
        None => false,
    };
    if alive {
        for retired in &change.retired {
            retention::retire_record(connection, retired).await?;
        }
        for retired in &change.retired_runs {
            retention::retire_run(connection, retired).await?;
        }
        for expired in &change.expired_signals {
            retention::expire_signal(connection, expired).await?;
        }
    }
    // The link of a chain of evidence.
    let written = alive && write_wave(connection, &mut Statements::default(), &[change]).await?;
    connection.execute(if written { "COMMIT" } else { "ROLLBACK" }).await?;
    Ok(written)
}
