//! The views for people who ask in SQL: the same columns, words and times on both stores, and those that the library shows.

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Row as _};

use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::{Bill, Pay, Post, Ring};
use crate::flow::world::{Process, World};

/// The views and their columns. A column is added at an end, and none is taken away or renamed: others build on them.
const VIEWS: [(&str, &str); 4] = [
    (
        "runs",
        "tenant, run, workflow, version, key, state, waits_for, wakes_at, parent, queue, queue_key, priority, turn, \
         recovery_attempts, started_at, updated_at, deadline",
    ),
    (
        "calls",
        "tenant, key, tool, effect, state, basis, attempts, run, step, turn, call_id, external_ref, question, worker, \
         asked_at, settled_at, updated_at, kept_until",
    ),
    ("open_questions", "tenant, question, kind, run, key, tool, text, answer_waits, opened_at"),
    (
        "attempts",
        "tenant, key, tool, contact, number, attempt, worker, result, error, message, external_ref, began_at, ended_at",
    ),
];

/// The rows of a query, each as JSON. All columns are read as texts.
async fn rows(place: &Place, world: &World, view: &str, order: &str) -> Vec<Value> {
    let columns = VIEWS.iter().find(|(name, _)| *name == view).unwrap().1;
    let texts: Vec<_> = columns.split(", ").map(|name| format!("CAST({name} AS text) AS {name}")).collect();
    let sql = format!("SELECT {} FROM {view} ORDER BY {order}", texts.join(", "));
    let names: Vec<_> = columns.split(", ").collect();
    let row = |values: Vec<Option<String>>| -> Value {
        names.iter().zip(values).map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    };
    match place {
        Place::File => {
            let mut connection = SqliteConnectOptions::new().filename(world.path()).connect().await.unwrap();
            let found = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
            found.iter().map(|found| row((0..names.len()).map(|at| found.get(at)).collect())).collect()
        }
        Place::Schema(schema) => {
            let mut connection = schema.plain().await;
            let found = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
            found.iter().map(|found| row((0..names.len()).map(|at| found.get(at)).collect())).collect()
        }
    }
}

/// The columns of a view, in their order.
async fn columns_of(place: &Place, world: &World, view: &str) -> Vec<String> {
    match place {
        Place::File => {
            let mut connection = SqliteConnectOptions::new().filename(world.path()).connect().await.unwrap();
            let query =
                sqlx::query("SELECT name FROM pragma_table_info($1) ORDER BY cid").bind(view.to_owned());
            query.fetch_all(&mut connection).await.unwrap().iter().map(|row| row.get(0)).collect()
        }
        Place::Schema(schema) => {
            let query = sqlx::query(
                "SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema() \
                 AND table_name = $1 ORDER BY ordinal_position",
            );
            let query = query.bind(view.to_owned());
            query.fetch_all(&mut schema.plain().await).await.unwrap().iter().map(|row| row.get(0)).collect()
        }
    }
}

#[test]
fn their_columns_are_the_same_on_both_stores_and_in_the_guide() {
    let guide = include_str!("../../../docs/sql.md");
    for place in Place::both() {
        let world = World::new();
        Process::start(&world, place.engine(&world)).shut_down();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for (view, columns) in VIEWS {
            let found = runtime.block_on(columns_of(&place, &world, view));
            assert_eq!(found.join(", "), columns, "{view}");
            let section = guide.split(&format!("## `{view}`")).nth(1).expect("the guide has each view");
            let section = section.split("\n## ").next().unwrap();
            let told = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
            assert_eq!(told.collect::<Vec<_>>().join(", "), columns, "{view} in docs/sql.md");
        }
    }
}

/// Each word of a code is the one that the library shows: a new code needs a new migration that makes the views anew.
#[test]
fn their_words_are_those_of_the_library() {
    let of_both = [
        include_str!("../../../migrations/sqlite/0017_views.sql"),
        include_str!("../../../migrations/postgres/0017_views.sql"),
    ];
    let words = counterfoil::store::words();
    assert!(words.len() >= 40, "{words:?}");
    for text in of_both {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (column, code, word) in &words {
            let case = text.split(&format!("CASE {column} ")).nth(1).expect("the column has words");
            let case = case.split(" END").next().unwrap();
            assert!(
                case.contains(&format!("WHEN {code} THEN '{word}'")),
                "{column} {code} is {word}: {case}"
            );
        }
    }
}

