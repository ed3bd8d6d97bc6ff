//! Defects of a database that its rows do not show.

/// A defect of a database, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The part of the database: `integrity`, `schema` or `index`.
    pub part: &'static str,
    /// Description of the defect.
    pub found: String,
    /// What to do about it.
    pub remedy: String,
}

impl Defect {
    /// An index, a table, a trigger or a view that is missing, or that is not as this engine makes it.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(in crate::store) fn of_schema(part: &'static str, name: &str, is_there: bool, sql: &str) -> Self {
        let found = if is_there {
            format!("{name} is not as this version makes it")
        } else {
            format!("{name} is missing")
        };
        Self { part, found, remedy: format!("make it again, while no engine works: {sql}") }
    }

    /// An index that a query does not use.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(in crate::store) fn unused(index: &str, plan: &str) -> Self {
        let found = format!("{index} is not used by the query that needs it: {plan}");
        let remedy = "run ANALYZE; if that does not help, REINDEX it".to_owned();
        Self { part: "index", found, remedy }
    }
}

/// Queries that run all the time, each with the index that it needs. Their values are literals, for a plan alone.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(in crate::store) const PLANNED: [(&str, &str); 5] = [
    ("SELECT id FROM record WHERE tenant = 't' AND key = 'k'", "record_key"),
    ("SELECT id FROM run WHERE tenant = 't' AND workflow = 'w' AND key = 'k'", "run_key"),
    ("SELECT id FROM run WHERE wake_at <= 1 ORDER BY wake_at LIMIT 1", "run_due"),
    ("SELECT record FROM look WHERE due_at <= 1 ORDER BY due_at LIMIT 1", "look_due"),
    ("SELECT id FROM escalation WHERE tenant = 't' AND record = 1", "escalation_record"),
];
