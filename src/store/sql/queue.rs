//! Admission of runs of a queue: the queue is read while all other workers are locked out of it, and the decision is
//! written.

use super::ask::Session;
use crate::clock::Timestamp;
use crate::id::{Fence, RunId, Tenant};
use crate::ledger::queue::{Admission, Bucket, Candidate, Chosen, Room, Taken};
use crate::store::StoreError;
use crate::store::row::{Given, Take as _};
use crate::store::table::Kind;

/// Admits runs of a queue, inside an open transaction.
pub(in crate::store) async fn admit<S: Session>(
    session: &mut S,
    admission: &Admission,
    fence: Fence,
) -> Result<(), sqlx::Error> {
    let before = bucket(session, admission.queue.name()).await?;
    let chosen = choose(session, admission, fence, before.clone()).await?;
    write(session, admission, fence, (&before, &chosen)).await
}

/// Chooses the runs that begin next, by the limits of the queue and the runs that have a place.
pub(in crate::store) async fn choose<S: Session>(
    session: &mut S,
    admission: &Admission,
    fence: Fence,
    before: Bucket,
) -> Result<Chosen, sqlx::Error> {
    let queue = admission.queue.name();
    let taken = taken(session, queue, fence).await?;
    let room = Room::of(admission, before, taken);
    let tenants = room.open(tenants(session, queue).await?);
    if room.left() == 0 || tenants.is_empty() {
        return Ok(room.nothing(!tenants.is_empty()));
    }
    let waiting = candidates(session, admission, &room, &tenants).await?;
    Ok(room.choose(waiting))
}

/// Writes the choice: the runs begin, and the queue has its new state, inside the transaction that holds its row.
pub(in crate::store) async fn write<S: Session>(
    session: &mut S,
    admission: &Admission,
    fence: Fence,
    (before, chosen): (&Bucket, &Chosen),
) -> Result<(), sqlx::Error> {
    begin(session, admission, fence, &chosen.runs).await?;
    if *before == chosen.bucket {
        return Ok(());
    }
    note(session, admission.queue.name(), &chosen.bucket).await
}

/// The state of the queue; its row is created on first use. Where several transactions write at once, the row is
/// locked until the transaction ends, by a statement of its own: later statements see the runs that the previous
/// worker has admitted.
pub(in crate::store) async fn bucket<S: Session>(
    session: &mut S,
    queue: &str,
) -> Result<Bucket, sqlx::Error> {
    let made = "INSERT INTO queue (name, spent_until) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    session.finds(made, &[queue.into(), Timestamp::MIN.0.into()]).await?;
    let sql = S::either(
        "SELECT spent_until, served, due_at FROM queue WHERE name = $1",
        "SELECT spent_until, served, due_at FROM queue WHERE name = $1 FOR UPDATE",
    );
    let read = |row: &S::Fetched| {
        let mut values = S::values("queue", row);
        Ok(Bucket { spent_until: values.cell()?, served: values.cell()?, due_at: values.cell()? })
    };
    Ok(listed(session, sql, &[queue.into()], read).await?.pop().unwrap_or_default())
}

async fn taken<S: Session>(session: &mut S, queue: &str, fence: Fence) -> Result<Vec<Taken>, sqlx::Error> {
    let sql = "SELECT tenant, queue_key, count(*), count(*) FILTER (WHERE fence = $1) FROM run WHERE queue = $2 \
               AND admitted_at IS NOT NULL AND state IN (1, 2) GROUP BY tenant, queue_key";
    let read = |row: &S::Fetched| {
        let mut values = S::values("run", row);
        let (tenant, key) = (values.cell()?, values.cell()?);
        Ok(Taken { tenant, key, by_all: values.cell()?, by_own: values.cell()? })
    };
    listed(session, sql, &[fence.0.into(), queue.into()], read).await
}

/// The tenants whose runs wait: one look into the index for each.
async fn tenants<S: Session>(session: &mut S, queue: &str) -> Result<Vec<Tenant>, sqlx::Error> {
    // With `min`, PostgreSQL may read all rows.
    let sql = S::either(
        "WITH RECURSIVE t AS (SELECT min(tenant) AS tenant FROM run WHERE queue = $1 AND state = 0 \
         UNION ALL SELECT (SELECT min(tenant) FROM run WHERE queue = $1 AND state = 0 AND tenant > t.tenant) \
         FROM t WHERE t.tenant IS NOT NULL) SELECT tenant FROM t WHERE tenant IS NOT NULL",
        "WITH RECURSIVE t AS ((SELECT tenant FROM run WHERE queue = $1 AND state = 0 ORDER BY tenant LIMIT 1) \
         UNION ALL SELECT (SELECT tenant FROM run WHERE queue = $1 AND state = 0 AND tenant > t.tenant ORDER BY tenant \
         LIMIT 1) FROM t WHERE t.tenant IS NOT NULL) SELECT tenant FROM t WHERE tenant IS NOT NULL",
    );
    listed(session, sql, &[queue.into()], |row| S::values("run", row).cell()).await
}

