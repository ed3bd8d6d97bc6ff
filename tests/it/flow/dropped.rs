//! DESIGN 4.1, dropped futures: what the run's code drops never becomes ready on replay, the winner of a select
//! stays the winner, and a call that was dropped is settled and not forgotten.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::ErrorKind;
use counterfoil::store::{QuestionKind, StepKind};
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Failure, Key, RunId, Tenant};
use futures_util::future::Either;

use crate::flow;
use crate::flow::tools::{Bill, Pay, Ring, post};
use crate::flow::world::{Process, World};
use crate::world::TestClock;

const HOUR: Duration = Duration::from_secs(3600);
const PAUSE: Duration = Duration::from_secs(20);

/// The checkpoints of this kind that became durable.
fn marks(world: &World, kind: StepKind) -> Vec<String> {
    world.tap.see(|tap| {
        let steps = tap.batches.iter().flatten().flat_map(|change| &change.steps);
        steps.filter(|step| step.kind == kind).map(|step| step.name.clone()).collect()
    })
}

/// Starts a run of a registered workflow, and lets the process die where it waits at `point`.
fn die_at<W, F>(world: &Arc<World>, hands: &TestClock, point: &str, flow: W) -> RunId
where
    W: Fn(counterfoil::Ctx, u32) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    world.hold(point);
    let process = Process::start(world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow, 1).start().await.unwrap().id();
        world.reached(point).await;
        run
    });
    process.crash();
    world.release(point);
    run
}

#[test]
fn a_dropped_future_never_becomes_ready_on_replay() {
    // `tokio::select!` with a timeout: the short sleep wins. On resume both times have passed, and the long
    // sleep is polled first: without its mark it would win this time.
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _n: u32| {
        let winner = tokio::select! {
            biased;
            slept = ctx.sleep_named("long", 2 * HOUR) => slept.map(|()| "long"),
            slept = ctx.sleep_named("short", Duration::ZERO) => slept.map(|()| "short"),
        };
        post(&ctx, winner?).await?;
        post(&ctx, "last").await
    });
    let run = die_at(&world, &hands, "post after last", flow.clone());
    assert_eq!(marks(&world, StepKind::Abandoned), ["timer/long"]);
    hands.advance(3 * HOUR);
    let process = Process::start(&world, world.engine_on(hands).workflow("w", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    assert_eq!(world.effects("post"), ["short", "last"]);
}

#[test]
fn select_records_its_winner() {
    // The same with `ctx.select`, where the loser is also polled first and ready first on resume.
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, n: u32| {
        let long = ctx.sleep_named("long", 2 * HOUR);
        let short = async { ctx.step("short", &n, |n| *n).await };
        let winner = match ctx.select("race", long, short).await? {
            Either::Left(_) => "long",
            Either::Right(_) => "short",
        };
        post(&ctx, winner).await?;
        post(&ctx, "last").await
    });
    let run = die_at(&world, &hands, "post after last", flow.clone());
    assert_eq!(marks(&world, StepKind::Select), ["race"]);
    hands.advance(3 * HOUR);
    let process = Process::start(&world, world.engine_on(hands).workflow("w", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    assert_eq!(world.effects("post"), ["short", "last"]);
}

#[test]
fn select_keeps_its_winner_although_the_losers_mark_was_lost() {
    // The winner is durable, the mark of the loser not. On resume the loser, polled first, is ready at once.
    let (world, hands) = (World::new(), TestClock::default());
    world.tap.cut(|change| change.steps.iter().any(|step| step.kind == StepKind::Abandoned));
    let flow = flow!(world, |ctx, n: u32| {
        let long = ctx.sleep_named("long", 2 * HOUR);
        let short = async { ctx.step("short", &n, |n| *n).await };
        let winner = match ctx.select("race", long, short).await? {
            Either::Left(_) => "long",
            Either::Right(_) => "short",
        };
        post(&ctx, winner).await
    });
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap().id();
        world.tap.until(|tap| tap.held > 0).await;
        run
    });
    process.crash();
    world.tap.mend();
    hands.advance(3 * HOUR);
    let process = Process::start(&world, world.engine_on(hands).workflow("w", 1, flow));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 1);
    assert_eq!(world.effects("post"), ["short"]);
}

#[test]
fn what_failed_is_no_dropped_future() {
    // What fails at once leaves no mark: that would never let the resumed run pass.
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, n: u32| {
        let failed =
            [post(&ctx, "broke twice").await.is_err(), ctx.send(RunId(4711), "nobody", &n).await.is_err()];
        assert_eq!(failed, [true; 2]);
        post(&ctx, "last").await
    });
    let engine = || world.engine_on(hands.clone()).workflow("w", 1, flow.clone());
    world.hold("post after last");
    let process = Process::start(&world, engine());
    let run = process.on(async {
        let run = process.acme().run(flow.clone(), 1).start().await.unwrap().id();
        world.reached("post after last").await;
        run
    });
    process.crash();
    world.release("post after last");
    assert_eq!(marks(&world, StepKind::Abandoned), [""; 0]);
    let process = Process::start(&world, engine());
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 1);
}

