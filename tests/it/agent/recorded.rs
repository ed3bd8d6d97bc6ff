//! Agents: what is recorded is not done again, what is proposed again is done once, what is told to the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::agent::{Agent, AgentAnswer, Message, Model, Prompt, Reply, Usage};
use counterfoil::flow::{EngineBuilder, FailureCode, RunError, Workflow};
use counterfoil::ledger::{Approval, Contract, ContractClass, EffectClass, ErrorKind};
use counterfoil::store::{QuestionKind, Resolution};
use counterfoil::tool::{Call, Done, DynamicTool, Tool, ToolError, contract, effect};
use counterfoil::{ApprovalSubject, Ctx, Failure, RunId, Tenant};
use futures_util::future::join;
use serde_json::json;

use crate::agent::models::{Asked, bill, call, engine, posts, spoken, told};
use crate::flow::tools::{Pay, Post, Ring, Tell};
use crate::flow::world::{Process, World};
use crate::guard::approval::open_about;
use crate::world::TestClock;

fn agent(ctx: &Ctx) -> Agent {
    ctx.agent("m").tool::<Post>().tool::<Pay>().tool::<Ring>()
}

async fn clerk(ctx: Ctx, task: String) -> Result<AgentAnswer, Failure> {
    agent(&ctx).run([Message::user(task)]).await
}

fn done() -> Reply {
    Reply::text("done")
}

/// Runs the clerk to its end in one life.
fn clerk_says(world: &Arc<World>, replies: impl IntoIterator<Item = Reply>) -> AgentAnswer {
    let process = Process::start(world, engine(world, replies).workflow("clerk", 1, clerk));
    process.on(async { process.acme().run(clerk, "go".to_owned()).await.unwrap() })
}

/// Starts the clerk and lets the process die where it waits at `point`.
fn die_at(world: &Arc<World>, point: &str, replies: &[Reply]) -> RunId {
    world.hold(point);
    let process = Process::start(world, engine(world, replies.to_vec()).workflow("clerk", 1, clerk));
    let run = process.on(async {
        let run = process.acme().run(clerk, "go".to_owned()).start().await.unwrap().id();
        world.reached(point).await;
        run
    });
    process.crash();
    world.release(point);
    run
}

fn resume(world: &Arc<World>, replies: &[Reply]) -> Process {
    Process::start(world, engine(world, replies.to_vec()).workflow("clerk", 1, clerk))
}

// FLOW-6: a recorded model call is reused; usage and cost are recorded with it and can be read.
#[test]
fn recorded_model_calls_are_not_made_again() {
    let (world, replies) = (World::new(), [posts(["a"]), posts(["b"]), done()]);
    let run = die_at(&world, "post before b", &replies);
    assert_eq!(world.counted("asked"), 2);
    let process = resume(&world, &replies);
    let answer = process.on(async { process.acme().handle::<AgentAnswer>(run).result().await.unwrap() });
    assert_eq!(world.counted("asked"), 3, "only the third one is new");
    assert_eq!((answer.text.as_str(), answer.turns), ("done", 3));
    assert_eq!(world.effects("post"), ["a", "b"]);

    let used = Usage { calls: 3, input_tokens: 300, output_tokens: 30, cost_micros: 15 };
    assert_eq!(answer.usage, used);
    assert_eq!(process.on(async { process.acme().usage(run).await.unwrap() }), used);
    let other = process.engine().tenant("other").unwrap();
    assert!(matches!(process.on(async { other.usage(run).await }), Err(RunError::Unknown { .. })));
}

// FLOW-9, A12: a fork asks the model again, and what it proposes again is answered from what its origin did.
#[test]
fn a_fork_of_an_agent_repeats_no_call() {
    let world = World::new();
    let process = resume(&world, &[posts(["a"]), done(), posts(["a"]), done()]);
    process.on(async {
        let run = process.acme().run(clerk, "go".to_owned()).start().await.unwrap();
        run.result().await.unwrap();
        let fork = run.fork("ann", "once more").await.unwrap();
        assert_eq!(fork.result().await.unwrap().text, "done");
    });
    assert_eq!((world.counted("asked"), world.effects("post")), (4, vec!["a".to_owned()]));
}

