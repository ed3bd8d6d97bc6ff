//! FLOW-3, KEY-4, L01, D11: a resumed run that takes another path is found out before its next effect goes out,
//! and no effect of the former path is forgotten.

use std::sync::Arc;

use counterfoil::flow::{FailureCode, RunError};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Approval, ApprovalSubject, Ctx, Failure, Key, RunId};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::join;

use crate::flow;
use crate::flow::tools::{Bill, Pay, Post, Tell, post};
use crate::flow::world::{Process, World, counted};

async fn pay(ctx: &Ctx, reference: &str) -> Result<u32, Failure> {
    ctx.call::<Pay>(Bill::new(reference, 100)).await
}

async fn tell(ctx: &Ctx, what: &str) -> Result<u32, Failure> {
    let approval = Approval::of("ann", &ApprovalSubject::of("notice", what))?;
    ctx.call::<Tell>(what.to_owned()).approved_by(&approval).await
}

/// A step whose result is read from the payload table on resume, which takes a while.
async fn big(ctx: &Ctx, id: &str) -> Result<String, Failure> {
    ctx.step(("big", id), id, |_| "x".repeat(200_000)).await
}

/// Runs `old` until it waits at `point`, dies there, and goes on as `new`.
fn resumed<A, B, Fa, Fb>(world: &Arc<World>, point: &str, old: A, new: B) -> (Process, RunId)
where
    A: Fn(Ctx, u32) -> Fa + Clone + Send + Sync + 'static,
    B: Fn(Ctx, u32) -> Fb + Clone + Send + Sync + 'static,
    Fa: Future<Output = Result<u32, Failure>> + Send + 'static,
    Fb: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    world.hold(point);
    let process = Process::start(world, world.engine().workflow("path", 1, old.clone()));
    let run = process.on(async {
        let run = process.acme().run(old, 1).start().await.unwrap().id();
        world.reached(point).await;
        run
    });
    process.crash();
    world.release(point);
    (Process::start(world, world.engine().workflow("path", 1, new)), run)
}

async fn blocked(process: &Process, run: RunId) -> counterfoil::store::Question {
    let result = process.acme().handle::<u32>(run).result().await;
    assert!(matches!(result, Err(RunError::Blocked { .. })), "{result:?}");
    process.question(QuestionKind::Diverged).await
}

#[test]
fn a_random_key_is_found_before_the_second_effect() {
    // KEY-4, D11: the process dies after the payment; on resume the tool draws another key.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| pay(&ctx, "random").await);
    let (process, run) = resumed(&world, "pay after", flow.clone(), flow);
    process.on(async {
        let question = blocked(&process, run).await;
        for key in ["pay:ann:draw 1", "pay:ann:draw 2"] {
            assert!(question.question.contains(key), "names both keys: {}", question.question);
        }
        assert!(question.record.is_some());
    });
    assert_eq!(world.effects("pay").len(), 1);
}

// KEY-4: the answer `Resume` promises that the run goes on from its records, also while the key is still unstable.
#[test]
fn the_recorded_call_answers_a_request_whose_key_was_not_stable() {
    // The first payment's key is drawn anew by each process. The second one is another request.
    for mended in [false, true] {
        let world = World::new();
        let old = flow!(world, |ctx, _n: u32| {
            let paid = pay(&ctx, "random").await?;
            Ok::<_, Failure>(paid + pay(&ctx, "july").await?)
        });
        let new = flow!(world, |ctx, _n: u32| {
            let bill = Bill::new("random", 100);
            let call = ctx.call::<Pay>(bill);
            let paid = if mended { call.key(Key::of("pay").target("ann").operation("mended")) } else { call }
                .await?;
            world.pass("paid").await;
            Ok::<_, Failure>(paid + pay(&ctx, "july").await?)
        });
        let (process, run) = resumed(&world, "pay after", old, new.clone());
        world.hold("paid");
        process.on(async {
            let question = blocked(&process, run).await;
            assert!(question.question.contains("the recorded call answers"), "{}", question.question);
            process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
            world.reached("paid").await;
        });
        assert_eq!(world.effects("pay").len(), 1, "it is not paid again");
        process.crash(); // and the next process draws yet another key
        world.release("paid");
        let process = Process::start(&world, world.engine().workflow("path", 1, new));
        process.on(async {
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1 + 2);
            assert_eq!(process.acme().questions().await.unwrap(), [], "mended: {mended}");
        });
        assert_eq!(world.effects("pay").len(), 2);
        process.shut_down();
    }
}

