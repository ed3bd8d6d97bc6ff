//! What an operator looks at: records, queues, schedules, workers, the outbox, what is kept.

use counterfoil::ledger::{Backoff, Queue};
use counterfoil::outbox::{Event, PublishResult, Publisher, Sink, SinkError};
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, Failure};
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::{Line, program};
use crate::flow;
use crate::flow::answers::Place;
use crate::flow::tools::Ring;
use crate::flow::wait::HOUR;
use crate::flow::world::{Process, World};

/// Changes a row behind the engine's back.
pub(super) async fn execute(place: &Place, world: &World, sql: &'static str) {
    match place {
        Place::File => {
            let mut connection = SqliteConnectOptions::new().filename(world.path()).connect().await.unwrap();
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        }
        Place::Schema(schema) => {
            sqlx::raw_sql(sql).execute(&mut schema.plain().await).await.unwrap();
        }
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} of {value}"))
}

#[test]
fn calls_are_listed_by_the_beginning_of_their_keys_and_shown() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, what: String| ctx.call::<Ring>(what).await);
        let process = Process::start(&world, place.engine(&world).workflow("ring", 1, code.clone()));
        process.on(async {
            for what in ["door", "phone"] {
                process.acme().run(code.clone(), what.to_owned()).await.unwrap();
            }
        });
        let line = Line::at(&place, &world);
        let all = line.json(&["records"]);
        let keys: Vec<_> = all.iter().map(|record| text(record, "key")).collect();
        assert_eq!(keys.len(), 2, "{all:?}");
        assert!(keys.is_sorted());
        for record in &all {
            assert_eq!(
                (&record["tool"], &record["state"], &record["attempts"]),
                (&json!("ring"), &json!("committed"), &json!(1))
            );
            assert!(text(record, "run").starts_with("run-") && text(record, "kept_until").ends_with('Z'));
        }
        assert_eq!(line.json(&["records", "ring:"]), all);
        assert_eq!(line.json(&["records", keys[1]]), all[1..]);
        assert_eq!(line.json(&["records", "--after", keys[0]]), all[1..]);
        assert_eq!(line.json(&["records", "--limit", "1"]), all[..1]);
        assert_eq!(line.json(&["records", "--state", "started"]), [] as [Value; 0]);
        assert_eq!(line.json(&["records", "pay:"]), [] as [Value; 0]);
        assert_eq!(line.run(&["records", "--state", "lost"]).status.code(), Some(2));
        assert!(line.text(&["records"]).contains("committed"));

        let shown = line.json(&["record", keys[0]]).remove(0);
        assert_eq!((&shown["state"], &shown["attempts"]), (&json!("committed"), &json!(1)));
        assert!(shown["request"] == "door" || shown["request"] == "phone", "{shown}");
        let text = line.text(&["record", keys[0]]);
        assert!(
            text.contains("wire key") && text.contains("request") && text.contains("attempt       1"),
            "{text}"
        );
        assert_eq!(line.run(&["record", "ring:none"]).status.code(), Some(1));
        process.shut_down();
    }
}

#[test]
fn queues_schedules_and_workers_are_listed() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |_ctx, input: u32| {
            world.pass("work").await;
            Ok::<_, Failure>(input)
        });
        let engine = place.engine(&world).workflow("work", 1, code.clone());
        let process = Process::start(&world, engine.queue(Queue::new("mail").concurrency(1)));
        world.hold("work");
        let line = Line::at(&place, &world);
        let nightly = process.on(async {
            for n in 0..3 {
                process.acme().run(code.clone(), n).queue("mail").start().await.unwrap();
            }
            world.reached("work").await;
            let nightly = process.acme().schedule("nightly").every(HOUR).run(code.clone(), 7).await.unwrap();
            process.acme().schedule("weekly").every(7 * 24 * HOUR).run(code.clone(), 8).await.unwrap();
            process.acme().schedule("weekly").pause().await.unwrap();
            nightly
        });
        let whole = line.whole();
        let queue = json!({ "name": "mail", "queued": 2, "running": 1 });
        assert_eq!(whole.json(&["queues"]), [queue]);
        assert!(whole.text(&["queues"]).contains("mail"));

        let schedules = line.json(&["schedules"]);
        assert_eq!(schedules.len(), 2, "{schedules:?}");
        assert_eq!(
            (text(&schedules[0], "name"), text(&schedules[0], "workflow"), text(&schedules[0], "next")),
            ("nightly", "work", nightly.next.unwrap().to_string().as_str())
        );
        assert_eq!((&schedules[1]["paused"], &schedules[1]["next"]), (&json!(true), &json!(null)));
        assert!(line.text(&["schedules"]).contains("paused"));

        let workers = whole.json(&["workers"]);
        assert_eq!(workers.len(), 1, "a command is no worker: {workers:?}");
        assert_eq!(
            (&workers[0]["state"], &workers[0]["version"]),
            (&json!("enrolled"), &json!(env!("CARGO_PKG_VERSION")))
        );
        assert_eq!(workers[0]["lease_until"].is_string(), matches!(place, Place::Schema(_)));
        world.release("work");
        process.crash();
        if let Place::Schema(_) = place {
            process_ended(&place, &world, &whole);
        }
    }
}

