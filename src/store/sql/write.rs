//! The writes of a batch of changes, table by table. Each back end has its own way to write the rows.

use super::outbox::{Added, added};
use crate::id::Fence;
use crate::store::row::{Put, Row};
use crate::store::table::Table;
use crate::store::{Change, Question};

/// Hands the rows that are written by the law of their table to a macro, in the order in which they are written.
macro_rules! rows {
    ($each:ident) => {
        $each!(
            $crate::store::Schedule,
            $crate::store::Document,
            $crate::store::PublishedValue,
            $crate::store::Run,
            $crate::store::RunLabel,
            $crate::ledger::Record,
            $crate::store::RecordLabel,
            $crate::ledger::Look,
            $crate::store::Contact,
            $crate::store::Step,
            $crate::store::SharedEffect,
            $crate::store::Signal,
            $crate::store::Evidence,
            $crate::store::chain::Link
        )
    };
}
pub(in crate::store) use rows;

/// The statements for rows of this type, among those of all tables.
#[allow(clippy::expect_used, reason = "a row without statements would be lost in silence")]
pub(in crate::store) fn writes<R: Row, W>(
    all: &'static [W],
    table: impl Fn(&W) -> &'static Table,
) -> &'static W {
    let mut all = all.iter();
    all.find(|writes| table(writes).name == R::TABLE.name).expect("`rows!` lists all rows that `write` adds")
}

/// A statement that is not derived from the declaration of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Own {
    /// Adds a payload. It is addressed by its content: a stored one is the same and gets more uses.
    Payload,
    /// Adds the key of a tenant; the first key is kept.
    Key,
    /// Deletes the checkpoints of a run's turns, from behind its base up to a turn. The row of the run checks the
    /// fence.
    Prune,
    /// Drops contacts. The contacts that are written with them check the fence.
    Drop,
    /// Marks a signal as received by its run.
    Received,
    /// Adds to the number of events of an aggregate. If nothing of the aggregate was pending, it is due from now on;
    /// otherwise it keeps its turn.
    More,
    /// Adds the events themselves: `seq` holds the number of later events of the aggregate, and each event is placed
    /// from the end that [`More`](Self::More) has computed.
    Event,
    /// Writes the result of the publisher.
    Mark,
}

