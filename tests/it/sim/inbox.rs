//! The inbox in the simulator: wherever a process dies, each message is processed once, together with what it changes, by
//! version; and one that cannot be processed is set aside with its evidence.

use crate::sim::Looks;
use counterfoil::flow::TenantClient;
use counterfoil::inbox::{InboxError, Message, Processed};
use counterfoil::sim::{CrashPoint, End, Offer, Simulation, World};
use counterfoil::store::{Question, QuestionKind, Resolution};
use counterfoil::{Boot, Clock as _};
use counterfoil::{Ctx, Failure};
use futures_util::future::{BoxFuture, try_join_all};
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;
use std::collections::BTreeSet;
use std::time::Duration;

/// The messages, as they are delivered: not in the order of their versions. One cannot be processed, and its version overtakes
/// nobody; one has no version.
pub(crate) const DELIVERIES: [(&str, i64); 6] =
    [("placed", 1), ("broken", 6), ("sent", 4), ("paid", 3), ("noted", 0), ("closed", 5)];
/// Those that leave something behind, in this order: `paid` was overtaken.
const HEARD: [&str; 4] = ["placed", "sent", "noted", "closed"];
const TABLE: &str = "CREATE TABLE IF NOT EXISTS heard (message TEXT NOT NULL)";

pub(crate) type Done = Result<Processed<i64>, InboxError<String>>;
/// How a message is processed: as it should be, or as a mutant does.
pub(crate) type Process = for<'a> fn(&'a TenantClient, &'static str, i64) -> BoxFuture<'a, Done>;

/// A message of this consumer's, set aside when it has failed twice.
pub(crate) fn message(id: &str, version: i64) -> Message {
    // Crashes leave tries behind, and are not the fault of a message that can be processed.
    let message = Message::new(id).tries(if id == "broken" { 2 } else { 100 });
    if version == 0 { message } else { message.version("order/9", version) }
}

/// The effect. Nothing of the table's own keeps two of them apart.
pub(crate) fn hear<'c>(db: &'c mut SqliteConnection, id: &'static str) -> BoxFuture<'c, Result<i64, String>> {
    Box::pin(async move {
        db.execute(TABLE).await.map_err(|error| error.to_string())?;
        let insert = sqlx::query("INSERT INTO heard VALUES (?)").bind(id).execute(&mut *db);
        insert.await.map_err(|error| error.to_string())?;
        if id == "broken" {
            return Err("no such customer".to_owned()); // and what it has written goes
        }
        let count = sqlx::query_scalar("SELECT count(*) FROM heard").fetch_one(db);
        count.await.map_err(|error| error.to_string())
    })
}

pub(crate) fn once<'a>(tenant: &'a TenantClient, id: &'static str, version: i64) -> BoxFuture<'a, Done> {
    Box::pin(tenant.process_once("desk", message(id, version), move |db| hear(db, id)))
}

/// One after the other, each until it is done with. In each life all of them come again: nothing was acknowledged. What it
/// is told of them is the same each time.
async fn consume(tenant: &TenantClient, world: &World, process: Process) -> Result<Vec<String>, String> {
    let mut told = Vec::new();
    for (id, version) in DELIVERIES {
        let mut tries = 0..8; // whoever was taken for dead may ask for ever
        let done = loop {
            match process(tenant, id, version).await {
                Ok(done) => break done,
                Err(error) if tries.next().is_none() => return Err(format!("{id}: {error}")),
                Err(_) => world.clock().sleep(Duration::from_secs(1)).await,
            }
        };
        told.push(match done {
            Processed::Now(result) | Processed::Before(result) => format!("{id} is number {result}"),
            other => format!("{id}: {other:?}"),
        });
    }
    Ok(told)
}

