//! Table `step`: a run's checkpoints.

use super::statement::{Batch, Insert};
use crate::store::Change;

/// The checkpoints of a run's turns go, from behind its base up to a turn. The fence is seen to by the run's row.
static PRUNE: Insert = Insert {
    head: "DELETE FROM step WHERE (tenant, run, turn, kind, name, id) IN (SELECT s.tenant, s.run, s.turn, s.kind, \
           s.name, s.id FROM (SELECT *",
    columns: 4,
    tail: ") v CROSS JOIN step s WHERE s.tenant = v.column1 AND s.run = v.column2 AND s.turn > v.column3 \
           AND s.turn <= v.column4)",
};

pub(super) fn prune(changes: &[&Change], batch: &mut Batch) {
    let pruned = changes.iter().filter_map(|c| Some((c.run.as_deref()?, c.prune?)));
    batch.insert(&PRUNE, &pruned.collect::<Vec<_>>(), |(run, last), row| {
        row.value(run.tenant.text()).value(run.id.0).value(i64::from(run.base)).value(i64::from(*last));
    });
}
