//! Table `step`: a run's checkpoints.

use sqlx::sqlite::SqliteConnection;

use super::statement::{Batch, Insert};
use super::{Columns, StoreError, failure};
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;
use crate::store::{Change, PastStep, Step, StepKind};

/// A fenced worker gets a NULL run, which the primary key refuses.
static INSERT: Insert = Insert {
    head: "INSERT INTO step (tenant, run, kind, name, id, input_hash, value, at) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column9 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6, column7, column8",
    columns: 9,
    tail: "",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows: Vec<_> = changes.iter().filter_map(|c| Some((c.step.as_deref()?, c.fence))).collect();
    batch.insert(&INSERT, &rows, |(step, writer), row| {
        row.value(step.tenant.text())
            .value(step.run.0)
            .value(step.kind.code())
            .value(step.name.clone())
            .value(step.id.clone())
            .value(step.input_hash.map(|hash| hash.column()))
            .value(step.value.as_ref().map(Stored::column))
            .value(step.at.0)
            .value(writer.map(|fence| fence.0));
    });
}

pub(super) async fn of_run(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    id: RunId,
) -> Result<Vec<PastStep>, StoreError> {
    sqlx::query("SELECT kind, name, id, input_hash, value FROM step WHERE tenant = ? AND run = ?")
        .bind(tenant.text())
        .bind(id.0)
        .fetch_all(connection)
        .await
        .map_err(|e| failure(&e))?
        .iter()
        .map(|row| {
            let mut c = Columns::of("step", row);
            Ok(PastStep {
                kind: c.parse(StepKind::from_code)?,
                name: c.take()?,
                id: c.take()?,
                input_hash: c.parse_some(|bytes: &[u8]| RequestHash::from_column(bytes))?,
                value: c.parse_some(Stored::from_column)?,
            })
        })
        .collect()
}

/// The same checkpoint with the same value: it was written before, and its answer was lost.
pub(super) async fn is_written(connection: &mut SqliteConnection, step: &Step) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "SELECT 1 FROM step WHERE tenant = ? AND run = ? AND kind = ? AND name = ? AND id = ? \
         AND input_hash IS ? AND value IS ?",
    )
    .bind(step.tenant.text())
    .bind(step.run.0)
    .bind(step.kind.code())
    .bind(step.name.clone())
    .bind(step.id.clone())
    .bind(step.input_hash.map(|hash| hash.column()))
    .bind(step.value.as_ref().map(Stored::column))
    .fetch_optional(connection)
    .await
    .map(|row| row.is_some())
}