/// Makes the effect and commits it by itself, which no closure may.
pub(crate) fn ends<'a>(tenant: &'a TenantClient, id: &'static str, version: i64) -> BoxFuture<'a, Done> {
    Box::pin(tenant.process_once("desk", message(id, version), move |db: &mut SqliteConnection| {
        Box::pin(async move {
            let heard = hear(db, id).await?;
            db.execute("COMMIT").await.map_err(|error| error.to_string())?;
            Ok(heard)
        })
    }))
}

async fn idle(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.step("nothing", &(), |()| ()).await
}

/// A consumer to whom everything is delivered twice, so many at once.
pub(crate) fn simulation(process: Process, at_once: usize) -> Simulation {
    consumed(Simulation::of(idle, ()), process, at_once)
}

fn consumed(simulation: Simulation, process: Process, at_once: usize) -> Simulation {
    simulation
        .with_actor("consumer", move |engine, world| async move {
            let tenant = engine.tenant(Simulation::TENANT).unwrap();
            let mut told = Vec::new();
            for _ in 0..2 {
                match try_join_all((0..at_once).map(|_| consume(&tenant, &world, process))).await {
                    Ok(all) => told.extend(all),
                    Err(error) => return error,
                }
            }
            told.dedup();
            told.iter().map(|told| format!("done: {}", told.join(", "))).collect::<Vec<_>>().join("; ")
        })
        .check("each message once, in the order of versions", |end| {
            let heard = heard(end)?;
            let is_right =
                if done(end).is_empty() { HEARD.starts_with(&strs(&heard)) } else { heard == HEARD };
            if is_right { Ok(()) } else { Err(format!("{heard:?}")) }
        })
        .check("it comes to an end", |end| {
            let is_over = !done(end).is_empty() || !end.succeeded();
            if is_over { Ok(()) } else { Err(format!("{:?}", end.heard("consumer"))) }
        })
}

/// A consumer to whom one message is delivered again and again. It tells what it was answered, each answer once.
pub(crate) fn redelivered(process: Process) -> Simulation {
    Simulation::of(idle, ())
        .with_actor("consumer", move |engine, world| async move {
            let tenant = engine.tenant(Simulation::TENANT).unwrap();
            let mut told = Vec::new();
            for _ in 0..4 {
                told.extend(process(&tenant, "placed", 0).await.map(|done| format!("{done:?}")));
                world.clock().sleep(Duration::from_secs(1)).await;
            }
            told.dedup();
            format!("done: {}", told.join("; "))
        })
        .check("the effect is made once", |end| match heard(end)?.as_slice() {
            [] if done(end).is_empty() => Ok(()),
            [_] => Ok(()),
            heard => Err(format!("{heard:?}")),
        })
}

fn strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn heard(end: &End<'_>) -> Result<Vec<String>, String> {
    end.tables(|db| {
        Box::pin(async {
            db.execute(TABLE).await?;
            sqlx::query_scalar("SELECT message FROM heard ORDER BY rowid").fetch_all(db).await
        })
    })
}

/// What the consumer was told when it had come to an end.
fn done<'e>(end: &'e End<'_>) -> Vec<&'e str> {
    let mut done = end.heard("consumer");
    done.retain(|told| told.starts_with("done: "));
    done.dedup();
    done
}

fn unprocessed(end: &End<'_>) -> Vec<Question> {
    let mut asked = end.asked();
    asked.retain(|question| question.kind == QuestionKind::Unprocessed);
    asked
}

fn is_evidence(question: &Question) -> bool {
    let parts = ["message broken", "by desk in 2 tries", "no such customer"];
    parts.iter().all(|part| question.question.contains(part))
}