// KEY-4: the answer holds for a fork, too, whose code draws yet another key.
#[test]
fn a_fork_answers_a_request_whose_key_was_not_stable_by_its_origins_record() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| pay(&ctx, "random").await);
    let (process, run) = resumed(&world, "pay after", flow.clone(), flow);
    process.on(async {
        let question = blocked(&process, run).await;
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        let run = process.acme().handle::<u32>(run);
        let first = run.result().await.unwrap();
        let fork = run.fork("ann", "what if").from_step("pay").await.unwrap();
        assert_eq!(fork.result().await.unwrap(), first);
        let fork = fork.fork("ann", "and again").from_step("pay").await.unwrap();
        assert_eq!(fork.result().await.unwrap(), first);
        assert_eq!(world.effects("pay").len(), 1);
        // On purpose it is paid again, under the key that the code draws now.
        let effects = fork.fork("ann", "pay twice").effects().await.unwrap();
        assert_eq!(effects, []);
        let twice = run.fork("ann", "pay twice").from_step("pay");
        let paid = twice.effects().await.unwrap().remove(0).key;
        assert_eq!(twice.reissue(&paid).await.unwrap().result().await.unwrap(), 2);
    });
    assert_eq!(world.effects("pay").len(), 2);
    process.shut_down();
}

#[test]
fn a_child_that_is_begun_again_answers_a_request_whose_key_was_not_stable_by_its_former_record() {
    let world = World::new();
    let child = flow!(world, |ctx, _n: u32| {
        pay(&ctx, "random").await?;
        ctx.call::<Post>("broke twice".to_owned()).await
    });
    let kind = child.clone();
    let parent = move |ctx: Ctx, n: u32| {
        let kind = kind.clone();
        async move { ctx.child(kind, n).await }
    };
    let engine = || world.engine().workflow("path", 1, parent.clone()).workflow("child", 1, child.clone());
    world.hold("pay after");
    let process = Process::start(&world, engine());
    let run = process.on(async {
        let run = process.acme().run(parent.clone(), 1).start().await.unwrap().id();
        world.reached("pay after").await;
        run
    });
    process.crash();
    world.release("pay after");
    let process = Process::start(&world, engine());
    process.on(async {
        process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
        let question = process.question(QuestionKind::Diverged).await;
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        let run = process.acme().handle::<u32>(run);
        run.result().await.unwrap_err();
        for _ in 0..2 {
            run.retry("ann", "once more").await.unwrap();
            drop(run.result().await);
        }
        run.result().await.unwrap();
    });
    assert_eq!((world.effects("pay").len(), world.effects("post").len()), (1, 1));
    process.shut_down();
}

// Abandoned is not kept: nobody has decided what becomes of the payment, and a retry must not go past it.
#[test]
fn a_retry_of_an_abandoned_run_asks_again_about_the_effect_that_it_no_longer_asks_for() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| pay(&ctx, "june").await);
    let new = flow!(world, |ctx, _n: u32| pay(&ctx, "july").await);
    let (process, run) = resumed(&world, "pay after", old, new);
    process.on(async {
        let question = blocked(&process, run).await;
        process.acme().answer(question.id, Resolution::Abandon, "ann").await.unwrap();
        let run = process.acme().handle::<u32>(run);
        let result = run.result().await;
        assert!(matches!(result, Err(RunError::Failed { .. })), "{result:?}");
        run.retry("ann", "once more").await.unwrap();
        let question = blocked(&process, run.id()).await;
        assert_eq!(world.effects("pay"), ["june 100"]);
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("pay"), ["june 100", "july 100"]);
    process.shut_down();
}