/// The first waiting runs of each tenant, without those whose key is full and those of workflows that this worker
/// does not know.
async fn candidates<S: Session>(
    session: &mut S,
    admission: &Admission,
    room: &Room<'_>,
    tenants: &[Tenant],
) -> Result<Vec<Candidate>, sqlx::Error> {
    // SQLite has no LATERAL: the query is run for each tenant by itself, which needs no network round trip.
    let each = if S::either("each", "all") == "all" { tenants.len() } else { 1 };
    let sql = S::either(
        "SELECT id, tenant, queue_key, priority, created_at FROM run WHERE queue = $1 AND tenant = $2 ->> 0 AND state = 0 \
         AND (queue_key IS NULL OR NOT EXISTS (SELECT 1 FROM json_each($3) t JOIN json_each($4) k ON k.key = t.key \
         WHERE t.value = tenant AND k.value = queue_key)) \
         AND ($5 IS NULL OR EXISTS (SELECT 1 FROM json_each($5) n JOIN json_each($6) v ON v.key = n.key \
         WHERE n.value = workflow AND v.value = version)) ORDER BY priority DESC, created_at, id LIMIT $7",
        "SELECT c.id, t.tenant, c.queue_key, c.priority, c.created_at FROM unnest($2::text[]) AS t (tenant) \
         CROSS JOIN LATERAL (SELECT r.id, r.queue_key, r.priority, r.created_at FROM run r WHERE r.queue = $1 \
         AND r.tenant = t.tenant AND r.state = 0 AND (r.queue_key IS NULL OR NOT EXISTS (SELECT 1 \
         FROM unnest($3::text[], $4::text[]) AS f (tenant, key) WHERE f.tenant = r.tenant AND f.key = r.queue_key)) \
         AND ($5::text[] IS NULL OR EXISTS (SELECT 1 FROM unnest($5::text[], $6::bigint[]) AS k (name, version) \
         WHERE k.name = r.workflow AND k.version = r.version)) \
         ORDER BY r.priority DESC, r.created_at, r.id LIMIT $7) c",
    );
    let (full, keys): (Vec<_>, Vec<_>) =
        room.full_keys().into_iter().map(|(tenant, key)| (tenant.as_str(), key)).unzip();
    let none = || (Given::Null(Kind::Text), Given::Null(Kind::Text));
    let (names, versions) = admission.known.as_ref().map_or_else(none, |known| {
        let (names, versions) =
            known.iter().map(|(name, version)| (name.as_str(), i64::from(*version))).unzip();
        (Given::Texts(names), Given::Numbers(versions))
    });
    let read = |row: &S::Fetched| {
        let mut values = S::values("run", row);
        let (id, tenant, key) = (values.cell()?, values.cell()?, values.cell()?);
        Ok(Candidate { id, tenant, key, priority: values.cell()?, created_at: values.cell()? })
    };
    let mut waiting = Vec::new();
    for part in tenants.chunks(each) {
        let arguments = [
            admission.queue.name().into(),
            Given::Texts(part.iter().map(Tenant::as_str).collect()),
            Given::Texts(full.clone()),
            Given::Texts(keys.clone()),
            names.clone(),
            versions.clone(),
            room.depth(tenants.len()).into(),
        ];
        waiting.extend(listed(session, sql, &arguments, read).await?);
    }
    Ok(waiting)
}

/// Marks the chosen runs as admitted. Rows that another worker is writing at this moment are skipped: those runs are
/// being cancelled.
async fn begin<S: Session>(
    session: &mut S,
    admission: &Admission,
    fence: Fence,
    runs: &[(Tenant, RunId)],
) -> Result<(), sqlx::Error> {
    if runs.is_empty() {
        return Ok(());
    }
    let sql = S::either(
        "UPDATE run SET state = 1, fence = $1, revision = revision + 1, admitted_at = $2, updated_at = $2 \
         WHERE id IN (SELECT i.value FROM json_each($3) t JOIN json_each($4) i ON i.key = t.key CROSS JOIN run r \
         ON r.id = i.value AND r.tenant = t.value AND r.state = 0)",
        "UPDATE run SET state = 1, fence = $1, revision = revision + 1, admitted_at = $2, updated_at = $2 \
         WHERE (tenant, id) IN (SELECT r.tenant, r.id FROM unnest($3::text[], $4::bigint[]) AS u (tenant, id) \
         JOIN run r ON r.tenant = u.tenant AND r.id = u.id WHERE r.state = 0 FOR UPDATE OF r SKIP LOCKED)",
    );
    let (tenants, ids) = runs.iter().map(|(tenant, id)| (tenant.as_str(), id.0)).unzip();
    let arguments = [fence.0.into(), admission.at.0.into(), Given::Texts(tenants), Given::Numbers(ids)];
    session.finds(sql, &arguments).await.map(drop)
}

async fn note<S: Session>(session: &mut S, queue: &str, bucket: &Bucket) -> Result<(), sqlx::Error> {
    let sql = "UPDATE queue SET spent_until = $1, served = $2, due_at = $3 WHERE name = $4";
    let served = bucket.served.as_deref().map_or(Given::Null(Kind::Text), Given::Text);
    let due_at = bucket.due_at.map_or(Given::Null(Kind::Number), |at| Given::Number(at.0));
    session.finds(sql, &[bucket.spent_until.0.into(), served, due_at, queue.into()]).await.map(drop)
}

/// All rows that a query finds. A damaged row makes the whole query fail.
async fn listed<S: Session, T>(
    session: &mut S,
    sql: &str,
    arguments: &[Given<'_>],
    read: impl Fn(&S::Fetched) -> Result<T, StoreError>,
) -> Result<Vec<T>, sqlx::Error> {
    let found = session.fetch(sql, arguments).await?;
    found.iter().map(read).collect::<Result<_, _>>().map_err(|error| sqlx::Error::Decode(error.into()))
}