// GUARD-5, REC-2: the effect is there if its message is known, and nothing comes twice; a crash between the row of a message
// that is set aside and its question makes no second question.
#[test]
fn each_message_is_processed_once_wherever_it_is_crashed() {
    for at_once in [1, 2] {
        let report = crate::sim::quick(simulation(once, at_once))
            .check("whoever asks again is told the same", |end| match done(end).as_slice() {
                [] => Ok(()),
                [told] if !told.contains("; ") => Ok(()),
                told => Err(told.join("\n")),
            })
            .check("what cannot be processed is asked about, once", |end| match unprocessed(end).as_slice() {
                [] if done(end).is_empty() => Ok(()),
                [question] if is_evidence(question) => Ok(()),
                questions => Err(format!("{questions:?}")),
            })
            .explore();
        report.assert_ok();
        for point in [CrashPoint::BeforeProcessed, CrashPoint::AfterProcessed, CrashPoint::BeforeQuestion] {
            assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
        }
    }
}

// A power failure keeps either of two writes that are under way without the other: the ledger's and the consumer's.
#[test]
fn a_power_failure_keeps_a_part_of_the_writes_under_way() {
    async fn pays(ctx: Ctx, invoice: String) -> Result<(), Failure> {
        ctx.call::<Looks>(invoice.clone()).await?;
        ctx.call::<Looks>(format!("{invoice}, again")).await.map(drop)
    }
    let simulation = consumed(Simulation::of(pays, "one".to_owned()), once, 1)
        .with_run(Simulation::TENANT, "other", pays, "other".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("bank", Offer::Lookup))));
    let after = |stop: &str, crossing: u32| {
        let replay = simulation.replay(&format!("{stop}@1.{crossing}").parse().unwrap());
        assert!(replay.violations.is_empty(), "{stop}@1.{crossing}: {:?}", replay.violations);
        let next_life = replay.events.iter().skip_while(|event| event.life < 2);
        next_life.map(|event| format!("{event:?}")).collect::<Vec<_>>().join("\n")
    };
    let all_differ = |crossing| {
        let lives: BTreeSet<_> =
            ["crash", "torn+1", "torn+2", "kill"].map(|stop| after(stop, crossing)).into();
        lives.len() == 4
    };
    assert!((1..=40).any(all_differ), "no two writes were under way at once");
}

// What somebody has answered is followed in every life: for three seconds that it may be tried again, then that it is left out.
#[test]
fn an_answer_is_followed_wherever_it_is_crashed() {
    let report = crate::sim::quick(simulation(once, 1))
        .operator(|question| {
            let early = question.world.clock().boot() < Boot(Duration::from_secs(3));
            Some(if early { Resolution::Again } else { Resolution::Skip })
        })
        .check("it is tried again, and then left out", |end| {
            let asked = unprocessed(end);
            let abandoned = asked.iter().filter_map(|question| question.answer.as_ref());
            let abandoned = abandoned.filter(|answer| answer.resolution == Resolution::Skip).count();
            let dropped = done(end).last().is_some_and(|told| told.contains("broken: Dropped"));
            let open = end.questions().len();
            if asked.iter().all(is_evidence) && abandoned <= 1 && open == 0 && dropped {
                return Ok(());
            }
            Err(format!("{asked:?} {:?}", done(end)))
        })
        .explore();
    report.assert_ok();
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterAnswer), "{report}");
}

// What a closure commits by itself is not committed again: not when the process dies behind that COMMIT, nor when a person is
// about to be asked.
#[test]
fn a_closure_that_commits_is_run_once_wherever_it_is_crashed() {
    let report = crate::sim::quick(redelivered(ends))
        .check("somebody is asked, once", |end| match unprocessed(end).as_slice() {
            [] if done(end).is_empty() => Ok(()),
            [question] if question.question.contains("ended the transaction itself") => Ok(()),
            questions => Err(format!("{questions:?}")),
        })
        .check("whoever asks again is told so", |end| match done(end).as_slice() {
            [] => Ok(()),
            [told] if told.contains("SetAside") && !told.contains("; ") => Ok(()),
            told => Err(told.join("\n")),
        })
        .explore();
    report.assert_ok();
    for point in [CrashPoint::BeforeProcessed, CrashPoint::BeforeQuestion] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
    }
}
