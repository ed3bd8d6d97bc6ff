//! Published values: what a run shows of itself, on both stores, across crashes and new beginnings.

use std::time::Duration;

use counterfoil::flow::{RunError, Workflow};
use counterfoil::ledger::Retention;
use counterfoil::store::{QuestionKind, StepKind};

use super::answers::Place;
use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};

#[test]
fn a_value_is_read_while_the_run_goes_on_and_after_its_end() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            ctx.publish("progress", &1).await?;
            ctx.publish("note", "on its way").await?;
            world.pass("between").await;
            ctx.publish("progress", &2).await?;
            Ok(0_u32)
        });
        world.hold("between");
        let process = place.life(&world, code.clone());
        let client = process.on(place.client(&world).open()).unwrap();
        process.on(async {
            let run = process.acme().run(code, ()).key("k").start().await.unwrap();
            let seen = client.tenant("acme").unwrap().run_of_named(NAME, "k");
            let mut watch = run.watch::<u32>("progress");
            assert_eq!(watch.next().await.unwrap(), Some(1));
            assert_eq!(seen.published::<u32>("progress").await.unwrap(), Some(1));
            assert_eq!(seen.published::<String>("note").await.unwrap().unwrap(), "on its way");
            assert_eq!(seen.published::<u32>("nothing").await.unwrap(), None);
            assert!(matches!(seen.published::<u32>("note").await, Err(RunError::Payload(_))), "no number");
            world.release("between");
            assert_eq!(watch.next().await.unwrap(), Some(2));
            assert_eq!(watch.next().await.unwrap(), None, "it is over");
            run.result().await.unwrap();
            assert_eq!(seen.published::<u32>("progress").await.unwrap(), Some(2));
        });
        process.shut_down();
    }
}

// A resumed run publishes nothing again, and goes on counting where it was.
#[test]
fn a_crash_takes_no_value_back() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            for n in 1..=3_u32 {
                ctx.publish("progress", &n).await?;
                world.pass(&format!("after {n}")).await;
            }
            Ok(0_u32)
        });
        let mut run = None;
        for n in 1..=3 {
            world.hold(&format!("after {n}"));
            let process = place.life(&world, code.clone());
            process.on(async {
                let started = process.acme().run(code.clone(), ()).key("k").start().await.unwrap();
                run = Some(started.id());
                world.reached(&format!("after {n}")).await;
                // Nobody waits for it to be durable, but that soon is.
                let shows = async |n| started.published::<u32>("progress").await.unwrap() == Some(n);
                process.until(async |_| shows(n).await).await;
            });
            process.crash();
            world.release(&format!("after {n}"));
        }
        let process = place.life(&world, code);
        let run = process.acme().handle::<u32>(run.unwrap());
        assert_eq!(process.on(run.result()).unwrap(), 0);
        assert_eq!(process.on(run.published::<u32>("progress")).unwrap(), Some(3));
        let steps = process.on(run.history(None)).unwrap().remove(0).steps;
        assert_eq!(steps.iter().filter(|step| step.kind == StepKind::Published).count(), 3);
        process.shut_down();
    }
}

// Its computations from the step on are done again, and so it publishes them again; until then its last value stays.
#[test]
fn a_run_that_is_begun_again_shows_its_last_value_until_it_publishes() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            let life = world.counted("lives");
            ctx.publish("progress", "begun").await?;
            ctx.step("first", &(), |&()| 1_u32).await?;
            world.pass("first").await;
            ctx.publish("progress", &format!("life {life}")).await?;
            ctx.step("second", &(), |&()| 1_u32).await?;
            if life == 0 { Err(counterfoil::Failure::new("broken")) } else { Ok(0_u32) }
        });
        let process = place.life(&world, code.clone());
        process.on(async {
            let run = process.acme().run(code, ()).start().await.unwrap();
            run.result().await.unwrap_err();
            let shown = async || run.published::<String>("progress").await.unwrap();
            assert_eq!(shown().await.unwrap(), "life 0");
            world.count("lives");
            world.hold("first");
            run.retry("ann", "mended").from_step("first").await.unwrap();
            world.reached("first").await;
            assert_eq!(shown().await.unwrap(), "life 0");
            world.release("first");
            run.result().await.unwrap();
            assert_eq!(shown().await.unwrap(), "life 1");
            let fork = run.fork("ann", "once more").from_step("second").await.unwrap();
            fork.result().await.unwrap();
            assert_eq!(
                fork.published::<String>("progress").await.unwrap(),
                None,
                "it published nothing itself"
            );
            assert_eq!(shown().await.unwrap(), "life 1");
        });
        process.shut_down();
    }
}

// Published values are no effects: a build that publishes more, less or something else goes on with the run.
#[test]
fn a_build_that_publishes_otherwise_goes_on() {
    for place in Place::both() {
        let world = World::new();
        let before = flow!(world, |ctx, _input: ()| {
            ctx.publish("progress", "begun").await?;
            ctx.publish("note", "to be removed").await?;
            ctx.call::<Post>("hello".into()).await?;
            world.pass("posted").await;
            ctx.call::<Post>("again".into()).await
        });
        world.hold("posted");
        let process = place.life(&world, before.clone());
        let run = process.on(async {
            let run = process.acme().run(before, ()).start().await.unwrap();
            world.reached("posted").await;
            run.id()
        });
        process.crash();
        world.release("posted");
        let after = flow!(world, |ctx, _input: ()| {
            ctx.publish("more", "in front").await?;
            ctx.publish("progress", "begun, in other words").await?;
            ctx.call::<Post>("hello".into()).await?;
            ctx.publish("progress", "posted").await?;
            ctx.call::<Post>("again".into()).await
        });
        let process = place.life(&world, after);
        let run = process.acme().handle::<u32>(run);
        process.on(run.result()).unwrap();
        for (name, value) in [("more", "in front"), ("progress", "posted"), ("note", "to be removed")] {
            assert_eq!(process.on(run.published::<String>(name)).unwrap().unwrap(), value);
        }
        assert_eq!(world.effects("post"), ["hello", "again"]);
        process.shut_down();
    }
}

#[test]
fn a_value_that_is_too_large_blocks_its_run() {
    let world = World::new();
    let code = flow!(world, |ctx, _input: ()| {
        ctx.publish("progress", &"x".repeat(20_000)).await?;
        Ok(0_u32)
    });
    let process = Place::File.life(&world, code.clone());
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        let blocked = run.result().await.unwrap_err();
        assert!(matches!(blocked, RunError::Blocked { .. }), "{blocked}");
        assert_eq!(process.acme().questions().await.unwrap().len(), 1);
        assert_eq!(run.published::<String>("progress").await.unwrap(), None);
        assert!(process.questions(QuestionKind::Diverged).await.is_empty());
    });
    process.shut_down();
}

#[test]
fn a_value_goes_with_its_run() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| {
            ctx.publish("progress", "a secret").await?;
            Ok(0_u32)
        });
        let kept = Retention::tombstone_after(Duration::from_millis(1));
        let workflow = Workflow::new(NAME, code.clone()).retention(kept);
        let process = Process::start(&world, place.engine(&world).register(workflow));
        process.on(async {
            let run = process.acme().run(code, ()).start().await.unwrap();
            process.state(run.id(), "expired").await;
            process.until(async |_| run.published::<String>("progress").await.unwrap().is_none()).await;
        });
        process.shut_down();
    }
}
