//! Every statement prepares, and none reads a whole table (DESIGN 4.9: an idle engine costs next to nothing).

use std::collections::BTreeMap;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::{Folder, plain, sources};
use crate::store::source::{literals, pinned, shared_reads};

/// Queries that run all the time, by a part of their text, and the index that each must use.
const HOT: [(&str, &str); 91] = [
    ("FROM record WHERE tenant = $1 AND key = $2", "record USING INDEX record_key (tenant=? AND key=?)"),
    ("FROM record WHERE tenant = $1 AND id = $2", "record USING INTEGER PRIMARY KEY (rowid=?)"),
    ("INDEXED BY record_orphan WHERE status = 1", "record USING INTEGER PRIMARY KEY (rowid=?)"),
    ("INDEXED BY record_orphan WHERE status = 1", "c USING INDEX record_run (run=?)"),
    ("INDEXED BY record_orphan WHERE status = 1", "e USING PRIMARY KEY (tenant=? AND id=?)"),
    (
        "FROM look WHERE due_at <= $1",
        "look USING INDEX look_due ((due_at,tenant,record)>(?,?,?) AND due_at<?)",
    ),
    ("FROM look WHERE tenant = $1 AND record = $2", "look USING PRIMARY KEY (tenant=? AND record=?)"),
    ("AND status = 2 AND updated_at >= $3", "record USING INDEX record_key (tenant=? AND key>?)"),
    ("AND status NOT IN (3, 5)", "record USING INDEX record_key (tenant=? AND key>? AND key<?)"),
    (
        "INDEXED BY escalation_record WHERE tenant",
        "escalation USING INDEX escalation_record (tenant=? AND record=?)",
    ),
    ("FROM record WHERE tenant = $1 AND run = $2", "record USING INDEX record_run (run=? AND turn=?)"),
    (
        "FROM record WHERE tenant = $1 AND run = $2",
        "record USING INDEX record_run (run=? AND turn>? AND turn<?)",
    ),
    ("INDEXED BY record_kept", "record USING INDEX record_kept (kept_until>? AND kept_until<?)"),
    ("INDEXED BY record_kept", "e USING INDEX escalation_record (tenant=? AND record=?)"),
    ("INDEXED BY record_kept", "rests USING COVERING INDEX use_record (tenant=? AND record=?)"),
    ("INDEXED BY record_kept", "r USING INTEGER PRIMARY KEY (rowid=?)"),
    ("INDEXED BY record_kept", "p USING INTEGER PRIMARY KEY (rowid=?)"),
    ("SELECT min(kept_until)", "record USING COVERING INDEX record_kept (kept_until>?)"),
    ("UPDATE record SET revision = revision + 1, status", "record USING INTEGER PRIMARY KEY (rowid=?)"),
    ("DELETE FROM record", "record USING INTEGER PRIMARY KEY (rowid=?)"),
    ("DELETE FROM escalation INDEXED", "escalation USING INDEX escalation_record (tenant=? AND record=?)"),
    ("FROM link WHERE chain = $1", "link USING PRIMARY KEY (chain=? AND number>?)"),
    ("SELECT min(chain)", "link USING PRIMARY KEY (chain>?)"),
    ("FROM worker WHERE NOT settled", "worker USING INDEX worker_open"),
    ("FROM run WHERE tenant = $1 AND id = $2", "run USING INTEGER PRIMARY KEY (rowid=?)"),
    (
        "FROM run WHERE tenant = $1 AND workflow = $2",
        "run USING INDEX run_key (tenant=? AND workflow=? AND key=?)",
    ),
    ("FROM run WHERE state = 1 AND id", "run USING INDEX run_active (id>?)"),
    ("FROM run WHERE waits_on IN (1, 3)", "run USING INDEX run_answered (id>?)"),
    ("FROM run WHERE waits_on IN (1, 3)", "e USING INDEX escalation_run (tenant=? AND run=?)"),
    ("FROM run WHERE waits_on IN (1, 3)", "s USING PRIMARY KEY (tenant=? AND run=?)"),
    ("FROM run WHERE waits_on IN (1, 3)", "r USING INTEGER PRIMARY KEY (rowid=?)"),
    ("FROM run WHERE wake_at <= $1", "run USING INDEX run_due (wake_at>? AND wake_at<?)"),
    ("FROM run WHERE deadline <= $1", "run USING INDEX run_deadline (deadline>? AND deadline<?)"),
    ("FROM run WHERE deadline <= $1", "s USING PRIMARY KEY (tenant=? AND run=? AND name=? AND id=?)"),
    ("FROM run WHERE id > $1 AND tenant = $2 ORDER", "run USING INDEX run_list (tenant=? AND id>?)"),
    ("SELECT min(at)", "run USING COVERING INDEX run_due (wake_at>?)"),
    ("SELECT min(at)", "run USING INDEX run_deadline (deadline>?)"),
    ("SELECT min(at)", "queue USING COVERING INDEX queue_due (due_at>?)"),
    ("SELECT min(at)", "schedule USING COVERING INDEX schedule_due (next_at>?)"),
    (
        "FROM schedule WHERE next_at <= $1",
        "schedule USING INDEX schedule_due ((next_at,tenant,name)>(?,?,?) AND next_at<?)",
    ),
    ("FROM schedule WHERE tenant = $1 AND name = $2", "schedule USING PRIMARY KEY (tenant=? AND name=?)"),
    ("FROM schedule WHERE tenant = $1 AND name > $2", "schedule USING PRIMARY KEY (tenant=? AND name>?)"),
    (
        "FROM document WHERE (tenant, kind, id) IN",
        "document USING PRIMARY KEY (tenant=? AND kind=? AND id=?)",
    ),
    (
        "FROM document WHERE tenant = $1 AND kind = $2 AND id = $3",
        "document USING PRIMARY KEY (tenant=? AND kind=? AND id=?)",
    ),
    (
        "FROM document WHERE tenant = $1 AND kind = $2 AND id > $3",
        "document USING PRIMARY KEY (tenant=? AND kind=? AND id>?)",
    ),
    (
        "AND kind = $2 AND open AND id > $3",
        "document USING INDEX document_open (tenant=? AND kind=? AND id>?)",
    ),
    ("FROM queue WHERE name = $1", "queue USING PRIMARY KEY (name=?)"),
    ("SELECT tenant, queue_key, count(*)", "run USING INDEX run_admitted (queue=?"),
    (
        "SELECT min(tenant) FROM run WHERE queue = $1",
        "run USING COVERING INDEX run_queued (queue=? AND tenant>?)",
    ),
    ("SELECT id, tenant, queue_key, priority", "run USING INDEX run_queued (queue=? AND tenant=?)"),
    ("SELECT min(queue) FROM run WHERE state = 0", "run USING COVERING INDEX run_queued (queue>?)"),
    (
        "FROM run WHERE queue = $1 AND admitted_at >= $2",
        "run USING INDEX run_admitted (queue=? AND admitted_at>?)",
    ),
    ("SELECT min(at)", "look USING COVERING INDEX look_due (due_at>?)"),
    ("SELECT turn, kind, name, id", "step USING PRIMARY KEY (tenant=? AND run=? AND turn=?)"),
    ("SELECT turn, kind, name, id", "step USING PRIMARY KEY (tenant=? AND run=? AND turn>? AND turn<?)"),
    ("DELETE FROM step", "s USING PRIMARY KEY (tenant=? AND run=? AND turn>? AND turn<?)"),
    ("FROM use u", "u USING PRIMARY KEY (tenant=? AND run=? AND turn=?)"),
    ("FROM use u", "u USING PRIMARY KEY (tenant=? AND run=? AND turn>? AND turn<?)"),
    ("FROM run WHERE id IN (SELECT s.run", "run USING INTEGER PRIMARY KEY (rowid=?)"),
    (
        "FROM run WHERE id > $1 AND tenant = $2 AND parent = $3",
        "run USING INDEX run_children (tenant=? AND parent=? AND id>?)",
    ),
    ("SELECT place FROM signal", "signal USING INDEX signal_pending (tenant=? AND run=?)"),
    (
        "FROM signal INDEXED BY signal_pending WHERE tenant = ?1",
        "signal USING INDEX signal_pending (tenant=? AND run=?)",
    ),
    ("received FROM signal WHERE", "signal USING PRIMARY KEY (tenant=? AND run=? AND name=? AND id=?)"),
    (
        "WHERE tenant = $1 AND run = $2 AND answer IS NULL ORDER BY id",
        "escalation USING INDEX escalation_run (tenant=? AND run=?)",
    ),
    (
        "WHERE tenant = $1 AND run = $2 AND answer IS NULL AND kind <> $3",
        "escalation USING INDEX escalation_run (tenant=? AND run=?)",
    ),
    ("AND tenant = $2 AND answer IS NULL", "escalation USING INDEX escalation_open (tenant=? AND id>?)"),
    ("WHERE kind = 7 AND answer IS NULL", "escalation USING INDEX escalation_unknown_workflow (id>?)"),
    ("SELECT min(due_at) FROM outbox", "outbox_aggregate USING INDEX outbox_due (due_at>?)"),
    (
        "DELETE FROM outbox WHERE",
        "outbox USING COVERING INDEX outbox_seq (tenant=? AND aggregate=? AND seq<?)",
    ),
    ("(SELECT $5 FROM inbox", "inbox USING PRIMARY KEY (tenant=? AND consumer=? AND message=?)"),
    (
        "FROM run INDEXED BY run_over WHERE workflow = $1 AND updated_at >= $2",
        "run USING INDEX run_over (workflow=? AND updated_at>? AND updated_at<?)",
    ),
    ("SELECT min(updated_at) FROM run", "run USING INDEX run_over (workflow=? AND updated_at>?)"),
    (
        "SELECT tenant, run, turn, kind, name, id FROM step WHERE tenant = $1",
        "step USING PRIMARY KEY (tenant=? AND run=?)",
    ),
    ("FROM signal INDEXED BY signal_over", "signal USING INDEX signal_over (at>? AND at<?)"),
    ("FROM signal INDEXED BY signal_over", "run USING INTEGER PRIMARY KEY (rowid=?)"),
    ("UPDATE signal SET body", "signal USING PRIMARY KEY (tenant=? AND run=? AND name=? AND id=?)"),
    ("DELETE FROM signal WHERE (", "signal USING PRIMARY KEY (tenant=? AND run=?)"),
    ("DELETE FROM escalation WHERE (", "escalation USING INDEX escalation_settled (tenant=? AND run=?)"),
    (
        "AND state <> 1 AND run.workflow > lane.workflow",
        "run USING INDEX run_state (tenant=? AND <expr>=? AND workflow>?)",
    ),
    (
        "AND state <> 1 AND workflow = lane.workflow AND (created_at, id) > ",
        "run USING INDEX run_state (tenant=? AND <expr>=? AND workflow=? AND created_at>? AND created_at<?)",
    ),
    (
        "AND state <> 1 AND workflow = lane.workflow AND (created_at, id) < ",
        "run USING INDEX run_state (tenant=? AND <expr>=? AND workflow=? AND created_at>? AND created_at<?)",
    ),
    ("FROM run INDEXED BY run_active WHERE state = 1 AND CAST", "run USING COVERING INDEX run_active"),
    (
        "AND key IS NOT NULL AND run.workflow > lane.workflow",
        "run USING COVERING INDEX run_key (tenant=? AND workflow>?)",
    ),
    (
        "SELECT r.id FROM seen",
        "run USING COVERING INDEX run_key (tenant=? AND workflow=? AND key>? AND key<?)",
    ),
    ("LIMIT 1 OFFSET $6", "run USING COVERING INDEX run_key (tenant=? AND workflow=? AND key>? AND key<?)"),
    ("AND is_lookup AND result = 1", "contact USING INDEX contact_found (tenant=? AND ended>?)"),
    (
        "FROM evidence WHERE tenant = $1 AND at",
        "evidence USING COVERING INDEX evidence_at (tenant=? AND at>?)",
    ),
    ("FROM use WHERE tenant = $1 AND at", "use USING COVERING INDEX use_at (tenant=? AND at>?)"),
    ("SELECT r.sealed_at FROM", "r USING INTEGER PRIMARY KEY (rowid=?)"),
    ("AND kind <> 27 ORDER BY opened_at", "escalation USING INDEX escalation_opened (tenant=?)"),
    ("FROM payload", "payload USING INDEX sqlite_autoindex_payload_1 (tenant=? AND digest=?)"),
];

