//! Changed code meets runs that are under way: what a new build can mend blocks a run, and what gives the same result does not
//! even do that. Each test runs on SQLite and on PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{RunError, Turn, WorkflowFn};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::{Approval, ApprovalSubject, Ctx, Failure, RunId};
use serde::Serialize;

use crate::flow;
use crate::flow::lives::{NAME, stand};
use crate::flow::tools::{Bill, Pay, Tell, post};
use crate::flow::world::{Process, World, counted};
use crate::guard::approval::{approve, open_about};
use crate::store::postgres::Schema;

/// A world on one store, and the lives of the engine in it.
struct Builds {
    world: Arc<World>,
    schema: Schema,
    shared: bool,
}

impl Builds {
    /// Both stores, one after the other.
    fn on_both(test: impl Fn(&Self)) {
        for shared in [false, true] {
            test(&Self { world: World::new(), schema: Schema::new(), shared });
        }
    }

    /// A process that knows this code.
    fn deploy<W: WorkflowFn<(), u32>>(&self, code: W) -> Process {
        let engine = self.world.engine_in(&self.schema, self.shared);
        Process::start(&self.world, engine.workflow(NAME, 1, code))
    }

    /// A run of this code that came to the stand, which its process did not outlive.
    fn began_by<W: WorkflowFn<(), u32> + Clone>(&self, code: W) -> RunId {
        self.world.hold("stand");
        let process = self.deploy(code.clone());
        let run = process.on(async {
            let run = process.acme().run(code, ()).start().await.unwrap();
            self.world.reached("stand").await;
            run.id()
        });
        process.shut_down();
        self.world.release("stand");
        run
    }

    /// A process with this code carries the run on to the stand, and does not outlive it.
    fn comes_to_the_stand<W: WorkflowFn<(), u32>>(&self, code: W) {
        self.world.hold("stand");
        let process = self.deploy(code);
        process.on(self.world.reached("stand"));
        process.shut_down();
        self.world.release("stand");
    }

    /// The result of the run in a process with this code.
    fn ended_by<W: WorkflowFn<(), u32>>(&self, run: RunId, code: W) -> u32 {
        let process = self.deploy(code);
        let result = process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() });
        process.shut_down();
        result
    }

    /// What a process with this code asks about the run, which it does not carry on.
    fn blocked_by<W: WorkflowFn<(), u32>>(&self, run: RunId, code: W) -> String {
        let process = self.deploy(code);
        let asked = process.on(async {
            let blocked = process.acme().handle::<u32>(run).result().await;
            assert!(matches!(blocked, Err(RunError::Blocked { .. })), "{blocked:?}");
            process.question(QuestionKind::Diverged).await
        });
        process.shut_down();
        asked.question
    }

    /// A person lets the blocked run go on with this code, which ends it.
    fn goes_on_by<W: WorkflowFn<(), u32>>(&self, run: RunId, code: W) -> u32 {
        let process = self.deploy(code);
        let result = process.on(async {
            let asked = process.question(QuestionKind::Diverged).await;
            process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
            process.acme().handle::<u32>(run).result().await.unwrap()
        });
        process.shut_down();
        result
    }
}

async fn pay(ctx: &Ctx, reference: &str) -> Result<u32, Failure> {
    ctx.call::<Pay>(Bill::new(reference, 100)).await
}

/// An order as a first build knows it.
#[derive(Serialize)]
struct Order {
    item: String,
}

/// As a later one does.
#[derive(Serialize)]
struct WideOrder {
    item: String,
    gift: Option<String>,
}

const fn order() -> Order {
    Order { item: String::new() }
}

const fn wide_order() -> WideOrder {
    WideOrder { item: String::new(), gift: None }
}

/// Computes a price from this input, pays, and comes to the stand.
async fn priced<I: Serialize>(ctx: &Ctx, world: &Arc<World>, input: &I, price: u32) -> Result<u32, Failure> {
    let price = ctx.step("price", input, |_| {
        world.count("price");
        price
    });
    let price = price.await?;
    pay(ctx, "rent").await?;
    stand(ctx, world).await?;
    Ok(price)
}

