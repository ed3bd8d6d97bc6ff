//! The reads that both databases answer by the same statements, in the order of [`reads`](crate::store::reads).
//! Arguments are numbered from `$1` on; a text that begins with WHERE is the part behind a query for the rows of the
//! answer. Where the databases need different words, both texts are side by side. The reads of questions are in
//! [`escalation`](super::escalation).

use std::fmt::Debug;

use super::ask::{Found, Listed, Queries, Reader, named};
use super::history;
use super::outbox::by_aggregate;
use crate::clock::Timestamp;
use crate::id::{Fence, QuestionId, RecordId, RunId, Tenant};
use crate::ledger::{Key, Look, OperationKey, Record};
use crate::payload::{DigestKey, Payload, PayloadDigest};
use crate::store::cell::Declared as _;
use crate::store::chain::Link;
use crate::store::reads::reads;
use crate::store::row::{Given, Take as _};
use crate::store::{
    Aggregate, AvoidedDuplicates, CANCEL, COMMAND, Change, Contact, Document, Due, Evidence, History,
    HistoryPlace, OutboxEvent, PastCall, PastStep, PastUse, Published, PublishedValue, Question,
    QuestionCount, QuestionKind, QuestionLoad, QuestionSpan, QueueLoad, RecordLabel, RetentionLoad, Run,
    RunCursor, RunFilter, RunLabel, RunPage, Schedule, SharedEffect, Signal, Store, StoreError, StoreFuture,
    Turns, Verdict, Worker,
};

/// The condition of a run that has not ended and is still to be cancelled at its deadline. The first part is that of
/// the index. The command is looked up run by run: for a NOT EXISTS, PostgreSQL would first read all commands.
pub(in crate::store) const UNENDED: &str = "state NOT IN (3, 4) AND coalesce((SELECT NOT s.received AND run.state = 5 \
     FROM signal s WHERE s.tenant = run.tenant AND s.run = run.id AND s.name = '~!cancel' AND s.id = '~deadline'), true)";

macro_rules! answer {
    ($($(#[$meaning:meta])+ $question:ident($($named:ident: $kind:ty),*) -> $answer:ty;)+) => {
        $(#[allow(clippy::elidable_lifetime_names, reason = "what some questions name lives as long as the answer")]
        fn $question<'a>(&'a self, $($named: $kind),*) -> StoreFuture<'a, $answer> {
            Box::pin(Queries::$question(self, $($named),*))
        })+
    };
}

impl<D: Reader + Debug + 'static> Store for Queries<D> {
    /// Fails: this store only reads.
    fn commit<'a>(&'a self, _: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async { Err(StoreError::Closed) })
    }

    reads!(answer);

    fn retention_load(&self, now: Timestamp) -> StoreFuture<'_, Vec<RetentionLoad>> {
        Box::pin(self.rows_kept(now))
    }

    fn look_failing(&self) -> StoreFuture<'_, Option<Look>> {
        Box::pin(self.row("WHERE tries > 0 ORDER BY tries DESC LIMIT 1", &[]))
    }
}

/// The reads of records.
impl<D: Reader> Queries<D> {
    pub(super) async fn record_find(&self, tenant: &Tenant, key: &OperationKey) -> Found<Record> {
        self.row("WHERE tenant = $1 AND key = $2", &[tenant.into(), key.text().into()]).await
    }

    pub(super) async fn record_at(&self, tenant: &Tenant, id: RecordId) -> Found<Record> {
        self.row("WHERE tenant = $1 AND id = $2", &[tenant.into(), id.0.into()]).await
    }