// FLOW-6: one that was under way is made again: it costs, and does no harm.
#[test]
fn a_model_call_of_unknown_fate_is_made_again() {
    let (world, replies) = (World::new(), [posts(["a"]), done()]);
    let run = die_at(&world, "answer 0", &replies);
    let process = resume(&world, &replies);
    let answer = process.on(async { process.acme().handle::<AgentAnswer>(run).result().await.unwrap() });
    assert_eq!((world.counted("asked"), answer.usage.calls), (3, 2));
    assert_eq!(world.effects("post"), ["a"]);
}

// FLOW-7, L06: proposed again, under any id, in any turn: one call. And the other way round: two under one id.
#[test]
fn what_is_proposed_again_is_done_once() {
    let world = World::new();
    let again = Reply::calls([
        call("post", json!({ "input": "a" })).id("call_1"),
        call("post", json!({ "input": "a" })).id("call_2"),
        call("post", json!({ "input": "b" })).id("call_1"),
    ]);
    let answer = clerk_says(&world, [again.clone(), again, done()]);
    assert_eq!(world.effects("post"), ["a", "b"]);
    assert_eq!(told(&answer.messages), ["1", "1", "2", "1", "1", "2"]);
}

// Two agents are two: what one has done says nothing of what the other is to do.
#[test]
fn another_agent_is_another_caller() {
    async fn two(ctx: Ctx, (): ()) -> Result<(), Failure> {
        agent(&ctx).run([Message::user("go")]).await?;
        agent(&ctx).run([Message::user("go")]).await?;
        agent(&ctx).named("third").run([Message::user("go")]).await.map(drop)
    }
    let world = World::new();
    let process = Process::start(&world, engine(&world, [posts(["a"]), done()]).workflow("two", 1, two));
    process.on(async { process.acme().run(two, ()).await.unwrap() });
    assert_eq!(world.effects("post"), ["a", "a", "a"]);
    assert_eq!(world.counted("asked"), 6);
}

// FLOW-7: all calls of a turn are started before one has ended; the results come in the order asked for.
#[test]
fn calls_of_one_turn_run_at_once() {
    let world = World::new();
    world.hold("post before a");
    world.hold("post before b");
    let replies = [posts(["a", "b", "c"]), done()];
    let process = Process::start(&world, engine(&world, replies).workflow("clerk", 1, clerk));
    let answer = process.on(async {
        let run = process.acme().run(clerk, "go".to_owned()).start().await.unwrap();
        world.reached("post before a").await;
        world.reached("post before b").await;
        world.counts("post called", 3).await;
        world.release("post before b");
        process.until(async |_| world.effects("post").contains(&"b".to_owned())).await;
        world.release("post before a");
        run.result().await.unwrap()
    });
    let effects = world.effects("post");
    assert_eq!(effects.last().unwrap(), "a");
    let place = |what: &str| (effects.iter().position(|effect| effect == what).unwrap() + 1).to_string();
    assert_eq!(told(&answer.messages), [place("a"), place("b"), place("c")]);
}

// L05: a crash after two of three. Two are replayed, the third is looked up.
#[test]
fn parallel_calls_survive_a_crash() {
    let (world, replies) = (World::new(), [posts(["a", "b", "c"]), done()]);
    world.hold("post after c");
    let process = Process::start(&world, engine(&world, replies.clone()).workflow("clerk", 1, clerk));
    let run = process.on(async {
        let run = process.acme().run(clerk, "go".to_owned()).start().await.unwrap().id();
        world.reached("post after c").await;
        process.until(async |_| committed(&world, "post") == 2).await;
        run
    });
    process.crash();
    world.release("post after c");
    let process = resume(&world, &replies);
    let answer = process.on(async { process.acme().handle::<AgentAnswer>(run).result().await.unwrap() });
    assert_eq!((world.effects("post").len(), world.counted("post looked up")), (3, 1));
    assert_eq!((told(&answer.messages).len(), world.counted("asked")), (3, 2));
}

