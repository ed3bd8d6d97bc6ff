//! Table `record`, and what refers to it: `use` and `evidence`.

use sqlx::postgres::{PgConnection, PgRow};

use super::pool::Pool;
use super::statement::{Batch, Insert, PLAIN, Values};
use super::{Columns, StoreError, next_sound, sound};
use crate::clock::Timestamp;
use crate::id::{DeclarationId, EscalationId, Fence, Name, RecordId, RunId, Tenant};
use crate::ledger::{Basis, EffectClass, OperationKey, Owner, Record, RequestHash, State};
use crate::payload::{Payload, Stored};
use crate::store::row::Put as _;
use crate::store::table::{bytes, flag, number, text};
use crate::store::{Change, EscalationKind, Evidence, Use, columns};

/// Inserts a record at revision 1. One whose key or place is taken is not written, and missed when rows are counted.
pub(super) static INSERT: Insert = Insert {
    name: "record_new",
    table: "record",
    columns: &[
        number("id"),
        text("tenant"),
        text("key"),
        text("operation"),
        number("class"),
        text("request"),
        bytes("request_hash"),
        number("declaration"),
        number("run"),
        text("step"),
        number("turn"),
        text("call_id"),
        number("created_at"),
        number("fence"),
        number("loose"),
        number("revision"),
        number("attempts"),
        number("status"),
        number("basis"),
        text("outcome"),
        text("external_ref"),
        number("updated_at"),
        number("spent"),
        text("compensation"),
        number("escalation"),
        number("not_before"),
        flag("in_doubt"),
        number("kept_until"),
    ],
    tail: IF_NEW,
    ..PLAIN
};

/// By its key alone, which saves looking its place up first. Places do not clash unless something is very wrong.
const IF_NEW: &str = "ON CONFLICT (tenant, key) DO NOTHING";

/// The same for one with nothing unusual about it, as nearly all are: what it leaves at its default is not sent.
pub(super) static INSERT_USUAL: Insert = Insert {
    name: "record_new_usual",
    table: "record",
    columns: &[
        number("id"),
        text("tenant"),
        text("key"),
        text("operation"),
        number("class"),
        text("request"),
        bytes("request_hash"),
        number("declaration"),
        number("run"),
        text("step"),
        number("created_at"),
        number("fence"),
        number("loose"),
        number("updated_at"),
        number("kept_until"),
    ],
    constants: &[("revision", "1"), ("attempts", "1"), ("status", "1"), ("basis", FIRST_BASIS)],
    tail: IF_NEW,
    ..PLAIN
};

/// The same in a turn of its run's loop.
pub(super) static INSERT_IN_TURN: Insert = Insert {
    name: "record_new_in_turn",
    table: "record",
    columns: &[
        number("id"),
        text("tenant"),
        text("key"),
        text("operation"),
        number("class"),
        text("request"),
        bytes("request_hash"),
        number("declaration"),
        number("run"),
        text("step"),
        number("created_at"),
        number("fence"),
        number("loose"),
        number("updated_at"),
        number("kept_until"),
        number("turn"),
    ],
    constants: &[("revision", "1"), ("attempts", "1"), ("status", "1"), ("basis", FIRST_BASIS)],
    tail: IF_NEW,
    ..PLAIN
};

/// The code of [`Basis::Answer`], with which records begin.
const FIRST_BASIS: &str = "0";

/// All that a later revision may change; until when it is kept is changed by `retention` alone. A usual row's unbound columns
/// arrive here as their defaults, except for what is named first.
macro_rules! move_on {
    ($first:literal) => {
        concat!(
            "ON CONFLICT (tenant, id) DO UPDATE SET ",
            $first,
            "fence = excluded.fence, loose = excluded.loose, \
             revision = -excluded.revision, attempts = excluded.attempts, spent = excluded.spent, \
             status = excluded.status, basis = excluded.basis, outcome = excluded.outcome, \
             compensation = excluded.compensation, external_ref = excluded.external_ref, \
             escalation = excluded.escalation, in_doubt = excluded.in_doubt, not_before = excluded.not_before, \
             updated_at = excluded.updated_at \
             WHERE record.revision = -excluded.revision - 1 AND record.key = excluded.key"
        )
    };
}