// What somebody decided to keep stays decided in a fork, which is given the checkpoint of the event.
#[test]
fn a_fork_does_not_ask_again_about_an_event_that_was_kept() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| {
        ctx.emit("case", "opened", &1).await?;
        pay(&ctx, "june").await
    });
    let new = flow!(world, |ctx, _n: u32| {
        let paid = pay(&ctx, "june").await?;
        counted(&world, &ctx, "after", paid).await
    });
    let (process, run) = resumed(&world, "pay after", old, new);
    process.on(async {
        let question = blocked(&process, run).await;
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        let run = process.acme().handle::<u32>(run);
        let first = run.result().await.unwrap();
        let fork = run.fork("ann", "what if").from_step("after").await.unwrap();
        assert_eq!(fork.result().await.unwrap(), first);
        assert_eq!(process.acme().questions().await.unwrap(), []);
    });
    process.shut_down();
}

// The answer is about that request alone: a run that does not ask for it any more is asked about it.
#[test]
fn a_call_whose_key_was_not_stable_is_not_forgotten_after_the_answer() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| pay(&ctx, "random").await);
    let new = flow!(world, |ctx, _n: u32| {
        let paid = match world.count("lives") {
            1 => pay(&ctx, "random").await?,
            _ => 0,
        };
        Ok::<_, Failure>(paid + pay(&ctx, "july").await?)
    });
    let (process, run) = resumed(&world, "pay after", old, new);
    process.on(async {
        let unstable = blocked(&process, run).await;
        process.acme().answer(unstable.id, Resolution::Resume, "ann").await.unwrap();
        let other_path = blocked(&process, run).await;
        assert!(other_path.question.contains("which is new"), "{}", other_path.question);
        assert_eq!(world.effects("pay").len(), 1);
        process.acme().answer(other_path.id, Resolution::Resume, "ann").await.unwrap();
        process.acme().handle::<u32>(run).result().await.unwrap();
        assert_eq!(process.acme().questions().await.unwrap(), [], "kept on purpose");
    });
    assert_eq!(world.effects("pay").len(), 2);
}

#[test]
fn another_choice_of_the_model_escalates_before_the_new_effect() {
    // L01: a payment was made; the resumed path wants to pay somebody else's bill, or tell instead.
    for other in ["payment", "notification", "post"] {
        let world = World::new();
        let old = flow!(world, |ctx, _n: u32| pay(&ctx, "june").await);
        let new = flow!(world, |ctx, _n: u32| match other {
            "payment" => pay(&ctx, "july").await,
            "notification" => tell(&ctx, "unpaid").await,
            _ => post(&ctx, "unpaid").await,
        });
        let (process, run) = resumed(&world, "pay after", old, new.clone());
        let before = |world: &World| {
            let effects = ["pay", "tell", "post"].map(|tool| world.effects(tool).len());
            assert_eq!(effects, [1, 0, 0], "nothing new goes out: {other}");
        };
        process.on(async {
            let question = blocked(&process, run).await;
            assert!(question.question.contains("pay:ann:june"), "{}", question.question);
            before(&world);
        });
        process.crash();
        // The question outlives the process, and asks nothing of the run meanwhile.
        let process = Process::start(&world, world.engine().workflow("path", 1, new.clone()));
        process.on(async {
            let question = blocked(&process, run).await;
            before(&world);
            process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
            process.acme().handle::<u32>(run).result().await.unwrap();
            assert_eq!(process.acme().questions().await.unwrap(), [], "kept on purpose");
        });
        assert_eq!(["pay", "tell", "post"].map(|tool| world.effects(tool).len()).iter().sum::<usize>(), 2);
    }
}