/// Committed records of a tool that became durable.
fn committed(world: &World, tool: &str) -> usize {
    world.tap.see(|tap| {
        let records = tap.batches.iter().flatten().filter_map(|change| change.record.as_ref());
        let of_tool = records.filter(|record| record.operation.as_str() == tool);
        of_tool.filter(|record| record.state.name() == "committed").count()
    })
}

// L02: the same intent in other words. The tool's key catches it, and the model is shown what it did before.
#[test]
fn another_wording_is_a_conflict() {
    let pay = |cents| Reply::calls([call("pay", bill("rent", cents))]);
    let world = World::new();
    let answer = clerk_says(&world, [pay(100), pay(101), pay(100), done()]);
    assert_eq!(world.effects("pay"), ["rent 100"]);
    let told = told(&answer.messages);
    assert!(told[1].contains("asked for before with another payload") && told[1].contains("101"), "{told:?}");
    assert_eq!((told[0].as_str(), told[2].as_str()), ("1", "1"));
}

// A failure is shown to the model, which may try again: it did not happen.
#[test]
fn what_failed_for_certain_may_be_proposed_again() {
    let pay = || Reply::calls([call("pay", bill("broke twice", 7))]);
    let world = World::new();
    let answer = clerk_says(&world, [pay(), pay(), pay(), done()]);
    let told = told(&answer.messages);
    assert!(told[0].starts_with("error: pay failed") && told[1].starts_with("error"), "{told:?}");
    assert_eq!((told[2].as_str(), world.effects("pay").len()), ("1", 1));
}

// L03: nobody knows whether it rang. The run waits, whatever the model would do; then it goes on.
#[test]
fn an_ambiguous_call_waits_for_an_answer() {
    let replies = [
        Reply::calls([call("ring", json!({ "input": "ann" })), call("post", json!({ "input": "a" }))]),
        done(),
    ];
    let world = World::new();
    let run = die_at(&world, "ring after", &replies);
    let process = resume(&world, &replies);
    let answer = process.on(async {
        process.state(run, "waiting").await;
        let question = process.question(QuestionKind::Ambiguous).await;
        let committed = Resolution::Happened(json!(1));
        process.acme().answer(question.id, committed, "ann").await.unwrap();
        process.acme().handle::<AgentAnswer>(run).result().await.unwrap()
    });
    assert_eq!(told(&answer.messages), ["1", "1"]);
    assert_eq!((world.effects("ring").len(), world.effects("post").len()), (1, 1));
    assert_eq!(world.counted("asked"), 2);
}

// L07: what the model no longer sees is recorded all the same.
#[test]
fn a_compacted_conversation_repeats_nothing() {
    async fn forgetful(ctx: Ctx, (): ()) -> Result<Result<String, Failure>, Failure> {
        let agent = agent(&ctx).compact(|messages| messages[..1].to_vec()).max_turns(4);
        Ok(agent.run([Message::user("go")]).await.map(|answer| answer.text))
    }
    let world = World::new();
    let process = Process::start(&world, engine(&world, [posts(["a"])]).workflow("forgetful", 1, forgetful));
    let end = process.on(async { process.acme().run(forgetful, ()).await.unwrap() });
    assert_eq!(end.unwrap_err().code, FailureCode::TurnsUsedUp);
    assert_eq!((world.effects("post").len(), world.counted("asked")), (1, 4));
}

