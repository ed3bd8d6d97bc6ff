//! Erasing a tenant: the rows that prevent it, and the rows that are deleted. Both databases use the same statements.

use super::ask::Session;
use crate::id::Tenant;
use crate::store::UnderWay;
use crate::store::table::{TABLES, Table};

/// The rows that prevent an erasure, and the queries that find them.
pub(in crate::store) const UNDER_WAY: [(UnderWay, &str); 6] = [
    (UnderWay::Run, "SELECT 1 FROM run WHERE tenant = $1 AND state NOT IN (3, 4) LIMIT 1"),
    (
        UnderWay::Operation,
        "SELECT 1 FROM record WHERE tenant = $1 AND (status = 1 OR escalation IS NOT NULL) LIMIT 1",
    ),
    (UnderWay::Operation, "SELECT 1 FROM look WHERE tenant = $1 LIMIT 1"),
    (UnderWay::Question, "SELECT 1 FROM escalation WHERE tenant = $1 AND answer IS NULL LIMIT 1"),
    (UnderWay::Schedule, "SELECT 1 FROM schedule WHERE tenant = $1 AND state <> 3 LIMIT 1"),
    (UnderWay::Event, "SELECT 1 FROM outbox_aggregate WHERE tenant = $1 AND published < last LIMIT 1"),
];

/// The tables of tenants that an erasure leaves as they are: the keys for digests, because a worker that knows a key
/// would go on with it, and the links of a chain of evidence, which hold digests alone.
const KEPT: [&str; 2] = ["tenant", "link"];

/// The statements that delete from all other tables of tenants.
fn all() -> impl Iterator<Item = String> {
    let of_tenants = |table: &&&Table| {
        !KEPT.contains(&table.name) && table.columns.iter().any(|column| column.name == "tenant")
    };
    TABLES.iter().filter(of_tenants).map(|table| format!("DELETE FROM {} WHERE tenant = $1", table.name))
}

/// The kind of row that prevents the erasure of the tenant, if there is one.
async fn under_way<S: Session>(session: &mut S, tenant: &Tenant) -> Result<Option<UnderWay>, sqlx::Error> {
    for (what, sql) in UNDER_WAY {
        if session.finds(sql, &[tenant.into()]).await? {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Erases the tenant, and looks again afterwards for rows that prevent it: where several transactions write at once, a
/// run that begins meanwhile must not lose the rows that it rests on. Returns the kind of row that prevents the erasure.
pub(in crate::store) async fn erase<S: Session>(
    session: &mut S,
    tenant: &Tenant,
) -> Result<Option<UnderWay>, sqlx::Error> {
    let before = under_way(session, tenant).await?;
    if before.is_some() {
        return Ok(before);
    }
    for sql in all() {
        session.finds(&sql, &[tenant.into()]).await?;
    }
    under_way(session, tenant).await
}

/// The statements, for the test that explains them.
pub(in crate::store) fn statements() -> impl Iterator<Item = String> {
    UNDER_WAY.into_iter().map(|(_, sql)| sql.to_owned()).chain(all())
}
