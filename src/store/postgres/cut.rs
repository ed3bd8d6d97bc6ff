//! How a batch is cut before it is written: by lane over two connections, by tenant where the database is distributed,
//! and where one change touches a row that one before it has touched.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use crate::id::Tenant;
use crate::store::Change;
use crate::store::row::Row as _;

/// From this many changes on, two connections are faster than one: the server works on one core for each.
const WORTH_TWO: usize = 32;

/// A large batch, cut by lane so that changes of one lane stay in their order on one connection. None where some
/// change is in no lane: others of the batch may build on it.
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

/// Whose rows a change is about; none for a worker's own.
pub(super) fn tenant(change: &Change) -> Option<&Tenant> {
    let of_record = change.record.as_ref().map(|record| &record.tenant);
    let of_look = || change.look.as_ref().map(|look| &look.tenant);
    let of_run = || change.run.as_ref().map(|run| &run.tenant);
    let of_step = || change.steps.first().map(|step| &step.tenant);
    let of_use = || change.used.as_ref().map(|used| &used.tenant);
    let of_question = || change.escalations.first().map(|escalation| &escalation.tenant);
    let of_signal = || change.signal.as_ref().or(change.received.as_ref()).map(|signal| &signal.tenant);
    let of_schedule = || change.schedule.as_ref().map(|schedule| &schedule.tenant);
    let of_document = || change.documents.first().map(|document| &document.tenant);
    let of_event = || change.events.first().map(|event| &event.tenant);
    let of_mark = || change.aggregates.first().map(|mark| &mark.tenant);
    let of_forgotten = || change.forgotten.first().map(|event| &event.tenant);
    let of_retired = || change.retired.first().map(|retired| &retired.tenant);
    let of_erased = || change.erased.as_ref();
    let of_evidence = || change.evidence.as_ref().map(|evidence| &evidence.tenant);
    let of_payload = || change.payloads.first().map(|(tenant, _)| tenant);
    let of_key = || change.tenant_key.as_ref().map(|(tenant, _)| tenant);
    of_record
        .or_else(of_look)
        .or_else(of_run)
        .or_else(of_step)
        .or_else(of_use)
        .or_else(of_question)
        .or_else(of_signal)
        .or_else(of_schedule)
        .or_else(of_document)
        .or_else(of_event)
        .or_else(of_mark)
        .or_else(of_forgotten)
        .or_else(of_retired)
        .or_else(of_erased)
        .or_else(of_evidence)
        .or_else(of_payload)
        .or_else(of_key)
}

/// Cuts changes where one touches a row that one before it has touched: a statement cannot write a row twice.
pub(super) fn waves<'c>(changes: &[&'c Change]) -> Vec<Vec<&'c Change>> {
    let mut waves = vec![Vec::new()];
    let mut touched = HashSet::new();
    for change in changes {
        let record = change.record.iter().map(|record| (0, record.id.0));
        let run = change.run.iter().map(|run| (1, run.id.0));
        let questions = change.escalations.iter().map(|escalation| (2, escalation.id.0));
        let signals = change
            .signal
            .iter()
            .chain(&change.received)
            .map(|signal| (3, hashed((signal.run, &signal.name, &signal.id))));
        let marks = change.aggregates.iter().map(|mark| (4, hashed((&mark.tenant, &mark.name))));
        let look = change.look.iter().map(|look| (6, look.record.0));
        let schedules = change.schedule.iter().map(|schedule| (7, hashed(schedule.key())));
        let documents = change.documents.iter().map(|document| (8, hashed(document.key())));
        let rows = record.chain(look).chain(run).chain(questions).chain(signals).chain(marks);
        let rows: Vec<_> = rows.chain(schedules).chain(documents).collect();
        // All that are added to one aggregate are one row of the statement; not together with a mark of it.
        let events = change.events.iter().map(|event| hashed((&event.tenant, &event.aggregate)));
        let added: Vec<_> = events.map(|aggregate| (5, aggregate)).collect();
        let other = |row: &(i64, i64)| match row.0 {
            4 => touched.contains(&(5, row.1)),
            5 => touched.contains(&(4, row.1)),
            _ => false,
        };
        let both = rows.iter().chain(&added).any(other);
        // A statement does not see what it writes itself, so it cannot delete that again.
        if both || rows.iter().any(|row| touched.contains(row)) || change.prune.is_some() {
            waves.push(Vec::new());
            touched.clear();
        }
        touched.extend(rows.into_iter().chain(added));
        if let Some(wave) = waves.last_mut() {
            wave.push(*change);
        }
    }
    waves
}

/// The same for the same key; that two others fall together does no harm.
fn hashed(key: impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish().cast_signed()
}
