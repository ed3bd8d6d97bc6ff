//! Table `record`, and what refers to it: `use` and `evidence`.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::statement::{Batch, Insert, Values};
use super::{Columns, StoreError, failure, next_sound, sound};
use crate::clock::Timestamp;
use crate::id::{DeclarationId, EscalationId, Fence, Name, RecordId, RunId, Tenant};
use crate::ledger::{Basis, EffectClass, OperationKey, Owner, Record, RequestHash, State};
use crate::payload::{Payload, Stored};
use crate::store::{Change, EscalationKind, Evidence, Use, columns};

/// Inserts a record at revision 1, or moves one on by exactly one revision. A fenced worker gets a NULL
/// revision on the way in, a stale change one on the way over the old row; both abort (see `statement`).
/// The whole row is bound each time, so that no change can leave half a record behind.
static UPSERT: Insert = Insert {
    head: "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, run, \
           step, fence, revision, born, attempts, status, basis, outcome, external_ref, created_at, updated_at, \
           kept_until, turn, call_id, spent, compensation, escalation, not_before, in_doubt) \
           SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, \
           column11, \
           (SELECT column12 FROM worker WHERE worker.fence = column20 AND worker.ended_at IS NULL), column12, \
           column13, column14, column15, column16, column17, column18, column19, \
           column21, column22, column23, column24, column25, column26, column27, column28",
    columns: 28,
    tail: MOVE_ON,
};

/// The same for a record with nothing unusual about it, as nearly all are: the columns that it leaves at their
/// defaults are not bound. Of the 28, each costs a fiftieth of writing the row.
static UPSERT_USUAL: Insert = Insert {
    head: "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, run, \
           step, fence, revision, born, attempts, status, basis, outcome, external_ref, created_at, updated_at, \
           kept_until, spent, in_doubt) \
           SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, \
           column11, \
           (SELECT column12 FROM worker WHERE worker.fence = column20 AND worker.ended_at IS NULL), column12, \
           column13, column14, column15, column16, column17, column18, column19, column21, 0, 0",
    columns: 21,
    tail: MOVE_ON,
};

/// The same for the start of one in a turn of its run's loop. What follows needs no turn, for that never changes.
static INSERT_IN_TURN: Insert = Insert {
    head: "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, run, \
           step, fence, revision, born, attempts, status, basis, outcome, external_ref, created_at, updated_at, \
           kept_until, turn, spent, in_doubt) \
           SELECT column1, column2, column3, column4, column5, column6, column7, column8, column9, column10, \
           column11, \
           (SELECT column12 FROM worker WHERE worker.fence = column20 AND worker.ended_at IS NULL), column12, \
           column13, column14, column15, column16, column17, column18, column19, column21, column22, 0, 0",
    columns: 22,
    tail: MOVE_ON,
};

/// All that a later revision may change; until when it is kept is changed by `retention` alone. A usual row's unbound columns arrive here as their defaults.
const MOVE_ON: &str = "ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, \
    revision = CASE WHEN record.revision = excluded.revision - 1 AND record.key = excluded.key \
    AND record.tenant = excluded.tenant THEN excluded.revision END, \
    attempts = excluded.attempts, spent = excluded.spent, status = excluded.status, basis = excluded.basis, \
    outcome = excluded.outcome, compensation = excluded.compensation, external_ref = excluded.external_ref, \
    declaration = excluded.declaration, escalation = excluded.escalation, in_doubt = excluded.in_doubt, not_before = excluded.not_before, \
    updated_at = excluded.updated_at";

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let (mut usual, mut in_turn, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        let Some(record) = change.record.as_deref() else { continue };
        let rows = if !is_usual(record) {
            &mut others
        } else if record.owner.turn > 0 && record.revision == 1 {
            &mut in_turn
        } else {
            &mut usual
        };
        rows.push((record, change.fence));
    }
    batch.insert(&INSERT_IN_TURN, &in_turn, |(record, writer), row| {
        bind_usual(&(record, *writer), row);
        row.value(i64::from(record.owner.turn));
    });
    batch.insert(&UPSERT_USUAL, &usual, bind_usual);
    batch.insert(&UPSERT, &others, |(record, writer), row| {
        bind_usual(&(record, *writer), row);
        let (_, _, compensation) = columns::of_record(&record.state);
        row.value(i64::from(record.owner.turn))
            .value(record.owner.call_id.clone())
            .value(i64::from(record.spent))
            .value(compensation)
            .value(record.escalation.map(|id| id.0))
            .value(record.not_before.map(|at| at.0))
            .value(i64::from(record.in_doubt));
    });
}