/// Moves a record on by exactly one revision, by way of a row that is never meant to be inserted: that is the one form
/// of an update whose plan cannot go wrong, for the conflict is found by the key. Its revision comes with the sign
/// turned; should there be no row to move on, the one that was made up shows it, and the statement aborts.
pub(super) static MOVE: Insert = Insert {
    name: "record_moved",
    table: "record",
    columns: &[
        number("id"),
        text("tenant"),
        text("key"),
        number("fence"),
        number("loose"),
        number("revision"),
        number("attempts"),
        number("status"),
        number("basis"),
        text("outcome"),
        text("external_ref"),
        number("updated_at"),
        number("spent"),
        text("compensation"),
        number("escalation"),
        number("not_before"),
        flag("in_doubt"),
        number("declaration"),
    ],
    constants: NEVER_STORED,
    tail: move_on!("declaration = excluded.declaration, "),
    holds: Some("revision > 0"),
    ..PLAIN
};

/// The same for one with nothing unusual about it.
pub(super) static MOVE_USUAL: Insert = Insert {
    name: "record_moved_usual",
    table: "record",
    columns: &[
        number("id"),
        text("tenant"),
        text("key"),
        number("fence"),
        number("loose"),
        number("revision"),
        number("attempts"),
        number("status"),
        number("basis"),
        text("outcome"),
        text("external_ref"),
        number("updated_at"),
    ],
    constants: &[
        ("operation", "''"),
        ("class", "0"),
        ("request", "''"),
        ("request_hash", "''"),
        ("declaration", "0"),
        ("created_at", "0"),
    ],
    tail: move_on!(""),
    holds: Some("revision > 0"),
    ..PLAIN
};

/// What an update cannot change, and the way over an insert asks for.
const NEVER_STORED: &[(&str, &str)] =
    &[("operation", "''"), ("class", "0"), ("request", "''"), ("request_hash", "''"), ("created_at", "0")];

pub(super) fn write(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().filter_map(|change| change.record.as_deref()).collect();
    rows.sort_by_key(|record| (record.tenant.as_str(), record.key.as_str()));
    let (new, old): (Vec<_>, Vec<_>) = rows.into_iter().partition(|record| record.revision == 1);
    let (usual, others): (Vec<_>, Vec<_>) = new.into_iter().partition(|record| is_usual_start(record));
    let (in_turn, usual): (Vec<_>, Vec<_>) = usual.into_iter().partition(|record| record.owner.turn > 0);
    batch.insert(&INSERT_USUAL, &usual, |record, row| bind_usual_start(record, row));
    batch.insert(&INSERT_IN_TURN, &in_turn, |record, row| {
        bind_usual_start(record, row);
        row.number(i64::from(record.owner.turn));
    });
    batch.insert(&INSERT, &others, |record, row| {
        bind_request(record, row);
        row.number(i64::from(record.owner.turn)).some_text(record.owner.call_id.as_deref());
        row.number(record.created_at.0);
        bind_worker(record, row);
        bind_outcome(record, i64::from(record.revision), row);
        bind_unusual(record, row);
        row.some_number(record.kept_until.map(|at| at.0));
    });
    let (usual, others): (Vec<_>, Vec<_>) = old.into_iter().partition(|record| is_usual_move(record));
    batch.insert(&MOVE_USUAL, &usual, |record, row| bind_move(record, row));
    batch.insert(&MOVE, &others, |record, row| {
        bind_move(record, row);
        bind_unusual(record, row);
        row.number(record.declaration.0);
    });
}

/// Another attempt may go out under another declaration than the one before it.
fn is_usual_move(record: &Record) -> bool {
    columns::is_usual(record) && !(record.state == State::Started && record.attempts > 1)
}

fn is_usual_start(record: &Record) -> bool {
    columns::is_usual(record)
        && record.state == State::Started
        && record.attempts == 1
        && record.basis == Basis::Answer
        && record.external_ref.is_none()
        && record.owner.call_id.is_none()
}

