//! Table `step`: a run's checkpoints.

use sqlx::postgres::PgConnection;

use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN, Values};
use super::{Columns, StoreError, escaped};
use crate::clock::Timestamp;
use crate::id::{RunId, Tenant};
use crate::ledger::RequestHash;
use crate::payload::Stored;
use crate::store::row::Put as _;
use crate::store::table::{bytes, number, text};
use crate::store::{Change, PastStep, Step, StepKind, Turns};

/// One that is there already is not written, and missed when the rows are counted.
pub(super) static INSERT: Insert = Insert {
    name: "steps",
    table: "step",
    columns: &[
        text("tenant"),
        number("run"),
        number("kind"),
        text("name"),
        text("id"),
        bytes("input_hash"),
        text("value"),
        number("at"),
    ],
    ..PLAIN
};

/// The same in a turn of the run's loop.
pub(super) static INSERT_IN_TURN: Insert = Insert {
    name: "steps_in_turn",
    columns: &[
        text("tenant"),
        number("run"),
        number("kind"),
        text("name"),
        text("id"),
        bytes("input_hash"),
        text("value"),
        number("at"),
        number("turn"),
    ],
    ..INSERT
};

/// The checkpoints of a run's turns go, from behind its base up to a turn. Those that the same statement inserts it
/// does not see: `waves` sees to it that there are none.
pub(super) static PRUNE: Insert = Insert {
    name: "steps_pruned",
    table: "step",
    columns: &[text("tenant"), number("run"), number("base"), number("last")],
    tail: "step.tenant = gone.tenant AND step.run = gone.run AND step.turn > gone.base \
           AND step.turn <= gone.last",
    holds: None,
    deletes: true,
    ..PLAIN
};

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().flat_map(|c| &c.steps).collect();
    rows.sort_by_key(|step| {
        (step.tenant.as_str(), step.run, step.turn, step.kind.code(), &step.name, &step.id)
    });
    let (outside, in_turn): (Vec<_>, Vec<_>) = rows.into_iter().partition(|step| step.turn == 0);
    batch.insert(&INSERT, &outside, |step, row| bind(step, row));
    batch.insert(&INSERT_IN_TURN, &in_turn, |step, row| {
        bind(step, row);
        row.number(i64::from(step.turn));
    });
    let mut pruned: Vec<_> = changes.iter().filter_map(|c| Some((c.run.as_deref()?, c.prune?))).collect();
    pruned.sort_by_key(|(run, _)| (run.tenant.as_str(), run.id));
    batch.insert(&PRUNE, &pruned, |(run, last), row| {
        row.text(run.tenant.as_str()).number(run.id.0).number(i64::from(run.base)).number(i64::from(*last));
    });
}

fn bind(step: &Step, row: &mut Values<'_>) {
    row.text(step.tenant.as_str())
        .number(step.run.0)
        .number(step.kind.code())
        .text(&step.name)
        .text(&step.id)
        .some_bytes(step.input_hash.map(|hash| hash.column()).as_deref())
        .some_text(step.value.as_ref().map(Stored::column).as_deref())
        .number(step.at.0);
}

pub(super) async fn of_run(
    pool: &Pool,
    tenant: &Tenant,
    id: RunId,
    turns: Turns,
) -> Result<Vec<PastStep>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = $1 AND run = $2 AND turn = $3 \
             UNION ALL SELECT turn, kind, name, id, input_hash, value, at FROM step WHERE tenant = $1 AND run = $2 \
             AND turn BETWEEN $4 AND $5 AND turn <> $3",
        )
        .bind(tenant.as_str())
        .bind(id.0)
        .bind(i64::from(turns.base))
        .bind(i64::from(turns.first))
        .bind(i64::from(turns.last))
    };
    pool.all(query)
        .await?
        .iter()
        .map(|row| {
            let mut c = Columns::of("step", row);
            Ok(PastStep {
                turn: c.count()?,
                kind: c.parse(StepKind::from_code)?,
                name: c.text()?,
                id: c.text()?,
                input_hash: c.parse_some(|bytes: &[u8]| RequestHash::from_column(bytes))?,
                value: c.parse_some_text(Stored::from_column)?,
                at: Timestamp(c.take()?),
            })
        })
        .collect()
}

/// The same checkpoint with the same value: it was written before, and its answer was lost.
pub(super) async fn is_written(connection: &mut PgConnection, step: &Step) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "SELECT 1 FROM step WHERE tenant = $1 AND run = $2 AND kind = $3 AND name = $4 AND id = $5 \
         AND input_hash IS NOT DISTINCT FROM $6 AND value IS NOT DISTINCT FROM $7 AND turn = $8",
    )
    .bind(step.tenant.as_str())
    .bind(step.run.0)
    .bind(step.kind.code())
    .bind(escaped(&step.name))
    .bind(escaped(&step.id))
    .bind(step.input_hash.map(|hash| hash.column()))
    .bind(step.value.as_ref().map(|value| escaped(&value.column()).into_owned()))
    .bind(i64::from(step.turn))
    .fetch_optional(connection)
    .await
    .map(|row| row.is_some())
}

/// Gives a checkpoint its value: that of a transaction, whose mark was written before its closure ran.
pub(super) async fn fill(connection: &mut PgConnection, step: &Step) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE step SET value = $6 WHERE tenant = $1 AND run = $2 AND kind = $3 AND name = $4 AND id = $5 \
         AND turn = $7",
    )
    .bind(step.tenant.as_str())
    .bind(step.run.0)
    .bind(step.kind.code())
    .bind(escaped(&step.name))
    .bind(escaped(&step.id))
    .bind(step.value.as_ref().map(|value| escaped(&value.column()).into_owned()))
    .bind(i64::from(step.turn))
    .execute(connection)
    .await
    .map(drop)
}