/// Every column that a usual record does not bind has its default.
fn is_usual(record: &Record) -> bool {
    record.owner.call_id.is_none() && columns::is_usual(record)
}

fn bind_usual((record, writer): &(&Record, Option<Fence>), row: &mut Values<'_>) {
    let (status, outcome, _) = columns::of_record(&record.state);
    row.value(record.id.0)
        .value(record.tenant.text())
        .value(record.key.text())
        .value(record.operation.text())
        .value(record.class.code())
        .value(record.request.column())
        .value(record.request_hash.column())
        .value(record.declaration.0)
        .value(record.owner.run.map(|run| run.0))
        .value(record.owner.step.as_deref().map(str::to_owned))
        .value(record.fence.0)
        .value(i64::from(record.revision))
        .value(i64::from(record.attempts))
        .value(status)
        .value(record.basis.code())
        .value(outcome)
        .value(record.external_ref.clone())
        .value(record.created_at.0)
        .value(record.updated_at.0)
        .value(writer.map(|fence| fence.0))
        .value(record.kept_until.map(|at| at.0));
}

pub(super) fn read(row: &SqliteRow) -> Result<Record, StoreError> {
    let mut c = Columns::of("record", row);
    let mut record = Record {
        id: RecordId(c.take()?),
        tenant: c.parse(|text: String| Tenant::new(text).ok())?,
        key: OperationKey::stored(c.take::<&str>()?),
        operation: c.parse(|text: String| Name::new(text).ok())?,
        class: c.parse(EffectClass::from_code)?,
        request: c.parse(Stored::from_column)?,
        request_hash: c.parse(|bytes: &[u8]| RequestHash::from_column(bytes))?,
        declaration: DeclarationId(c.take()?),
        owner: Owner {
            run: c.take::<Option<i64>>()?.map(RunId),
            turn: c.take()?,
            step: c.take::<Option<String>>()?.map(Into::into),
            call_id: c.take()?,
        },
        fence: Fence(c.take()?),
        revision: c.take()?,
        attempts: c.take()?,
        spent: c.take()?,
        state: State::Started, // its columns follow
        basis: Basis::Answer,
        in_doubt: false,
        external_ref: None,
        escalation: None,
        not_before: None,
        kept_until: None,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    };
    let status = c.take()?;
    record.basis = c.parse(Basis::from_code)?;
    let (outcome, compensation) = (c.take()?, c.take()?);
    record.state = columns::record_state(status, outcome, compensation)
        .ok_or_else(|| c.damaged(format!("status {status} does not fit its outcome")))?;
    record.external_ref = c.take()?;
    record.escalation = c.take::<Option<i64>>()?.map(EscalationId);
    record.not_before = c.take::<Option<i64>>()?.map(Timestamp);
    record.kept_until = c.take::<Option<i64>>()?.map(Timestamp);
    record.created_at = Timestamp(c.take()?);
    record.updated_at = Timestamp(c.take()?);
    record.in_doubt = c.take()?;
    Ok(record)
}

/// All queries read the same columns.
macro_rules! select {
    ($tail:literal) => {
        concat!(
            "SELECT id, tenant, key, operation, class, request, request_hash, declaration, run, turn, step, \
             call_id, fence, revision, attempts, spent, status, basis, outcome, compensation, external_ref, \
             escalation, not_before, kept_until, created_at, updated_at, in_doubt FROM record ",
            $tail
        )
    };
}
pub(super) use select;