// The function that shortens a conversation is the program's: its panic blocks the run, and loses nothing of it.
#[test]
fn a_compaction_that_panics_blocks_its_run_until_it_is_mended() {
    let (world, compacted) = (World::new(), Arc::new(AtomicU32::new(0)));
    let counts = compacted.clone();
    let code = move |ctx: Ctx, (): ()| {
        let compacted = counts.clone();
        async move {
            let agent = agent(&ctx).compact(move |messages| {
                assert!(compacted.fetch_add(1, Ordering::SeqCst) != 1, "a panic that was asked for");
                messages.to_vec()
            });
            Ok::<_, Failure>(agent.run([Message::user("go")]).await?.text)
        }
    };
    let replies = [posts(["a"]), Reply::text("done")];
    let process = Process::start(&world, engine(&world, replies).workflow("forgetful", 1, code.clone()));
    process.on(async {
        let run = process.acme().run(code, ()).start().await.unwrap();
        process.state(run.id(), "blocked").await;
        let asked = process.question(QuestionKind::Quarantined).await;
        assert!(asked.question.contains("a panic that was asked for"), "{}", asked.question);
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "done");
    });
    assert_eq!((world.effects("post").len(), world.counted("asked")), (1, 2));
    assert!(compacted.load(Ordering::SeqCst) > 2);
    process.shut_down();
}

async fn with_prompt(ctx: Ctx, version: &str) -> Result<AgentAnswer, Failure> {
    agent(&ctx).prompt_version(version).run([Message::user("go")]).await
}

async fn first_prompt(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    with_prompt(ctx, "v1").await
}

async fn second_prompt(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    with_prompt(ctx, "v2").await
}

/// Dies under the first prompt at a point, and comes back with the second one.
fn edited(world: &Arc<World>, point: &str, before: &[Reply], after: &[Reply]) -> (Process, RunId) {
    world.hold(point);
    let builder = engine(world, before.to_vec()).workflow("edited", 1, first_prompt);
    let process = Process::start(world, builder);
    let run = process.on(async {
        let run = process.acme().run(first_prompt, ()).start().await.unwrap().id();
        world.reached(point).await;
        run
    });
    process.crash();
    world.release(point);
    let builder = engine(world, after.to_vec()).workflow("edited", 1, second_prompt);
    (Process::start(world, builder), run)
}

// FLOW-6: another prompt version asks anew. A call that it proposes again is the same call.
#[test]
fn another_prompt_asks_anew_and_repeats_no_call() {
    let replies = [posts(["a"]), posts(["b"]), done()];
    let world = World::new();
    let (process, run) = edited(&world, "post before b", &replies, &replies);
    process.on(async { process.acme().handle::<AgentAnswer>(run).result().await.unwrap() });
    assert_eq!((world.counted("asked"), world.effects("post")), (5, vec!["a".to_owned(), "b".to_owned()]));
}

// L01, FLOW-3: on resume the model would choose otherwise. What it did is found before it is asked.
#[test]
fn another_path_is_found_before_the_model_is_asked() {
    let world = World::new();
    let before = [Reply::calls([call("pay", bill("rent", 100))]), posts(["b"]), done()];
    let (process, run) = edited(&world, "post before b", &before, &[done()]);
    let answer = process.on(async {
        process.state(run, "blocked").await;
        assert_eq!(world.counted("asked"), 2, "not before somebody has decided");
        let question = process.question(QuestionKind::Diverged).await;
        assert!(question.question.contains("pay:ann:rent"), "{}", question.question);
        process.acme().answer(question.id, Resolution::Resume, "ann").await.unwrap();
        process.acme().handle::<AgentAnswer>(run).result().await.unwrap()
    });
    assert_eq!((answer.turns, world.counted("asked")), (1, 3));
    assert_eq!(world.effects("pay"), ["rent 100"]);
}

// FLOW-9: an edited prompt, checked against recorded runs before it is deployed. No model is asked.
#[test]
fn the_replay_check_knows_agents() {
    let world = World::new();
    let equipped = || engine(&world, [Reply::calls([call("pay", bill("rent", 100))]), done()]);
    let process = Process::start(&world, equipped().workflow("edited", 1, first_prompt));
    process.on(async {
        let run = process.acme().run(first_prompt, ()).start().await.unwrap();
        run.result().await.unwrap();
        let (acme, replayer) = (Tenant::new("acme").unwrap(), equipped().replayer().await.unwrap());
        let same = replayer.run(&acme, run.id(), first_prompt).await.unwrap();
        assert!(same.is_ok() && same.anew.is_empty(), "{same}");
        let edited = replayer.run(&acme, run.id(), second_prompt).await.unwrap();
        assert_eq!(edited.anew[0].name, "model/m", "{edited}");
        assert!(edited.to_string().contains("pay:ann:rent"), "{edited}");
    });
    assert_eq!(world.counted("asked"), 2);
}

