//! Every statement prepares, and none that runs all the time reads a whole table: with empty tables, when the plans are
//! made that are kept; with tables that have grown, and of which the server knows nothing yet; and when it knows.
//!
//! `COUNTERFOIL_FULL=1` fills in a million records and a hundred thousand waiting runs instead of a tenth of that.

use std::collections::BTreeMap;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row as _};

use super::{Schema, number, run, sources};
use crate::store::source::{constants, literals, pinned, shared_reads};

/// Queries that run all the time, by a part of their text, and what their plans must have: the index, and what is
/// looked up in it.
const HOT: [(&str, &[&str]); 78] = [
    ("FROM record WHERE tenant = $1 AND key = $2", &["record_key on record", "(tenant = $1) AND (key = $2)"]),
    ("FROM record WHERE tenant = $1 AND id = $2", &["record_pkey on record", "(tenant = $1) AND (id = $2)"]),
    (
        "FROM record WHERE (tenant, id) IN",
        &[
            "record_orphan",
            "run_unsettled",
            "record_run on record o",
            "(tenant = u.tenant) AND (run = u.id)",
            "record_pkey on record",
        ],
    ),
    (
        "FROM record_label l",
        &["record_label_value on record_label l", "(value = $3)", "record_pkey on record r"],
    ),
    ("DELETE FROM record_label WHERE tenant = $1 AND record", &["record_label_pkey on record_label"]),
    ("FROM look WHERE due_at <= $1", &["look_due on look", "due_at <= $1", "ROW(due_at, tenant, record) >"]),
    ("FROM look WHERE tenant = $1 AND record = $2", &["look_pkey on look"]),
    ("AND status = 2 AND updated_at >= $3", &["record_key on record"]),
    ("AND status NOT IN (3, 5)", &["record_key on record"]),
    ("FROM escalation WHERE tenant = $1 AND record = $2", &["escalation_record on escalation"]),
    (
        "FROM record WHERE kept_until >= $1",
        &[
            "record_kept on record",
            "(kept_until >= $1) AND (kept_until <= $2)",
            "escalation_record on escalation a",
            "use_record on use rests",
            "run_pkey on run r",
            "Recursive Union",
        ],
    ),
    ("SELECT min(kept_until)", &["record_kept on record", "kept_until > $1"]),
    (
        "UPDATE record SET revision = revision + 1, status",
        &["record_pkey on record", "escalation_record on escalation a", "use_record on use rests"],
    ),
    ("DELETE FROM record WHERE", &["record_pkey on record", "escalation_record on escalation a"]),
    ("DELETE FROM escalation WHERE tenant = $1 AND record", &["escalation_record on escalation"]),
    (
        "FROM run WHERE workflow = $1 AND updated_at >= $2",
        &[
            "run_over on run",
            "(workflow = $1) AND (updated_at >= $2) AND (updated_at <= $3)",
            "run_pkey on run p",
            "escalation_run on escalation e",
            "record_run on record c",
        ],
    ),
    ("SELECT min(updated_at) FROM run", &["run_over on run", "(workflow = $1) AND (updated_at > $2)"]),
    (
        "UPDATE run SET revision = revision + 1, input",
        &["run_pkey on run", "escalation_run on escalation e", "record_run on record c"],
    ),
    ("DELETE FROM step WHERE (", &["step_pkey on step", "(tenant = $1) AND (run = $2)"]),
    (
        "FROM signal WHERE received AND substr",
        &[
            "signal_over on signal",
            "(at >= $2) AND (at <= $3)",
            "run_pkey on run",
            "escalation_run on escalation e",
        ],
    ),
    ("UPDATE signal SET body", &["signal_pkey on signal", "(tenant = $1) AND (run = $2)"]),
    ("DELETE FROM signal WHERE (", &["signal_pkey on signal", "(tenant = $1) AND (run = $2)"]),
    ("DELETE FROM use WHERE (", &["use_pkey on use", "(tenant = $1) AND (run = $2)"]),
    ("DELETE FROM escalation WHERE (", &["escalation_settled on escalation", "(tenant = $1) AND (run = $2)"]),
    ("FROM record WHERE tenant = $1 AND run = $2", &["record_run on record", "(tenant = $1) AND (run = $2)"]),
    ("FROM run WHERE tenant = $1 AND id = $2", &["run_pkey on run", "(tenant = $1) AND (id = $2)"]),
    (
        "FROM run WHERE tenant = $1 AND workflow = $2 AND key = $3 ",
        &["run_key on run", "(tenant = $1) AND (workflow = $2) AND (key = $3)"],
    ),
    (
        "traceparent FROM run WHERE tenant = $1 AND workflow = $2",
        &["run_key on run", "(tenant = $1) AND (workflow = $2) AND (key = $3)"],
    ),
    ("FROM run WHERE state = 1 AND id", &["run_active on run", "id > $1", "worker_"]),
    (
        "FROM run WHERE waits_on IN (1, 3)",
        &[
            "run_answered on run",
            "id > $1",
            "escalation_run on escalation e",
            "(tenant = run.tenant) AND (run = run.id)",
            "use_pkey on use s",
            "record_pkey on record r",
        ],
    ),
    ("IN (SELECT tenant, run FROM signal", &["signal_pending", "run_pkey on run"]),
    (
        "FROM run WHERE id > $1 AND tenant = $2 AND parent = $3",
        &["run_children on run", "(tenant = $2) AND (parent = $3) AND (id > $1)"],
    ),
    (
        "AS asked (tenant, run)",
        &["signal_pending on signal", "(tenant = (asked.tenant)) AND (run = asked.run)"],
    ),
    ("SELECT place FROM signal", &["Index Only Scan Backward using signal_pending", "(run = $2)"]),
    ("received FROM signal WHERE tenant", &["signal_pkey on signal", "AND (id = $4)"]),
    ("FROM run WHERE wake_at <= $1", &["run_due on run", "wake_at <= $1", "ROW(wake_at, id) >"]),
    (
        "FROM run WHERE deadline <= $1",
        &[
            "run_deadline on run",
            "ROW(deadline, id) >",
            "deadline <= $1",
            "signal_pkey on signal s",
            "(id = '~deadline'",
        ],
    ),
    ("FROM run WHERE id > $1 AND tenant = $2 ORDER", &["run_pkey on run", "(tenant = $2) AND (id > $1)"]),
    (
        "SELECT min(wake_at) AS at FROM run WHERE wake_at > $1",
        &[
            "run_due on run",
            "run_deadline on run",
            "queue_due on queue",
            "schedule_due on schedule",
            "look_due on look",
        ],
    ),
    (
        "p.time, p.due",
        &[
            "run_due on run",
            "run_deadline on run",
            "queue_due on queue",
            "run_queued on run",
            "look_due on look",
            "document_open on document",
            "worker_open",
        ],
    ),
    (
        "FROM use u JOIN record r",
        &["use_pkey on use u", "AND (run = $2)", "record_pkey on record r", "AND (id = u.record)"],
    ),
    ("FROM use WHERE tenant = $1 AND record = $2", &["use_record on use", "(tenant = $1) AND (record = $2)"]),
    ("FROM link WHERE chain = $1", &["link_pkey on link", "(chain = $1) AND (number > $2)"]),
    ("AND is_lookup AND result = 1", &["contact_found on contact", "(tenant = $1) AND (ended >= $2)"]),
    ("FROM evidence WHERE tenant = $1 AND at", &["evidence_at on evidence", "(tenant = $1) AND (at >= $2)"]),
    ("FROM use WHERE tenant = $1 AND at", &["use_at on use", "(tenant = $1) AND (at >= $2)"]),
    ("SELECT r.sealed_at FROM", &["record_pkey on record", "(tenant = $2) AND (id = t.id)"]),
    ("AND kind <> 27 ORDER BY opened_at", &["escalation_opened on escalation", "tenant = $1"]),
    (
        "FROM evidence WHERE tenant = $1 AND record",
        &["evidence_pkey on evidence", "(tenant = $1) AND (record = $2)"],
    ),
    ("FROM step WHERE tenant = $1 AND run = $2", &["step_pkey on step", "(tenant = $1) AND (run = $2)"]),
    (
        "FROM escalation WHERE tenant = $1 AND id = $2",
        &["escalation_pkey on escalation", "(tenant = $1) AND (id = $2)"],
    ),
    (
        "FROM escalation WHERE tenant = $1 AND run = $2 AND answer IS NULL ORDER BY id",
        &["escalation_run on escalation", "(tenant = $1) AND (run = $2)"],
    ),
    (
        "FROM escalation WHERE tenant = $1 AND run = $2 AND answer IS NULL AND kind <> $3",
        &["escalation_run on escalation", "(tenant = $1) AND (run = $2)"],
    ),
    (
        "FROM escalation WHERE id > $1 AND tenant = $2 AND answer IS NULL",
        &["escalation_open on escalation", "(tenant = $2) AND (id > $1)"],
    ),
    (
        "FROM escalation WHERE kind = 7 AND answer IS NULL",
        &["escalation_unknown_workflow on escalation", "id > $1"],
    ),
    (
        "FROM schedule WHERE next_at <= $1",
        &["schedule_due on schedule", "next_at <= $1", "ROW(next_at, tenant, name) >"],
    ),
    ("FROM schedule WHERE tenant = $1 AND name = $2", &["schedule_pkey on schedule", "AND (name = $2)"]),
    ("FROM schedule WHERE tenant = $1 AND name > $2", &["schedule_pkey on schedule", "AND (name > $2)"]),
    (
        "FROM document WHERE tenant = $1 AND kind = $2 AND id = $3",
        &["document_pkey on document", "AND (id = $3)"],
    ),
    (
        "FROM document WHERE tenant = $1 AND kind = $2 AND id > $3",
        &["document_pkey on document", "AND (id > $3)"],
    ),
    ("AND kind = $2 AND open AND id > $3", &["document_open on document", "AND (id > $3)"]),
    ("SELECT min(due_at) FROM outbox_aggregate", &["outbox_due on outbox_aggregate"]),
    ("VALUES ($1, $2, $3, 5, 1, $5)", &["Conflict Arbiter Indexes: inbox_pkey"]),
    ("UPDATE inbox SET state = $4, result", &["inbox_pkey on inbox", "(message = $3)"]),
    ("FROM queue WHERE name = $1", &["queue_pkey on queue", "name = $1"]),
    ("SELECT tenant, queue_key, count(*)", &["run_admitted on run", "queue = $2"]),
    ("SELECT tenant FROM run WHERE queue = $1", &["run_queued on run", "queue = $1"]),
    ("AS t (tenant) CROSS JOIN LATERAL", &["run_queued on run r", "(queue = $1) AND (tenant = t.tenant)"]),
    ("SELECT queue FROM run WHERE state = 0 AND", &["run_queued on run"]),
    (
        "FROM run WHERE queue = $1 AND admitted_at",
        &["run_admitted on run", "(queue = $1) AND (admitted_at >= $2)"],
    ),
    (
        "AND state <> 1 AND workflow = lane.workflow",
        &["run_state on run", "run_active on run", "run_pkey on run"],
    ),
    ("AND key >= $2 AND (key > $2", &["run_key on run", "(key >= $2) AND (key < $4)"]),
    ("SELECT body FROM payload", &["payload_pkey on payload", "(tenant = $1) AND (digest = $2)"]),
    ("DELETE FROM payload WHERE", &["payload_pkey on payload", "(tenant = $1) AND (digest = $2)"]),
    ("UPDATE payload SET", &["payload_pkey on payload", "(tenant = $1) AND (digest = $2)"]),
    ("UPDATE worker SET lease_until", &["worker_pkey on worker", "fence = $2"]),
    ("UPDATE run SET version", &["run_pkey on run r", "AND (id = u_2.id)", "run_pkey on run\n"]),
    (
        "FOR KEY SHARE), record_moved2 AS",
        &["Conflict Arbiter Indexes: record_pkey", "worker_pkey", "fence = "],
    ),
];