pub(super) async fn find(
    pool: &SqlitePool,
    tenant: &Tenant,
    key: &OperationKey,
) -> Result<Option<Record>, StoreError> {
    let query = sqlx::query(select!("WHERE tenant = ? AND key = ?")).bind(tenant.text()).bind(key.text());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

pub(super) async fn at(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Option<Record>, StoreError> {
    let query = sqlx::query(select!("WHERE id = ? AND tenant = ?")).bind(id.0).bind(tenant.text());
    query.fetch_optional(pool).await.map_err(|e| failure(&e))?.as_ref().map(read).transpose()
}

/// Those of runs are found by their runs: an index of all started records would be written twice for each call.
/// Indexes by name: with `id > ?` the planner may prefer to walk the table.
pub(super) async fn orphans(
    pool: &SqlitePool,
    after: RecordId,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!(
            "WHERE id IN (SELECT id FROM record INDEXED BY record_orphan WHERE status = 1 AND run IS NULL \
             UNION ALL SELECT c.id FROM run u INDEXED BY run_unsettled CROSS JOIN record c INDEXED BY record_run \
             ON c.run = u.id AND c.tenant = u.tenant WHERE u.unsettled AND c.status = 1 \
             AND (u.state >= 3 OR c.turn NOT IN (u.base, u.turn))) AND id > ? \
             AND fence IN (SELECT fence FROM worker WHERE ended_at IS NOT NULL) \
             AND (escalation IS NULL OR EXISTS (SELECT 1 FROM escalation e WHERE e.tenant = record.tenant \
             AND e.id = record.escalation AND e.answer IS NULL AND e.kind = ?)) ORDER BY id LIMIT ?"
        ));
        query.bind(after).bind(EscalationKind::UnknownTool.code()).bind(limit)
    };
    next_sound(pool, after.0, page, read).await
}

/// The row stands as this change would have written it: it was written before, and its answer was lost. The
/// whole row, because one worker may compute two changes from the same revision; the later one is stale.
pub(super) async fn is_written(
    connection: &mut SqliteConnection,
    record: &Record,
) -> Result<bool, sqlx::Error> {
    let row = sqlx::query(select!("WHERE id = ?")).bind(record.id.0).fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored.is_as_written(record))))
}

static INSERT_USE: Insert = Insert {
    head: "INSERT INTO use (tenant, run, record, turn, step, at) SELECT column1, \
           (SELECT column2 FROM worker WHERE worker.fence = column7 AND worker.ended_at IS NULL), \
           column3, column4, column5, column6",
    columns: 7,
    tail: "ON CONFLICT DO NOTHING", // the same use again says nothing new
};

pub(super) fn write_uses(changes: &[&Change], batch: &mut Batch) {
    let rows: Vec<_> = changes.iter().filter_map(|c| Some((c.used.as_deref()?, c.fence))).collect();
    batch.insert(&INSERT_USE, &rows, |(used, writer), row| {
        row.value(used.tenant.text())
            .value(used.run.0)
            .value(used.record.0)
            .value(i64::from(used.turn))
            .value(used.step.clone())
            .value(used.at.0)
            .value(writer.map(|fence| fence.0));
    });
}

/// Committed records by their keys: each page goes on behind the last key of the one before.
pub(super) async fn committed(
    pool: &SqlitePool,
    tenant: &Tenant,
    since: Timestamp,
    after: &str,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let query = sqlx::query(select!(
        "INDEXED BY record_key WHERE tenant = ? AND key > ? AND status = 2 AND updated_at >= ? ORDER BY key LIMIT ?"
    ));
    let query = query.bind(tenant.text()).bind(after.to_owned()).bind(since.0).bind(limit);
    let rows = query.fetch_all(pool).await.map_err(|e| failure(&e))?;
    Ok(sound(&rows, read))
}

