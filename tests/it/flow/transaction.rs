//! Changes in the ledger's own database: exactly once, literally (DESIGN 4.6).

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use counterfoil::flow::RunError;
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Ctx, Failure};
use futures_util::{future::BoxFuture, poll};
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::flow;
use crate::flow::lives::{NAME, died_at, life, plain, stand};
use crate::flow::tools::post;
use crate::flow::world::{Process, World};

/// A world whose file also holds a table of the user's own.
fn bank() -> Arc<World> {
    let world = World::new();
    let process = Process::start(&world, world.engine());
    process
        .on(async { plain(&world).await.execute("CREATE TABLE booking (who TEXT NOT NULL)").await })
        .unwrap();
    process.shut_down();
    world
}

/// What the user's table holds, by a connection of its own.
fn bookings(world: &World) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut other = plain(world).await;
        sqlx::query_scalar("SELECT who FROM booking ORDER BY who").fetch_all(&mut other).await.unwrap()
    })
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// Books, and stands in the middle of the transaction for as long as the world holds it. Says how often it ran.
fn booked<'c>(
    world: &Arc<World>,
    connection: &'c mut SqliteConnection,
    who: &'static str,
) -> BoxFuture<'c, Result<u32, Failure>> {
    let world = world.clone();
    Box::pin(async move {
        sqlx::query("INSERT INTO booking VALUES (?)").bind(who).execute(connection).await.map_err(failed)?;
        let times = world.count(who);
        world.pass("inside").await;
        Ok(times)
    })
}

async fn book(ctx: &Ctx, world: &Arc<World>, who: &'static str) -> Result<u32, Failure> {
    ctx.transaction("book", |connection| booked(world, connection, who)).await
}

async fn refused(ctx: &Ctx, world: &Arc<World>, who: &'static str) -> Result<u32, Failure> {
    ctx.transaction("refused", |connection| {
        let booking = booked(world, connection, who);
        Box::pin(async move {
            booking.await?;
            Err(Failure::new(format!("no credit for {who}")))
        })
    })
    .await
}

#[test]
fn a_crash_after_a_transaction_does_not_make_its_changes_again() {
    let world = bank();
    let code = flow!(world, |ctx, _input: ()| {
        let times = book(&ctx, &world, "ann").await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(times)
    });
    let run = died_at(&world, "stand", code.clone());
    assert_eq!(bookings(&world), ["ann"]);
    let process = life(&world, code);
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 1);
    process.shut_down();
    assert_eq!((bookings(&world), world.counted("ann")), (vec!["ann".to_owned()], 1));
}

#[test]
fn a_crash_inside_a_transaction_leaves_nothing_and_it_runs_again() {
    let world = bank();
    let code = flow!(world, |ctx, _input: ()| book(&ctx, &world, "ann").await);
    let run = died_at(&world, "inside", code.clone());
    assert!(bookings(&world).is_empty(), "neither changes nor record");
    let process = life(&world, code);
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 2, "the second attempt's");
    process.shut_down();
    assert_eq!(bookings(&world), ["ann"]);
}

#[test]
fn an_error_rolls_back_and_is_the_same_error_on_resume() {
    let world = bank();
    let code = flow!(world, |ctx, _input: ()| {
        let failure = refused(&ctx, &world, "ann").await.unwrap_err();
        stand(&ctx, &world).await?;
        assert_eq!(failure.message, "no credit for ann");
        book(&ctx, &world, "bob").await
    });
    let run = died_at(&world, "stand", code.clone());
    assert!(bookings(&world).is_empty());
    let process = life(&world, code);
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 1);
    process.shut_down();
    assert_eq!(bookings(&world), ["bob"]);
    assert_eq!(world.counted("ann"), 1, "the failure is recorded: it is not tried again");
}

// A closure that ends the transaction itself may have made its changes for good: it is never run again unasked.
#[test]
fn a_closure_that_commits_by_itself_blocks_its_run_and_is_not_run_again() {
    for ending in ["COMMIT", "COMMIT; BEGIN IMMEDIATE"] {
        let world = bank();
        let code = flow!(world, |ctx, _input: ()| {
            ctx.transaction("book", |connection| {
                Box::pin(async move {
                    let times = booked(&world, connection, "ann").await?;
                    connection.execute(ending).await.map_err(failed)?;
                    Ok(times)
                })
            })
            .await
        });
        let process = life(&world, code.clone());
        let acme = process.acme();
        let run = process.on(acme.run(code.clone(), ()).start()).unwrap().id();
        process.on(process.state(run, "blocked"));
        let asked = process.on(process.question(QuestionKind::Damaged));
        assert!(asked.question.contains("ended the transaction itself"), "{ending}: {}", asked.question);
        drop(acme);
        process.shut_down();
        let process = life(&world, code);
        process.on(process.acme().answer(asked.id, Resolution::Resume, "bob")).unwrap();
        process.on(process.state(run, "blocked"));
        let asked = process.on(process.question(QuestionKind::Damaged));
        assert!(asked.question.contains("its result is not known"), "{ending}: {}", asked.question);
        process.shut_down();
        assert_eq!((bookings(&world), world.counted("ann")), (vec!["ann".to_owned()], 1), "{ending}");
    }
}

// Another run's writes wait for the transaction, and are neither rolled back with it nor seen by it.
#[test]
fn a_transaction_that_rolls_back_takes_nothing_of_another_run_with_it() {
    let world = bank();
    let fails = flow!(world, |ctx, _input: ()| refused(&ctx, &world, "ann").await);
    let other = flow!(world, |ctx, _input: ()| {
        ctx.step("count", &(), |()| world.count("other")).await?;
        post(&ctx, "note").await
    });
    world.hold("inside");
    let builder = world.engine().workflow("fails", 1, fails.clone()).workflow(NAME, 1, other.clone());
    let process = Process::start(&world, builder);
    let acme = process.acme();
    let noted = process.on(async {
        let failing = acme.run(fails, ()).start().await;
        // Its row is durable before the transaction begins.
        let failing = failing.unwrap();
        world.reached("inside").await;
        let mut noted = pin!(acme.run(other, ()).start());
        assert!(matches!(poll!(&mut noted), Poll::Pending), "nothing else is written meanwhile");
        world.release("inside");
        let noted = noted.await.unwrap();
        let failure = failing.result().await.unwrap_err();
        assert!(failure.to_string().contains("no credit for ann"), "{failure}");
        assert_eq!(noted.result().await.unwrap(), 1);
        noted.id()
    });
    drop(acme);
    process.crash();
    assert!(bookings(&world).is_empty());
    let process = Process::start(&world, world.engine());
    assert_eq!(process.on(process.acme().handle::<u32>(noted).result()).unwrap(), 1, "it is all there");
    assert_eq!((world.counted("other"), world.counted("post called")), (1, 1));
    process.shut_down();
}

// DESIGN 4.6: no context inside. A call would wait for the writer that the transaction holds.
#[test]
fn the_context_is_refused_inside_a_transaction() {
    let world = bank();
    let code = flow!(world, |ctx, _input: ()| {
        let inner = ctx.clone();
        ctx.transaction("book", |_: &mut SqliteConnection| {
            Box::pin(async move { post(&inner, "note").await })
        })
        .await
    });
    let process = life(&world, code.clone());
    let error = process.on(async { process.acme().run(code, ()).await }).unwrap_err();
    let RunError::Blocked { message, .. } = error else { panic!("{error}") };
    assert!(message.contains("used inside a step"), "{message}");
    assert!(world.effects("post").is_empty());
    process.shut_down();
}