// EXE-2: a model's errors are retried by the executor; what it asks for is waited for.
#[test]
fn a_busy_model_is_asked_again_when_it_said() {
    let (world, hands) = (World::new(), TestClock::default());
    let model = Asked::by(&world, {
        let world = world.clone();
        move |_: &Prompt| match world.counted("asked") {
            1 => {
                Err(ToolError::new(ErrorKind::RateLimited, "slow down").retry_after(Duration::from_secs(600)))
            }
            _ => Ok(done()),
        }
    });
    let builder = world.engine_on(hands.clone()).model("m", model).workflow("clerk", 1, clerk);
    let process = Process::start(&world, builder);
    process.on(async {
        let run = process.acme().run(clerk, "go".to_owned()).start().await.unwrap();
        hands.asleep_for(Duration::from_secs(600)).await;
        assert_eq!(world.counted("asked"), 1);
        hands.advance(Duration::from_secs(600));
        run.result().await.unwrap();
    });
    assert_eq!(world.counted("asked"), 2);
}

#[test]
fn a_model_that_refuses_fails_the_agent() {
    let world = World::new();
    let model = Asked::by(&world, |_| Err(ToolError::http(400, "context length exceeded")));
    let builder = world.engine().model("m", model).workflow("clerk", 1, clerk);
    let process = Process::start(&world, builder);
    let failed = process.on(async { process.acme().run(clerk, "go".to_owned()).await.unwrap_err() });
    let RunError::Failed { failure, .. } = failed else { panic!("{failed}") };
    assert_eq!(failure.code, FailureCode::ToolFailed);
    assert!(failure.message.contains("context length"), "{failure}");
    assert_eq!(world.counted("asked"), 1);
}

// What the code got wrong is said to its author, and not to a model.
#[test]
fn mistakes_of_the_workflow_are_not_told_to_the_model() {
    struct Unknown;
    impl Tool for Unknown {
        const NAME: &'static str = "unknown";
        type Effect = effect::Pure;
        type Contract = contract::Blind;
        type Input = String;
        type Output = String;
        async fn call(&self, _: &Call, text: &String) -> Result<Done<String>, ToolError> {
            Ok(text.clone().into())
        }
    }
    async fn mistaken(ctx: Ctx, mistake: u32) -> Result<(), Failure> {
        let ctx = &ctx;
        let go = [Message::user("go")];
        match mistake {
            0 => ctx.agent("nobody").run(go).await?,
            1 => ctx.agent("m").tool::<Unknown>().run(go).await?,
            2 => ctx.agent("m").tool_named("post").run(go).await?,
            3 => ctx.agent("m").tool::<Post>().tool::<Post>().run(go).await?,
            _ => join(ctx.agent("m").run(go.clone()), ctx.agent("m").run(go)).await.1?,
        };
        Ok(())
    }
    let world = World::new();
    let process = Process::start(&world, engine(&world, [done()]).workflow("mistaken", 1, mistaken));
    let words = [
        "route \"nobody\"",
        "\"unknown\" is not registered",
        "does not say what it takes",
        "twice",
        "open at once",
    ];
    for (mistake, words) in (0..).zip(words) {
        let failed = process.on(async { process.acme().run(mistaken, mistake).await.unwrap_err() });
        let RunError::Blocked { message, .. } = failed else { panic!("{failed}") };
        assert!(message.contains(words), "{message}");
    }
}

