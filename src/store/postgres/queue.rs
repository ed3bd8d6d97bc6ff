//! Table `queue`, and who of a queue begins next.

use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use crate::clock::Timestamp;
use crate::id::{Fence, RunId, Tenant};
use crate::ledger::queue::{Admission, Bucket, Candidate, Chosen, Room, Taken};

/// Inside an open transaction. The queue's row is taken first, by a statement of its own: those after it see whatever
/// the worker before has admitted.
pub(super) async fn admit(
    connection: &mut PgConnection,
    admission: &Admission,
    fence: Fence,
) -> Result<(), sqlx::Error> {
    let before = bucket(connection, admission.queue.name()).await?;
    let taken = taken(connection, admission.queue.name(), fence).await?;
    let room = Room::of(admission, before.clone(), taken);
    let tenants = tenants(connection, admission.queue.name()).await?;
    let tenants = room.open(tenants);
    let chosen = if room.left() == 0 || tenants.is_empty() {
        room.nothing(!tenants.is_empty())
    } else {
        let waiting = candidates(connection, admission, &room, &tenants).await?;
        room.choose(waiting)
    };
    write(connection, admission, fence, &before, &chosen).await
}

/// Rows that another worker is writing at this moment are passed over: they are being cancelled.
async fn write(
    connection: &mut PgConnection,
    admission: &Admission,
    fence: Fence,
    before: &Bucket,
    chosen: &Chosen,
) -> Result<(), sqlx::Error> {
    if !chosen.runs.is_empty() {
        let (tenants, ids): (Vec<_>, Vec<_>) =
            chosen.runs.iter().map(|(tenant, id)| (tenant.as_str().to_owned(), id.0)).unzip();
        sqlx::query(
            "UPDATE run SET state = 1, fence = $1, revision = revision + 1, admitted_at = $2, updated_at = $2 \
             WHERE (tenant, id) IN (SELECT r.tenant, r.id FROM unnest($3::text[], $4::bigint[]) AS u (tenant, id) \
             JOIN run r ON r.tenant = u.tenant AND r.id = u.id WHERE r.state = 0 FOR UPDATE OF r SKIP LOCKED)",
        )
        .bind(fence.0)
        .bind(admission.at.0)
        .bind(tenants)
        .bind(ids)
        .persistent(false)
        .execute(&mut *connection)
        .await?;
    }
    if *before != chosen.bucket {
        sqlx::query("UPDATE queue SET spent_until = $1, served = $2, due_at = $3 WHERE name = $4")
            .bind(chosen.bucket.spent_until.0)
            .bind(chosen.bucket.served.clone())
            .bind(chosen.bucket.due_at.map(|at| at.0))
            .bind(admission.queue.name().to_owned())
            .persistent(false)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Made when the queue is first used, and held until the transaction ends.
async fn bucket(connection: &mut PgConnection, queue: &str) -> Result<Bucket, sqlx::Error> {
    sqlx::query("INSERT INTO queue (name, spent_until) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(queue.to_owned())
        .bind(Timestamp::MIN.0)
        .persistent(false)
        .execute(&mut *connection)
        .await?;
    let query = sqlx::query("SELECT spent_until, served, due_at FROM queue WHERE name = $1 FOR UPDATE");
    let row = query.bind(queue.to_owned()).persistent(false).fetch_one(connection).await?;
    Ok(Bucket {
        spent_until: Timestamp(row.try_get(0)?),
        served: row.try_get(1)?,
        due_at: row.try_get::<Option<i64>, _>(2)?.map(Timestamp),
    })
}

async fn taken(connection: &mut PgConnection, queue: &str, fence: Fence) -> Result<Vec<Taken>, sqlx::Error> {
    let query = sqlx::query(
        "SELECT tenant, queue_key, count(*), count(*) FILTER (WHERE fence = $1) FROM run WHERE queue = $2 \
         AND admitted_at IS NOT NULL AND state IN (1, 2) GROUP BY tenant, queue_key",
    );
    let rows = query.bind(fence.0).bind(queue.to_owned()).persistent(false).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            Ok(Taken {
                tenant: tenant(row, 0)?,
                key: row.try_get(1)?,
                by_all: count(row.try_get(2)?),
                by_own: count(row.try_get(3)?),
            })
        })
        .collect()
}

/// The tenants of which runs wait: one look into the index for each.
async fn tenants(connection: &mut PgConnection, queue: &str) -> Result<Vec<Tenant>, sqlx::Error> {
    let query = sqlx::query(
        // Not `min`, for which the server may read all of them.
        "WITH RECURSIVE t AS ((SELECT tenant FROM run WHERE queue = $1 AND state = 0 ORDER BY tenant LIMIT 1) \
         UNION ALL SELECT (SELECT tenant FROM run WHERE queue = $1 AND state = 0 AND tenant > t.tenant ORDER BY tenant \
         LIMIT 1) FROM t WHERE t.tenant IS NOT NULL) SELECT tenant FROM t WHERE tenant IS NOT NULL",
    );
    let rows = query.bind(queue.to_owned()).persistent(false).fetch_all(connection).await?;
    rows.iter().map(|row| tenant(row, 0)).collect()
}

/// Those of each tenant that come first, without those whose key is full and those of workflows that this worker does
/// not know.
async fn candidates(
    connection: &mut PgConnection,
    admission: &Admission,
    room: &Room<'_>,
    tenants: &[Tenant],
) -> Result<Vec<Candidate>, sqlx::Error> {
    let query = sqlx::query(
        "SELECT c.id, t.tenant, c.queue_key, c.priority, c.created_at FROM unnest($2::text[]) AS t (tenant) \
         CROSS JOIN LATERAL (SELECT r.id, r.queue_key, r.priority, r.created_at FROM run r WHERE r.queue = $1 \
         AND r.tenant = t.tenant AND r.state = 0 AND (r.queue_key IS NULL OR NOT EXISTS (SELECT 1 \
         FROM unnest($3::text[], $4::text[]) AS f (tenant, key) WHERE f.tenant = r.tenant AND f.key = r.queue_key)) \
         AND ($5::text[] IS NULL OR EXISTS (SELECT 1 FROM unnest($5::text[], $6::bigint[]) AS k (name, version) \
         WHERE k.name = r.workflow AND k.version = r.version)) \
         ORDER BY r.priority DESC, r.created_at, r.id LIMIT $7) c",
    );
    let texts = |names: &[Tenant]| names.iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
    let (of, full): (Vec<_>, Vec<_>) = room
        .full_keys()
        .into_iter()
        .map(|(tenant, key)| (tenant.as_str().to_owned(), key.to_owned()))
        .unzip();
    let known = admission.known.as_ref().map(|known| {
        known
            .iter()
            .map(|(name, version)| (name.as_str().to_owned(), i64::from(*version)))
            .unzip::<_, _, Vec<_>, Vec<_>>()
    });
    let (names, versions) = known.unzip();
    let rows = query
        .bind(admission.queue.name().to_owned())
        .bind(texts(tenants))
        .bind(of)
        .bind(full)
        .bind(names)
        .bind(versions)
        .bind(i64::from(room.depth(tenants.len())))
        .persistent(false)
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let priority: i64 = row.try_get(3)?;
            Ok(Candidate {
                id: RunId(row.try_get(0)?),
                tenant: tenant(row, 1)?,
                key: row.try_get(2)?,
                priority: i32::try_from(priority).unwrap_or_default(),
                created_at: Timestamp(row.try_get(4)?),
            })
        })
        .collect()
}

fn tenant(row: &PgRow, column: usize) -> Result<Tenant, sqlx::Error> {
    let name: String = row.try_get(column)?;
    Tenant::new(name).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