#[test]
fn a_notification_that_is_not_asked_for_escalates() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| tell(&ctx, "paid").await);
    let new = flow!(world, |ctx, _n: u32| post(&ctx, "paid").await);
    let (process, run) = resumed(&world, "tell after", old, new);
    process.on(async {
        blocked(&process, run).await;
    });
    assert_eq!(world.effects("post").len(), 0);
}

#[test]
fn other_arguments_of_a_call_without_key_block_the_run() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| post(&ctx, "a").await);
    let new = flow!(world, |ctx, _n: u32| post(&ctx, "b").await);
    let (process, run) = resumed(&world, "post after", old, new);
    let asked = process.on(blocked(&process, run));
    assert!(asked.question.contains("by this run") && asked.question.contains("\"b\""), "{}", asked.question);
    assert_eq!(world.effects("post"), ["a"]);
}

#[test]
fn what_is_adopted_does_not_stop_the_run_and_is_listed_at_its_end() {
    // L01: an internal mutation is adopted; invariant 7: it is not forgotten.
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| ctx.call::<Post>("old".into()).id("old").await);
    let new = flow!(world, |ctx, _n: u32| pay(&ctx, "june").await);
    let (process, run) = resumed(&world, "post after", old, new);
    process.on(async {
        process.acme().handle::<u32>(run).result().await.unwrap();
        let question = process.question(QuestionKind::Orphaned).await;
        assert!(question.question.contains("post"), "{}", question.question);
        assert_eq!(question.run, Some(run));
        process.acme().answer(question.id, Resolution::Keep, "ann").await.unwrap();
        assert_eq!(process.acme().questions().await.unwrap(), []);
    });
    assert_eq!((world.effects("post").len(), world.effects("pay").len()), (1, 1));
}

#[test]
fn an_abandoned_run_fails_and_lists_what_it_did_over_any_crash() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| {
        post(&ctx, "a").await?;
        pay(&ctx, "june").await
    });
    let new = flow!(world, |ctx, _n: u32| {
        world.count("new path");
        post(&ctx, "a").await?;
        pay(&ctx, "july").await
    });
    let (process, run) = resumed(&world, "pay after", old, new.clone());
    process.on(async {
        let question = blocked(&process, run).await;
        process.acme().answer(question.id, Resolution::Abandon, "ann").await.unwrap();
    });
    process.crash(); // right after the answer is durable
    let process = Process::start(&world, world.engine().workflow("path", 1, new));
    process.on(async {
        match process.acme().handle::<u32>(run).result().await {
            Err(RunError::Failed { failure, .. }) => assert_eq!(failure.code, FailureCode::Abandoned),
            other => panic!("{other:?}"),
        }
        assert_eq!(process.questions(QuestionKind::Orphaned).await.len(), 2, "both effects");
    });
    assert_eq!((world.counted("new path"), world.effects("pay").len()), (1, 1));
}

#[test]
fn the_answer_that_abandons_a_run_and_its_end_are_one_transaction() {
    // The process dies between any two writes of `answer`: the run must not come back to life.
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| pay(&ctx, "june").await);
    let new = flow!(world, |ctx, _n: u32| {
        world.count("new path");
        pay(&ctx, "july").await
    });
    let (process, run) = resumed(&world, "pay after", old, new.clone());
    let question = process.on(blocked(&process, run));
    // Whatever is written after the answer never reaches the disk.
    world.tap.hold(|change| change.run.is_some() && change.escalations.iter().all(|e| e.answer.is_none()));
    process.on(async {
        let acme = process.acme();
        let resolving = acme.answer(question.id, Resolution::Abandon, "ann");
        tokio::select! {
            resolved = resolving => resolved.unwrap(),
            () = world.tap.until(|tap| tap.held > 0) => {}
        }
    });
    process.crash();
    world.tap.release();
    let process = Process::start(&world, world.engine().workflow("path", 1, new));
    let result = process.on(async { process.acme().handle::<u32>(run).result().await });
    assert!(matches!(result, Err(RunError::Failed { .. })), "{result:?}");
    assert_eq!(world.counted("new path"), 1, "an abandoned run is not executed again");
}