fn bind_request(record: &Record, row: &mut Values<'_>) {
    row.number(record.id.0)
        .text(record.tenant.as_str())
        .text(record.key.as_str())
        .text(record.operation.as_str())
        .number(record.class.code())
        .text(&record.request.column())
        .bytes(&record.request_hash.column())
        .number(record.declaration.0)
        .some_number(record.owner.run.map(|run| run.0))
        .some_text(record.owner.step.as_deref());
}

fn bind_usual_start(record: &Record, row: &mut Values<'_>) {
    bind_request(record, row);
    row.number(record.created_at.0);
    bind_worker(record, row);
    row.number(record.updated_at.0).some_number(record.kept_until.map(|at| at.0));
}

fn bind_worker(record: &Record, row: &mut Values<'_>) {
    let loose = record.owner.run.is_none() && record.state == State::Started;
    row.number(record.fence.0).some_number(loose.then_some(record.fence.0));
}

fn bind_move(record: &Record, row: &mut Values<'_>) {
    row.number(record.id.0).text(record.tenant.as_str()).text(record.key.as_str());
    bind_worker(record, row);
    bind_outcome(record, -i64::from(record.revision), row);
}

fn bind_outcome(record: &Record, revision: i64, row: &mut Values<'_>) {
    let (status, outcome, _) = columns::of_record(&record.state);
    row.number(revision)
        .number(i64::from(record.attempts))
        .number(status)
        .number(record.basis.code())
        .some_text(outcome.as_deref())
        .some_text(record.external_ref.as_deref())
        .number(record.updated_at.0);
}

fn bind_unusual(record: &Record, row: &mut Values<'_>) {
    let (_, _, compensation) = columns::of_record(&record.state);
    row.number(i64::from(record.spent))
        .some_text(compensation.as_deref())
        .some_number(record.escalation.map(|id| id.0))
        .some_number(record.not_before.map(|at| at.0))
        .flag(record.in_doubt);
}

