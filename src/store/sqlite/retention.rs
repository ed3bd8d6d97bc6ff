//! Retirement of records and runs, beside the other writes.

use sqlx::Executor as _;

use super::commit::admit;
use super::open::open_aside;
use super::{Sqlite, StoreError, failure};
use crate::store::{Change, Verdict};

/// Beside what is written otherwise, and without waiting for the disk: what a crash takes back is retired again. Behind the
/// writer's lock all the same, for whoever finds the file locked comes again after a pause.
pub(super) async fn commit(store: &Sqlite, change: &Change) -> Result<Verdict, StoreError> {
    let mut writer = store.writer.lock().await;
    writer.as_mut().ok_or(StoreError::Closed)?.settle().await?;
    let mut aside = store.aside.lock().await;
    // Given back only in order: dropped halfway, it takes its transaction along.
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
