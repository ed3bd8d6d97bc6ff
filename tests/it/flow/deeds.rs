//! Another path after a crash, for what a run did beside its calls: children begun and signals sent are found before
//! anything new goes out, and listed (FLOW-3, invariant 7).

use std::sync::Arc;

use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Ctx, Failure, RunId};

use crate::flow::lives::{NAME, stand};
use crate::flow::tools::post;
use crate::flow::world::{Process, World};

/// What the code does before it stands: edited between two lives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Child,
    Sent,
    Nothing,
}

async fn child(ctx: Ctx, what: String) -> Result<u32, Failure> {
    post(&ctx, &what).await
}

/// A life of the code that does this, and then posts or ends at once.
fn life(world: &Arc<World>, deed: Deed, posts: bool) -> (Process, impl AsyncFn(&Process) -> RunId) {
    let known = world.clone();
    let code = move |ctx: Ctx, (): ()| {
        let world = known.clone();
        async move {
            match deed {
                Deed::Child => drop(ctx.child(child, "of the child".to_owned()).start().await?),
                Deed::Sent => ctx.send(ctx.run_id(), "note", &1).await?,
                Deed::Nothing => {}
            }
            if deed != Deed::Nothing {
                stand(&ctx, &world).await?;
            }
            if posts { post(&ctx, "last").await } else { Ok(0) }
        }
    };
    let engine = world.engine().workflow("child", 1, child).workflow(NAME, 1, code.clone());
    let begin =
        async move |process: &Process| process.acme().run(code.clone(), ()).start().await.unwrap().id();
    (Process::start(world, engine), begin)
}

fn died(world: &Arc<World>, deed: Deed) -> RunId {
    world.hold("stand");
    let (process, begin) = life(world, deed, true);
    let run = process.on(async {
        let run = begin(&process).await;
        world.reached("stand").await;
        run
    });
    process.crash();
    world.release("stand");
    run
}

#[test]
fn what_is_not_asked_for_again_is_asked_about_before_anything_new_goes_out() {
    for (deed, named) in [(Deed::Child, "child \"child\""), (Deed::Sent, "sent signal \"note\"")] {
        let world = World::new();
        let run = died(&world, deed);
        let (process, _) = life(&world, Deed::Nothing, true);
        process.on(async {
            process.state(run, "blocked").await;
            let asked = process.question(QuestionKind::Diverged).await;
            assert!(asked.question.contains(named), "{}", asked.question);
            assert!(!world.effects("post").contains(&"last".to_owned()), "it went out: {deed:?}");
            process.acme().answer(asked.id, Resolution::Resume, "bob").await.unwrap();
            process.acme().handle::<u32>(run).result().await.unwrap();
            assert_eq!(process.acme().questions().await.unwrap(), [], "it was kept, and is asked about once");
        });
        process.shut_down();
    }
}

#[test]
fn what_a_run_leaves_behind_at_its_end_is_listed() {
    for (deed, named) in [(Deed::Child, "child \"child\""), (Deed::Sent, "sent signal \"note\"")] {
        let world = World::new();
        let run = died(&world, deed);
        let (process, _) = life(&world, Deed::Nothing, false);
        process.on(async {
            process.acme().handle::<u32>(run).result().await.unwrap();
            let asked = process.question(QuestionKind::Orphaned).await;
            assert!(asked.question.contains(named), "{}", asked.question);
            process.acme().answer(asked.id, Resolution::Keep, "bob").await.unwrap();
        });
        process.shut_down();
    }
}

#[test]
fn what_is_asked_for_again_is_no_other_path() {
    for deed in [Deed::Child, Deed::Sent] {
        let world = World::new();
        let run = died(&world, deed);
        let (process, _) = life(&world, deed, true);
        process.on(async {
            process.acme().handle::<u32>(run).result().await.unwrap();
            assert_eq!(process.acme().questions().await.unwrap(), []);
        });
        process.shut_down();
    }
}