/// A record with this key, or with one that begins so and goes on, was written at `since` or later and did not fail.
pub(super) async fn is_removed(
    pool: &SqlitePool,
    tenant: &Tenant,
    key: &str,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let query = sqlx::query(
        "SELECT 1 FROM record INDEXED BY record_key WHERE tenant = ?1 AND key >= ?2 AND key < ?2 || ';' \
         AND (key = ?2 OR key >= ?2 || ':') AND status NOT IN (3, 5) AND updated_at >= ?3 LIMIT 1",
    );
    let query = query.bind(tenant.text()).bind(key.to_owned()).bind(since.0);
    Ok(query.fetch_optional(pool).await.map_err(|e| failure(&e))?.is_some())
}

pub(super) async fn uses(pool: &SqlitePool, tenant: &Tenant, id: RecordId) -> Result<Vec<Use>, StoreError> {
    sqlx::query(
        "SELECT record, run, turn, step, at FROM use WHERE tenant = ? AND record = ? ORDER BY run, turn",
    )
    .bind(tenant.text())
    .bind(id.0)
    .fetch_all(pool)
    .await
    .map_err(|e| failure(&e))?
    .iter()
    .map(|row| {
        let mut c = Columns::of("use", row);
        Ok(Use {
            tenant: tenant.clone(),
            record: RecordId(c.take()?),
            run: RunId(c.take()?),
            turn: c.take()?,
            step: c.take()?,
            at: Timestamp(c.take()?),
        })
    })
    .collect()
}

/// No fence: a fenced worker may change nothing, but what it learned must not be lost.
static INSERT_EVIDENCE: Insert = Insert {
    head: "INSERT INTO evidence (tenant, record, fence, attempt, response, external_ref, at) \
           SELECT column1, column2, column3, column4, column5, column6, column7",
    columns: 7,
    tail: "ON CONFLICT DO NOTHING",
};

pub(super) fn write_evidence(changes: &[&Change], batch: &mut Batch) {
    let rows: Vec<_> = changes.iter().filter_map(|c| c.evidence.as_deref()).collect();
    batch.insert(&INSERT_EVIDENCE, &rows, |evidence, row| {
        row.value(evidence.tenant.text())
            .value(evidence.record.0)
            .value(evidence.fence.0)
            .value(i64::from(evidence.attempt))
            .value(evidence.response.text())
            .value(evidence.external_ref.clone())
            .value(evidence.at.0);
    });
}

const EVIDENCE: &str = "SELECT record, fence, attempt, response, external_ref, at FROM evidence \
                        WHERE tenant = ? AND record = ? ORDER BY at, fence, attempt";

pub(super) async fn evidence(
    pool: &SqlitePool,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Vec<Evidence>, StoreError> {
    let query = sqlx::query(EVIDENCE).bind(tenant.text()).bind(id.0);
    let rows = query.fetch_all(pool).await.map_err(|e| failure(&e))?;
    rows.iter().map(|row| read_evidence(tenant, row)).collect()
}

fn read_evidence(tenant: &Tenant, row: &SqliteRow) -> Result<Evidence, StoreError> {
    let mut c = Columns::of("evidence", row);
    Ok(Evidence {
        tenant: tenant.clone(),
        record: RecordId(c.take()?),
        fence: Fence(c.take()?),
        attempt: c.take()?,
        response: Payload::stored(c.take::<String>()?),
        external_ref: c.take()?,
        at: Timestamp(c.take()?),
    })
}

/// Evidence as the transaction that is under way sees it, without what is damaged.
pub(super) async fn sound_evidence(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Vec<Evidence>, sqlx::Error> {
    let query = sqlx::query(EVIDENCE).bind(tenant.text()).bind(id.0);
    Ok(sound(&query.fetch_all(connection).await?, |row| read_evidence(tenant, row)))
}

/// A record as the transaction that is under way sees it, unless it is damaged.
pub(super) async fn sound_at(
    connection: &mut SqliteConnection,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Option<Record>, sqlx::Error> {
    let query = sqlx::query(select!("WHERE id = ? AND tenant = ?")).bind(id.0).bind(tenant.text());
    Ok(sound(&query.fetch_all(connection).await?, read).pop())
}
