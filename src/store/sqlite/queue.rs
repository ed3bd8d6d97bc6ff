//! Table `queue`, and who of a queue begins next.

use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::clock::Timestamp;
use crate::id::{Fence, RunId, Tenant};
use crate::ledger::queue::{Admission, Bucket, Candidate, Chosen, Room, Taken};

/// Inside an open transaction, and there is one writer: nobody else admits runs meanwhile.
pub(super) async fn admit(
    connection: &mut SqliteConnection,
    admission: &Admission,
    fence: Fence,
) -> Result<(), sqlx::Error> {
    let before = bucket(connection, admission.queue.name()).await?;
    let taken = taken(connection, admission.queue.name(), fence).await?;
    let room = Room::of(admission, before.clone().unwrap_or_default(), taken);
    let tenants = tenants(connection, admission.queue.name()).await?;
    let tenants = room.open(tenants);
    let chosen = if room.left() == 0 || tenants.is_empty() {
        room.nothing(!tenants.is_empty())
    } else {
        let mut waiting = Vec::new();
        for tenant in &tenants {
            waiting.extend(candidates(connection, admission, &room, tenant, tenants.len()).await?);
        }
        room.choose(waiting)
    };
    write(connection, admission, fence, before.as_ref(), &chosen).await
}

async fn write(
    connection: &mut SqliteConnection,
    admission: &Admission,
    fence: Fence,
    before: Option<&Bucket>,
    chosen: &Chosen,
) -> Result<(), sqlx::Error> {
    for (tenant, id) in &chosen.runs {
        sqlx::query(
            "UPDATE run SET state = 1, fence = ?1, revision = revision + 1, admitted_at = ?2, updated_at = ?2 \
             WHERE id = ?3 AND tenant = ?4 AND state = 0",
        )
        .bind(fence.0)
        .bind(admission.at.0)
        .bind(id.0)
        .bind(tenant.text())
        .execute(&mut *connection)
        .await?;
    }
    if before != Some(&chosen.bucket) {
        sqlx::query(
            "INSERT INTO queue (name, spent_until, served, due_at) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE \
             SET spent_until = excluded.spent_until, served = excluded.served, due_at = excluded.due_at",
        )
        .bind(admission.queue.name().to_owned())
        .bind(chosen.bucket.spent_until.0)
        .bind(chosen.bucket.served.clone())
        .bind(chosen.bucket.due_at.map(|at| at.0))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

async fn bucket(connection: &mut SqliteConnection, queue: &str) -> Result<Option<Bucket>, sqlx::Error> {
    use sqlx::Row as _;
    let query = sqlx::query("SELECT spent_until, served, due_at FROM queue WHERE name = ?");
    let row = query.bind(queue.to_owned()).fetch_optional(connection).await?;
    row.map(|row| {
        Ok(Bucket {
            spent_until: Timestamp(row.try_get(0)?),
            served: row.try_get(1)?,
            due_at: row.try_get::<Option<i64>, _>(2)?.map(Timestamp),
        })
    })
    .transpose()
}

async fn taken(
    connection: &mut SqliteConnection,
    queue: &str,
    fence: Fence,
) -> Result<Vec<Taken>, sqlx::Error> {
    let query = sqlx::query(
        "SELECT tenant, queue_key, count(*), count(*) FILTER (WHERE fence = ?) FROM run WHERE queue = ? \
         AND admitted_at IS NOT NULL AND state IN (1, 2) GROUP BY tenant, queue_key",
    );
    let rows = query.bind(fence.0).bind(queue.to_owned()).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            use sqlx::Row as _;
            Ok(Taken {
                tenant: tenant(row, 0)?,
                key: row.try_get(1)?,
                by_all: row.try_get(2)?,
                by_own: row.try_get(3)?,
            })
        })
        .collect()
}

/// The tenants of which runs wait: one look into the index for each.
async fn tenants(connection: &mut SqliteConnection, queue: &str) -> Result<Vec<Tenant>, sqlx::Error> {
    let query = sqlx::query(
        "WITH RECURSIVE t AS (SELECT min(tenant) AS tenant FROM run WHERE queue = ?1 AND state = 0 \
         UNION ALL SELECT (SELECT min(tenant) FROM run WHERE queue = ?1 AND state = 0 AND tenant > t.tenant) \
         FROM t WHERE t.tenant IS NOT NULL) SELECT tenant FROM t WHERE tenant IS NOT NULL",
    );
    let rows = query.bind(queue.to_owned()).fetch_all(connection).await?;
    rows.iter().map(|row| tenant(row, 0)).collect()
}

/// Those of a tenant that come first, without those whose key is full and those of workflows that this worker does not
/// know.
async fn candidates(
    connection: &mut SqliteConnection,
    admission: &Admission,
    room: &Room<'_>,
    of: &Tenant,
    tenants: usize,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let full: Vec<_> =
        room.full_keys().into_iter().filter(|(tenant, _)| *tenant == of).map(|(_, key)| key).collect();
    let known = admission
        .known
        .as_ref()
        .map(|known| known.iter().map(|(name, version)| (name.as_str(), *version)).collect::<Vec<_>>());
    let query = sqlx::query(
        "SELECT id, queue_key, priority, created_at FROM run WHERE queue = ?1 AND tenant = ?2 AND state = 0 \
         AND (queue_key IS NULL OR queue_key NOT IN (SELECT value FROM json_each(?3))) \
         AND (?4 IS NULL OR EXISTS (SELECT 1 FROM json_each(?4) k WHERE k.value ->> 0 = workflow \
         AND k.value ->> 1 = version)) ORDER BY priority DESC, created_at, id LIMIT ?5",
    );
    let rows = query
        .bind(admission.queue.name().to_owned())
        .bind(of.text())
        .bind(serde_json::json!(full).to_string())
        .bind(known.map(|known| serde_json::json!(known).to_string()))
        .bind(room.depth(tenants))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            use sqlx::Row as _;
            Ok(Candidate {
                id: RunId(row.try_get(0)?),
                tenant: of.clone(),
                key: row.try_get(1)?,
                priority: row.try_get(2)?,
                created_at: Timestamp(row.try_get(3)?),
            })
        })
        .collect()
}

fn tenant(row: &SqliteRow, column: usize) -> Result<Tenant, sqlx::Error> {
    use sqlx::Row as _;
    let name: String = row.try_get(column)?;
    Tenant::new(name).map_err(|error| sqlx::Error::Decode(error.into()))
}
