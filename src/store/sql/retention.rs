//! Records, runs and signals whose retention is over, and the rest that is left of them.

use super::ask::{Backend, Reader, Session, damage};
use super::payload;
use crate::ledger::{EffectClass, Record};
use crate::payload::{PayloadDigest, Stored};
use crate::store::cell::Declared as _;
use crate::store::row::{Given, Take as _};
use crate::store::signal::EXPIRED;
use crate::store::table::Kind;
use crate::store::{ExpiredSignal, Retired, RetiredRun, Run, Signal, record};

/// The condition that no run rests on a record and no question asks about it. A run that is under way rests on all that
/// it did since it last went on as new.
fn at_rest<D: Backend>() -> String {
    // The OFFSET keeps the planner of PostgreSQL from reading all open questions of the tenant instead.
    let asked = D::either(
        "escalation e INDEXED BY escalation_record WHERE e.tenant = record.tenant AND e.record = record.id AND",
        "(SELECT answer FROM escalation a WHERE a.tenant = record.tenant AND a.record = record.id OFFSET 0) e WHERE",
    );
    let used = D::either("use rests CROSS JOIN run r", "use rests JOIN run r");
    let rests = rests::<D>();
    format!(
        "record.status <> 1 AND record.escalation IS NULL \
         AND NOT EXISTS (SELECT 1 FROM look l WHERE l.tenant = record.tenant AND l.record = record.id) \
         AND NOT EXISTS (SELECT 1 FROM {asked} e.answer IS NULL) \
         AND NOT EXISTS (SELECT 1 FROM run r WHERE r.tenant = record.tenant AND r.id = record.run \
         AND record.turn >= r.base AND {rests}) \
         AND NOT EXISTS (SELECT 1 FROM {used} ON r.id = rests.run WHERE rests.tenant = record.tenant \
         AND rests.record = record.id AND r.tenant = rests.tenant AND rests.turn >= r.base AND {rests})"
    )
}

/// The condition that a run `r`, which asked for a record or was answered from it, rests on it: the run is under way; or
/// it ended well, and a run above it is under way, which undoes the effect if it fails.
///
/// The way up leads from a child that ended well to its parent, unless that has gone on as new since. A child that failed
/// has undone its effects. The way is walked for effects of children alone.
fn rests<D: Backend>() -> String {
    let effects = EffectClass::ALL.into_iter().filter(|class| class.needs_owner());
    let effects = effects.map(|class| class.code().to_string()).collect::<Vec<_>>().join(", ");
    let begun_in = D::either(BEGUN_IN_SQLITE, BEGUN_IN_POSTGRES);
    format!(
        "(r.state NOT IN (3, 4) OR r.state = 3 AND r.parent IS NOT NULL AND record.status = 2 \
         AND record.class IN ({effects}) AND EXISTS (WITH RECURSIVE line (parent, key, state) AS \
         (SELECT r.parent, r.key, r.state UNION SELECT p.parent, p.key, p.state FROM line CROSS JOIN run p \
         WHERE p.tenant = r.tenant AND p.id = line.parent AND line.state = 3 AND p.base <= {begun_in}) \
         SELECT 1 FROM line WHERE state NOT IN (3, 4)))"
    )
}

/// The turn in which a run of `line` was begun by its parent, read from its key as `Run::begun_in` reads it. A key of
/// another form must not fail the query: the sweeper would stop at it for good.
macro_rules! begun_in {
    ($place:literal, $is_turn:literal) => {
        concat!("CASE WHEN ", $place, $is_turn, " THEN CAST(substr(", $place, ", 7) AS BIGINT) ELSE 0 END")
    };
}

const BEGUN_IN_SQLITE: &str = begun_in!(
    "json_extract('[' || replace(json_quote(line.key), '/', '\",\"') || ']', '$[3]')",
    " GLOB '~turn:[0-9]*'"
);
const BEGUN_IN_POSTGRES: &str = begun_in!("split_part(line.key, '/', 4)", " ~ '^~turn:[0-9]{1,10}$'");