// Agents that are open at once, by id; and they come back as they were.
#[test]
fn agents_run_beside_each_other() {
    async fn both(ctx: Ctx, (): ()) -> Result<(String, String), Failure> {
        let of = |name: &str| agent(&ctx).named(("reader", name)).run([Message::user(name.to_owned())]);
        let (a, b) = join(of("a"), of("b")).await;
        Ok((a?.text, b?.text))
    }
    let world = World::new();
    let start = || {
        let model = Asked::by(&world, |prompt| {
            let Message::User { text } = &prompt.messages[0] else { panic!() };
            Ok(if spoken(prompt) == 0 { posts([text.as_str()]) } else { Reply::text(text) })
        });
        Process::start(&world, world.engine().model("m", model).workflow("both", 1, both))
    };
    world.hold("post before b");
    let process = start();
    let run = process.on(async {
        let run = process.acme().run(both, ()).start().await.unwrap().id();
        world.reached("post before b").await;
        process.until(async |_| committed(&world, "post") == 1).await;
        run
    });
    process.crash();
    world.release("post before b");
    let process = start();
    let answers =
        process.on(async { process.acme().handle::<(String, String)>(run).result().await.unwrap() });
    assert_eq!(answers, ("a".to_owned(), "b".to_owned()));
    assert_eq!(world.effects("post").len(), 2);
}

/// Proposes to pay the rent: 100 cents to the agent `a`, and 101 to any other.
struct Payer(Arc<World>);

impl Model for Payer {
    async fn complete(&self, _: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        let Message::User { text } = &prompt.messages[0] else { panic!() };
        self.0.pass(&format!("reply {} to {text}", spoken(prompt))).await;
        let cents = if text == "a" { 100 } else { 101 };
        Ok(if spoken(prompt) == 0 { Reply::calls([call("pay", bill("rent", cents))]) } else { done() })
    }
}

// L02, L05: which agent comes first to a key depends on the models. A resume gives each its own call again: the one that paid
// its payment, and the other its conflict.
#[test]
fn agents_that_meet_at_one_key_get_their_own_results_again() {
    async fn both(ctx: Ctx, (): ()) -> Result<(AgentAnswer, AgentAnswer), Failure> {
        let of = |name: &str| agent(&ctx).named(("payer", name)).run([Message::user(name.to_owned())]);
        let (a, b) = join(of("a"), of("b")).await;
        Ok((a?, b?))
    }
    let world = World::new();
    let start = || {
        let builder = world.engine().model("m", Payer(world.clone())).workflow("both", 1, both);
        Process::start(&world, builder)
    };
    world.hold("reply 0 to a");
    world.hold("reply 1 to a");
    let process = start();
    let run = process.on(async {
        let run = process.acme().run(both, ()).start().await.unwrap().id();
        process.until(async |_| committed(&world, "pay") == 1).await;
        world.release("reply 0 to a");
        world.reached("reply 1 to a").await;
        run
    });
    process.crash();
    world.release("reply 1 to a");
    let process = start();
    let (a, b) = process
        .on(async { process.acme().handle::<(AgentAnswer, AgentAnswer)>(run).result().await.unwrap() });
    let (a, b) = (told(&a.messages), told(&b.messages));
    assert!(a[0].contains("another payload"), "{a:?}");
    assert_eq!((b, world.effects("pay")), (vec!["1".to_owned()], vec!["rent 101".to_owned()]));
    assert!(process.on(async { process.acme().questions().await.unwrap() }).is_empty());
    process.shut_down();
}

// What may have changed is read again, if the workflow says so; in one turn it is read once.
#[test]
fn a_reading_tool_reads_again_in_each_turn() {
    struct Look(Arc<World>);
    impl Tool for Look {
        const NAME: &'static str = "look";
        type Effect = effect::ReadOnly;
        type Contract = contract::Blind;
        type Input = String;
        type Output = u32;
        async fn call(&self, _: &Call, _: &String) -> Result<Done<u32>, ToolError> {
            Ok(self.0.count("looked").into())
        }
    }
    async fn watcher(ctx: Ctx, again: bool) -> Result<AgentAnswer, Failure> {
        let agent = ctx.agent("m");
        let agent = if again { agent.reading_tool::<Look>() } else { agent.tool::<Look>() };
        agent.run([Message::user("go")]).await
    }
    let world = World::new();
    let look =
        || Reply::calls([call("look", json!({ "input": "x" })), call("look", json!({ "input": "x" }))]);
    let builder =
        engine(&world, [look(), look(), done()]).tool(Look(world.clone())).workflow("watcher", 1, watcher);
    let process = Process::start(&world, builder);
    let watch = |again| process.on(async { process.acme().run(watcher, again).await.unwrap() });
    assert_eq!(told(&watch(true).messages), ["1", "1", "2", "2"]);
    assert_eq!(told(&watch(false).messages), ["3", "3", "3", "3"]);
}