pub(super) fn read(row: &PgRow) -> Result<Record, StoreError> {
    let mut c = Columns::of("record", row);
    let mut record = Record {
        id: RecordId(c.take()?),
        tenant: c.parse_text(|text| Tenant::new(text).ok())?,
        key: c.parse_text(|text| Some(OperationKey::stored(text)))?,
        operation: c.parse_text(|text| Name::new(text).ok())?,
        class: c.parse(EffectClass::from_code)?,
        request: c.parse_text(Stored::from_column)?,
        request_hash: c.parse(|bytes: &[u8]| RequestHash::from_column(bytes))?,
        declaration: DeclarationId(c.take()?),
        owner: Owner {
            run: c.take::<Option<i64>>()?.map(RunId),
            turn: c.count()?,
            step: c.some_text()?.map(Into::into),
            call_id: c.some_text()?,
        },
        fence: Fence(c.take()?),
        revision: c.count()?,
        attempts: c.count()?,
        spent: c.count()?,
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
    let (outcome, compensation) = (c.some_text()?, c.some_text()?);
    record.state = columns::record_state(status, outcome, compensation)
        .ok_or_else(|| c.damaged(format!("status {status} does not fit its outcome")))?;
    record.external_ref = c.some_text()?;
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
    pool: &Pool,
    tenant: &Tenant,
    key: &OperationKey,
) -> Result<Option<Record>, StoreError> {
    let query =
        || sqlx::query(select!("WHERE tenant = $1 AND key = $2")).bind(tenant.as_str()).bind(key.as_str());
    pool.optional(query).await?.as_ref().map(read).transpose()
}

const AT: &str = select!("WHERE tenant = $1 AND id = $2");

pub(super) async fn at(pool: &Pool, tenant: &Tenant, id: RecordId) -> Result<Option<Record>, StoreError> {
    let query = || sqlx::query(AT).bind(tenant.as_str()).bind(id.0);
    pool.optional(query).await?.as_ref().map(read).transpose()
}

/// Those of runs are found by their runs: an index of all started records would be written twice for each call. The
/// OFFSET keeps the planner from beginning at the other end, with all records of all runs.
pub(super) async fn orphans(pool: &Pool, after: RecordId, limit: u32) -> Result<Vec<Record>, StoreError> {
    let page = |after: i64| {
        let query = sqlx::query(select!(
            "WHERE (tenant, id) IN (SELECT tenant, id FROM record WHERE loose IS NOT NULL \
             UNION ALL SELECT c.tenant, c.id FROM run u CROSS JOIN LATERAL (SELECT tenant, id FROM record o \
             WHERE o.tenant = u.tenant AND o.run = u.id AND o.status = 1 \
             AND (u.state >= 3 OR o.turn NOT IN (u.base, u.turn)) OFFSET 0) c WHERE u.unsettled) AND id > $1 \
             AND EXISTS (SELECT 1 FROM worker w WHERE w.fence = record.fence AND w.ended_at IS NOT NULL) \
             AND (escalation IS NULL OR EXISTS (SELECT 1 FROM escalation e WHERE e.tenant = record.tenant \
             AND e.id = record.escalation AND e.answer IS NULL AND e.kind = $2)) ORDER BY id LIMIT $3"
        ));
        query.bind(after).bind(EscalationKind::UnknownTool.code()).bind(i64::from(limit))
    };
    next_sound(pool, after.0, page, read).await
}

/// Committed records by their keys: each page goes on behind the last key of the one before.
pub(super) async fn committed(
    pool: &Pool,
    tenant: &Tenant,
    since: Timestamp,
    after: &str,
    limit: u32,
) -> Result<Vec<Record>, StoreError> {
    let query = || {
        sqlx::query(select!(
            "WHERE tenant = $1 AND key > $2 AND status = 2 AND updated_at >= $3 ORDER BY key LIMIT $4"
        ))
        .bind(tenant.as_str())
        .bind(after)
        .bind(since.0)
        .bind(i64::from(limit))
    };
    Ok(sound(&pool.all(query).await?, read))
}

/// A record with this key, or with one that begins so and goes on, was written at `since` or later and did not fail.
pub(super) async fn is_removed(
    pool: &Pool,
    tenant: &Tenant,
    key: &str,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT 1 FROM record WHERE tenant = $1 AND key >= $2 AND key < $2 || ';' \
             AND (key = $2 OR key >= $2 || ':') AND status NOT IN (3, 5) AND updated_at >= $3 LIMIT 1",
        )
        .bind(tenant.as_str())
        .bind(key)
        .bind(since.0)
    };
    Ok(pool.optional(query).await?.is_some())
}

/// Another record has its key, and none its place.
pub(super) async fn is_taken(connection: &mut PgConnection, record: &Record) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "SELECT 1 FROM record WHERE tenant = $1 AND key = $2 \
         AND NOT EXISTS (SELECT 1 FROM record o WHERE o.tenant = $1 AND o.id = $3)",
    )
    .bind(record.tenant.as_str())
    .bind(record.key.as_str())
    .bind(record.id.0)
    .persistent(false)
    .fetch_optional(connection)
    .await
    .map(|row| row.is_some())
}

/// The row stands as this change would have written it: it was written before, and its answer was lost. The
/// whole row, because one worker may compute two changes from the same revision; the later one is stale.
pub(super) async fn is_written(connection: &mut PgConnection, record: &Record) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(AT).persistent(false).bind(record.tenant.as_str()).bind(record.id.0);
    let row = query.fetch_optional(connection).await?;
    Ok(row.is_some_and(|row| read(&row).is_ok_and(|stored| stored.is_as_written(record))))
}

/// The same use again says nothing new.
pub(super) static INSERT_USE: Insert = Insert {
    name: "uses",
    table: "use",
    columns: &[text("tenant"), number("run"), number("record"), number("turn"), text("step"), number("at")],
    holds: None,
    ..PLAIN
};