/// The condition that a run has ended, that no question is open about it or its operations, and that no run goes on
/// from it: children are retired after their parent.
macro_rules! run_at_rest {
    ($questions:literal, $records:literal) => {
        concat!(
            "run.state IN (3, 4) AND NOT run.unsettled \
             AND NOT EXISTS (SELECT 1 FROM run p WHERE p.tenant = run.tenant AND p.id = run.parent \
             AND (p.state NOT IN (3, 4) OR substr(p.outcome, 1, 1) NOT IN ('#', '%'))) \
             AND NOT EXISTS (SELECT 1 FROM escalation e ",
            $questions,
            "WHERE e.tenant = run.tenant AND e.run = run.id AND e.answer IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM record c ",
            $records,
            "WHERE c.tenant = run.tenant AND c.run = run.id AND (c.status = 1 OR c.escalation IS NOT NULL))"
        )
    };
}

const RUN_AT_REST_IN_SQLITE: &str = run_at_rest!("INDEXED BY escalation_run ", "INDEXED BY record_run ");
const RUN_AT_REST_IN_POSTGRES: &str = run_at_rest!("", "");

/// The condition of the index of ended runs that are more than a tombstone.
const RUN_IS_WHOLE: &str = "state IN (3, 4) AND substr(outcome, 1, 1) <> '#'";

/// A query for the records that are over between two instants, which are the arguments. The limit is a literal: for a
/// limit that it does not know, the planner of PostgreSQL sorts all expired records for each page.
pub(super) fn expired<D: Reader>(limit: u32) -> String {
    let index = D::either("INDEXED BY record_kept ", "");
    let at_rest = at_rest::<D>();
    format!(
        "{index}WHERE kept_until >= $1 AND kept_until <= $2 AND {at_rest} ORDER BY kept_until, id LIMIT {limit}"
    )
}

pub(super) const EXPIRING: &str = "SELECT min(kept_until) FROM record WHERE kept_until > $1";

/// A query for the runs of a workflow, which is the first argument, that ended between two instants.
pub(super) fn over<D: Reader>(limit: u32) -> String {
    let index = D::either("INDEXED BY run_over ", "");
    let at_rest = D::either(RUN_AT_REST_IN_SQLITE, RUN_AT_REST_IN_POSTGRES);
    format!(
        "{index}WHERE workflow = $1 AND updated_at >= $2 AND updated_at <= $3 AND {RUN_IS_WHOLE} AND {at_rest} \
         ORDER BY updated_at, id LIMIT {limit}"
    )
}

pub(super) fn next_over<D: Reader>() -> String {
    let index = D::either("INDEXED BY run_over ", "");
    format!(
        "SELECT min(updated_at) FROM run {index}WHERE workflow = $1 AND updated_at > $2 AND {RUN_IS_WHOLE}"
    )
}

/// A query for the signals that runs of a workflow, which is the first argument, have received and that were sent
/// between two instants. The OFFSET keeps the planner of PostgreSQL from reading the runs of the workflow first.
pub(super) fn signals_over<D: Reader>(limit: u32) -> String {
    let (index, open) =
        (D::either("INDEXED BY signal_over ", ""), D::either("INDEXED BY escalation_run ", ""));
    let offset = D::either("", " OFFSET 0");
    format!(
        "{index}WHERE received AND substr(name, 1, 1) <> '~' AND substr(body, 1, 12) <> '{EXPIRED}' \
         AND at >= $2 AND at <= $3 AND EXISTS (SELECT 1 FROM (SELECT workflow, state FROM run \
         WHERE run.tenant = signal.tenant AND run.id = signal.run{offset}) r WHERE r.workflow = $1 AND r.state NOT IN (3, 4)) \
         AND NOT EXISTS (SELECT 1 FROM escalation e {open}WHERE e.tenant = signal.tenant AND e.run = signal.run \
         AND e.answer IS NULL) ORDER BY at, tenant, run, name, id LIMIT {limit}"
    )
}

/// Puts the digest in the place of the content, once.
const EXPIRE_SIGNAL: &str = "UPDATE signal SET body = $5 WHERE tenant = $1 AND run = $2 AND name = $3 AND id = $4 \
                             AND received AND body = $6 RETURNING id";

const KEEP: &str = "UPDATE record SET revision = revision + 1, kept_until = $4 \
                    WHERE tenant = $1 AND id = $2 AND revision = $3";

fn tombstone<S: Session>() -> String {
    let at_rest = at_rest::<S>();
    format!(
        "UPDATE record SET revision = revision + 1, status = $4, outcome = $5, request = $6, request_hash = $7, \
         compensation = NULL, step = NULL, call_id = NULL, external_ref = NULL, not_before = NULL, approval = NULL, \
         scopes = NULL, kept_until = NULL WHERE tenant = $1 AND id = $2 AND revision = $3 AND {at_rest} RETURNING id"
    )
}

