//! Cutting a batch before it is written: by lane over two connections, by tenant if the database is distributed, and
//! where one change touches a row that an earlier one has touched.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use crate::id::Tenant;
use crate::store::Change;
use crate::store::change::Written;
use crate::store::row::Row as _;

/// The number of changes from which two connections are faster than one: the server works on one core for each.
const WORTH_TWO: usize = 32;

/// The two halves of a large batch, cut by lane so that changes of one lane stay in their order on one connection.
/// `None` if some change is in no lane: other changes of the batch may build on it.
pub(super) fn halves<'c>(changes: &[&'c Change]) -> Option<[Vec<&'c Change>; 2]> {
    if changes.len() < WORTH_TWO || changes.iter().any(|change| change.lane.is_none()) {
        return None;
    }
    let (others, ones): (Vec<_>, Vec<_>) = changes.iter().partition(|change| is_second(change));
    (!ones.is_empty() && !others.is_empty()).then_some([ones, others])
}

pub(super) fn is_second(change: &Change) -> bool {
    change.lane.is_some_and(|lane| lane.0 % 2 == 1)
}

/// The tenant whose rows a change is about; `None` for a worker's own, and for a queue's.
fn tenant(change: &Change) -> Option<&Tenant> {
    change.written().find_map(Written::tenant)
}

/// The places of the changes, tenant by tenant. The changes of a tenant stay in their order, and those of a lane, too,
/// even if it goes through several tenants. Other changes may build on one of no tenant, or it on them: it keeps its
/// place between them.
pub(super) fn by_tenant(changes: &[&Change]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let (mut part_of, mut lanes) = (HashMap::new(), HashMap::new());
    for (place, change) in changes.iter().enumerate() {
        let Some(tenant) = tenant(change) else {
            part_of.clear();
            parts.push(vec![place]);
            continue;
        };
        let earlier = change.lane.and_then(|lane| lanes.insert(lane, tenant));
        if earlier.is_some_and(|earlier| earlier != tenant) {
            part_of.clear();
        }
        let part = *part_of.entry(tenant).or_insert_with(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        parts[part].push(place);
    }
    parts
}

/// Cuts the changes before one that touches a row that an earlier one has touched: a statement cannot write a row
/// twice.
pub(super) fn waves<'c>(changes: &[&'c Change]) -> Vec<Vec<&'c Change>> {
    let mut waves = vec![Vec::new()];
    let mut touched = HashSet::new();
    for change in changes {
        let rows: Vec<_> = change.written().filter_map(row).collect();
        // All events that are added to one aggregate are one row of the statement; they do not go together with a
        // mark of it.
        let other = |(table, row): &(u8, i64)| match *table {
            MARKS => touched.contains(&(EVENTS, *row)),
            EVENTS => touched.contains(&(MARKS, *row)),
            _ => touched.contains(&(*table, *row)),
        };
        let again = |row: &(u8, i64)| row.0 == MARKS && touched.contains(row);
        // A statement does not see its own writes, so it cannot delete them again.
        if change.prune.is_some() || rows.iter().any(|row| other(row) || again(row)) {
            waves.push(Vec::new());
            touched.clear();
        }
        touched.extend(rows);
        if let Some(wave) = waves.last_mut() {
            wave.push(*change);
        }
    }
    waves
}

const MARKS: u8 = 0;
const EVENTS: u8 = 1;

/// The row of a table that two changes of one statement must not both write.
fn row(written: Written<'_>) -> Option<(u8, i64)> {
    Some(match written {
        Written::Mark(mark) => (MARKS, hashed((&mark.tenant, &mark.name))),
        Written::Event(event) => (EVENTS, hashed((&event.tenant, &event.aggregate))),
        Written::Record(record) => (2, record.id.0),
        Written::Look(look) => (3, look.record.0),
        Written::Run(run) => (4, run.id.0),
        Written::Question(question) => (5, question.id.0),
        Written::Signal(signal) | Written::Received(signal) => (6, hashed(signal.key())),
        Written::Schedule(schedule) => (7, hashed(schedule.key())),
        Written::Document(document) => (8, hashed(document.key())),
        Written::Published(value) => (9, hashed(value.key())),
        _ => return None,
    })
}

/// A hash of the key. A collision of two other keys does no harm.
fn hashed(key: impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish().cast_signed()
}