#[test]
fn a_crash_leaves_no_mark() {
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(world, |ctx, _n: u32| {
        let (slept, posted) = tokio::join!(ctx.sleep_named("nap", HOUR), post(&ctx, "x"));
        slept?;
        posted
    });
    let run = die_at(&world, &hands, "post after", flow.clone());
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow));
    process.on(async {
        let handle = process.acme().handle::<u32>(run);
        let result = handle.result();
        tokio::pin!(result);
        tokio::select! {
            result = &mut result => panic!("slept too short: {result:?}"),
            () = hands.asleep_for(HOUR) => hands.advance(HOUR),
        }
        assert_eq!(result.await.unwrap(), 1, "both branches become ready");
    });
    assert_eq!(marks(&world, StepKind::Abandoned), [""; 0]);
}

#[test]
fn a_dropped_call_goes_on_and_is_recorded() {
    // A13: the run gives up waiting; the request is not cut off, and its outcome is known later.
    let world = World::new();
    world.hold("pay before");
    let flow = flow!(world, |ctx, _n: u32| {
        let pay = ctx.call::<Pay>(Bill::new("june", 100)).into_future();
        let timeout = async { world.reached("pay before").await };
        let won = tokio::select! { _ = pay => "paid", () = timeout => "timeout" };
        post(&ctx, won).await
    });
    let process = Process::start(&world, world.engine().workflow("w", 1, flow.clone()));
    process.on(async {
        process.acme().run(flow, 1).await.unwrap();
        world.release("pay before");
        let tenant = counterfoil::Tenant::new("acme").unwrap();
        let executor = process.engine().executor();
        let again = executor.call::<Pay>(&tenant, Bill::new("june", 100), None).await.unwrap();
        assert!(again.answer().is_some_and(|answer| !answer.first), "{again:?}");
    });
    assert_eq!(
        (world.effects("pay"), world.effects("post")),
        (vec!["june 100".into()], vec!["timeout".into()])
    );
}

#[test]
fn a_dropped_call_whose_process_died_is_settled_and_no_other_path() {
    // The run asks for the payment again, and drops it again: that is not another path. Nobody waits for its
    // answer, so the engine finds out by itself what became of it.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let pay = ctx.call::<Pay>(Bill::new("june", 100)).into_future();
        let timeout = async {
            if world.counted("pay called") == 0 {
                world.hold("pay after");
            }
            world.counts("pay called", 1).await;
        };
        let won = tokio::select! { biased; _ = pay => "paid", () = timeout => "timeout" };
        post(&ctx, won).await?;
        post(&ctx, "last").await
    });
    let run = die_at(&world, &TestClock::default(), "post after last", flow.clone());
    assert_eq!(marks(&world, StepKind::Abandoned), ["call/pay"]);
    world.release("pay after");
    let process = Process::start(&world, world.engine().workflow("w", 1, flow));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
        assert_eq!(process.questions(QuestionKind::Diverged).await, []);
        process
            .until(async |_| {
                world.tap.see(|tap| {
                    let records = tap.batches.iter().flatten().filter_map(|change| change.record.as_ref());
                    let mut pays = records.filter(|record| record.operation.as_str() == "pay");
                    pays.any(|record| record.state.name() == "committed")
                })
            })
            .await;
    });
    assert_eq!(world.counted("pay called"), 1, "it was found, not sent again");
    assert_eq!(world.effects("post"), ["timeout", "last"]);
}

#[test]
fn a_dropped_call_that_nobody_can_tell_about_becomes_a_question() {
    // Invariant 7: also an effect that its run has dropped is not forgotten.
    let world = World::new();
    let flow = flow!(world, |ctx, _n: u32| {
        let ring = ctx.call::<Ring>("bell".into()).into_future();
        let timeout = async {
            if world.counted("ring called") == 0 {
                world.hold("ring after");
            }
            world.counts("ring called", 1).await;
        };
        tokio::select! { biased; _ = ring => {}, () = timeout => {} };
        post(&ctx, "last").await
    });
    let run = die_at(&world, &TestClock::default(), "post after last", flow.clone());
    world.release("ring after");
    let process = Process::start(&world, world.engine().workflow("w", 1, flow));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 1);
        process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
        let open = process.acme().questions().await.unwrap();
        assert!(open.iter().all(|question| question.question.contains("ring")), "{open:#?}");
    });
    assert_eq!(world.counted("ring called"), 1);
}

