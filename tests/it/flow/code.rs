//! "What bad input gets", for the workflow's own code: names that cannot be stored, panics in odd places.

use counterfoil::flow::{FailureCode, RunError};
use counterfoil::{Ctx, Failure};

use crate::flow;
use crate::flow::tools::post;
use crate::flow::world::{Process, World};

#[test]
fn a_panic_before_the_first_await_halts_the_run_too() {
    // A workflow may be any function that returns a future: its body before that is the run's code as well.
    let world = World::new();
    let flow = |_ctx: Ctx, n: u32| {
        assert!(n != 1, "not even started");
        async move { Ok::<_, Failure>(n) }
    };
    let process = Process::start(&world, world.engine().workflow("early", 1, flow));
    process.on(async {
        let halted = process.acme().run(flow, 1).await;
        assert!(
            matches!(&halted, Err(RunError::Halted { message, .. }) if message.contains("not even")),
            "{halted:?}"
        );
        assert_eq!(process.acme().run(flow, 2).await.unwrap(), 2);
    });
}

#[test]
fn names_that_cannot_be_stored_are_refused_and_the_run_goes_on() {
    // "What bad input gets": a clear error, and nothing is lost.
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        for name in ["", "a\0b", "line\nbreak", &"long".repeat(1000)] {
            let refused = ctx.step(name, &n, |n| *n).await.unwrap_err();
            assert_eq!(refused.code, FailureCode::Invalid, "{name:?}");
            if !name.is_empty() {
                let refused = ctx.step(("ok", name), &n, |n| *n).await.unwrap_err();
                assert_eq!(refused.code, FailureCode::Invalid, "{name:?} as an id");
            }
        }
        let odd = "'; DROP TABLE step; -- \u{202e}\u{1f980}";
        ctx.step((odd, odd), &n, |n| *n).await?;
        post(&ctx, "a\0b").await
    });
    let process = Process::start(&world, world.engine().workflow("names", 1, flow.clone()));
    assert_eq!(process.on(async { process.acme().run(flow, 1).await.unwrap() }), 1);
    assert_eq!(world.effects("post"), ["a\0b"]);
}