/// A batch under construction. Every row comes with the fence of its writer.
pub(in crate::store) trait Batch {
    /// Adds rows that are written by the law of their table.
    fn rows<'c, R: Row + 'c>(&mut self, rows: impl Iterator<Item = (&'c R, Option<Fence>)>);

    /// Adds rows by a statement of their own, in the order of their keys: two workers that write the same rows must
    /// lock them in one order.
    fn own<T>(&mut self, own: Own, rows: &[(T, Option<Fence>)], put: impl Fn(&T, &mut Self::Values<'_>));

    /// Adds new questions, and answers. An answer, or an answer that waits, is admitted only for a question that is
    /// still open: the first answer counts.
    fn questions(&mut self, rows: &[(&Question, Option<Fence>)]);

    type Values<'b>: Put;
}

/// Adds all writes of these changes.
pub(in crate::store) fn write<B: Batch>(changes: &[&Change], batch: &mut B) {
    payloads(changes, batch);
    batch.rows(changes.iter().filter_map(|c| Some((c.schedule.as_deref()?, c.fence))));
    batch.rows(changes.iter().flat_map(|c| c.documents.iter().map(|row| (row, c.fence))));
    batch.rows(changes.iter().filter_map(|c| Some((c.published.as_deref()?, c.fence))));
    batch.rows(changes.iter().filter_map(|c| Some((c.run.as_deref()?, c.fence))));
    batch.rows(changes.iter().flat_map(|c| c.labels.iter().map(|row| (row, c.fence))));
    batch.rows(changes.iter().filter_map(|c| Some((c.record.as_deref()?, c.fence))));
    batch.rows(changes.iter().flat_map(|c| c.record_labels.iter().map(|row| (row, c.fence))));
    batch.rows(changes.iter().filter_map(|c| Some((c.look.as_deref()?, c.fence))));
    batch.rows(changes.iter().flat_map(|c| c.contacts.iter().map(|row| (row, c.fence))));
    let dropped = changes.iter().flat_map(|c| c.dropped_contacts.iter().map(|row| (row, c.fence)));
    batch.own(Own::Drop, &sorted(dropped, |row| (&row.tenant, row.record, row.id)), |dropped, row| {
        row.cell(&dropped.tenant).cell(&dropped.record).cell(&dropped.id);
    });
    batch.rows(changes.iter().flat_map(|c| c.steps.iter().map(|row| (row, c.fence))));
    let pruned = changes.iter().filter_map(|c| Some(((c.run.as_deref()?, c.prune?), c.fence)));
    batch.own(Own::Prune, &sorted(pruned, |(run, _)| (&run.tenant, run.id)), |(run, last), row| {
        row.cell(&run.tenant).cell(&run.id).cell(&run.base).cell(last);
    });
    batch.rows(changes.iter().filter_map(|c| Some((c.used.as_deref()?, c.fence))));
    let questions = changes.iter().flat_map(|c| c.escalations.iter().map(|row| (row, c.fence)));
    batch.questions(&sorted(questions, Row::key));
    batch.rows(changes.iter().filter_map(|c| Some((c.signal.as_deref()?, c.fence))));
    let received = changes.iter().filter_map(|c| Some((c.received.as_deref()?, c.fence)));
    batch.own(Own::Received, &sorted(received, Row::key), |signal, row| {
        row.cell(&signal.tenant).cell(&signal.run).cell(&signal.name).cell(&signal.id);
    });
    outbox(changes, batch);
    batch.rows(changes.iter().filter_map(|c| Some((c.evidence.as_deref()?, None))));
    batch.rows(changes.iter().filter_map(|c| Some((c.link.as_deref()?, None))));
}

fn payloads<B: Batch>(changes: &[&Change], batch: &mut B) {
    let rows = changes.iter().flat_map(|c| &c.payloads);
    let rows = rows.map(|(tenant, payload)| ((tenant, payload.digest().0, payload), None));
    let rows = sorted(rows, |(tenant, digest, _)| (tenant, digest));
    // Each payload occurs once, because a statement cannot write a row twice.
    let rows = rows.chunk_by(|(one, _), (next, _)| (one.0, one.1) == (next.0, next.1));
    let rows: Vec<_> = rows.map(|alike| (alike, None)).collect();
    batch.own(Own::Payload, &rows, |alike, row| {
        let ((tenant, digest, payload), _) = &alike[0];
        row.cell(*tenant).with(digest.as_slice()).cell(*payload).cell(&(alike.len() as u64));
    });
    let keys = changes.iter().filter_map(|c| Some((c.tenant_key.as_ref()?, None)));
    batch.own(Own::Key, &sorted(keys, |(tenant, _)| tenant), |(tenant, key), row| {
        row.cell(tenant).cell(key);
    });
}

fn outbox<B: Batch>(changes: &[&Change], batch: &mut B) {
    let (aggregates, events) = added(changes);
    let aggregates: Vec<_> = aggregates.into_iter().map(|more| (more, None)).collect();
    batch.own(Own::More, &aggregates, |Added { tenant, aggregate, events, at }, row| {
        row.cell(*tenant).with(*aggregate).cell(events).cell(at);
    });
    let events = events.into_iter().map(|(event, behind, change)| ((event, behind), change.fence));
    let events = sorted(events, |(event, _)| (&event.tenant, &event.id));
    batch.own(Own::Event, &events, |(event, behind), row| {
        row.cell(&event.tenant).cell(&event.id).cell(&event.aggregate).cell(behind).cell(&event.kind);
        row.cell(&event.payload).cell(&event.created_at);
    });
    let marks = changes.iter().flat_map(|c| c.aggregates.iter().map(|mark| (mark, c.fence)));
    batch.own(Own::Mark, &sorted(marks, |mark| (&mark.tenant, &mark.name)), |mark, row| {
        row.cell(&mark.tenant).cell(&mark.name).cell(&mark.published).cell(&mark.tries).cell(&mark.refusals);
        row.cell(&mark.due_at).cell(&mark.escalation).cell(&mark.revision);
    });
}

fn sorted<T: Copy, K: Ord>(
    rows: impl Iterator<Item = (T, Option<Fence>)>,
    key: impl Fn(T) -> K,
) -> Vec<(T, Option<Fence>)> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(row, _)| key(*row));
    rows
}
