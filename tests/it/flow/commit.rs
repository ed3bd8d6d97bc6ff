//! DESIGN 4.6: how a transaction ends that its closure ends, or that takes too long, or whose process dies.

use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError};
use counterfoil::store::QuestionKind;
use counterfoil::{Ctx, Failure};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::flow;
use crate::flow::tools::post;
use crate::flow::world::{Process, World};
use crate::world::TestClock;

const MINE: &str = "CREATE TABLE mine (a INTEGER)";

async fn sql(connection: &mut SqliteConnection, text: &'static str) -> Result<(), Failure> {
    sqlx::raw_sql(text).execute(connection).await.map(drop).map_err(|error| Failure::new(error.to_string()))
}

/// Inserts a row into the user's own table.
async fn insert(ctx: &Ctx, name: &str) -> Result<u32, Failure> {
    ctx.transaction(name, |connection| {
        Box::pin(async move {
            sql(connection, "INSERT INTO mine VALUES (1)").await?;
            Ok(7)
        })
    })
    .await
}

/// A world whose database has the user's table.
fn world() -> std::sync::Arc<World> {
    let world = World::new();
    Process::start(&world, world.engine()).shut_down();
    rows(&world, Some(MINE));
    world
}

/// How many rows the user's table has, by another connection.
fn rows(world: &World, first: Option<&'static str>) -> i64 {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnectOptions::new().filename(world.path()).connect().await.unwrap();
        if let Some(text) = first {
            sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
        }
        let count = sqlx::query_scalar("SELECT count(*) FROM mine").fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        count
    })
}

#[test]
fn it_happens_exactly_once_over_crashes() {
    // FLOW-2: the process dies before the transaction, inside it, and after it.
    let world = world();
    let flow = flow!(world, |ctx, _n: u32| {
        world.pass("before").await;
        let inner = world.clone();
        let in_it: u32 = ctx
            .transaction("t", move |connection| {
                Box::pin(async move {
                    inner.count("transaction");
                    sql(connection, "INSERT INTO mine VALUES (1)").await?;
                    inner.pass("inside").await;
                    Ok(7)
                })
            })
            .await?;
        post(&ctx, "after").await?;
        Ok::<_, Failure>(in_it)
    });
    let mut run = None;
    for point in ["before", "inside", "post after"] {
        world.hold(point);
        let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
        process.on(async {
            if run.is_none() {
                run = Some(process.acme().run(flow.clone(), 1).start().await.unwrap().id());
            }
            world.reached(point).await;
        });
        process.crash();
        world.release(point);
        assert_eq!(rows(&world, None), i64::from(point == "post after"), "{point}");
    }
    let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run.unwrap()).result().await.unwrap() }), 7);
    assert_eq!((rows(&world, None), world.counted("transaction"), world.effects("post").len()), (1, 2, 1));
}

#[test]
fn it_has_a_time_limit() {
    let (world, hands) = (world(), TestClock::default());
    let flow = flow!(world, |ctx, _n: u32| {
        let inner = world.clone();
        let late = ctx.transaction::<_, u32, _>("slow", move |connection| {
            Box::pin(async move {
                sql(connection, "INSERT INTO mine VALUES (1)").await?;
                inner.hold("slow");
                inner.pass("slow").await;
                Ok(7)
            })
        });
        let late = late.await.unwrap_err();
        assert_eq!(late.code, FailureCode::Transaction);
        insert(&ctx, "next").await
    });
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    process.on(async {
        let handle = process.acme().run(flow, 1).start().await.unwrap();
        world.reached("slow").await;
        hands.asleep_for(Duration::from_secs(5)).await;
        hands.advance(Duration::from_secs(5));
        assert_eq!(handle.result().await.unwrap(), 7);
    });
    assert_eq!(rows(&world, None), 1, "the slow one's row was rolled back, the next one's stands");
}

#[test]
fn a_closure_that_ends_the_transaction_blocks_the_run() {
    for end in ["COMMIT", "ROLLBACK", "COMMIT; BEGIN"] {
        let world = world();
        let flow = flow!(world, |ctx, _n: u32| {
            let ended = ctx.transaction("t", move |connection| {
                Box::pin(async move {
                    sql(connection, "INSERT INTO mine VALUES (1)").await?;
                    sql(connection, end).await?;
                    Ok(7)
                })
            });
            let ended: u32 = ended.await?;
            post(&ctx, "after").await?;
            Ok::<_, Failure>(ended)
        });
        let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
        process.on(async {
            let blocked = process.acme().run(flow, 1).await;
            assert!(matches!(blocked, Err(RunError::Blocked { .. })), "{end}: {blocked:?}");
            let question = process.question(QuestionKind::Damaged).await.question;
            assert!(question.contains("COMMIT or ROLLBACK"), "{end}: {question}");
        });
        assert_eq!(world.effects("post").len(), 0, "{end}");
        assert_eq!(rows(&world, None), i64::from(end != "ROLLBACK"), "{end}: not made twice, not lost");
    }
}

#[test]
fn other_runs_writes_are_neither_in_it_nor_lost_with_it() {
    // Isolation from group commit: while it is open others wait, and what is rolled back is its own alone.
    let world = world();
    let open = flow!(world, |ctx, _n: u32| {
        let inner = world.clone();
        let rolled_back = ctx.transaction::<_, u32, _>("t", move |connection| {
            Box::pin(async move {
                sql(connection, "INSERT INTO mine VALUES (1)").await?;
                inner.pass("inside").await;
                Err(Failure::new("no"))
            })
        });
        rolled_back.await.unwrap_err();
        Ok::<_, Failure>(1)
    });
    let other = flow!(world, |ctx, _n: u32| post(&ctx, "other").await);
    world.hold("inside");
    let engine = world.engine().workflow("open", 1, open.clone()).workflow("other", 1, other.clone());
    let process = Process::start(&world, engine);
    process.on(async {
        let acme = process.acme();
        let first = acme.run(open, 1).start().await.unwrap();
        world.reached("inside").await;
        let batches = world.tap.see(|tap| tap.batches.len());
        let second = acme.run(other, 1).into_future();
        tokio::pin!(second);
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!((world.tap.see(|tap| tap.batches.len()), world.counted("post called")), (batches, 0));
        world.release("inside");
        assert_eq!((second.await.unwrap(), first.result().await.unwrap()), (1, 1));
    });
    process.crash();
    let process = Process::start(&world, world.engine());
    let runs = process.on(async { process.acme().runs(None).await.unwrap() });
    assert!(runs.iter().all(|run| run.state.is_final()) && runs.len() == 2, "{runs:#?}");
    assert_eq!(rows(&world, None), 0);
}