#[test]
fn a_step_whose_input_alone_has_changed_keeps_its_result() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let old = flow!(world, |ctx, _n: ()| priced(&ctx, &world, &order(), 7).await);
        let wide = flow!(world, |ctx, _n: ()| {
            let price = priced(&ctx, &world, &wide_order(), 7).await?;
            world.pass("end").await;
            stand(&ctx, &world).await?;
            Ok::<_, Failure>(price)
        });
        let run = builds.began_by(old.clone());
        assert_eq!(world.counted("price"), 1);
        // Deployed: the closure runs once more, and what it was found to give is recorded.
        builds.comes_to_the_stand(wide.clone());
        assert_eq!(world.counted("price"), 2);
        // Deployed again, and taken back: nothing is left to be found out.
        builds.comes_to_the_stand(wide);
        assert_eq!(builds.ended_by(run, old), 7);
        assert_eq!((world.counted("price"), world.effects("pay").len()), (2, 1));
    });
}

#[test]
fn a_step_that_gives_another_result_blocks_its_run_and_says_what_differs() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let old = flow!(world, |ctx, _n: ()| priced(&ctx, &world, &order(), 7).await);
        let new = flow!(world, |ctx, _n: ()| priced(&ctx, &world, &wide_order(), 9).await);
        let run = builds.began_by(old.clone());
        let question = builds.blocked_by(run, new);
        for words in ["step \"price\"", "another result", "\"value\":9", "`ctx.patched`"] {
            assert!(question.contains(words), "{words}: {question}");
        }
        assert_eq!(builds.goes_on_by(run, old), 7);
        assert_eq!(world.effects("pay").len(), 1);
    });
}

#[test]
fn an_asynchronous_step_is_not_run_again_to_be_compared() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let fetched = |input: u32| {
            flow!(world, |ctx, _n: ()| {
                let rate = ctx.step_async("rate", &input, || async { world.count("rate") }).await?;
                stand(&ctx, &world).await?;
                Ok::<_, Failure>(rate)
            })
        };
        let run = builds.began_by(fetched(1));
        let question = builds.blocked_by(run, fetched(2));
        assert!(question.contains("step \"rate\"") && question.contains("another input"), "{question}");
        assert_eq!(builds.goes_on_by(run, fetched(1)), 1);
        assert_eq!(world.counted("rate"), 1);
    });
}

/// What a later build does in front of the payment.
#[derive(Clone, Copy, Debug)]
enum InFront {
    Step,
    AsyncStep,
    Sleep,
    Call,
    Signal,
}

impl InFront {
    async fn carry_out(self, ctx: &Ctx, world: &Arc<World>) -> Result<(), Failure> {
        match self {
            Self::Step => counted(world, ctx, "new", 1).await.map(drop),
            Self::AsyncStep => ctx.step_async("new", &1, || async { world.count("new") }).await.map(drop),
            // Longer than any test: a wait that is over when the code comes to it puts nothing in front.
            Self::Sleep => ctx.sleep_named("new", Duration::from_hours(1)).await,
            Self::Call => post(ctx, "new").await.map(drop),
            Self::Signal => ctx.signal::<u32>("new").await.map(drop),
        }
    }
}

/// The code before a change: pays, and comes to the stand.
fn before(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _n: ()| {
        let paid = pay(&ctx, "rent").await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(paid)
    })
}

/// The same with something in front, behind a patch or not.
fn after(world: &Arc<World>, added: InFront, patched: bool) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _n: ()| {
        if !patched || ctx.patched("added").await? {
            added.carry_out(&ctx, &world).await?;
        }
        let paid = pay(&ctx, "rent").await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(paid)
    })
}

#[test]
fn a_synchronous_step_in_front_of_a_payment_goes_on() {
    Builds::on_both(|builds| {
        let run = builds.began_by(before(&builds.world));
        assert_eq!(builds.ended_by(run, after(&builds.world, InFront::Step, false)), 1);
        assert_eq!(builds.world.counted("new"), 1);
    });
}

