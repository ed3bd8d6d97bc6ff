//! Table `step`: a run's checkpoints.

use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::statement::{Batch, Insert, Values};
use super::{Columns, StoreError};
use crate::clock::Timestamp;
use crate::id::Fence;
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

/// The same in a turn of the run's loop.
static INSERT_IN_TURN: Insert = Insert {
    head: "INSERT INTO step (tenant, run, kind, name, id, input_hash, value, at, turn) \
           SELECT column1, (SELECT column2 FROM worker WHERE worker.fence = column9 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6, column7, column8, column10",
    columns: 10,
    tail: "",
};

/// The checkpoints of a run's turns go, from behind its base up to a turn. The fence is seen to by the run's row.
static PRUNE: Insert = Insert {
    head: "DELETE FROM step WHERE (tenant, run, turn, kind, name, id) IN (SELECT s.tenant, s.run, s.turn, s.kind, \
           s.name, s.id FROM (SELECT *",
    columns: 4,
    tail: ") v CROSS JOIN step s WHERE s.tenant = v.column1 AND s.run = v.column2 AND s.turn > v.column3 \
           AND s.turn <= v.column4)",
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let rows = changes.iter().flat_map(|c| c.steps.iter().map(|step| (step, c.fence)));
    let (outside, in_turn): (Vec<_>, Vec<_>) = rows.partition(|(step, _)| step.turn == 0);
    batch.insert(&INSERT, &outside, bind);
    batch.insert(&INSERT_IN_TURN, &in_turn, |(step, writer), row| {
        bind(&(step, *writer), row);
        row.value(i64::from(step.turn));
    });
    let pruned = changes.iter().filter_map(|c| Some((c.run.as_deref()?, c.prune?)));
    batch.insert(&PRUNE, &pruned.collect::<Vec<_>>(), |(run, last), row| {
        row.value(run.tenant.text()).value(run.id.0).value(i64::from(run.base)).value(i64::from(*last));
    });
}

fn bind((step, writer): &(&Step, Option<Fence>), row: &mut Values<'_>) {
    row.value(step.tenant.text())
        .value(step.run.0)
        .value(step.kind.code())
        .value(step.name.clone())
        .value(step.id.clone())
        .value(step.input_hash.map(|hash| hash.column()))
        .value(step.value.as_ref().map(Stored::column))
        .value(step.at.0)
        .value(writer.map(|fence| fence.0));
}

/// What a run has recorded in some of its turns. The arguments are those of its whole history.
pub(super) const OF_RUN: &str = "SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = ?1 AND run = ?2 AND turn = ?3 \
     UNION ALL SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = ?1 AND run = ?2 \
     AND turn BETWEEN ?4 AND ?5 AND turn <> ?3";

pub(super) fn past(row: &SqliteRow) -> Result<PastStep, StoreError> {
    let mut c = Columns::of("step", row);
    Ok(PastStep {
        turn: c.take()?,
        kind: c.parse(StepKind::from_code)?,
        name: c.take()?,
        id: c.take()?,
        input_hash: c.parse_some(|bytes: &[u8]| RequestHash::from_column(bytes))?,
        value: c.parse_some(Stored::from_column)?,
        at: Timestamp(c.take()?),
    })
}

/// The same checkpoint with the same value: it was written before, and its answer was lost.
pub(super) async fn is_written(connection: &mut SqliteConnection, step: &Step) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "SELECT 1 FROM step WHERE tenant = ? AND run = ? AND turn = ? AND kind = ? AND name = ? AND id = ? \
         AND input_hash IS ? AND value IS ?",
    )
    .bind(step.tenant.text())
    .bind(step.run.0)
    .bind(i64::from(step.turn))
    .bind(step.kind.code())
    .bind(step.name.clone())
    .bind(step.id.clone())
    .bind(step.input_hash.map(|hash| hash.column()))
    .bind(step.value.as_ref().map(Stored::column))
    .fetch_optional(connection)
    .await
    .map(|row| row.is_some())
}
