//! The engine on PostgreSQL: what a workflow can tell of its database.

use std::sync::Arc;

use counterfoil::payload::Limits;
use counterfoil::store::postgres::Options;
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Engine, Failure};
use sqlx::{PgConnection, SqliteConnection};

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};
use crate::own_server::Server;
use crate::store::postgres::Schema;

fn life<W>(world: &Arc<World>, url: &str, options: Options, code: W) -> Process
where
    W: counterfoil::flow::WorkflowFn<(), u32>,
{
    let engine = world.equip(Engine::postgres_with(url, options), &world.tap);
    Process::start(world, engine.workflow(NAME, 1, code))
}

// DESIGN 4.6: change and record are one transaction; on resume the closure is not run again.
#[test]
fn a_transaction_takes_place_once() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _input: ()| {
        let inner = world.clone();
        let booked = ctx.transaction("book", |connection: &mut PgConnection| {
            Box::pin(async move {
                inner.count("booked");
                let table = sqlx::query("CREATE TABLE mine (n BIGINT PRIMARY KEY)");
                table.execute(&mut *connection).await.map_err(|e| Failure::new(e.to_string()))?;
                Ok(7_u32)
            })
        });
        let booked = booked.await?;
        ctx.sleep(std::time::Duration::from_millis(1)).await?;
        world.pass("booked").await;
        Ok(booked)
    });
    world.hold("booked");
    let process = life(&world, &crate::server::url(), schema.options(), code.clone());
    let run = process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap();
        world.reached("booked").await;
        run.id()
    });
    process.shut_down();
    world.release("booked");
    let process = life(&world, &crate::server::url(), schema.options(), code);
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 7);
    assert_eq!(world.counted("booked"), 1);
    process.shut_down();
}

// Two transactions that have met are no reason for a run to fail for good. What is rolled back each time is recorded.
#[test]
fn a_transaction_that_is_rolled_back_for_a_passing_reason_runs_again() {
    for (rolled_back, tries, booked) in [(2, 3, 1), (1000, 5, 0)] {
        let (world, schema) = (World::new(), Schema::new());
        let code = flow!(world, |ctx, _input: ()| {
            let inner = world.clone();
            let booked = ctx.transaction("book", |connection: &mut PgConnection| {
                Box::pin(async move {
                    inner.count("tried");
                    sqlx::query("INSERT INTO booking VALUES (1)").execute(connection).await?;
                    Ok::<_, Failure>(7_u32)
                })
            });
            booked.await
        });
        let process = life(&world, &crate::server::url(), schema.options(), code.clone());
        process.on(async {
            let mut other = schema.plain().await;
            // A sequence does not go back with what is rolled back.
            let rolls_back = format!(
                "CREATE TABLE booking (n BIGINT NOT NULL); CREATE SEQUENCE tried; \
                 CREATE FUNCTION roll_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     IF nextval('tried') <= {rolled_back} THEN RAISE EXCEPTION 'as told' USING ERRCODE = '40P01'; END IF; \
                     RETURN NEW; \
                 END $$; \
                 CREATE TRIGGER roll_back BEFORE INSERT ON booking FOR EACH ROW EXECUTE FUNCTION roll_back()"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(rolls_back)).execute(&mut other).await.unwrap();
            let result = process.acme().run(code.clone(), ()).await;
            assert_eq!(result.ok(), (booked == 1).then_some(7), "{rolled_back} times");
            let found: i64 =
                sqlx::query_scalar("SELECT count(*) FROM booking").fetch_one(&mut other).await.unwrap();
            assert_eq!((found, world.counted("tried")), (booked, tries), "{rolled_back} times");
        });
        process.shut_down();
    }
}

// The limit holds on both databases, and what the closure had changed is taken back.
#[test]
fn a_transaction_whose_result_is_over_the_limit_waits_for_a_higher_one() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _input: ()| {
        let long = ctx.transaction("long", |connection: &mut PgConnection| {
            Box::pin(async move {
                // Fails if an earlier one was not taken back.
                let table = sqlx::query("CREATE TABLE mine (n BIGINT PRIMARY KEY)");
                table.execute(connection).await.map_err(|e| Failure::new(e.to_string()))?;
                Ok("x".repeat(2000))
            })
        });
        Ok::<_, Failure>(u32::try_from(long.await?.len()).unwrap())
    });
    let life = |max_bytes| {
        let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
        let engine = engine.limits(Limits { inline_bytes: 16, max_bytes });
        Process::start(&world, engine.workflow(NAME, 1, code.clone()))
    };
    let process = life(1000);
    let run = process.on(async {
        let run = process.acme().run(code.clone(), ()).start().await.unwrap().id();
        process.state(run, "blocked").await;
        run
    });
    let asked = process.on(process.question(QuestionKind::Quarantined));
    assert!(asked.question.contains("2009 bytes, 1000 at most"), "{}", asked.question);
    process.shut_down();
    let process = life(1 << 20);
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2000);
    });
    process.shut_down();
}

#[test]
fn a_connection_of_another_database_is_refused() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _input: ()| {
        ctx.transaction("book", |_: &mut SqliteConnection| Box::pin(async { Ok(7_u32) })).await
    });
    let process = life(&world, &crate::server::url(), schema.options(), code.clone());
    let error = process.on(async { process.acme().run(code, ()).await }).unwrap_err().to_string();
    assert!(error.contains("it is another database"), "{error}");
    process.shut_down();
}

// HAZARDS G17: nothing is held in the database while a call is on its way.
#[test]
fn no_transaction_is_open_during_a_call() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Post>("hello".into()).await);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Server::start(&[])); // its own: whatever is open there is ours
    world.hold("post before");
    let process = life(&world, &server.url(), Options::default(), code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        world.reached("post before").await;
        let open = "SELECT count(*)::text FROM pg_stat_activity \
                    WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND state LIKE 'idle in%'";
        assert_eq!(server.sql(open).await, "0");
        world.release("post before");
        assert_eq!(run.result().await.unwrap(), 1);
    });
    process.shut_down();
}
