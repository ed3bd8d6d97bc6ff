//! Table `step`: a run's checkpoints.

use sqlx::postgres::PgConnection;

use super::pool::Pool;
use super::statement::{Batch, Insert, Kind};
use super::{Columns, StoreError, escaped};
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;
use crate::store::{Change, PastStep, Step, StepKind};

/// One that is there already is not written, and missed when the rows are counted.
pub(super) static INSERT: Insert = Insert {
    name: "steps",
    table: "step",
    columns: &[
        ("tenant", Kind::Text),
        ("run", Kind::Number),
        ("kind", Kind::Number),
        ("name", Kind::Text),
        ("id", Kind::Text),
        ("input_hash", Kind::Bytes),
        ("value", Kind::Text),
        ("at", Kind::Number),
    ],
    constants: &[],
    tail: "ON CONFLICT DO NOTHING",
    holds: Some("true"),
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().filter_map(|c| c.step.as_deref()).collect();
    rows.sort_by_key(|step| (step.tenant.as_str(), step.run, step.kind.code(), &step.name, &step.id));
    batch.insert(&INSERT, &rows, |step, row| {
        row.text(step.tenant.as_str())
            .number(step.run.0)
            .number(step.kind.code())
            .text(&step.name)
            .text(&step.id)
            .some_bytes(step.input_hash.map(|hash| hash.column()).as_deref())
            .some_text(step.value.as_ref().map(Stored::column).as_deref())
            .number(step.at.0);
    });
}

pub(super) async fn of_run(pool: &Pool, tenant: &Tenant, id: RunId) -> Result<Vec<PastStep>, StoreError> {
    let query = || {
        sqlx::query("SELECT kind, name, id, input_hash, value FROM step WHERE tenant = $1 AND run = $2")
            .bind(tenant.as_str())
            .bind(id.0)
    };
    pool.all(query)
        .await?
        .iter()
        .map(|row| {
            let mut c = Columns::of("step", row);
            Ok(PastStep {
                kind: c.parse(StepKind::from_code)?,
                name: c.text()?,
                id: c.text()?,
                input_hash: c.parse_some(|bytes: &[u8]| RequestHash::from_column(bytes))?,
                value: c.parse_some_text(Stored::from_column)?,
            })
        })
        .collect()
}

/// The same checkpoint with the same value: it was written before, and its answer was lost.
pub(super) async fn is_written(connection: &mut PgConnection, step: &Step) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "SELECT 1 FROM step WHERE tenant = $1 AND run = $2 AND kind = $3 AND name = $4 AND id = $5 \
         AND input_hash IS NOT DISTINCT FROM $6 AND value IS NOT DISTINCT FROM $7",
    )
    .bind(step.tenant.as_str())
    .bind(step.run.0)
    .bind(step.kind.code())
    .bind(escaped(&step.name))
    .bind(escaped(&step.id))
    .bind(step.input_hash.map(|hash| hash.column()))
    .bind(step.value.as_ref().map(|value| escaped(&value.column()).into_owned()))
    .fetch_optional(connection)
    .await
    .map(|row| row.is_some())
}

/// Gives a checkpoint its value: that of a transaction, whose mark was written before its closure ran.
pub(super) async fn fill(connection: &mut PgConnection, step: &Step) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE step SET value = $6 WHERE tenant = $1 AND run = $2 AND kind = $3 AND name = $4 AND id = $5",
    )
    .bind(step.tenant.as_str())
    .bind(step.run.0)
    .bind(step.kind.code())
    .bind(escaped(&step.name))
    .bind(escaped(&step.id))
    .bind(step.value.as_ref().map(|value| escaped(&value.column()).into_owned()))
    .execute(connection)
    .await
    .map(drop)
}