/// A run that drops a call ends while that is under way at `point`. Then the process dies.
fn outlive<W, F>(world: &Arc<World>, point: &str, flow: W)
where
    W: Fn(counterfoil::Ctx, u32) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    outlive_on(world, world.engine(), point, flow);
}

fn outlive_on<W, F>(world: &Arc<World>, engine: EngineBuilder, point: &str, flow: W)
where
    W: Fn(counterfoil::Ctx, u32) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    world.hold(point);
    let process = Process::start(world, engine.workflow("w", 1, flow.clone()));
    process.on(async { process.acme().run(flow, 1).await.unwrap() });
    process.crash();
    world.release(point);
}

/// How the one call of this tool stands.
async fn stands(process: &Process, kind: &str, target: &str, operation: &str) -> String {
    let key = Key::of(kind).target(target).operation(operation).render().unwrap();
    let tenant = Tenant::new("acme").unwrap();
    let found = process.engine().executor().record(&tenant, &key).await.unwrap();
    found.map_or_else(|| "missing".to_owned(), |(record, _)| record.state.name().to_owned())
}

macro_rules! drops {
    ($world:ident, $tool:ty, $input:expr) => {
        flow!($world, |ctx, n: u32| {
            let call = ctx.call::<$tool>($input);
            let called = format!("{} called", <$tool>::NAME);
            let timeout = $world.counts(&called, 1);
            tokio::select! { biased; _ = call => {}, () = timeout => {} };
            Ok::<_, Failure>(n)
        })
    };
}

#[test]
fn a_dropped_call_that_outlives_its_run_is_not_forgotten() {
    // Invariants 7 and 8: the run is over and asks for nothing, so the restart asks, and once.
    let world = World::new();
    outlive(&world, "ring after", drops!(world, Ring, "bell".into()));
    for life in 1..=2 {
        let process = Process::start(&world, world.engine());
        process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
        let question = process.on(process.question(QuestionKind::Ambiguous)).question;
        assert!(question.contains("ring"), "life {life}: {question}");
        process.shut_down();
    }
    assert_eq!(world.counted("ring called"), 1);
}

#[test]
fn a_dropped_call_that_outlives_its_run_is_looked_up() {
    let world = World::new();
    outlive(&world, "pay after", drops!(world, Pay, Bill::new("june", 100)));
    let process = Process::start(&world, world.engine());
    process.on(process.until(async |_| stands(&process, "pay", "ann", "june").await == "committed"));
    assert_eq!(process.on(process.acme().questions()).unwrap(), []);
    assert_eq!((world.counted("pay called"), world.effects("pay").len()), (1, 1), "found, not sent again");
}

#[test]
fn a_dropped_call_that_outlives_its_run_and_did_not_happen_is_not_sent() {
    // Although the provider would take the key again: nobody wants it any more. It may still be on its way, so the
    // lookup is believed when it has settled. After that it is as if it had never been sent, for whoever asks next.
    let (world, hands) = (World::new(), TestClock::default());
    let settle = HOUR;
    outlive(&world, "pay before", drops!(world, Pay, Bill::new("june", 100)));
    let process = Process::start(&world, world.engine_on(hands.clone()));
    process.on(async {
        world.counts("pay looked up", 1).await;
        // Others sleep for an hour as well: whose sleep it is that ends cannot be told.
        let turning = async {
            loop {
                hands.asleep_for(settle).await;
                hands.advance(settle);
            }
        };
        tokio::select! { () = world.counts("pay looked up", 2) => {}, () = turning => {} }
    });
    process.shut_down();
    let process = Process::start(&world, world.engine_on(hands.clone()));
    assert_eq!(process.on(process.acme().questions()).unwrap(), []);
    assert_eq!((world.counted("pay called"), world.effects("pay").len()), (1, 0));
    process.on(async {
        let (tenant, executor) = (Tenant::new("acme").unwrap(), process.engine().executor());
        let asked = executor.call::<Pay>(&tenant, Bill::new("june", 100), None).await.unwrap();
        assert!(asked.answer().is_some(), "{asked:?}");
    });
    assert_eq!((world.counted("pay called"), world.effects("pay").len()), (2, 1));
}

#[test]
fn a_dropped_call_that_outlives_its_run_and_its_tool_is_not_forgotten() {
    let world = World::new();
    outlive(&world, "pay after", drops!(world, Pay, Bill::new("june", 100)));
    let tap = world.tap.clone();
    let without = counterfoil::Engine::sqlite(world.path()).wrap_store(move |store| tap.around(store));
    let process = Process::start(&world, without);
    process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
    let asked = process.on(process.question(QuestionKind::UnknownTool));
    assert!(asked.question.contains("\"pay\" is registered"), "{}", asked.question);
    process.shut_down();
    // With the tool it finds out by itself, and the question goes.
    let process = Process::start(&world, world.engine());
    process.on(process.until(async |_| stands(&process, "pay", "ann", "june").await == "committed"));
    assert_eq!(process.on(process.acme().questions()).unwrap(), []);
    assert_eq!((world.counted("pay called"), world.effects("pay").len()), (1, 1));
}