#[tokio::test]
async fn every_statement_prepares_and_none_reads_a_whole_table() {
    let folder = Folder::new();
    drop(folder.open().await);
    let mut connection = plain(&folder.database()).await;
    let mut plans = BTreeMap::new();
    for (file, found) in all_statements() {
        for sql in found {
            let plan = explain(&mut connection, &file, &sql).await;
            for step in &plan {
                let scan = step.strip_prefix("SCAN ").is_some_and(|what| !may_be_scanned(what));
                assert!(!scan, "{file}: {sql}\n{plan:#?}");
            }
            if !sql.ends_with("WHERE tenant = $1") {
                plans.insert(sql, plan); // and not what erases a tenant
            }
        }
    }
    assert!(plans.len() >= 30, "found only {} statements: has their form changed?", plans.len());
    for (part, index) in HOT {
        let (sql, plan) = plans
            .iter()
            .find(|(sql, _)| sql.contains(part))
            .unwrap_or_else(|| panic!("no statement has {part}"));
        assert!(plan.iter().any(|step| step.contains(index)), "{sql}\nshould have: {index}\nhas: {plan:#?}");
        // Orphans are few, and are listed once per restart; those that have a place are counted.
        let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"))
            && !part.contains("status = 1")
            && !part.contains("count(*)")
            && !sql.contains("place (at, id)"); // the first runs of each state and workflow are merged
        assert!(!sorts, "{sql}: sorts: {plan:#?}");
    }
}