// FLOW-10: a workflow that says what it calls says which model it asks, too.
#[test]
fn a_model_is_among_the_calls_of_its_workflow() {
    let world = World::new();
    let end = |builder: EngineBuilder| {
        let process = Process::start(&world, builder);
        let end = process.on(async { process.acme().run(clerk, "go".to_owned()).await });
        process.shut_down();
        end
    };
    let builder = |said: fn(Workflow) -> Workflow| {
        let clerk = Workflow::new("clerk", clerk).calls::<Post>();
        engine(&world, [posts(["a"]), done()]).register(said(clerk))
    };
    assert_eq!(end(builder(|clerk| clerk.calls_model("m"))).unwrap().text, "done");
    assert!(end(builder(|clerk| clerk)).unwrap_err().to_string().contains("\"model/m\""));
}

// A tool known only at run time brings its own schema. What is not in it does not reach the tool.
#[test]
fn a_dynamic_tool_describes_itself() {
    async fn caller(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
        ctx.agent("m").tool_named("weather").run([Message::user("go")]).await
    }
    let schema =
        json!({ "type": "object", "properties": { "town": { "type": "string" } }, "required": ["town"] });
    let world = World::new();
    let tool = DynamicTool::new("weather", EffectClass::ReadOnly, Contract::new(ContractClass::Blind))
        .describe("What it is like outside.", schema.clone())
        .call(|_, input| async move { Ok(Done::new(json!(format!("rain in {}", input["town"])))) });
    let model = Asked::by(&world, move |prompt| {
        let offer = &prompt.tools[0];
        assert_eq!(
            (offer.name.as_str(), offer.description.as_str()),
            ("weather", "What it is like outside.")
        );
        assert_eq!(offer.schema, schema);
        let weather = |arguments| call("weather", arguments);
        Ok(match spoken(prompt) {
            0 => Reply::calls([
                weather(json!({ "town": "Bern" })),
                weather(json!({ "town": "Bern", "key": "new" })),
            ]),
            _ => done(),
        })
    });
    let builder = world.engine().dynamic_tool(tool).model("m", model).workflow("caller", 1, caller);
    let process = Process::start(&world, builder);
    let answer = process.on(async { process.acme().run(caller, ()).await.unwrap() });
    let told = told(&answer.messages);
    assert_eq!(told[0], "rain in \"Bern\"");
    assert!(told[1].contains("no argument \"key\""), "{told:?}");
}

// A notification goes out with the approval that the workflow has, for the content that was approved. For other content a person is asked.
#[test]
fn an_approved_tool_sends_what_was_approved() {
    async fn teller(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
        let approval = Approval::of("reviewer", &ApprovalSubject::of("notice", &"granted"))?;
        ctx.agent("m").approved_tool::<Tell>(&approval).run([Message::user("go")]).await
    }
    let tell = |what: &str| Reply::calls([call("tell", json!({ "input": what }))]);
    let world = World::new();
    let builder = engine(&world, [tell("refused"), tell("granted"), done()]).workflow("teller", 1, teller);
    let process = Process::start(&world, builder);
    let answer = process.on(async {
        let run = process.acme().run(teller, ()).start().await.unwrap();
        let review = open_about(&process, "refused").await;
        process.acme().decide(&review.id, review.version).reject("ann", "not so").await.unwrap();
        run.result().await.unwrap()
    });
    assert_eq!(world.effects("tell"), ["granted"]);
    assert_eq!(
        told(&answer.messages)[0],
        "error: ann rejected the notice: not so {\"by\":\"ann\",\"reason\":\"not so\"}"
    );
}