#[test]
fn runs_and_calls_are_shown_in_words_with_their_ids_and_times() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, input: u32| match input {
            0 => ctx.call::<Post>("letter".into()).await,
            1 => ctx.call::<Pay>(Bill::new("broke twice", 7)).await,
            _ => Ok(ctx.signal::<u32>("paid").await?),
        });
        let process = Process::start(&world, place.engine(&world).workflow("mixed", 1, code.clone()));
        let ids = process.on(async {
            let mut ids = Vec::new();
            for n in 0..3 {
                let run = process.acme().run(code.clone(), n).key(format!("run {n}")).start().await.unwrap();
                ids.push(run.id());
                process.state(run.id(), ["succeeded", "failed", "waiting"][n as usize]).await;
            }
            ids
        });
        let (runs, calls, attempts) = process.on(async {
            (
                rows(&place, &world, "runs", "key").await,
                rows(&place, &world, "calls", "tool").await,
                rows(&place, &world, "attempts", "tool, number").await,
            )
        });
        let states: Vec<_> = runs.iter().map(|run| run["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["succeeded", "failed", "waiting"]);
        assert_eq!((&runs[2]["waits_for"], &runs[0]["waits_for"]), (&json!("signal"), &json!(null)));
        for (run, id) in runs.iter().zip(&ids) {
            assert_eq!(run["run"], json!(id.to_string()));
            let seen = process.on(process.acme().handle::<Value>(*id).status()).unwrap();
            assert_eq!(run["started_at"], json!(seen.started_at.to_string()));
        }
        assert_eq!(calls.len(), 2);
        for (call, run) in calls.iter().zip([ids[1], ids[0]]) {
            let key = call["key"].as_str().unwrap();
            let evidence = process.on(process.acme().evidence(key)).unwrap().unwrap();
            let shown = serde_json::to_value(&evidence).unwrap();
            assert_eq!(call["run"], json!(run.to_string()));
            assert_eq!((&call["tool"], &call["effect"]), (&shown["tool"], &shown["effect"]));
            let basis = if call["tool"] == "post" { json!("answer") } else { json!(null) };
            assert_eq!((&call["state"], &call["basis"]), (&shown["outcome"]["state"], &basis));
            for (column, time) in [
                ("asked_at", &shown["asked_by"]["at"]),
                ("settled_at", &shown["outcome"]["settled_at"]),
                ("updated_at", &shown["outcome"]["updated_at"]),
                ("kept_until", &shown["kept_until"]),
            ] {
                assert_eq!(call[column], *time, "{column}");
            }
            let made = shown["attempts"].as_array().unwrap();
            let listed: Vec<_> = attempts.iter().filter(|row| row["key"] == call["key"]).collect();
            assert_eq!(made.len(), listed.len(), "{made:#?}\n{listed:#?}");
            for (made, row) in made.iter().zip(listed) {
                assert_eq!(row["number"], json!(made["number"].to_string()));
                assert_eq!(row["contact"], "attempt");
                for (column, value) in [
                    ("began_at", "began"),
                    ("ended_at", "ended"),
                    ("result", "result"),
                    ("message", "message"),
                ] {
                    assert_eq!(row[column], made[value], "{column} of {row} and {made}");
                }
            }
        }
        let of_pay: Vec<_> = attempts.iter().filter(|row| row["tool"] == "pay").collect();
        assert_eq!(of_pay.len(), 1);
        assert_eq!((&of_pay[0]["result"], &of_pay[0]["message"]), (&json!("failed"), &json!("no money")));
        process.shut_down();
    }
}

#[test]
fn an_open_question_is_shown_with_its_call_and_an_answered_one_is_not() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |_ctx, input: u32| Ok::<_, counterfoil::Failure>(input));
        let process = Process::start(&world, place.engine(&world).workflow("twice", 1, code));
        let asked = process.on(async {
            process.acme().run_named("twice", json!("words")).start().await.unwrap();
            process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
            process.acme().questions().await.unwrap().remove(0)
        });
        let shown = process.on(rows(&place, &world, "open_questions", "question")).remove(0);
        assert_eq!(shown["question"], json!(asked.id.to_string()));
        assert_eq!(shown["kind"], asked.kind.name());
        assert_eq!((&shown["text"], &shown["tenant"]), (&json!(asked.question), &json!("acme")));
        assert_eq!(shown["run"], json!(asked.run.unwrap().to_string()));
        assert_eq!(shown["opened_at"], json!(asked.opened_at.to_string()));
        process.on(async {
            let abandon = counterfoil::store::Resolution::Abandon;
            process.acme().answer(asked.id, abandon, "ann").await.unwrap();
        });
        assert_eq!(process.on(rows(&place, &world, "open_questions", "question")), [] as [Value; 0]);
        process.shut_down();
    }
}

/// A failure whose text PostgreSQL cannot take out of JSON spoils no other row, and times that never come are NULL.
#[test]
fn hostile_texts_and_times_that_never_come_spoil_no_row() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, what: String| ctx.call::<Ring>(what).await);
        let process = Process::start(&world, place.engine(&world).workflow("ring", 1, code.clone()));
        process.on(async {
            process.acme().run(code.clone(), "a\0b'; DROP TABLE run; --\u{1b}".to_owned()).await.unwrap();
            let failed = r#"UPDATE record SET status = 3, outcome = '{"kind":"validation","message":"a\u0000b"}', kept_until = 9223372036854775807"#;
            match &place {
                Place::File => {
                    let options = SqliteConnectOptions::new().filename(world.path());
                    sqlx::raw_sql(failed).execute(&mut options.connect().await.unwrap()).await.unwrap();
                }
                Place::Schema(schema) => {
                    sqlx::raw_sql(failed).execute(&mut schema.plain().await).await.unwrap();
                }
            }
            let call = rows(&place, &world, "calls", "key").await.remove(0);
            assert_eq!((&call["state"], &call["kept_until"]), (&json!("failed"), &json!(null)));
            assert_eq!(rows(&place, &world, "attempts", "key").await[0]["result"], "failed");
        });
        process.shut_down();
    }
}
