//! Erasing a tenant: what keeps it from going, and what goes. Both databases are told in the same words.

use super::UnderWay;

/// What may not be there, and how it is found.
pub(super) const UNDER_WAY: [(UnderWay, &str); 6] = [
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

/// All tables of tenants but that of their keys for digests: a worker that knows one would go on with it. A test compares them with
/// the schema.
pub(super) const ALL: [&str; 21] = [
    "DELETE FROM record WHERE tenant = $1",
    "DELETE FROM look WHERE tenant = $1",
    "DELETE FROM evidence WHERE tenant = $1",
    "DELETE FROM payload WHERE tenant = $1",
    "DELETE FROM escalation WHERE tenant = $1",
    "DELETE FROM run WHERE tenant = $1",
    "DELETE FROM step WHERE tenant = $1",
    "DELETE FROM use WHERE tenant = $1",
    "DELETE FROM signal WHERE tenant = $1",
    "DELETE FROM schedule WHERE tenant = $1",
    "DELETE FROM memory_shelf WHERE tenant = $1",
    "DELETE FROM memory WHERE tenant = $1",
    "DELETE FROM memory_form WHERE tenant = $1",
    "DELETE FROM memory_source WHERE tenant = $1",
    "DELETE FROM memory_contradiction WHERE tenant = $1",
    "DELETE FROM outbox_aggregate WHERE tenant = $1",
    "DELETE FROM outbox WHERE tenant = $1",
    "DELETE FROM inbox WHERE tenant = $1",
    "DELETE FROM inbox_try WHERE tenant = $1",
    "DELETE FROM inbox_version WHERE tenant = $1",
    "DELETE FROM document WHERE tenant = $1",
];

/// For the test that explains them.
pub(super) fn statements() -> impl Iterator<Item = &'static str> {
    UNDER_WAY.into_iter().map(|(_, sql)| sql).chain(ALL)
}