fn forget<S: Session>() -> String {
    let at_rest = at_rest::<S>();
    format!("DELETE FROM record WHERE tenant = $1 AND id = $2 AND revision = $3 AND {at_rest} RETURNING id")
}

/// Deletes the rows that belong to a record: the first four when its content is deleted, all when the record is.
fn belonging<S: Session>() -> [&'static str; 5] {
    [
        "DELETE FROM evidence WHERE tenant = $1 AND record = $2",
        "DELETE FROM contact WHERE tenant = $1 AND record = $2",
        "DELETE FROM record_label WHERE tenant = $1 AND record = $2",
        S::either(
            "DELETE FROM escalation INDEXED BY escalation_record WHERE tenant = $1 AND record = $2",
            "DELETE FROM escalation WHERE tenant = $1 AND record = $2",
        ),
        "DELETE FROM use WHERE tenant = $1 AND record = $2",
    ]
}

/// Marks a run as expired for all readers, while its details are being deleted.
fn expire<S: Session>() -> String {
    let at_rest = S::either(RUN_AT_REST_IN_SQLITE, RUN_AT_REST_IN_POSTGRES);
    format!(
        "UPDATE run SET revision = revision + 1, input = 'null', input_hash = $4, outcome = '%' || $5 \
         WHERE tenant = $1 AND id = $2 AND revision = $3 AND substr(outcome, 1, 1) <> '%' AND {at_rest} RETURNING id"
    )
}

const IS_EXPIRING: &str =
    "SELECT 1 FROM run WHERE tenant = $1 AND id = $2 AND revision = $3 AND substr(outcome, 1, 1) = '%'";

/// The number of rows of each table that are deleted in one transaction: a run may have a hundred thousand
/// checkpoints.
const AT_ONCE: usize = 1000;

/// The rows that belong to a run, each with the column that may name a large payload.
fn details<S: Session>() -> [String; 5] {
    let settled = S::either("INDEXED BY escalation_settled ", "");
    let settled = format!("escalation {settled}WHERE record IS NULL AND answer IS NOT NULL AND");
    let of_run = [
        ("step", "tenant, run, turn, kind, name, id", "value", "step WHERE"),
        ("signal", "tenant, run, name, id", "body", "signal WHERE"),
        ("use", "tenant, run, turn, record", "NULL", "use WHERE"),
        ("published", "tenant, run, name", "NULL", "published WHERE"),
        ("escalation", "tenant, id", "NULL", settled.as_str()),
    ];
    of_run.map(|(table, key, payload, which)| {
        format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {which} tenant = $1 AND run = $2 LIMIT {AT_ONCE}) \
             RETURNING CASE WHEN substr({payload}, 1, 1) = '@' THEN {payload} END"
        )
    })
}

/// The labels go as the last: an erasure by label that was broken off finds its runs again.
const UNLABELLED: &str = "DELETE FROM run_label WHERE tenant = $1 AND run = $2";

/// The last step: a tombstone is left, or the row is deleted.
const EXPIRED_RUN: &str = "UPDATE run SET outcome = '#' || substr(outcome, 2) WHERE tenant = $1 AND id = $2";
const FORGOTTEN: &str = "DELETE FROM run WHERE tenant = $1 AND id = $2";