// A change of a statement is seen in review, with the file that pins them: `INSTA_UPDATE=always` writes it anew.
#[test]
fn no_statement_changes_unseen() {
    insta::assert_snapshot!(pinned(all_statements().into_iter().flat_map(|(_, found)| found)));
}

/// The statements of the store's files, and those that it puts together, by their files.
fn all_statements() -> Vec<(String, Vec<String>)> {
    // A move and a search for the keys of texts read whole tables, by statements that are put together from their columns.
    let put_together = ["transfer.rs", "retention.rs", "row.rs", "examine.rs", "named_keys.rs"];
    let files = sources().into_iter().filter(|(file, _)| !put_together.contains(&file.as_str()));
    let mut all: Vec<_> = files.map(|(file, text)| (file, statements(&text))).collect();
    all.push(("retention.rs".to_owned(), counterfoil::store::sqlite::statements()));
    all.push(("src/store".to_owned(), shared_reads(|sqlite, _| sqlite)));
    all
}

/// Rows that the statement brings along; the schema, when a database is opened; workers, when work is taken over:
/// there is one of them for each process that ever was; indexes of nothing but what a restart looks for.
fn may_be_scanned(what: &str) -> bool {
    what.starts_with('(')
        || what.ends_with("CONSTANT ROW")
        || what.ends_with("CONSTANT ROWS")
        || what.ends_with("VALUES CLAUSE")
        || what.contains("VIRTUAL TABLE") // a list that the statement brings along
        || what == "t" // the rows that it has found so far
        || what == "q"
        || ["code", "lane", "line", "place", "seen", "active"].contains(&what)
        || what == "run USING COVERING INDEX run_active" // a page of runs
        || what.starts_with("run USING COVERING INDEX run_queued") // of the operator's list
        || what.starts_with("run USING INDEX run_admitted")
        || what == "escalation USING INDEX escalation_open" // the open questions, for the gauges
        || what.starts_with("outbox_aggregate USING INDEX outbox_due") // one row of it
        || what.starts_with("outbox_aggregate USING COVERING INDEX outbox_due")
        || what == "sqlite_master"
        || what == "sqlite_sequence" // it has one row
        || what == "worker"
        || what == "worker USING INDEX worker_open"
        || what.ends_with("INDEX worker_publishes") // it has one row
        || what == "record USING INDEX record_orphan"
        || what == "u USING INDEX run_unsettled"
        || what.starts_with("s USING INDEX signal_pending")
        || what.starts_with("s USING COVERING INDEX signal_pending")
}

