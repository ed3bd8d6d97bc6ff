//! Invariant 10: a tenant sees nothing of another's, by any operation of `TenantClient` and `RunHandle`.

use counterfoil::Failure;
use counterfoil::flow::RunError;
use counterfoil::store::{QuestionKind, Resolution};

use crate::flow;
use crate::flow::tools::{Bill, Pay, post};
use crate::flow::world::{Process, World};

#[test]
fn one_tenant_never_sees_anothers() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        let secret = ctx.call::<Pay>(Bill::new("june", n)).await?;
        post(&ctx, ctx.tenant().as_str()).await?;
        match n {
            1 => Ok(secret),
            _ => Err(Failure::new("to leave a question")),
        }
    });
    let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
    process.on(async {
        let (acme, other) = (process.acme(), process.engine().tenant("other").unwrap());
        world.hold("post after acme");
        let mine = acme.run(flow.clone(), 1).key("k").start().await.unwrap();
        world.reached("post after acme").await;
        let foreign = other.handle::<u32>(mine.id());
        let unknown = |result: &Result<u32, RunError>| matches!(result, Err(RunError::Unknown { .. }));
        // While it is under way, too: the engine knows the run, and must not tell.
        let (peeked, own) = tokio::join!(foreign.result(), async {
            world.release("post after acme");
            mine.result().await
        });
        assert!(unknown(&peeked), "a foreign run under way: {peeked:?}");
        assert_eq!(own.unwrap(), 1);
        assert!(unknown(&foreign.result().await), "a foreign run that is over");
        assert!(matches!(foreign.status().await, Err(RunError::Unknown { .. })));
        assert_eq!(other.runs(None).await.unwrap(), []);

        // The same start key, the same operation key: each has its own.
        assert!(other.run(flow.clone(), 2).key("k").await.is_err());
        assert_eq!(world.effects("pay"), ["june 1", "june 2"]);
        assert_eq!(acme.questions().await.unwrap(), []);
        let theirs = other.questions().await.unwrap();
        assert_eq!(theirs.len(), 2);
        for question in theirs {
            assert_eq!(question.kind, QuestionKind::Orphaned);
            let refused = acme.answer(question.id, Resolution::Abandon, "mallory").await;
            assert!(matches!(refused, Err(RunError::Exec(_))), "{refused:?}");
        }
        assert_eq!(other.questions().await.unwrap().len(), 2, "still open");
        assert_eq!((acme.runs(None).await.unwrap().len(), other.runs(None).await.unwrap().len()), (1, 1));
    });
}

#[test]
fn one_tenants_blocked_run_is_not_anothers_to_let_go() {
    let world = World::new();
    let flow = flow!(world, |ctx, n: u32| {
        ctx.step("s", &n, |n| assert_eq!((*n, world.count("boom")), (1, 0), "boom")).await?;
        Ok::<_, Failure>(n)
    });
    let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
    process.on(async {
        let mine = process.acme().run(flow, 1).start().await.unwrap();
        mine.result().await.unwrap_err();
        let question = process.question(QuestionKind::Quarantined).await;
        let other = process.engine().tenant("other").unwrap();
        for resolution in [Resolution::DidNotHappen, Resolution::Abandon] {
            other.answer(question.id, resolution, "mallory").await.unwrap_err();
        }
        assert_eq!(mine.status().await.unwrap().state.name(), "blocked");
        assert_eq!(world.counted("boom"), 1, "not executed again");
    });
}