#[test]
fn whatever_else_is_put_in_front_of_a_payment_blocks_and_is_named() {
    for (added, named) in [
        (InFront::AsyncStep, "step \"new\" #0"),
        (InFront::Sleep, "timer \"new\" #0"),
        (InFront::Call, "call \"post\" #0"),
        (InFront::Signal, "signal \"new\" #0"),
    ] {
        Builds::on_both(|builds| {
            let world = &builds.world;
            let run = builds.began_by(before(world));
            let question = builds.blocked_by(run, after(world, added, false));
            for words in ["pay:ann:rent", named, "first, which is new", "behind `ctx.patched`"] {
                assert!(question.contains(words), "{added:?}, {words}: {question}");
            }
            assert_eq!((world.counted("new"), world.effects("post").len()), (0, 0));
            // The same change behind a patch: the run goes on as it began, and a new one takes the new part.
            assert_eq!(builds.goes_on_by(run, after(world, added, true)), 1);
            assert_eq!((world.counted("new"), world.effects("post").len()), (0, 0), "{added:?}");
            assert_eq!(world.effects("pay").len(), 1);
        });
    }
}

#[test]
fn a_patch_is_taken_by_later_runs_and_stays_taken() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let new = after(world, InFront::Call, true);
        // A run of the new code keeps its answer over a crash, although by then it has recorded more than the patch.
        let run = builds.began_by(new.clone());
        assert_eq!(world.effects("post"), ["new"]);
        assert_eq!(builds.ended_by(run, new.clone()), 1);
        assert_eq!((world.effects("post").len(), world.effects("pay").len()), (1, 1));
    });
}

#[test]
fn a_deployed_patch_is_taken_back_and_deployed_again() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let (old, new) = (before(world), after(world, InFront::AsyncStep, true));
        let run = builds.began_by(old.clone());
        builds.comes_to_the_stand(new.clone());
        builds.comes_to_the_stand(old);
        assert_eq!(builds.ended_by(run, new), 1);
        assert_eq!((world.counted("new"), world.effects("pay").len()), (0, 1));
    });
}

/// Sends a notice by an approval of something else, so that people are asked about it.
async fn tell(ctx: &Ctx) -> Result<u32, Failure> {
    let stale = Approval::of("bob", &ApprovalSubject::of("notice", "another"))?;
    ctx.call::<Tell>("granted".to_owned()).approved_by(&stale).await
}

/// Sends the notice, and comes to the stand.
fn notifies(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone + use<> {
    flow!(world, |ctx, _n: ()| {
        tell(&ctx).await?;
        stand(&ctx, &world).await?;
        Ok::<_, Failure>(0)
    })
}

// The run is behind nothing: its code has come to the call, whose approval is a matter of the past.
#[test]
fn a_patch_behind_a_call_that_asked_for_its_approval_is_taken() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let new = flow!(world, |ctx, _n: ()| {
            tell(&ctx).await?;
            stand(&ctx, &world).await?;
            Ok::<_, Failure>(u32::from(ctx.patched("added").await?))
        });
        world.hold("stand");
        let process = builds.deploy(notifies(world));
        let run = process.on(async {
            let run = process.acme().run_named(NAME, ()).start().await.unwrap();
            approve(&process.acme(), &open_about(&process, "granted").await, "ann").await.unwrap();
            world.reached("stand").await;
            run.id()
        });
        process.shut_down();
        world.release("stand");
        assert_eq!(builds.ended_by(run, new), 1);
        assert_eq!(world.effects("tell"), ["granted"]);
    });
}

#[test]
fn a_patch_in_front_of_a_call_that_waits_for_its_approval_is_not_taken() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let new = flow!(world, |ctx, _n: ()| {
            let added = ctx.patched("added").await?;
            tell(&ctx).await?;
            stand(&ctx, &world).await?;
            Ok::<_, Failure>(u32::from(added))
        });
        let process = builds.deploy(notifies(world));
        let run = process.on(async {
            let run = process.acme().run_named(NAME, ()).start().await.unwrap();
            open_about(&process, "granted").await;
            run.id()
        });
        process.shut_down();
        let process = builds.deploy(new);
        process.on(async {
            approve(&process.acme(), &open_about(&process, "granted").await, "ann").await.unwrap();
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 0);
        });
        process.shut_down();
    });
}