/// A worker that died holds its lease until it runs out, and the list says so.
fn process_ended(place: &Place, world: &World, whole: &Line) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(execute(place, world, "UPDATE worker SET lease_until = 1 WHERE NOT settled"));
    assert_eq!(whole.json(&["workers"])[0]["state"], "lease over");
    runtime.block_on(execute(place, world, "UPDATE worker SET ended_at = 2 WHERE NOT settled"));
    assert_eq!(whole.json(&["workers"])[0]["state"], "lost, its work is taken over");
    assert!(whole.text(&["workers"]).contains("lost"));
}

/// Takes what is not `bad`.
struct Picky;

impl Sink for Picky {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let bad = batch.iter().enumerate().filter(|(_, event)| event.kind == "bad");
        Ok(bad.fold(PublishResult::all(), |taken, (place, _)| taken.except(place, SinkError::refused("422"))))
    }
}

async fn tells(ctx: Ctx, aggregate: String) -> Result<(), Failure> {
    ctx.emit(&aggregate, "bad", &1).await?;
    ctx.emit(&aggregate, "late", &2).await
}

#[test]
fn an_event_that_is_set_aside_is_listed_released_and_left_out() {
    for place in Place::both() {
        let world = World::new();
        let no_pause = Backoff { base: std::time::Duration::ZERO, cap: std::time::Duration::ZERO };
        let publisher = Publisher::new(Picky).tries(1).backoff(no_pause);
        let engine = place.engine(&world).workflow("tells", 1, tells).sink(publisher);
        let process = Process::start(&world, engine);
        let line = Line::at(&place, &world);
        process.on(async {
            process.acme().run(tells, "order/1".to_owned()).await.unwrap();
            process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
            process.question(QuestionKind::Unpublished).await;
        });
        let aside = line.json(&["outbox", "list"]).remove(0);
        assert_eq!(
            (&aside["aggregate"], &aside["kind"], &aside["behind"], &aside["refusals"]),
            (&json!("order/1"), &json!("bad"), &json!(1), &json!(1))
        );
        let first = text(&aside, "question").to_owned();
        assert!(line.text(&["outbox", "list"]).contains(&first));
        line.json(&["outbox", "release", &first, "--reason", "the other side was mended"]);
        let mut again = line.json(&["outbox", "list"]);
        while again.is_empty() || text(&again[0], "question") == first {
            again = line.json(&["outbox", "list"]);
        }
        assert_eq!(again[0]["event"], aside["event"], "it was refused again");
        let second = text(&again[0], "question");
        let skipped = line.json(&["outbox", "skip", second, "--reason", "nobody needs it"]).remove(0);
        assert_eq!(skipped["answer"]["resolution"], "skip", "{skipped}");
        process.on(process.until(async |acme| acme.questions().await.unwrap().is_empty()));
        assert_eq!(line.json(&["outbox", "list"]), [] as [Value; 0]);
        for unknown in ["question-1", second] {
            assert_eq!(line.run(&["outbox", "skip", unknown]).status.code(), Some(1), "{unknown}");
        }
        process.shut_down();
    }
}

#[test]
fn what_is_kept_is_counted_with_what_of_it_is_over() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
        let process =
            Process::start(&world, place.engine(&world).sweep(false).workflow("ring", 1, code.clone()));
        process.on(async {
            process.acme().run(code.clone(), ()).await.unwrap();
        });
        let whole = Line::at(&place, &world).whole();
        let kept = |name| {
            let mut kept = whole.json(&["retention"]);
            kept.retain(|load| load["kind"] == name);
            assert_eq!(kept.len(), 1, "{kept:?}");
            let kept = kept.remove(0);
            (kept["name"].clone(), kept["whole"].clone(), kept["digests"].clone(), kept["over"].clone())
        };
        assert_eq!(kept("record"), (json!("ring"), json!(1), json!(0), json!(0)));
        assert_eq!(kept("run"), (json!("ring"), json!(1), json!(0), json!(null)));
        process.on(execute(&place, &world, "UPDATE record SET kept_until = 1"));
        assert_eq!(kept("record"), (json!("ring"), json!(1), json!(0), json!(1)));
        assert!(whole.text(&["retention"]).contains("1970-01-01T00:00:00.000001Z"));
        process.shut_down();
    }
}

#[test]
fn a_command_about_the_whole_ledger_takes_no_tenant() {
    let refused = program(&["workers", "--db", "agents.db", "--tenant", "acme"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}
