//! Signals, commands and children between two workers of one PostgreSQL: whoever says something need not be the one who
//! carries the run out (FLOW-4, FLOW-5, FLOW-8).

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{RunError, WorkflowFn};
use counterfoil::{Ctx, Engine, Failure};
use tokio::join;

use crate::flow;
use crate::flow::lives::{NAME, stand};
use crate::flow::store::Tap;
use crate::flow::tools::post;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

async fn letter(ctx: Ctx, what: String) -> Result<u32, Failure> {
    post(&ctx, &what).await
}

/// Two workers that know the same code. The world's tap is the first one's.
fn workers<W: WorkflowFn<(), u32> + Clone>(world: &Arc<World>, schema: &Schema, code: &W) -> [Process; 2] {
    [world.tap.clone(), Tap::default()].map(|tap| {
        let engine = Engine::postgres_with(crate::server::url(), schema.options());
        let engine = world.equip(engine, &tap).lease(Duration::from_secs(2));
        Process::start(world, engine.workflow("letter", 1, letter).workflow(NAME, 1, code.clone()))
    })
}

#[test]
fn a_run_hears_what_is_said_to_another_worker() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _n: ()| {
        let heard = async {
            let heard = ctx.signal::<u32>("go").await;
            world.count("heard");
            heard
        };
        let (stood, heard) = join!(stand(&ctx, &world), heard);
        stood?;
        Ok::<_, Failure>(heard? + ctx.signal::<u32>("more").await?)
    });
    let [one, other] = workers(&world, &schema, &code);
    world.hold("stand");
    let run = one.on(async {
        let run = one.acme().run(code, ()).start().await.unwrap();
        world.reached("stand").await;
        run
    });
    let elsewhere = other.acme().handle::<u32>(run.id());
    other.on(elsewhere.signal("go", 40).into_future()).unwrap();
    one.on(world.counts("heard", 1)); // it is under way with the first, and stays there
    world.release("stand");
    one.on(one.state(run.id(), "waiting"));
    other.on(elsewhere.signal("more", 2).into_future()).unwrap();
    assert_eq!((other.on(elsewhere.result()).unwrap(), one.on(run.result()).unwrap()), (42, 42));
    drop(run);
    one.shut_down();
    other.shut_down();
}

#[test]
fn a_command_is_obeyed_whichever_worker_it_is_given_to() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _n: ()| {
        let child = ctx.child(letter, "of the child".to_owned()).start().await?;
        ctx.signal::<u32>("never").await?;
        child.result().await
    });
    let [one, other] = workers(&world, &schema, &code);
    world.hold("post before of the child");
    let run = one.on(async {
        let run = one.acme().run(code, ()).start().await.unwrap();
        world.reached("post before of the child").await;
        run
    });
    let elsewhere = other.acme().handle::<u32>(run.id());
    other.on(async {
        elsewhere.pause("ann", "a holiday").await.unwrap();
        let paused = elsewhere.result().await;
        assert!(matches!(paused, Err(RunError::Blocked { .. })), "{paused:?}");
    });
    one.on(async {
        run.resume("ann", "it is over").await.unwrap();
        one.state(run.id(), "waiting").await;
    });
    world.release("post before of the child");
    other.on(async {
        elsewhere.cancel("ann", "nobody needs it").await.unwrap();
        let cancelled = elsewhere.result().await;
        assert!(
            matches!(&cancelled, Err(RunError::Failed { failure, .. }) if failure.message.contains("ann")),
            "{cancelled:?}"
        );
        let retried = elsewhere.retry("bob", "somebody does").await;
        retried.unwrap();
        elsewhere.signal("never", 1).await.unwrap();
        assert!(elsewhere.result().await.is_ok());
    });
    assert_eq!(world.effects("post").len(), 1, "{:?}", world.effects("post"));
    drop(run);
    one.shut_down();
    other.shut_down();
}

#[test]
fn a_run_goes_on_where_its_workflow_is_known_whichever_worker_resumes_it() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _n: ()| ctx.signal::<u32>("go").await);
    let worker = |tap: &Tap| {
        let engine = Engine::postgres_with(crate::server::url(), schema.options());
        world.equip(engine, tap).lease(Duration::from_secs(2))
    };
    let one = Process::start(&world, worker(&world.tap).workflow(NAME, 1, code.clone()));
    let other = Process::start(&world, worker(&Tap::default()));
    let run = one.on(async {
        let run = one.acme().run(code, ()).start().await.unwrap();
        run.pause("ann", "lunch").await.unwrap();
        one.state(run.id(), "blocked").await;
        run
    });
    let elsewhere = other.acme().handle::<u32>(run.id());
    other.on(async {
        elsewhere.resume("ann", "back").await.unwrap();
        elsewhere.signal("go", 7).await.unwrap();
    });
    assert_eq!(one.on(run.result()).unwrap(), 7);
    drop(run);
    one.shut_down();
    other.shut_down();
}

#[test]
fn a_child_and_its_parent_are_handed_over_together() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _n: ()| {
        let child = ctx.child(letter, "of the child".to_owned()).await?;
        Ok::<_, Failure>(child + post(&ctx, "of the parent").await?)
    });
    let [one, other] = workers(&world, &schema, &code);
    world.hold("post after of the child");
    let run = one.on(async {
        let run = one.acme().run(code, ()).start().await.unwrap().id();
        world.reached("post after of the child").await;
        run
    });
    one.crash();
    world.release("post after of the child");
    other.on(other.acme().handle::<u32>(run).result()).unwrap();
    assert_eq!(world.effects("post"), ["of the child", "of the parent"]);
    other.shut_down();
}