    /// Records of runs are found through their runs: an index of all started records would be written twice for each
    /// call.
    pub(super) async fn record_orphans(&self, after: RecordId, limit: u32) -> Listed<Record> {
        // Without named indexes SQLite may walk the whole table. Without the OFFSET PostgreSQL would begin at the
        // other end, with all records of all runs.
        let started = D::either(
            "id IN (SELECT id FROM record INDEXED BY record_orphan WHERE status = 1 AND run IS NULL \
             UNION ALL SELECT c.id FROM run u INDEXED BY run_unsettled CROSS JOIN record c INDEXED BY record_run \
             ON c.run = u.id AND c.tenant = u.tenant WHERE u.unsettled AND c.status = 1 \
             AND (u.state >= 3 OR c.turn NOT IN (u.base, u.turn)))",
            "(tenant, id) IN (SELECT tenant, id FROM record WHERE loose IS NOT NULL \
             UNION ALL SELECT c.tenant, c.id FROM run u CROSS JOIN LATERAL (SELECT tenant, id FROM record o \
             WHERE o.tenant = u.tenant AND o.run = u.id AND o.status = 1 \
             AND (u.state >= 3 OR o.turn NOT IN (u.base, u.turn)) OFFSET 0) c WHERE u.unsettled)",
        );
        let behind = format!(
            "WHERE {started} AND id > $1 \
             AND EXISTS (SELECT 1 FROM worker w WHERE w.fence = record.fence AND w.ended_at IS NOT NULL) \
             AND (escalation IS NULL OR EXISTS (SELECT 1 FROM escalation e WHERE e.tenant = record.tenant \
             AND e.id = record.escalation AND e.answer IS NULL AND e.kind = $2)) ORDER BY id LIMIT $3"
        );
        self.page(&behind, after.0, &[QuestionKind::UnknownTool.code().into(), limit.into()]).await
    }

    /// Each page goes on behind the last key of the page before.
    pub(super) async fn record_committed(
        &self,
        tenant: &Tenant,
        since: Timestamp,
        after: &str,
        limit: u32,
    ) -> Listed<Record> {
        let index = D::either("INDEXED BY record_key ", "");
        let behind = format!(
            "{index}WHERE tenant = $1 AND key > $2 AND status = 2 AND updated_at >= $3 ORDER BY key LIMIT $4"
        );
        self.sound(&behind, &[tenant.into(), after.into(), since.0.into(), limit.into()]).await
    }