#[test]
fn a_failed_run_lists_every_committed_effect() {
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        post(&ctx, "a").await?;
        pay(&ctx, "june").await?;
        tell(&ctx, "paid").await?;
        Err::<u32, _>(Failure::new("no"))
    });
    let process = Process::start(&world, world.engine().workflow("fails", 1, flow.clone()));
    process.on(async {
        process.acme().run(flow, 1).await.unwrap_err();
        let listed = process.questions(QuestionKind::Orphaned).await;
        for (question, tool) in listed.iter().zip(["post", "pay", "tell"]) {
            assert!(question.question.starts_with(tool), "{}", question.question);
        }
        assert_eq!(listed.len(), 3);
    });
}

#[test]
fn an_ended_run_lists_what_it_no_longer_asked_for() {
    // It ends without any new effect, so nothing is ever held back; what was left is found all the same.
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| pay(&ctx, "june").await);
    let new = flow!(world, |_ctx, n: u32| Ok::<_, Failure>(n));
    let (process, run) = resumed(&world, "pay after", old, new);
    process.on(async {
        process.acme().handle::<u32>(run).result().await.unwrap();
        let question = process.question(QuestionKind::Orphaned).await.question;
        assert!(question.contains("pay:ann:june"), "{question}");
    });
}

#[test]
fn a_branch_that_still_has_records_to_ask_for_is_no_other_path() {
    // FLOW-3: one branch has something new at once, the other still has recorded calls to ask for. Were the
    // question put before every branch waits, they would look like another path.
    for new_first in [true, false] {
        for unordered in [true, false] {
            let world = World::new();
            let old = flow!(world, |ctx, _n: u32| {
                for reference in ["one", "two"] {
                    big(&ctx, reference).await?;
                    pay(&ctx, reference).await?;
                }
                pay(&ctx, "three").await
            });
            let new = flow!(world, |ctx, _n: u32| {
                let fresh = async { pay(&ctx, "new").await };
                let recorded = async {
                    for reference in ["one", "two"] {
                        big(&ctx, reference).await?;
                        pay(&ctx, reference).await?;
                    }
                    pay(&ctx, "three").await
                };
                let results = if unordered {
                    let (a, b): (
                        futures_util::future::BoxFuture<'_, _>,
                        futures_util::future::BoxFuture<'_, _>,
                    ) = (Box::pin(fresh), Box::pin(recorded));
                    let branches = if new_first { [a, b] } else { [b, a] };
                    branches.into_iter().collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await
                } else if new_first {
                    let (a, b) = join!(biased; fresh, recorded);
                    vec![a, b]
                } else {
                    let (b, a) = join!(biased; recorded, fresh);
                    vec![a, b]
                };
                results.into_iter().collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().sum())
            });
            let (process, run) = resumed(&world, "pay after three 100", old, new);
            let sum: u32 = process.on(async { process.acme().handle(run).result().await.unwrap() });
            assert_eq!(sum, 3 + 4, "new first: {new_first}, unordered: {unordered}");
            assert_eq!(world.effects("pay"), ["one 100", "two 100", "three 100", "new 100"]);
        }
    }
}

#[test]
fn a_branch_that_no_longer_asks_is_found_while_the_other_holds_something_new() {
    let world = World::new();
    let old = flow!(world, |ctx, _n: u32| {
        pay(&ctx, "one").await?;
        pay(&ctx, "two").await
    });
    let new = flow!(world, |ctx, _n: u32| {
        let (fresh, recorded) = join!(pay(&ctx, "new"), pay(&ctx, "one"));
        Ok::<_, Failure>(fresh? + recorded?)
    });
    let (process, run) = resumed(&world, "pay after two 100", old, new);
    process.on(async {
        let question = blocked(&process, run).await.question;
        assert!(question.contains("pay:ann:two") && question.contains("pay:ann:new"), "{question}");
    });
    assert_eq!(world.effects("pay"), ["one 100", "two 100"]);
}