pub(super) fn write_uses(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().filter_map(|c| c.used.as_deref()).collect();
    rows.sort_by_key(|used| (used.tenant.as_str(), used.run, used.turn, used.record));
    batch.insert(&INSERT_USE, &rows, |used, row| {
        row.text(used.tenant.as_str())
            .number(used.run.0)
            .number(used.record.0)
            .number(i64::from(used.turn))
            .text(&used.step)
            .number(used.at.0);
    });
}

pub(super) async fn uses(pool: &Pool, tenant: &Tenant, id: RecordId) -> Result<Vec<Use>, StoreError> {
    let query = || {
        sqlx::query(
            "SELECT record, run, turn, step, at FROM use WHERE tenant = $1 AND record = $2 ORDER BY run, turn",
        )
        .bind(tenant.as_str())
        .bind(id.0)
    };
    pool.all(query)
        .await?
        .iter()
        .map(|row| {
            let mut c = Columns::of("use", row);
            Ok(Use {
                tenant: tenant.clone(),
                record: RecordId(c.take()?),
                run: RunId(c.take()?),
                turn: c.count()?,
                step: c.text()?,
                at: Timestamp(c.take()?),
            })
        })
        .collect()
}

/// No fence: a fenced worker may change nothing, but what it learned must not be lost.
pub(super) static INSERT_EVIDENCE: Insert = Insert {
    name: "evidences",
    table: "evidence",
    columns: &[
        text("tenant"),
        number("record"),
        number("fence"),
        number("attempt"),
        text("response"),
        text("external_ref"),
        number("at"),
    ],
    holds: None,
    ..PLAIN
};

pub(super) fn write_evidence(changes: &[&Change], batch: &mut Batch) {
    let mut rows: Vec<_> = changes.iter().filter_map(|c| c.evidence.as_deref()).collect();
    rows.sort_by_key(|evidence| {
        (evidence.tenant.as_str(), evidence.record, evidence.fence, evidence.attempt)
    });
    batch.insert(&INSERT_EVIDENCE, &rows, |evidence, row| {
        row.text(evidence.tenant.as_str())
            .number(evidence.record.0)
            .number(evidence.fence.0)
            .number(i64::from(evidence.attempt))
            .text(evidence.response.as_str())
            .some_text(evidence.external_ref.as_deref())
            .number(evidence.at.0);
    });
}

const EVIDENCE: &str = "SELECT record, fence, attempt, response, external_ref, at FROM evidence \
                        WHERE tenant = $1 AND record = $2 ORDER BY at, fence, attempt";

pub(super) async fn evidence(
    pool: &Pool,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Vec<Evidence>, StoreError> {
    let query = || sqlx::query(EVIDENCE).bind(tenant.as_str()).bind(id.0);
    pool.all(query).await?.iter().map(|row| read_evidence(tenant, row)).collect()
}

fn read_evidence(tenant: &Tenant, row: &PgRow) -> Result<Evidence, StoreError> {
    let mut c = Columns::of("evidence", row);
    Ok(Evidence {
        tenant: tenant.clone(),
        record: RecordId(c.take()?),
        fence: Fence(c.take()?),
        attempt: c.count()?,
        response: Payload::stored(c.text()?),
        external_ref: c.some_text()?,
        at: Timestamp(c.take()?),
    })
}

/// Evidence as the transaction that is under way sees it, without what is damaged.
pub(super) async fn sound_evidence(
    connection: &mut PgConnection,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Vec<Evidence>, sqlx::Error> {
    let query = sqlx::query(EVIDENCE).persistent(false).bind(tenant.as_str()).bind(id.0);
    Ok(sound(&query.fetch_all(connection).await?, |row| read_evidence(tenant, row)))
}

/// A record as it is now, and stays until the end of the transaction that is under way; unless it is damaged.
pub(super) async fn held_at(
    connection: &mut PgConnection,
    tenant: &Tenant,
    id: RecordId,
) -> Result<Option<Record>, sqlx::Error> {
    let query = sqlx::query(select!("WHERE tenant = $1 AND id = $2 FOR NO KEY UPDATE"));
    let query = query.persistent(false).bind(tenant.as_str()).bind(id.0);
    Ok(sound(&query.fetch_all(connection).await?, read).pop())
}
