//! "What bad input gets", for the workflow's own code: names that cannot be stored, panics in odd places.

use counterfoil::flow::{Label, RunError};
use counterfoil::{Ctx, Failure};

use crate::flow;
use crate::flow::tools::post;
use crate::flow::world::{Process, World};

#[test]
fn a_panic_before_the_first_await_blocks_the_run_too() {
    // A workflow may be any function that returns a future: its body before that is the run's code as well.
    let world = World::new();
    let flow = |_ctx: Ctx, n: u32| {
        assert!(n != 1, "not even started");
        async move { Ok::<_, Failure>(n) }
    };
    let process = Process::start(&world, world.engine().workflow("early", 1, flow));
    process.on(async {
        let blocked = process.acme().run(flow, 1).await;
        assert!(
            matches!(&blocked, Err(RunError::Blocked { message, .. }) if message.contains("not even")),
            "{blocked:?}"
        );
        assert_eq!(process.acme().run(flow, 2).await.unwrap(), 2);
    });
}

#[test]
fn names_that_cannot_be_stored_block_their_run() {
    // "What bad input gets": a clear error, and nothing is lost.
    let world = World::new();
    let named = |ctx: Ctx, (name, id): (String, Option<String>)| async move {
        let label = id.map_or_else(|| Label::from(name.as_str()), |id| Label::from((name.as_str(), id)));
        ctx.step(label, &1, |n| *n).await
    };
    let flow = flow!(world, |ctx, n: u32| {
        let odd = "'; DROP TABLE step; -- \u{202e}\u{1f980}";
        ctx.step((odd, odd), &n, |n| *n).await?;
        post(&ctx, "a\0b").await
    });
    let engine = world.engine().workflow("names", 1, flow.clone()).workflow("named", 1, named);
    let process = Process::start(&world, engine);
    for bad in ["", "a\0b", "line\nbreak", &"long".repeat(1000)] {
        for name in [(bad.to_owned(), None), ("ok".to_owned(), Some(bad.to_owned()))] {
            let refused = process.on(async { process.acme().run(named, name).await });
            assert!(matches!(refused, Err(RunError::Blocked { .. })), "{bad:?}: {refused:?}");
        }
    }
    assert_eq!(process.on(async { process.acme().run(flow, 1).await.unwrap() }), 1);
    assert_eq!(world.effects("post"), ["a\0b"]);
}