#[test]
fn all_uses_of_a_patch_in_a_run_have_one_answer() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let old = before(world);
        // The second use stands where the run has recorded nothing any more. It follows the first one.
        let new = flow!(world, |ctx, _n: ()| {
            let first = ctx.patched("fee").await?;
            pay(&ctx, "rent").await?;
            stand(&ctx, &world).await?;
            let both = futures_util::join!(ctx.patched("fee"), ctx.patched("fee"));
            let other = ctx.patched("other").await?;
            Ok::<_, Failure>(
                u32::from(first)
                    + 10 * u32::from(both.0?)
                    + 100 * u32::from(both.1?)
                    + 1000 * u32::from(other),
            )
        });
        let run = builds.began_by(old);
        assert_eq!(
            builds.ended_by(run, new.clone()),
            1000,
            "the run was past the first use, and not past the last"
        );
        let process = builds.deploy(new.clone());
        assert_eq!(process.on(async { process.acme().run(new, ()).await.unwrap() }), 1111, "a new run");
        process.shut_down();
    });
}

#[test]
fn a_loop_answers_in_each_turn() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let turns = |patched: bool| {
            flow!(world, |ctx, _n: ()| {
                let turns = ctx.turns("work", 0, |sum, ctx| {
                    let world = world.clone();
                    async move {
                        let add = patched && ctx.patched("ten").await?;
                        pay(&ctx, &format!("rent {sum}")).await?;
                        stand(&ctx, &world).await?;
                        let sum = sum + if add { 10 } else { 1 };
                        Ok(if ctx.turn() == Some(3) { Turn::Done(sum) } else { Turn::Next(sum) })
                    }
                });
                turns.await
            })
        };
        let run = builds.began_by(turns(false));
        assert_eq!(builds.ended_by(run, turns(true)), 21, "the turn that was under way does not take it");
        assert_eq!(world.effects("pay").len(), 3);
    });
}

#[test]
fn a_retry_keeps_the_part_that_a_patch_has_chosen() {
    Builds::on_both(|builds| {
        let world = &builds.world;
        let code = flow!(world, |ctx, _n: ()| {
            counted(&world, &ctx, "draft", 1).await?;
            if ctx.patched("note").await? {
                post(&ctx, "note").await?;
            }
            pay(&ctx, "rent").await?;
            post(&ctx, "broke twice").await
        });
        let process = builds.deploy(code.clone());
        process.on(async {
            let run = process.acme().run(code, ()).start().await.unwrap();
            assert!(matches!(run.result().await, Err(RunError::Failed { .. })));
            run.retry("ann", "there is money").from_step("draft").await.unwrap();
            run.result().await.unwrap();
        });
        process.shut_down();
        assert_eq!(
            (world.effects("post"), world.effects("pay").len()),
            (vec!["note".into(), "broke twice".into()], 1)
        );
    });
}

#[test]
fn the_replay_check_sees_what_is_adopted_and_which_part_a_patch_chooses() {
    let builds = Builds { world: World::new(), schema: Schema::new(), shared: false };
    let world = &builds.world;
    let old = flow!(world, |ctx, _n: ()| priced(&ctx, &world, &order(), 7).await);
    let run = builds.began_by(old);
    let edited = |price: u32| {
        flow!(world, |ctx, _n: ()| {
            if ctx.patched("note").await? {
                post(&ctx, "note").await?;
            }
            priced(&ctx, &world, &wide_order(), price).await
        })
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = |price| {
        runtime.block_on(async {
            let replayer = world.engine().replayer().await.unwrap();
            replayer.run(&crate::world::acme(), run, edited(price)).await.unwrap()
        })
    };
    let same = report(7);
    let names = |entries: &[counterfoil::flow::check::ReplayEntry]| {
        entries.iter().map(|entry| format!("{} {}", entry.kind, entry.name)).collect::<Vec<_>>()
    };
    assert_eq!(names(&same.adopted), ["step price"], "{same}");
    assert_eq!(names(&same.anew), ["patch note", "step stand"], "{same}");
    assert!(same.is_ok() && same.to_string().contains("adopted    step \"price\" #~0"), "{same}");
    let other = report(9);
    assert!(!other.is_ok() && other.to_string().contains("another result"), "{other}");
}
