//! Table `step`: a run's checkpoints.

use sqlx::postgres::PgConnection;

use super::statement::{Batch, Insert, PLAIN};
use crate::store::ask::Session as _;
use crate::store::row::{Given, Put as _};
use crate::store::table::{Kind, number, text};
use crate::store::{Change, Step};

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

pub(super) fn prune(changes: &[&Change], batch: &mut Batch) {
    let mut pruned: Vec<_> = changes.iter().filter_map(|c| Some((c.run.as_deref()?, c.prune?))).collect();
    pruned.sort_by_key(|(run, _)| (run.tenant.as_str(), run.id));
    batch.insert(&PRUNE, &pruned, |(run, last), row| {
        row.text(run.tenant.as_str()).number(run.id.0).number(i64::from(run.base)).number(i64::from(*last));
    });
}

/// Gives a checkpoint its value: that of a transaction, whose mark was written before its closure ran.
pub(super) async fn fill(connection: &mut PgConnection, step: &Step) -> Result<(), sqlx::Error> {
    let sql = "UPDATE step SET value = $7 WHERE tenant = $1 AND run = $2 AND turn = $3 AND kind = $4 AND name = $5 AND id = $6";
    let value = step.value.as_ref().map_or(Given::Null(Kind::Text), |value| value.column().into());
    let place = [(&step.tenant).into(), step.run.0.into(), step.turn.into(), step.kind.code().into()];
    let named = [step.name.as_str().into(), step.id.as_str().into(), value];
    connection.finds(sql, &[place.as_slice(), &named].concat()).await.map(drop)
}