#[tokio::test]
async fn every_statement_prepares_and_none_reads_a_whole_table() {
    let schema = Schema::new();
    drop(schema.open().await);
    let mut connection = schema.plain().await;
    // As the store's own connections are. One plan for all arguments, made at this moment.
    run(
        &mut connection,
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
         SET plan_cache_mode = force_generic_plan",
    )
    .await;
    assert_plans(&mut connection, "empty").await;
    fill(&mut connection).await;
    assert_plans(&mut connection, "grown").await;
    run(&mut connection, "ANALYZE").await;
    assert_plans(&mut connection, "full").await;
}

// A change of a statement is seen in review, with the file that pins them: `INSTA_UPDATE=always` writes it anew.
#[test]
fn no_statement_changes_unseen() {
    // A table's part of a batch stands in many statements: here each in the one that writes it alone, for several workers.
    let is_alone = |sql: &String| sql.contains("ORDER BY fence") && sql.matches(" AS (INSERT").count() < 3;
    let is_pinned = |sql: &String| !sql.contains("WHERE holds") || is_alone(sql);
    insta::assert_snapshot!(pinned(statements().into_iter().filter(is_pinned)));
}

async fn assert_plans(connection: &mut PgConnection, tables: &str) {
    let mut plans = BTreeMap::new();
    for sql in statements() {
        let plan = explain(connection, &sql).await;
        assert!(!plan.contains("Seq Scan"), "{tables} tables: {sql}\n{plan}");
        if !(sql.starts_with("DELETE") && sql.ends_with("WHERE tenant = $1")) {
            plans.insert(sql, plan); // and not what erases a tenant
        }
    }
    assert!(plans.len() >= 60, "found only {} statements: has their form changed?", plans.len());
    let mut wrong = Vec::new();
    for (part, needed) in HOT {
        let found: Vec<_> = plans.iter().filter(|(sql, _)| sql.contains(part)).collect();
        assert!(!found.is_empty(), "no statement has {part}");
        for (sql, plan) in found {
            if tables == "empty" && !sql.contains("WHERE holds)") {
                continue; // planned anew each time: see `connect`
            }
            let plan = plan.replace("::text", "").replace("::bigint", "");
            let sql: String = sql.chars().take(400).collect();
            // An index may be read by way of a bitmap, and its table is then named elsewhere.
            let lacks = |words: &&&str| !words.split(" on ").take(1).all(|index| plan.contains(index));
            for words in needed.iter().filter(lacks) {
                wrong.push(format!("{sql}\nshould have: {words}\nhas:\n{plan}"));
            }
            if plan.contains("Sort Key") && !MAY_SORT.iter().any(|may| sql.contains(may)) {
                wrong.push(format!("{sql}: sorts:\n{plan}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{tables} tables:\n{}", wrong.join("\n"));
}

/// Few rows: what is left after a crash, of one record, pending for one run, of a page, or workers.
const MAY_SORT: [&str; 11] = [
    "count(*)",
    "(tenant, id) IN",
    "FROM evidence",
    "AS asked (tenant, run)",
    "memory = ANY($2)",
    "ANY($1)",
    "p.time, p.due",
    "ANY(ARRAY(WITH RECURSIVE", // the first runs of each state and workflow
    "WITH RECURSIVE lane",
    "FROM record_label l",   // the records of a page
    "LIMIT 1000) RETURNING", // of a run that goes, a thousand rows at once
];

/// The plan of a statement for all arguments that it may ever have.
async fn explain(connection: &mut PgConnection, sql: &str) -> String {
    let prepared =
        sqlx::raw_sql(AssertSqlSafe(format!("PREPARE it AS {sql}"))).execute(&mut *connection).await;
    prepared.unwrap_or_else(|error| panic!("{sql}\n{error}"));
    let count = "SELECT coalesce(array_length(parameter_types, 1), 0)::bigint FROM pg_prepared_statements WHERE name = 'it'";
    let count = usize::try_from(number(connection, count).await).unwrap();
    let arguments = if count == 0 { String::new() } else { format!("({})", vec!["NULL"; count].join(", ")) };
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE it{arguments}");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
    run(connection, "DEALLOCATE it").await;
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// The statements of the store's files, and those that it puts together.
fn statements() -> Vec<String> {
    let mut statements = counterfoil::store::postgres::statements();
    statements.extend(shared_reads(|_, postgres| postgres));
    let constants = constants();
    for (file, text) in sources() {
        if ["connect.rs", "open.rs", "retention.rs", "examine.rs", "named_keys.rs"].contains(&file.as_str()) {
            continue; // these set up, and may look where they like; this one is put together
        }
        let (mut select, mut last) = (String::new(), String::new());
        for (before, mut text, _) in literals(&text) {
            for (name, words) in &constants {
                text = text.replace(name, words);
            }
            if before.ends_with("concat!(") {
                select = text;
            } else if before.ends_with("select!(") {
                last = format!("{select}{text}");
                statements.push(last.clone());
            } else if ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "WITH "]
                .iter()
                .any(|verb| text.starts_with(verb))
                && !(before.ends_with("format!(") && text.contains('{'))
            {
                statements.push(text);
            }
        }
        let _ = last;
    }
    statements
}

async fn fill(connection: &mut PgConnection) {
    let full = std::env::var_os("COUNTERFOIL_FULL").is_some();
    let runs = if full { 100_000 } else { 10_000 };
    let records = runs * 10;
    let hash = "decode(repeat('01', 33), 'hex')";
    let tenant = "(ARRAY['acme', 'globex', 'initech'])[1 + i % 3]";
    for sql in [
        "INSERT INTO worker (fence, name, enrolled_at, ended_at, retired, settled) \
         SELECT i, 'worker ' || i, 0, CASE WHEN i < 290 THEN 1 END, true, i < 280 FROM generate_series(1, 300) i"
            .to_owned(),
        format!(
            "INSERT INTO run (id, tenant, workflow, version, key, input, input_hash, state, wake_at, waits_on, fence, \
             revision, deaths, created_at, updated_at, unsettled, parent, number, deadline) SELECT i, {tenant}, 'order', 1, 'start ' || i, '{{}}', {hash}, \
             CASE WHEN i % 1000 = 0 THEN 1 ELSE 2 END, CASE WHEN i % 1000 > 10 THEN i * 1000 END, \
             CASE WHEN i % 1000 BETWEEN 1 AND 10 THEN 1 WHEN i % 1000 > 500 THEN 2 ELSE 0 END, 1 + i % 300, 1, 0, 0, 0, \
             i % 5000 = 0, CASE WHEN i % 7 = 0 THEN i / 7 END, i, CASE WHEN i % 3 = 0 THEN i * 1000 END \
             FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO record (id, tenant, key, operation, class, request, request_hash, declaration, run, step, \
             fence, revision, attempts, status, basis, outcome, created_at, updated_at, kept_until) \
             SELECT i, {tenant}, 'pay:' || i, 'pay', 1, '{{}}', {hash}, 1, CASE WHEN i % 20 > 0 THEN 1 + (i / 10) END, 'pay/1', \
             1 + i % 300, 1, 1, CASE WHEN i % 2000 = 0 THEN 1 ELSE 2 END, 0, \
             CASE WHEN i % 2000 > 0 THEN '{{}}' END, 0, 0, i FROM generate_series(1, {records}) i"
        ),
        format!(
            "INSERT INTO record_label (tenant, record, name, value, key) SELECT {tenant}, i, 'customer', \
             'c-' || i % 100, 'pay:' || i FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO look (tenant, record, revision, reason, due_at, since, made, tries, missed) \
             SELECT {tenant}, i, 1, 1, i, 0, 0, 0, false FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO step (tenant, run, kind, name, id, value, at) SELECT {tenant}, 1 + i / 5, 1, 'load', '' || i, \
             '{{}}', 0 FROM generate_series(1, {records}) i"
        ),
        format!(
            "INSERT INTO signal (tenant, run, name, id, place, body, at, received) SELECT {tenant}, i / 3, 'paid', '' || i, \
             i % 3, '{{}}', 0, i % 100 > 0 FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO use (tenant, run, record, turn, step, at) SELECT {tenant}, 1 + i / 2, i, 0, 'pay/1', 0 \
             FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO escalation (tenant, id, record, run, kind, question, opened_at, answer) SELECT {tenant}, i, i, \
             i, 1, '?', 0, CASE WHEN i % 100 > 0 THEN '{{}}' END FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO evidence (tenant, record, fence, attempt, response, at) SELECT {tenant}, i, 1, 1, '{{}}', 0 \
             FROM generate_series(1, {runs}) i"
        ),
        format!(
            "INSERT INTO payload (tenant, digest, body, uses) SELECT {tenant}, decode(md5('' || i), 'hex'), '{{}}', 1 \
             FROM generate_series(1, {runs}) i"
        ),
    ] {
        run(connection, sql).await;
    }
}