async fn explain(connection: &mut SqliteConnection, file: &str, sql: &str) -> Vec<String> {
    let explain = format!("EXPLAIN QUERY PLAN {sql}");
    let rows = sqlx::query(sqlx::AssertSqlSafe(explain)).fetch_all(connection).await;
    let rows = rows.unwrap_or_else(|error| panic!("{file}: {sql}\n{error}"));
    rows.iter().map(|row| row.get::<String, _>(3)).collect()
}

/// The statements of a source file, put together as the store does it.
fn statements(source: &str) -> Vec<String> {
    let (mut statements, mut select, mut insert) = (Vec::new(), String::new(), (String::new(), 0));
    for (before, text, after) in literals(source) {
        if before.ends_with("concat!(") {
            select = text;
        } else if before.ends_with("select!(") {
            statements.push(format!("{select}{text}"));
        } else if before.ends_with("head:") {
            let columns = after.split("columns: ").nth(1).unwrap().split(',').next().unwrap();
            insert = (text, columns.parse().unwrap());
        } else if before.ends_with(" tail:") {
            statements.push(with_rows(&insert.0, insert.1, &text));
        } else if ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "]
            .iter()
            .any(|verb| text.starts_with(verb))
        {
            statements.push(text);
        }
    }
    statements
}

fn with_rows(head: &str, columns: usize, tail: &str) -> String {
    let row = format!("({})", vec!["?"; columns].join(","));
    format!("{head} FROM (VALUES {row},{row}) WHERE column1 IS NOT NULL {tail}")
}
