//! Retirement of records and runs, beside the other writes.

use sqlx::Executor as _;

use super::commit::admit;
use super::open::open_aside;
use super::{Sqlite, StoreError, failure};
use crate::store::{Change, Verdict};

/// Retires records and runs beside other writes and without waiting for the disk: rows that a crash brings back are
/// retired again. The writer's lock is held all the same, because a writer that finds the file locked retries only
/// after a pause.
pub(super) async fn commit(store: &Sqlite, change: &Change) -> Result<Verdict, StoreError> {
    let mut writer = store.writer.lock().await;
    writer.as_mut().ok_or(StoreError::Closed)?.settle().await?;
    let mut aside = store.aside.lock().await;
    // The connection is given back only after a success: dropped halfway, it ends its transaction.
    let mut connection = match aside.take() {
        Some(connection) => connection,
        None => open_aside(store).await?,
    };
    let retired = async {
        connection.execute("BEGIN IMMEDIATE").await?;
        let refusal = admit(&mut connection, change).await?;
        connection.execute("COMMIT").await?;
        Ok(refusal)
    };
    let refusal = retired.await.map_err(|e: sqlx::Error| failure(&e))?;
    *aside = Some(connection);
    Ok(refusal.map_or(Verdict::Admitted, Verdict::Refused))
}