    /// Each page goes on from the last key of the page before.
    pub(super) async fn record_list(
        &self,
        tenant: &Tenant,
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Listed<Record> {
        let index = D::either("INDEXED BY record_key ", "");
        let behind = format!(
            "{index}WHERE tenant = $1 AND key >= $2 AND key < $3 AND key <> $4 ORDER BY key LIMIT $5"
        );
        let (from, end) = (prefix.max(after), end_of(prefix));
        let place = [tenant.into(), from.into(), end.as_str().into(), after.into(), limit.into()];
        self.sound(&behind, &place).await
    }

    /// Each page goes on from the last key of the page before.
    pub(super) async fn record_labelled(
        &self,
        tenant: &Tenant,
        (name, value): (&str, &str),
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Listed<Record> {
        let index = D::either("INDEXED BY record_label_value ", "");
        // PostgreSQL would join, and sort.
        let ids = D::either("id IN (", "tenant = $1 AND id = ANY(ARRAY(");
        let end = D::either(")", "))");
        let behind = format!(
            "WHERE {ids}SELECT r.id FROM record_label l {index}CROSS JOIN record r WHERE l.tenant = $1 AND l.name = $2 \
             AND l.value = $3 AND l.key >= $4 AND l.key < $5 AND l.key <> $6 AND r.tenant = l.tenant AND r.id = l.record \
             ORDER BY l.key LIMIT $7{end} ORDER BY key"
        );
        let (from, last) = (prefix.max(after), end_of(prefix));
        let label = [tenant.into(), name.into(), value.into()];
        let place = [from.into(), last.as_str().into(), after.into(), limit.into()];
        self.sound(&behind, &[&label[..], &place[..]].concat()).await
    }

    pub(super) async fn record_labels(&self, tenant: &Tenant, id: RecordId) -> Listed<RecordLabel> {
        self.rows("WHERE tenant = $1 AND record = $2 ORDER BY name", &[tenant.into(), id.0.into()]).await
    }

    pub(super) async fn record_removed(
        &self,
        tenant: &Tenant,
        key: &str,
        since: Timestamp,
    ) -> Result<bool, StoreError> {
        let index = D::either("INDEXED BY record_key ", "");
        let sql = format!(
            "SELECT 1 FROM record {index}WHERE tenant = $1 AND key >= $2 AND key < $2 || ';' \
             AND (key = $2 OR key >= $2 || ':') AND status NOT IN (3, 5) AND updated_at >= $3 LIMIT 1"
        );
        Ok(self.number(&sql, &[tenant.into(), key.into(), since.0.into()]).await?.is_some())
    }

    pub(super) async fn look_due(&self, until: Timestamp, after: Option<&Look>, limit: u32) -> Listed<Look> {
        let behind = "WHERE due_at <= $1 AND (due_at, tenant, record) > ($2, $3, $4) \
                      ORDER BY due_at, tenant, record LIMIT $5";
        let at = after.and_then(|look| look.due_at).unwrap_or(Timestamp::MIN);
        let (tenant, record) = after.map_or(("", i64::MIN), |look| (look.tenant.as_str(), look.record.0));
        self.due(behind, &[until.0.into(), at.0.into(), tenant.into(), record.into()], limit).await
    }

    pub(super) async fn look_find(&self, tenant: &Tenant, record: RecordId) -> Found<Look> {
        self.row("WHERE tenant = $1 AND record = $2", &[tenant.into(), record.0.into()]).await
    }

    pub(super) async fn record_expired(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Listed<Record> {
        self.sound(&super::retention::expired::<D>(limit), &[after.0.into(), until.0.into()]).await
    }

    pub(super) async fn record_expiring(&self, after: Timestamp) -> Found<Timestamp> {
        Ok(self.number(super::retention::EXPIRING, &[after.0.into()]).await?.map(Timestamp))
    }

    pub(super) async fn run_over(
        &self,
        workflow: &str,
        after: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Listed<Run> {
        let arguments = [workflow.into(), after.0.into(), until.0.into()];
        self.sound(&super::retention::over::<D>(limit), &arguments).await
    }

    pub(super) async fn run_over_next(&self, workflow: &str, after: Timestamp) -> Found<Timestamp> {
        let sql = super::retention::next_over::<D>();
        Ok(self.number(&sql, &[workflow.into(), after.0.into()]).await?.map(Timestamp))
    }

    pub(super) async fn signal_over(
        &self,
        workflow: &str,
        after: Timestamp,
        until: Timestamp,
        limit: u32,
    ) -> Listed<Signal> {
        let arguments = [workflow.into(), after.0.into(), until.0.into()];
        self.sound(&super::retention::signals_over::<D>(limit), &arguments).await
    }

    pub(super) async fn record_uses(&self, tenant: &Tenant, id: RecordId) -> Listed<SharedEffect> {
        self.rows("WHERE tenant = $1 AND record = $2 ORDER BY run, turn", &[tenant.into(), id.0.into()]).await
    }

    pub(super) async fn record_evidence(&self, tenant: &Tenant, id: RecordId) -> Listed<Evidence> {
        self.rows(super::judge::EVIDENCE, &[tenant.into(), id.0.into()]).await
    }

    pub(super) async fn record_contacts(&self, tenant: &Tenant, id: RecordId) -> Listed<Contact> {
        self.rows("WHERE tenant = $1 AND record = $2 ORDER BY id", &[tenant.into(), id.0.into()]).await
    }
}

/// The reads of runs and queues, and of the next due instants.
impl<D: Reader> Queries<D> {
    pub(super) async fn run_find(&self, tenant: &Tenant, id: RunId) -> Found<Run> {
        self.row("WHERE tenant = $1 AND id = $2", &[tenant.into(), id.0.into()]).await
    }

    pub(super) async fn run_keyed(&self, tenant: &Tenant, workflow: &str, key: &str) -> Found<Run> {
        let behind = "WHERE tenant = $1 AND workflow = $2 AND key = $3";
        self.row(behind, &[tenant.into(), workflow.into(), key.into()]).await
    }

    pub(super) async fn run_history(
        &self,
        tenant: &Tenant,
        id: RunId,
        turns: Turns,
    ) -> Result<History, StoreError> {
        let asked = [tenant.into(), id.0.into(), turns.base.into(), turns.first.into(), turns.last.into()];
        let steps = self.fetch(history::STEPS.to_owned(), &asked).await?;
        let calls = self.fetch(history::CALLS.to_owned(), &asked).await?;
        let uses = self.fetch(history::USES.to_owned(), &asked).await?;
        let step = |row| PastStep::take(&mut D::values("step", row));
        let call = |row| PastCall::take(&mut D::values("record", row));
        let answered = |row| PastUse::take(&mut D::values("use", row));
        Ok(History {
            steps: steps.iter().map(step).collect::<Result<_, _>>()?,
            calls: calls.iter().map(call).collect::<Result<_, _>>()?,
            uses: uses.iter().map(answered).collect::<Result<_, _>>()?,
            signals: self.signal_pending(&[(tenant.clone(), id)]).await?,
        })
    }

    pub(super) async fn run_orphans(&self, after: RunId, limit: u32) -> Listed<Run> {
        let behind = "WHERE state = 1 AND id > $1 AND EXISTS (SELECT 1 FROM worker w WHERE w.fence = run.fence \
                      AND w.ended_at IS NOT NULL) ORDER BY id LIMIT $2";
        self.page(behind, after.0, &[limit.into()]).await
    }

    pub(in crate::store) async fn run_answered(&self, after: RunId, limit: u32) -> Listed<Run> {
        let index = D::either("INDEXED BY escalation_run ", "");
        let behind = format!(
            "WHERE waits_on IN (1, 3) AND id > $1 AND NOT EXISTS (SELECT 1 FROM escalation e {index}WHERE \
             e.tenant = run.tenant AND e.run = run.id AND e.answer IS NULL AND e.kind IN ($2, $3, $4, $5)) \
             AND NOT EXISTS (SELECT 1 FROM use s JOIN record r ON r.tenant = s.tenant AND r.id = s.record \
             WHERE s.tenant = run.tenant AND s.run = run.id AND r.escalation IS NOT NULL) ORDER BY id LIMIT $6"
        );
        let [asked, gone, undo, pending] = QuestionKind::PARKING.map(QuestionKind::code);
        let rest = [asked.into(), gone.into(), undo.into(), pending.into(), limit.into()];
        self.page(&behind, after.0, &rest).await
    }

    /// The runs are found by their unreceived signals, which are few.
    pub(in crate::store) async fn run_signalled(&self, after: RunId, limit: u32) -> Listed<Run> {
        // In SQLite the primary key of a run is its id alone.
        let few = D::either(
            "id IN (SELECT s.run FROM signal s INDEXED BY signal_pending WHERE NOT s.received)",
            "(tenant, id) IN (SELECT tenant, run FROM signal WHERE NOT received)",
        );
        let index = D::either("INDEXED BY signal_pending ", "");
        let behind = format!(
            "WHERE {few} AND EXISTS (SELECT 1 FROM signal s {index}WHERE s.tenant = run.tenant AND s.run = run.id \
             AND NOT s.received AND (waits_on IN (2, 3) OR substr(s.name, 1, 2) = $2)) AND state IN (0, 2) AND id > $1 \
             ORDER BY id LIMIT $3"
        );
        self.page(&behind, after.0, &[COMMAND.into(), limit.into()]).await
    }

    /// The runs are found by their unreceived signals, too.
    pub(super) async fn run_cancelled(&self, after: RunId, limit: u32) -> Listed<Run> {
        let few = D::either(
            "id IN (SELECT s.run FROM signal s INDEXED BY signal_pending WHERE NOT s.received)",
            "(tenant, id) IN (SELECT tenant, run FROM signal WHERE NOT received)",
        );
        let index = D::either("INDEXED BY signal_pending ", "");
        let behind = format!(
            "WHERE {few} AND EXISTS (SELECT 1 FROM signal s {index}WHERE s.tenant = run.tenant AND s.run = run.id \
             AND NOT s.received AND s.name = $2) AND state = 5 AND id > $1 ORDER BY id LIMIT $3"
        );
        self.page(&behind, after.0, &[CANCEL.into(), limit.into()]).await
    }

    pub(super) async fn run_children(
        &self,
        tenant: &Tenant,
        parent: RunId,
        after: RunId,
        limit: u32,
    ) -> Listed<Run> {
        let behind = "WHERE id > $1 AND tenant = $2 AND parent = $3 ORDER BY id LIMIT $4";
        self.page(behind, after.0, &[tenant.into(), parent.0.into(), limit.into()]).await
    }

    pub(super) async fn run_due(&self, until: Timestamp, after: Option<&Run>, limit: u32) -> Listed<Run> {
        let behind = "WHERE wake_at <= $1 AND (wake_at, id) > ($2, $3) ORDER BY wake_at, id LIMIT $4";
        let at = after.and_then(Run::wake_at).unwrap_or(Timestamp::MIN);
        let id = after.map_or(i64::MIN, |run| run.id.0);
        self.due(behind, &[until.0.into(), at.0.into(), id.into()], limit).await
    }

    pub(super) async fn run_overdue(&self, until: Timestamp, after: Option<&Run>, limit: u32) -> Listed<Run> {
        let behind = format!(
            "WHERE deadline <= $1 AND (deadline, id) > ($2, $3) AND {UNENDED} ORDER BY deadline, id LIMIT $4"
        );
        let at = after.and_then(|run| run.deadline).unwrap_or(Timestamp::MIN);
        let id = after.map_or(i64::MIN, |run| run.id.0);
        self.due(&behind, &[until.0.into(), at.0.into(), id.into()], limit).await
    }

    pub(in crate::store) async fn next_due(&self, after: Timestamp) -> Found<Timestamp> {
        let sql = format!(
            "SELECT min(at) FROM (SELECT min(wake_at) AS at FROM run WHERE wake_at > $1 \
             UNION ALL SELECT (SELECT deadline FROM run WHERE deadline > $1 AND {UNENDED} ORDER BY deadline LIMIT 1) \
             UNION ALL SELECT min(due_at) FROM queue WHERE due_at > $1 \
             UNION ALL SELECT min(next_at) FROM schedule WHERE next_at > $1 \
             UNION ALL SELECT min(due_at) FROM look WHERE due_at > $1) AS due"
        );
        Ok(self.number(&sql, &[after.0.into()]).await?.map(Timestamp))
    }

    pub(super) async fn run_list(&self, tenant: &Tenant, after: RunId, limit: u32) -> Listed<Run> {
        let behind = "WHERE id > $1 AND tenant = $2 ORDER BY id LIMIT $3";
        self.page(behind, after.0, &[tenant.into(), limit.into()]).await
    }

    /// The query takes one look into the index for each queue.
    pub(in crate::store) async fn queue_waiting(&self) -> Listed<String> {
        // With `min`, PostgreSQL may read all rows.
        let sql = D::either(
            "WITH RECURSIVE q AS (SELECT min(queue) AS queue FROM run WHERE state = 0 \
             UNION ALL SELECT (SELECT min(queue) FROM run WHERE state = 0 AND queue > q.queue) \
             FROM q WHERE q.queue IS NOT NULL) SELECT queue FROM q WHERE queue IS NOT NULL",
            "WITH RECURSIVE q AS ((SELECT queue FROM run WHERE state = 0 ORDER BY queue LIMIT 1) \
             UNION ALL SELECT (SELECT queue FROM run WHERE state = 0 AND queue > q.queue ORDER BY queue LIMIT 1) \
             FROM q WHERE q.queue IS NOT NULL) SELECT queue FROM q WHERE queue IS NOT NULL",
        );
        self.fetch(sql.to_owned(), &[]).await?.iter().map(|row| D::values("run", row).cell()).collect()
    }

    pub(super) async fn queue_admitted(&self, queue: &str, fence: Fence, since: Timestamp) -> Listed<Run> {
        let behind = "WHERE queue = $1 AND admitted_at >= $2 AND state IN (1, 2) AND fence = $3 AND state = 1 \
                      ORDER BY admitted_at, tenant, id";
        self.sound(behind, &[queue.into(), since.0.into(), fence.0.into()]).await
    }

    pub(super) async fn queue_load(&self) -> Listed<QueueLoad> {
        let sql = "SELECT queue, CAST(sum(queued) AS bigint), CAST(sum(running) AS bigint) FROM (SELECT queue, count(*) AS queued, \
                   0 AS running FROM run WHERE queue IS NOT NULL AND state = 0 GROUP BY queue \
                   UNION ALL SELECT queue, 0, count(*) FROM run WHERE queue IS NOT NULL AND admitted_at IS NOT NULL \
                   AND state IN (1, 2) GROUP BY queue) q GROUP BY queue ORDER BY queue";
        let read = |row| {
            let mut values = D::values("run", row);
            Ok(QueueLoad { queue: values.cell()?, queued: values.cell()?, running: values.cell()? })
        };
        self.fetch(sql.to_owned(), &[]).await?.iter().map(read).collect()
    }
}

/// The reads of schedules, published values and documents.
impl<D: Reader> Queries<D> {
    pub(super) async fn schedule_find(&self, tenant: &Tenant, name: &str) -> Found<Schedule> {
        self.row("WHERE tenant = $1 AND name = $2", &[tenant.into(), name.into()]).await
    }

    pub(super) async fn schedule_list(&self, tenant: &Tenant, after: &str, limit: u32) -> Listed<Schedule> {
        let behind = "WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3";
        self.sound(behind, &[tenant.into(), after.into(), limit.into()]).await
    }

    pub(super) async fn schedule_due(
        &self,
        until: Timestamp,
        after: Option<&Schedule>,
        limit: u32,
    ) -> Listed<Schedule> {
        let behind = "WHERE next_at <= $1 AND (next_at, tenant, name) > ($2, $3, $4) \
                      ORDER BY next_at, tenant, name LIMIT $5";
        let at = after.and_then(|schedule| schedule.next_at).unwrap_or(Timestamp::MIN);
        let (tenant, name) = after.map_or(("", ""), |row| (row.tenant.as_str(), row.name.as_str()));
        self.due(behind, &[until.0.into(), at.0.into(), tenant.into(), name.into()], limit).await
    }

    pub(super) async fn link_list(&self, chain: i64, after: i64, limit: u32) -> Listed<Link> {
        let behind = "WHERE chain = $1 AND number > $2 ORDER BY number LIMIT $3";
        self.sound(behind, &[chain.into(), after.into(), limit.into()]).await
    }

    pub(super) async fn link_chain(&self, after: i64) -> Found<i64> {
        self.number("SELECT min(chain) FROM link WHERE chain > $1", &[after.into()]).await
    }

    pub(super) async fn run_labels(&self, tenant: &Tenant, id: RunId) -> Listed<RunLabel> {
        self.rows("WHERE tenant = $1 AND run = $2 ORDER BY name", &[tenant.into(), id.0.into()]).await
    }

    pub(super) async fn published_find(
        &self,
        tenant: &Tenant,
        run: RunId,
        name: &str,
    ) -> Found<PublishedValue> {
        let behind = "WHERE tenant = $1 AND run = $2 AND name = $3";
        self.row(behind, &[tenant.into(), run.0.into(), name.into()]).await
    }

    pub(in crate::store) async fn document_find(
        &self,
        tenant: &Tenant,
        kind: &str,
        id: &str,
    ) -> Found<Document> {
        let behind = "WHERE tenant = $1 AND kind = $2 AND id = $3";
        self.row(behind, &[tenant.into(), kind.into(), id.into()]).await
    }

    pub(super) async fn document_list(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: u32,
    ) -> Listed<Document> {
        let behind = "WHERE tenant = $1 AND kind = $2 AND id > $3 ORDER BY id LIMIT $4";
        self.sound(behind, &[tenant.into(), kind.into(), after.into(), limit.into()]).await
    }

    /// SQLite must be told the index: otherwise it takes the primary key and reads all documents that were ever open.
    pub(super) async fn document_open(
        &self,
        tenant: &Tenant,
        kind: &str,
        after: &str,
        limit: u32,
    ) -> Listed<Document> {
        let index = D::either("INDEXED BY document_open ", "");
        let behind =
            format!("{index}WHERE tenant = $1 AND kind = $2 AND open AND id > $3 ORDER BY id LIMIT $4");
        self.sound(&behind, &[tenant.into(), kind.into(), after.into(), limit.into()]).await
    }
}

/// The reads of the outbox.
impl<D: Reader> Queries<D> {
    pub(super) async fn outbox_due(&self, until: Timestamp, limit: u32) -> Listed<Due> {
        // PostgreSQL goes by aggregate: a join could be planned as a scan of all events that were ever published.
        let pending = D::either(
            "outbox_aggregate a CROSS JOIN outbox o ON o.tenant = a.tenant AND o.aggregate = a.name AND o.seq > a.published \
             AND o.seq <= a.published + $2 WHERE a.published < a.last AND a.escalation IS NULL AND a.due_at <= $1",
            "(SELECT * FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at <= $1 \
             ORDER BY due_at, tenant, name LIMIT $2) a, LATERAL (SELECT * FROM outbox WHERE tenant = a.tenant \
             AND aggregate = a.name AND seq > a.published ORDER BY seq LIMIT $2) o",
        );
        let sql = format!(
            "SELECT a.tenant, a.name, a.last, a.published, a.tries, a.refusals, a.due_at, a.escalation, a.revision, \
             o.tenant, o.id, o.aggregate, o.seq, o.kind, o.payload, o.created_at FROM {pending} \
             ORDER BY a.due_at, a.tenant, a.name, o.seq LIMIT $2"
        );
        // The row holds an aggregate, followed by one of its events.
        let both = |row| {
            let mut values = D::values("outbox", row);
            let aggregate = Aggregate::take(&mut values)?;
            Ok((aggregate, OutboxEvent::take(&mut values)))
        };
        Ok(by_aggregate(self.fetch(sql, &[until.0.into(), limit.into()]).await?.iter().map(both)))
    }

    pub(super) async fn outbox_next(&self, after: Timestamp) -> Found<Timestamp> {
        let sql = "SELECT min(due_at) FROM outbox_aggregate WHERE published < last AND escalation IS NULL AND due_at > $1";
        Ok(self.number(sql, &[after.0.into()]).await?.map(Timestamp))
    }

    /// True if an event is pending.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) async fn outbox_is_pending(&self) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM outbox_aggregate WHERE published < last AND escalation IS NULL LIMIT 1";
        Ok(self.number(sql, &[]).await?.is_some())
    }

    pub(super) async fn outbox_published(&self, after: Timestamp, limit: u32) -> Listed<Published> {
        let published = D::either(
            "outbox o CROSS JOIN outbox_aggregate a ON a.tenant = o.tenant AND a.name = o.aggregate",
            "outbox o, LATERAL (SELECT published FROM outbox_aggregate WHERE tenant = o.tenant AND name = o.aggregate) a",
        );
        let sql = format!(
            "SELECT o.tenant, o.aggregate, o.seq, o.created_at FROM {published} WHERE o.created_at >= $1 \
             AND o.seq <= a.published ORDER BY o.created_at, o.tenant, o.aggregate, o.seq LIMIT $2"
        );
        let read = |row| {
            let mut c = D::values("outbox", row);
            Ok(Published { tenant: c.cell()?, aggregate: c.cell()?, seq: c.cell()?, created_at: c.cell()? })
        };
        let found = self.fetch(sql, &[after.0.into(), limit.into()]).await?;
        Ok(found.iter().map(read).filter_map(named).collect())
    }

    pub(super) async fn outbox_find(&self, tenant: &Tenant, id: &str) -> Found<OutboxEvent> {
        self.row(super::judge::EVENT, &[tenant.into(), id.into()]).await
    }

    pub(super) async fn outbox_aggregate(&self, tenant: &Tenant, name: &str) -> Found<Aggregate> {
        self.row(super::judge::AGGREGATE, &[tenant.into(), name.into()]).await
    }

    pub(super) async fn outbox_set_aside(&self, tenant: &Tenant, question: QuestionId) -> Found<Aggregate> {
        self.row("WHERE tenant = $1 AND escalation = $2", &[tenant.into(), question.0.into()]).await
    }

    pub(super) async fn outbox_all_set_aside(
        &self,
        tenant: &Tenant,
        after: QuestionId,
        limit: u32,
    ) -> Listed<Aggregate> {
        let index = D::either("INDEXED BY outbox_set_aside ", "");
        let behind = format!("{index}WHERE tenant = $1 AND escalation > $2 ORDER BY escalation LIMIT $3");
        self.sound(&behind, &[tenant.into(), after.0.into(), limit.into()]).await
    }

    pub(super) async fn outbox_at(&self, tenant: &Tenant, aggregate: &str, seq: i64) -> Found<OutboxEvent> {
        let behind = "WHERE tenant = $1 AND aggregate = $2 AND seq = $3";
        self.row(behind, &[tenant.into(), aggregate.into(), seq.into()]).await
    }
}

/// The reads of signals.
impl<D: Reader> Queries<D> {
    pub(super) async fn signal_find(
        &self,
        tenant: &Tenant,
        run: RunId,
        name: &str,
        id: &str,
    ) -> Found<Signal> {
        let behind = "WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4";
        self.row(behind, &[tenant.into(), run.0.into(), name.into(), id.into()]).await
    }

    pub(super) async fn signal_unreceived(
        &self,
        tenant: &Tenant,
        run: RunId,
        name: &str,
        id: &str,
    ) -> Found<Signal> {
        // In this form the signal is not searched among all pending signals of the run.
        let behind =
            "WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4 AND NOT coalesce(received, false)";
        self.row(behind, &[tenant.into(), run.0.into(), name.into(), id.into()]).await
    }

    /// The query takes one step to the end of the index, however many signals are pending.
    pub(super) async fn signal_last(&self, tenant: &Tenant, run: RunId) -> Found<i64> {
        let index = D::either("INDEXED BY signal_pending ", "");
        let sql = format!(
            "SELECT place FROM signal {index}WHERE tenant = $1 AND run = $2 AND NOT received ORDER BY place DESC LIMIT 1"
        );
        self.number(&sql, &[tenant.into(), run.0.into()]).await
    }

    pub(super) async fn signal_pending(&self, runs: &[(Tenant, RunId)]) -> Listed<Signal> {
        // The query goes by run: PostgreSQL could plan a join as a scan of all pending signals.
        let asked = D::either(
            "json_each($1) t JOIN json_each($2) r ON r.key = t.key CROSS JOIN signal s INDEXED BY signal_pending \
             ON s.tenant = t.value AND s.run = r.value AND NOT s.received",
            "unnest($1::text[], $2::bigint[]) AS asked (tenant, run), LATERAL (SELECT * FROM signal \
             WHERE tenant = asked.tenant AND run = asked.run AND NOT received) s",
        );
        let sql = format!(
            "SELECT s.tenant, s.run, s.name, s.id, s.place, s.body, s.at, s.received FROM {asked} \
             ORDER BY s.run, s.place, s.name, s.id"
        );
        let (tenants, ids) = runs.iter().map(|(tenant, run)| (tenant.as_str(), run.0)).unzip();
        let found = self.fetch(sql, &[Given::Texts(tenants), Given::Numbers(ids)]).await?;
        found.iter().map(D::read).collect()
    }
}

/// The reads of workers, tenants and payloads.
impl<D: Reader> Queries<D> {
    pub(super) async fn worker_find(&self, name: &str) -> Found<Worker> {
        self.row("WHERE name = $1", &[name.into()]).await
    }

    /// The workers that have not ended, and those that may have left work.
    #[cfg(feature = "sqlite")]
    pub(in crate::store) async fn worker_open(&self) -> Listed<Worker> {
        self.rows("WHERE NOT settled ORDER BY fence", &[]).await
    }

    pub(super) async fn worker_at(&self, fence: Fence) -> Found<Worker> {
        self.row("WHERE fence = $1", &[fence.0.into()]).await
    }

    pub(super) async fn tenant_list(&self, after: &str, limit: u32) -> Listed<Tenant> {
        let tables = ["run", "record", "document", "schedule", "outbox_aggregate", "inbox", "escalation"];
        // One look into an index of each table for each tenant.
        let next = |behind: &str| {
            let each = tables
                .map(|table| format!("SELECT min(tenant) AS name FROM {table} WHERE tenant > {behind}"));
            format!("SELECT min(name) FROM ({}) AS each", each.join(" UNION ALL "))
        };
        let (first, more) = (next("$1"), next("named.tenant"));
        let sql = format!(
            "WITH RECURSIVE named (tenant) AS ({first} UNION ALL SELECT ({more}) FROM named \
             WHERE named.tenant IS NOT NULL) SELECT tenant FROM named WHERE tenant IS NOT NULL LIMIT $2"
        );
        let found = self.fetch(sql, &[after.into(), limit.into()]).await?;
        found.iter().map(|row| D::values("tenant", row).cell()).collect()
    }

    pub(super) async fn tenant_key(&self, tenant: &Tenant) -> Found<DigestKey> {
        self.cell("tenant", "SELECT digest_key FROM tenant WHERE tenant = $1", &[tenant.into()]).await
    }

    pub(super) async fn payload_find(&self, tenant: &Tenant, digest: PayloadDigest) -> Found<Payload> {
        let sql = "SELECT body FROM payload WHERE tenant = $1 AND digest = $2";
        self.cell("payload", sql, &[tenant.into(), digest.0.as_slice().into()]).await
    }
}

/// The first text that is behind all keys that begin with `prefix`, in the order of bytes.
fn end_of(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32) {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    char::MAX.to_string().repeat(Key::MAX_BYTES) // longer than any key
}
