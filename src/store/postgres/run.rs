//! Taking runs over: the statement, and its arguments.

use std::sync::LazyLock;

use super::statement::{Batch, Insert, PLAIN, array};
use crate::store::Run;
use crate::store::cell::Declared as _;
use crate::store::row::{Only, Row as _};
use crate::store::table::{Chosen, Column};

/// The columns that are sent of a run that is taken over: those that identify it, and those that change.
static CLAIMED: LazyLock<(Insert, Chosen)> = LazyLock::new(|| {
    let table = Run::TABLE;
    let sent = table.choose(|column| !column.fixed);
    let columns = sent.of(table).collect::<Vec<_>>().leak();
    (Insert { name: "claimed", table: table.name, columns, tail: "", holds: None, ..PLAIN }, sent)
});

/// Takes over the available runs: rows that another worker is writing at this moment are skipped instead of waited
/// for, so that workers that wake for the same runs neither queue up nor deadlock. Returns the ids of the taken runs.
/// The rows are found by their primary key, one by one: joins by hash and merge are off on this connection. The
/// arguments are the worker, and the columns of [`CLAIMED`].
pub(super) static CLAIM: LazyLock<String> = LazyLock::new(|| {
    let columns = CLAIMED.0.columns;
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let arrays: Vec<_> = columns.iter().zip(2..).map(|(column, number)| array(*column, number)).collect();
    let set = columns.iter().filter(|column| !Run::TABLE.tells(column.name));
    let set: Vec<_> = set.map(|Column { name, .. }| format!("{name} = u.{name}")).collect();
    format!(
        "WITH w AS (SELECT fence FROM worker WHERE fence = $1 AND ended_at IS NULL FOR KEY SHARE), \
         u AS (SELECT * FROM unnest({arrays}) AS u ({names})), \
         c AS (SELECT r.tenant, r.id FROM u CROSS JOIN w JOIN run r ON r.tenant = u.tenant AND r.id = u.id \
         WHERE r.revision = u.revision - 1 FOR UPDATE OF r SKIP LOCKED) \
         UPDATE run SET {set} FROM u JOIN c ON c.tenant = u.tenant AND c.id = u.id \
         WHERE run.tenant = c.tenant AND run.id = c.id RETURNING run.tenant, run.id",
        arrays = arrays.join(", "),
        names = names.join(", "),
        set = set.join(", "),
    )
});

/// Adds the runs to be taken over.
pub(super) fn write_claims(runs: &[&Run], batch: &mut Batch) {
    let mut runs = runs.to_vec();
    runs.sort_by(|one, other| one.key().cmp(&other.key()));
    let (insert, sent) = &*CLAIMED;
    batch.insert(insert, &runs, |run, values| run.put(&mut Only::of(*sent, values)));
}