/// Retires a record, after checking again that no run rests on it: since it was listed, a run may have been answered from it. (A
/// run that is answered from a record at this very moment learns of the retirement when it is replayed.)
pub(in crate::store) async fn retire_record<S: Session>(
    session: &mut S,
    retired: &Retired,
) -> Result<(), sqlx::Error> {
    let place: [Given<'_>; 3] =
        [(&retired.tenant).into(), retired.id.0.into(), i64::from(retired.revision).into()];
    let Some(left) = retired.left.as_deref() else {
        if session.finds(&forget::<S>(), &place).await? {
            go_along(session, &place[..2], 5).await?;
            return release(session, &place[0], &retired.payloads).await;
        }
        return Ok(());
    };
    let [tenant, id, revision] = place.clone();
    if retired.is_kept() {
        let until = left.kept_until.map_or(Given::Null(Kind::Number), |at| at.0.into());
        return session.finds(KEEP, &[tenant, id, revision, until]).await.map(drop);
    }
    let (status, outcome, _) = record::columns(&left.state);
    let outcome = outcome.map_or(Given::Null(Kind::Text), Given::from);
    let hash = Given::Owned(left.request_hash.column());
    let said = [tenant, id, revision, status.into(), outcome, left.request.column().into(), hash];
    if session.finds(&tombstone::<S>(), &said).await? {
        go_along(session, &place[..2], 4).await?;
        release(session, &place[0], &retired.payloads).await?;
    }
    Ok(())
}

async fn go_along<S: Session>(
    session: &mut S,
    place: &[Given<'_>],
    tables: usize,
) -> Result<(), sqlx::Error> {
    for sql in &belonging::<S>()[..tables] {
        session.finds(sql, place).await?;
    }
    Ok(())
}

pub(in crate::store) async fn retire_run<S: Session>(
    session: &mut S,
    retired: &RetiredRun,
) -> Result<(), sqlx::Error> {
    let at: [Given<'_>; 3] =
        [(&retired.run.tenant).into(), retired.run.id.0.into(), i64::from(retired.run.revision).into()];
    let place = &at[..2];
    if retired.run.state.is_expired() {
        if !session.finds(IS_EXPIRING, &at).await? {
            return Ok(());
        }
    } else {
        let [tenant, id, revision] = at.clone();
        let hash = Given::Owned(retired.input_hash.column());
        let outcome = retired.outcome.as_str().into();
        if !session.finds(&expire::<S>(), &[tenant, id, revision, hash, outcome]).await? {
            return Ok(());
        }
        release(session, &at[0], &retired.payloads()).await?;
    }
    let mut is_all = true;
    for sql in details::<S>() {
        let rows = session.fetch(&sql, place).await?;
        is_all &= rows.len() < AT_ONCE;
        let mut payloads = Vec::new();
        for row in &rows {
            let value: Option<String> = S::values("payload", row).cell().map_err(damage)?;
            payloads.extend(value.and_then(|value| Stored::from_column(&value)?.address()));
        }
        release(session, &at[0], &payloads).await?;
    }
    if is_all {
        session.finds(UNLABELLED, place).await?;
        session.finds(if retired.is_left { EXPIRED_RUN } else { FORGOTTEN }, place).await?;
    }
    Ok(())
}

pub(in crate::store) async fn expire_signal<S: Session>(
    session: &mut S,
    expired: &ExpiredSignal,
) -> Result<(), sqlx::Error> {
    let ExpiredSignal { signal, left } = expired;
    let tenant: Given<'_> = (&signal.tenant).into();
    let place = [tenant.clone(), signal.run.0.into(), signal.name.as_str().into(), signal.id.as_str().into()];
    let bodies = [left.column().into(), signal.body.column().into()];
    if session.finds(EXPIRE_SIGNAL, &[&place[..], &bodies[..]].concat()).await? {
        let payload: Vec<_> = signal.body.address().into_iter().collect();
        release(session, &tenant, &payload).await?;
    }
    Ok(())
}

async fn release<S: Session>(
    session: &mut S,
    tenant: &Given<'_>,
    payloads: &[PayloadDigest],
) -> Result<(), sqlx::Error> {
    for digest in payloads {
        payload::release(session, tenant, *digest).await?;
    }
    Ok(())
}

/// The queries, for the tests that explain and pin them.
pub(in crate::store) fn statements<D: Reader>() -> [String; 5] {
    [
        EXPIRING.to_owned(),
        Record::TABLE.select(&expired::<D>(32)),
        Run::TABLE.select(&over::<D>(32)),
        next_over::<D>(),
        Signal::TABLE.select(&signals_over::<D>(32)),
    ]
}

/// The writing statements, for the tests that explain and pin them.
pub(in crate::store) fn writes<S: Session>() -> Vec<String> {
    let whole = [KEEP, IS_EXPIRING, UNLABELLED, EXPIRED_RUN, FORGOTTEN, EXPIRE_SIGNAL].map(str::to_owned);
    let put_together = [tombstone::<S>(), forget::<S>(), expire::<S>()];
    let belonging = belonging::<S>().into_iter().chain(payload::RELEASE).map(str::to_owned);
    whole.into_iter().chain(put_together).chain(belonging).chain(details::<S>()).collect()
}
