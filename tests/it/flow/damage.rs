//! A damaged row stops its run with a question and no other; once it is mended, the run goes on (G10).

use std::sync::Arc;
use std::time::Duration;

use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Client, Ctx, Failure};
use sqlx::Executor as _;

use crate::flow;
use crate::flow::lives::{NAME, plain};
use crate::flow::tools::post;
use crate::flow::world::{Process, World, counted};
use crate::store::postgres::Schema;

async fn edit(world: &World, sql: String) {
    let mut other = plain(world).await;
    other.execute("PRAGMA ignore_check_constraints = ON").await.unwrap();
    let edited = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut other).await.unwrap();
    assert_eq!(edited.rows_affected(), 1, "one row is damaged or mended");
}

/// One effect, one step, and a stand: a run per name.
async fn named(ctx: Ctx, world: Arc<World>, name: String) -> Result<u32, Failure> {
    post(&ctx, &name).await?;
    let number = counted(&world, &ctx, "count", 1).await?;
    let point = format!("stand {name}");
    ctx.step_async("stand", &(), || async move { world.pass(&point).await }).await?;
    Ok(number)
}

/// G10: one row of a run is damaged while no process lives; then it is mended.
fn damage(table: &str, damage: &str, mend: &str) {
    let world = World::new();
    let code = flow!(world, |ctx, name: String| named(ctx, world.clone(), name).await);
    let engine = || world.engine().workflow(NAME, 1, code.clone());
    for name in ["hurt", "sound"] {
        world.hold(&format!("stand {name}"));
    }
    let process = Process::start(&world, engine());
    let (hurt, sound) = process.on(async {
        let start = async |name: &str| {
            let run = process.acme().run(code.clone(), name.to_owned()).start().await.unwrap();
            world.reached(&format!("stand {name}")).await;
            run.id()
        };
        (start("hurt").await, start("sound").await)
    });
    process.crash();
    for name in ["hurt", "sound"] {
        world.release(&format!("stand {name}"));
    }
    let of_run = if table == "run" { "id" } else { "run" };
    let update =
        |change: &str| edit_now(&world, format!("UPDATE {table} SET {change} WHERE {of_run} = {}", hurt.0));
    update(damage);

    let process = Process::start(&world, engine());
    assert_eq!(
        process.on(process.acme().handle::<u32>(sound).result()).unwrap(),
        2,
        "{damage}: others go on"
    );
    if table == "run" {
        let named = process.on(process.acme().handle::<u32>(hurt).status()).unwrap_err().to_string();
        assert!(named.contains(&format!("run {:x}", hurt.0)), "{named}");
        let listed = process.on(process.acme().runs(None)).unwrap();
        assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [sound]);
        process.shut_down();
        update(mend);
        let process = Process::start(&world, engine());
        assert_eq!(process.on(process.acme().handle::<u32>(hurt).result()).unwrap(), 2);
        process.shut_down();
    } else {
        process.on(process.state(hurt, "blocked"));
        let asked = process.on(process.question(QuestionKind::Damaged));
        assert_eq!(asked.run, Some(hurt), "{damage}: {asked:?}");
        update(mend);
        process.on(process.acme().answer(asked.id, Resolution::Resume, "bob")).unwrap();
        assert_eq!(process.on(process.acme().handle::<u32>(hurt).result()).unwrap(), 2, "{damage}");
        process.shut_down();
    }
    assert_eq!((world.effects("post").len(), world.counted("count")), (2, 2), "{damage}: nothing twice");
}

fn edit_now(world: &World, sql: String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(edit(world, sql));
}

#[test]
fn a_damaged_step_blocks_its_run_alone() {
    damage("step", "kind = kind + 90", "kind = kind - 90");
    damage("step", "value = '@' || value", "value = substr(value, 2)");
    damage("step", "value = '{' || value", "value = substr(value, 2)");
}

#[test]
fn a_damaged_record_blocks_its_run_alone() {
    damage(
        "record",
        "request_hash = CAST(request_hash || x'00' AS BLOB)",
        "request_hash = substr(request_hash, 1, 33)",
    );
    damage("record", "outcome = '@' || outcome", "outcome = substr(outcome, 2)");
    damage("record", "status = status + 90", "status = status - 90");
}

#[test]
fn a_damaged_run_does_not_keep_the_engine_from_starting() {
    damage("run", "outcome = '{}'", "outcome = NULL");
    damage("run", "revision = -1", "revision = 1");
    damage("run", "input = '@' || input", "input = substr(input, 2)");
}

// The heartbeat asks for the signals of all parked runs at once. One that cannot be read stopped it for all of them.
#[test]
fn a_damaged_signal_of_a_parked_run_blocks_that_run_alone() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, name: String| {
        world.count(&name);
        ctx.signal::<u32>("go").await
    });
    let engine = world.engine_in(&schema, true).workflow(NAME, 1, code.clone());
    let process = Process::start(&world, engine);
    process.on(async {
        let start = async |name: &str| {
            let run = process.acme().run(code.clone(), name.to_owned()).start().await.unwrap();
            process.state(run.id(), "waiting").await;
            run.id()
        };
        let (hurt, sound) = (start("hurt").await, start("sound").await);
        process.acme().handle::<u32>(hurt).signal("unwanted", 1_u32).await.unwrap();
        world.counts("hurt", 2).await;
        process.state(hurt, "waiting").await;
        let mut plain = schema.plain().await;
        let damage = sqlx::query("UPDATE signal SET body = '@' || body WHERE run = $1").bind(hurt.0);
        assert_eq!(damage.execute(&mut plain).await.unwrap().rows_affected(), 1);
        // A client writes the signal alone: the worker's heartbeat finds it.
        let client = Client::postgres_with(crate::server::url(), schema.options()).open().await.unwrap();
        client.tenant("acme").unwrap().handle::<u32>(sound).signal("go", 7_u32).await.unwrap();
        assert_eq!(process.acme().handle::<u32>(sound).result().await.unwrap(), 7);
        process.state(hurt, "blocked").await;
        assert_eq!(process.question(QuestionKind::Damaged).await.run, Some(hurt));
        client.shutdown(Duration::ZERO).await;
    });
    process.shut_down();
}