#[test]
fn a_dropped_call_that_outlives_its_run_is_followed_in_its_own_process() {
    // It is cut off without an answer when its run is long over, and nobody is there to ask for it again.
    let (world, hands) = (World::new(), TestClock::default());
    let (timeout, settle) = (HOUR, HOUR);
    world.hold("pay before");
    let flow = drops!(world, Pay, Bill::new("june", 100));
    let process = Process::start(&world, world.engine_on(hands.clone()).workflow("w", 1, flow.clone()));
    process.on(async {
        process.acme().run(flow, 1).await.unwrap();
        world.reached("pay before").await;
        hands.advance(timeout);
        world.counts("pay looked up", 2).await; // by the call itself, which is not sent again, and for nobody
        hands.asleep_for(settle).await;
        hands.advance(settle);
        world.counts("pay looked up", 3).await; // when it has settled
    });
    process.shut_down();
    assert_eq!((world.counted("pay called"), world.effects("pay").len()), (1, 0));
}

/// A provider that honours keys and cannot be asked. One that is cut off wants to be left alone for a while.
struct Fax {
    world: Arc<World>,
    is_cut_off: bool,
}
/// It leaves no mark.
struct Peek(Arc<World>);

impl Tool for Fax {
    const NAME: &'static str = "fax";
    type Effect = effect::InternalMutation;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target("ann").operation(what))
    }

    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        self.world.count("fax called");
        if self.is_cut_off {
            return Err(ToolError::new(ErrorKind::Disconnected, "cut off").retry_after(PAUSE));
        }
        self.world.pass("fax after").await;
        Ok(Done::new(1))
    }
}

impl Tool for Peek {
    const NAME: &'static str = "peek";
    type Effect = effect::ReadOnly;
    type Contract = contract::Blind;
    type Input = String;
    type Output = u32;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target("ann").operation(what))
    }

    async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
        self.0.count("peek called");
        self.0.pass("peek after").await;
        Ok(Done::new(1))
    }
}

fn with_fax_and_peek(world: &Arc<World>) -> EngineBuilder {
    world.engine().tool(Fax { world: world.clone(), is_cut_off: false }).tool(Peek(world.clone()))
}

#[test]
fn a_dropped_call_that_only_a_second_send_could_settle_becomes_a_question() {
    let world = World::new();
    outlive_on(&world, with_fax_and_peek(&world), "fax after", drops!(world, Fax, "hi".into()));
    let process = Process::start(&world, with_fax_and_peek(&world));
    process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
    let asked = process.on(process.question(QuestionKind::Ambiguous));
    assert!(asked.question.contains("Its run dropped it"), "{}", asked.question);
    process.shut_down();
    assert_eq!(world.counted("fax called"), 1);
}

#[test]
fn a_call_that_is_dropped_between_two_sends_is_not_sent_again() {
    // Found by a random program: sent once more for nobody, and what became of that nobody asked.
    let (world, hands) = (World::new(), TestClock::default());
    let flow = flow!(hands, |ctx, n: u32| {
        let pause = async { hands.asleep_for(PAUSE).await };
        tokio::select! { biased; _ = ctx.call::<Fax>("hi".into()) => {}, () = pause => {} };
        Ok::<_, Failure>(n)
    });
    let engine = world
        .engine_on(hands.clone())
        .tool(Fax { world: world.clone(), is_cut_off: true })
        .workflow("w", 1, flow.clone());
    let process = Process::start(&world, engine);
    process.on(async { process.acme().run(flow, 1).await.unwrap() });
    hands.advance(PAUSE);
    process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
    let asked = process.on(process.question(QuestionKind::Ambiguous));
    assert!(asked.question.contains("Its run dropped it"), "{}", asked.question);
    process.shut_down();
    assert_eq!(world.counted("fax called"), 1);
}

// Nothing was recorded before it, and nobody wants it any more.
#[test]
fn a_dropped_call_that_leaves_no_mark_is_over() {
    let world = World::new();
    outlive_on(&world, with_fax_and_peek(&world), "peek after", drops!(world, Peek, "hi".into()));
    let process = Process::start(&world, with_fax_and_peek(&world));
    assert_eq!(process.on(stands(&process, "peek", "ann", "hi")), "missing");
    assert_eq!(process.on(process.acme().questions()).unwrap(), []);
    process.shut_down();
    assert_eq!(world.counted("peek called"), 1);
}
