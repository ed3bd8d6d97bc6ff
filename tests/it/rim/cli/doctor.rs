//! What is wrong with a ledger is named, with what to do about it.

use std::sync::Arc;

use counterfoil::Failure;
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use serde_json::Value;

use super::inspect::execute;
use super::{Line, program};
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};

/// The findings of the doctor, and its exit code.
fn findings(line: &Line) -> (Vec<Value>, Option<i32>) {
    let output = line.run(&["doctor", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), output.status.code())
}

/// The only finding.
fn finding(line: &Line) -> Value {
    let (mut found, code) = findings(line);
    assert_eq!((found.len(), code), (1, Some(1)), "{found:#?}");
    let found = found.remove(0);
    assert!(found["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{found}");
    found
}

#[track_caller]
fn is_of(found: &Value, check: &str, words: &str) {
    assert_eq!(found["check"], check, "{found}");
    assert!(found["found"].as_str().unwrap().contains(words), "{found}");
}

/// An engine that has made a call, and the line of its place.
fn healthy(place: &Place) -> (Arc<World>, Process, Line) {
    let world = World::new();
    let code = flow!(world, |ctx, input: u32| match input {
        0 => ctx.call::<Ring>("door".into()).await,
        _ => Err(Failure::new("no")),
    });
    let process = Process::start(&world, place.engine(&world).workflow("ring", 1, code.clone()));
    process.on(async {
        process.acme().run(code, 0).await.unwrap();
    });
    let line = Line::at(place, &world).whole();
    (world, process, line)
}

#[test]
fn a_healthy_ledger_has_no_finding_and_an_engine_that_ended_is_none() {
    for place in Place::both() {
        let (_world, process, line) = healthy(&place);
        assert_eq!(findings(&line), (vec![], Some(0)));
        assert_eq!(line.text(&["doctor"]), "nothing is wrong\n");
        process.shut_down();
        assert_eq!(findings(&line), (vec![], Some(0)));
    }
}

#[test]
fn a_lease_that_is_over_and_work_that_nobody_settles_are_named() {
    let place = &Place::both()[1];
    let (world, process, line) = healthy(place);
    process.crash();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(execute(place, &world, "UPDATE worker SET lease_until = 1 WHERE NOT settled"));
    is_of(&finding(&line), "workers", "is over since 1970-01-01T00:00:00.000001Z");
    runtime.block_on(execute(place, &world, "UPDATE worker SET ended_at = 2 WHERE NOT settled"));
    is_of(&finding(&line), "workers", "its work is not settled");
    assert!(!line.run(&["doctor"]).stdout.is_empty());
}

#[test]
fn work_without_an_engine_is_named() {
    for place in Place::both() {
        let (world, process, line) = healthy(&place);
        process.shut_down();
        let acme = Line::at(&place, &world);
        acme.text(&["start", "ring", "0"]);
        is_of(&finding(&line), "workers", "there is work, and no engine is there");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(execute(&place, &world, "UPDATE run SET wake_at = 1 WHERE state = 2"));
        let (found, code) = findings(&line);
        assert_eq!((found.len(), code), (2, Some(1)), "{found:#?}");
        is_of(&found[0], "workers", "there is work, and no engine is there");
        is_of(&found[1], "runs", "its time has come");
    }
}

#[test]
fn questions_that_block_runs_that_are_old_and_the_outbox_are_named() {
    for place in Place::both() {
        let (world, process, line) = healthy(&place);
        let acme = Line::at(&place, &world);
        acme.text(&["start", "ring", "\"words\""]);
        process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
        is_of(&finding(&line), "blocked", "1 of kind");
        let kinds = "UPDATE escalation SET kind = 1, opened_at = 1";
        process.on(execute(&place, &world, kinds));
        is_of(&finding(&line), "questions", "1 of kind \"ambiguous\" open, the oldest since 1970");
        assert_eq!(line.run(&["doctor", "--older-than", "10000000"]).status.code(), Some(0));
        process.on(execute(&place, &world, "UPDATE escalation SET kind = 21"));
        is_of(&finding(&line), "outbox", "\"unpublished\"");
        process.on(execute(&place, &world, "UPDATE escalation SET kind = 10"));
        is_of(&finding(&line), "questions", "\"paused\"");
        process.shut_down();
    }
}

#[test]
fn records_that_are_over_calls_that_are_left_and_lookups_that_fail_are_named() {
    for place in Place::both() {
        let (world, process, line) = healthy(&place);
        process.shut_down();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let change = |sql| runtime.block_on(execute(&place, &world, sql));
        change("UPDATE record SET kept_until = 1");
        is_of(&finding(&line), "retention", "were not retired");
        change("UPDATE record SET kept_until = NULL");
        change(
            "INSERT INTO look (tenant, record, revision, reason, due_at, since, made, tries, missed) \
             SELECT tenant, id, 1, 1, 9000000000000000, 1, 0, 3, false FROM record",
        );
        is_of(&finding(&line), "lookups", "failed 3 times in a row");
        change("UPDATE look SET tries = 2");
        assert_eq!(findings(&line), (vec![], Some(0)));
        change("DELETE FROM look");
        change("UPDATE record SET status = 1, outcome = NULL, run = NULL, updated_at = 1");
        is_of(&finding(&line), "calls", "1 calls of workers that are gone");
    }
}

#[test]
fn an_index_that_is_missing_is_named_with_its_statement() {
    for place in Place::both() {
        let (world, process, line) = healthy(&place);
        process.on(execute(&place, &world, "DROP INDEX run_due"));
        let found = finding(&line);
        is_of(&found, "index", "index run_due is missing");
        assert!(
            found["remedy"].as_str().unwrap().contains("CREATE INDEX run_due ON run (wake_at"),
            "{found}"
        );
        process.shut_down();
    }
}

#[test]
fn a_damaged_file_and_a_trigger_that_is_gone_are_named() {
    let place = Place::File;
    let (world, process, line) = healthy(&place);
    process.shut_down();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(execute(&place, &world, "DROP TRIGGER run_first"));
    is_of(&finding(&line), "schema", "trigger run_first is missing");
    runtime.block_on(execute(
        &place,
        &world,
        "PRAGMA foreign_keys = OFF; UPDATE record SET born = 7; \
         CREATE TRIGGER run_first AFTER INSERT ON run WHEN NEW.revision <> 1\nBEGIN SELECT RAISE(ABORT, 'no such run'); END",
    ));
    is_of(&finding(&line), "integrity", "rows of record refer to rows that are not there");
}

#[test]
fn a_database_that_cannot_be_opened_is_a_finding_and_is_left_as_it_is() {
    let none = program(&["doctor", "--json", "--db", "/nowhere/agents.db"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!(found["check"], "database");
    for place in Place::both() {
        let (world, process, line) = healthy(&place);
        process.shut_down();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (older, newer) = match place {
            Place::File => ("PRAGMA user_version = 3", "PRAGMA user_version = 900"),
            Place::Schema(_) => (
                "DELETE FROM migration WHERE number = (SELECT max(number) FROM migration)",
                "INSERT INTO migration VALUES (900, 'new', 'x', 900)",
            ),
        };
        runtime.block_on(execute(&place, &world, older));
        is_of(&finding(&line), "database", "this program needs");
        runtime.block_on(execute(&place, &world, newer));
        is_of(&finding(&line), "database", "has schema version 900");
    }
    let schema = crate::store::postgres::Schema::new();
    let name = schema.options().schema.unwrap();
    let line = Line(vec!["--db".to_owned(), crate::server::url(), "--schema".to_owned(), name]);
    is_of(&finding(&line), "database", "it holds no ledger in this schema");
}

#[test]
fn a_ledger_that_may_be_older_than_the_world_is_named() {
    let place = Place::File;
    let (world, process, line) = healthy(&place);
    process.shut_down();
    Process::start(&world, world.engine().restored(None)).shut_down();
    is_of(&finding(&line), "restored", "each first send is looked up");
}

/// A sink that takes nothing and asks nobody.
struct Away;

impl Sink for Away {
    async fn publish(&self, _: &[Event]) -> Result<PublishResult, SinkError> {
        Err(SinkError::unavailable("503"))
    }
}

#[test]
fn events_that_wait_for_their_sink_are_named() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.emit("order/1", "placed", &1).await);
        let engine = place.engine(&world).workflow("tells", 1, code.clone()).sink(Publisher::new(Away));
        let process = Process::start(&world, engine);
        process.on(async {
            process.acme().run(code, ()).await.unwrap();
        });
        process.shut_down();
        let line = Line::at(&place, &world).whole();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(execute(&place, &world, "UPDATE outbox_aggregate SET due_at = 1"));
        let (found, _) = findings(&line);
        assert_eq!(found.len(), 2, "{found:#?}");
        is_of(&found[0], "workers", "there is work");
        is_of(&found[1], "outbox", "events of order/1 of tenant acme are not published");
        // A publisher that tries them in vain makes them due again and again.
        let later = "UPDATE outbox_aggregate SET due_at = 9000000000000000";
        runtime.block_on(execute(&place, &world, later));
        runtime.block_on(execute(&place, &world, "UPDATE outbox SET created_at = 1"));
        let (found, _) = findings(&line);
        is_of(found.last().unwrap(), "outbox", "events of order/1 of tenant acme are not published");
    }
}
