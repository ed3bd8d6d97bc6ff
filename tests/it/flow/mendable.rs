//! What a new build can mend blocks its run: nothing is undone, and the mended build goes on. Only what the world said fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil::flow::{EngineBuilder, FailureCode, WorkflowFn};
use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::payload::Limits;
use counterfoil::store::{Question, QuestionKind, Resolution};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Payload, RunId};
use futures_util::join;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnection;

use crate::flow::lives::NAME;
use crate::flow::tools::{Post, post};
use crate::flow::world::{Process, World};
use crate::place::Place;
use crate::store::postgres::Schema;
use crate::{flow, on_both_stores};

/// A payment that is undone when its run fails.
struct Charge(Arc<World>);

impl Tool for Charge {
    const NAME: &'static str = "charge";
    type Effect = effect::Undoable<effect::Payment>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;

    fn key(&self, what: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(what))
    }

    async fn call(&self, call: &Call, what: &String) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(self.0.happen("charge", call.key(), what)))
    }
}

impl Compensate for Charge {
    async fn compensate(
        &self,
        call: &Call,
        _: &OriginalCall<String, u32>,
    ) -> Result<Done<Undone>, ToolError> {
        self.0.happen("refund", call.key(), "all of it");
        Ok(Undone::whole().into())
    }

    async fn find_compensation(
        &self,
        _: &Call,
        _: &OriginalCall<String, u32>,
    ) -> Result<LookupResult<Undone>, ToolError> {
        Ok(LookupResult::Unknown)
    }
}

/// A life of the engine that knows this code and the charge, and what else `also` adds.
fn life<W: WorkflowFn<(), u32>>(
    world: &Arc<World>,
    code: W,
    also: impl Fn(EngineBuilder) -> EngineBuilder,
) -> Process {
    let tap = world.tap.clone();
    let engine = Engine::sqlite(world.path()).wrap_store(move |store| tap.around(store));
    Process::start(world, also(engine.tool(Charge(world.clone())).workflow(NAME, 1, code)))
}

fn as_it_is(engine: EngineBuilder) -> EngineBuilder {
    engine
}

fn roomy(engine: EngineBuilder) -> EngineBuilder {
    engine.limits(Limits { inline_bytes: 16, max_bytes: 1 << 20 })
}

/// The run has charged, is blocked with a question of this kind, and nothing was undone.
async fn blocked(process: &Process, world: &World, run: RunId, kind: QuestionKind) -> Question {
    process.state(run, "blocked").await;
    let asked = process.question(kind).await;
    assert_eq!(asked.run, Some(run));
    assert_eq!((world.effects("charge").len(), world.effects("refund").len()), (1, 0), "{}", asked.question);
    asked
}

/// Runs `code` until it is blocked, lets a person say that the code is mended, and gives what the mended code returns.
fn mended<W, M>(
    world: &Arc<World>,
    code: W,
    mended: M,
    also: impl Fn(EngineBuilder) -> EngineBuilder,
) -> (String, u32)
where
    W: WorkflowFn<(), u32> + Clone,
    M: WorkflowFn<(), u32>,
{
    let process = life(world, code.clone(), |engine| {
        engine.limits(Limits { inline_bytes: 16, max_bytes: 1000 }).tool(Post(world.clone()))
    });
    let run = process.on(async { process.acme().run(code, ()).start().await.unwrap().id() });
    let asked = process.on(blocked(&process, world, run, QuestionKind::Quarantined));
    process.shut_down();
    let process = life(world, mended, |engine| also(engine).tool(Post(world.clone())));
    let result = process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        process.acme().handle::<u32>(run).result().await.unwrap()
    });
    process.shut_down();
    assert_eq!((world.effects("charge").len(), world.effects("refund").len()), (1, 0), "{}", asked.question);
    (asked.question, result)
}

#[test]
fn a_run_waits_for_a_tool_that_was_forgotten() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let charged = ctx.call::<Charge>("ann".to_owned()).await?;
        Ok::<_, Failure>(charged + post(&ctx, "note").await?)
    });
    let process = life(&world, code.clone(), as_it_is);
    let run = process.on(async { process.acme().run(code.clone(), ()).start().await.unwrap().id() });
    let asked = process.on(blocked(&process, &world, run, QuestionKind::Unregistered));
    for words in ["\"post\" is not registered", "add `.tool(", "the run waits for it"] {
        assert!(asked.question.contains(words), "{}", asked.question);
    }
    process.crash();
    // A build that forgets it again asks nothing anew.
    let process = life(&world, code.clone(), as_it_is);
    assert_eq!(process.on(process.question(QuestionKind::Unregistered)).id, asked.id);
    process.shut_down();
    let process = life(&world, code, |engine| engine.tool(Post(world.clone())));
    process.on(async {
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2, "without being asked");
        assert_eq!(process.acme().questions().await.unwrap(), [], "the question is withdrawn");
    });
    process.shut_down();
    assert_eq!((world.effects("charge").len(), world.effects("refund").len()), (1, 0));
}

#[test]
fn a_run_waits_for_a_tool_that_was_forgotten_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let code = flow!(world, |ctx, _n: ()| {
        let charged = ctx.call::<Charge>("ann".to_owned()).await?;
        Ok::<_, Failure>(charged + post(&ctx, "note").await?)
    });
    let engine = || {
        let tap = world.tap.clone();
        let engine = Engine::postgres_with(crate::server::url(), schema.options())
            .wrap_store(move |store| tap.around(store));
        engine.tool(Charge(world.clone())).workflow(NAME, 1, code.clone())
    };
    let process = Process::start(&world, engine());
    let run = process.on(async { process.acme().run(code.clone(), ()).start().await.unwrap().id() });
    process.on(blocked(&process, &world, run, QuestionKind::Unregistered));
    process.shut_down();
    let process = Process::start(&world, engine().tool(Post(world.clone())));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    process.shut_down();
}

async fn child(_: Ctx, n: u32) -> Result<u32, Failure> {
    Ok(n + 1)
}

#[test]
fn a_run_waits_for_a_child_whose_workflow_was_forgotten() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let charged = ctx.call::<Charge>("ann".to_owned()).await?;
        ctx.child(child, charged).await
    });
    let process = life(&world, code.clone(), as_it_is);
    let run = process.on(async { process.acme().run(code.clone(), ()).start().await.unwrap().id() });
    let asked = process.on(blocked(&process, &world, run, QuestionKind::Unregistered));
    assert!(asked.question.contains("mendable::child` is not registered"), "{}", asked.question);
    process.shut_down();
    let process = life(&world, code, |engine| engine.workflow("child", 1, child));
    assert_eq!(process.on(async { process.acme().handle::<u32>(run).result().await.unwrap() }), 2);
    process.shut_down();
}

/// Handled or not, an error that a new build can mend is not shown to the code: both builds go one way.
#[test]
fn a_run_waits_for_code_that_uses_no_name_twice_at_once() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        ctx.call::<Charge>("ann".to_owned()).await?;
        let call = || ctx.call::<Post>("same".to_owned());
        let (first, second) = join!(call(), call());
        world.count("handled");
        Ok::<_, Failure>(first.unwrap_or(7) + second.unwrap_or(7))
    });
    let ids = flow!(world, |ctx, _n: ()| {
        ctx.call::<Charge>("ann".to_owned()).await?;
        let call = || ctx.call::<Post>("same".to_owned());
        let (first, second) = join!(call(), call().id("second"));
        Ok::<_, Failure>(first? + second?)
    });
    let (question, result) = mended(&world, code, ids, as_it_is);
    assert!(question.contains("give each an id"), "{question}");
    assert_eq!((result, world.counted("handled"), world.effects("post").len()), (3, 0, 2));
}

async fn transacted(ctx: &Ctx, output: &str) -> Result<String, Failure> {
    let output = output.to_owned();
    ctx.transaction("long", |_: &mut SqliteConnection| Box::pin(async move { Ok(output) })).await
}

#[test]
fn a_run_waits_for_a_higher_limit() {
    for at in 0..6 {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| {
            let charged = ctx.call::<Charge>("ann".to_owned()).await?;
            let long = "x".repeat(2000);
            let length = match at {
                0 => ctx.step("output", &1, |_| long.clone()).await?.len(),
                1 => ctx.step_async("later", &1, || async { long.clone() }).await?.len(),
                2 => post(&ctx, &long).await.map(|_| long.len())?,
                3 => ctx.emit("letter/1", "long", &long).await.map(|()| long.len())?,
                4 => ctx.send(ctx.run_id(), "long", &long).await.map(|()| long.len())?,
                _ => transacted(&ctx, &long).await?.len(),
            };
            Ok::<_, Failure>(charged + u32::try_from(length).unwrap())
        });
        let (question, result) = mended(&world, code.clone(), code, roomy);
        // The record of a transaction says that it ended well.
        let bytes = if at == 5 { 2009 } else { 2002 };
        assert!(question.contains(&format!("{bytes} bytes, 1000 at most")), "{question}");
        assert_eq!(result, 2001);
    }
}

#[test]
fn a_run_waits_for_a_number_that_can_be_written() {
    let world = World::new();
    let code = |number: u64| {
        flow!(world, |ctx, _n: ()| {
            let charged = ctx.call::<Charge>("ann".to_owned()).await?;
            let drawn = ctx.step("number", &1, |_| number).await?;
            Ok::<_, Failure>(charged + u32::try_from(drawn).unwrap())
        })
    };
    let (question, result) = mended(&world, code(u64::MAX), code(4), as_it_is);
    assert!(question.contains("send it as a string"), "{question}");
    assert_eq!(result, 5);
}

/// An error that the body itself makes of a payload and returns.
#[test]
fn a_run_waits_for_code_that_can_write_its_own_payload() {
    let world = World::new();
    let code = |number: f64| {
        flow!(world, |ctx, _n: ()| {
            let charged = ctx.call::<Charge>("ann".to_owned()).await?;
            Payload::of(&number)?;
            Ok::<_, Failure>(charged)
        })
    };
    assert_eq!(mended(&world, code(f64::NAN), code(1.0), as_it_is).1, 1);
}

/// A life of the engine on this store, under this limit, that knows this code and the charge.
fn life_in<W, O>(world: &Arc<World>, place: &Place, code: W, max_bytes: usize) -> Process
where
    W: WorkflowFn<(), O>,
    O: Serialize + Send + 'static,
{
    let tap = world.tap.clone();
    let engine = place.engine().wrap_store(move |store| tap.around(store)).tool(Charge(world.clone()));
    let engine = engine.limits(Limits { inline_bytes: 16, max_bytes });
    Process::start(world, engine.workflow(NAME, 1, code))
}

/// Runs `code` until its result blocks it, lets a person say that this is mended, and gives what the mended code returns
/// under a limit of 10,000 bytes.
fn with_mended_result<W, M, O>(world: &Arc<World>, place: &Place, code: W, mended: M) -> (String, O)
where
    W: WorkflowFn<(), O> + Clone,
    M: WorkflowFn<(), O>,
    O: Serialize + DeserializeOwned + Send + 'static,
{
    let process = life_in(world, place, code.clone(), 1000);
    let run = process.on(async { process.acme().run(code, ()).start().await.unwrap().id() });
    let asked = process.on(blocked(&process, world, run, QuestionKind::Quarantined));
    process.shut_down();
    let process = life_in(world, place, mended, 10_000);
    let result = process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        process.acme().handle::<O>(run).result().await.unwrap()
    });
    process.shut_down();
    assert_eq!((world.effects("charge").len(), world.effects("refund").len()), (1, 0), "{}", asked.question);
    (asked.question, result)
}

on_both_stores! {
    /// The body has ended well, and what it did is not undone for the size of its result.
    fn a_run_waits_for_a_higher_limit_of_its_result(place) {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| {
            ctx.call::<Charge>("ann".to_owned()).await?;
            Ok::<_, Failure>("x".repeat(2000))
        });
        let (question, result) = with_mended_result(&world, &place, code.clone(), code);
        assert!(question.contains("2002 bytes, 1000 at most"), "{question}");
        assert!(question.contains("[misuse]"), "{question}");
        assert_eq!(result.len(), 2000);
    }

    fn a_run_waits_for_a_result_that_is_exact(place) {
        let world = World::new();
        let code = |number: u64| {
            flow!(world, |ctx, _n: ()| {
                ctx.call::<Charge>("ann".to_owned()).await?;
                Ok::<_, Failure>(number)
            })
        };
        let (question, result) = with_mended_result(&world, &place, code(u64::MAX), code(4));
        assert!(question.contains("send it as a string"), "{question}");
        assert_eq!(result, 4);
    }

    fn a_run_waits_for_a_result_that_is_a_number(place) {
        let world = World::new();
        let code = |number: f64| {
            flow!(world, |ctx, _n: ()| {
                ctx.call::<Charge>("ann".to_owned()).await?;
                Ok::<_, Failure>(number)
            })
        };
        let (_, result) = with_mended_result(&world, &place, code(f64::NAN), code(1.5));
        assert!((result - 1.5).abs() < f64::EPSILON, "{result}");
    }
}

/// What a step made of an error that it should not have met is not recorded.
#[test]
fn a_run_waits_for_a_step_that_leaves_the_context_alone() {
    let world = World::new();
    let code = |nests: bool| {
        flow!(world, |ctx, _n: ()| {
            let charged = ctx.call::<Charge>("ann".to_owned()).await?;
            let nested = ctx.step_async("outer", &(), || async {
                if nests { ctx.now().await.map_or(40, |_| 50) } else { 3 }
            });
            Ok::<_, Failure>(charged + nested.await?)
        })
    };
    let (question, result) = mended(&world, code(true), code(false), as_it_is);
    assert!(question.contains("used inside a step"), "{question}");
    assert_eq!(result, 4);
}

/// The turn is not settled, and its loop does not end with the error.
#[test]
fn a_run_waits_in_its_turn() {
    let world = World::new();
    let code = |number: u64| {
        flow!(world, |ctx, _n: ()| {
            let charged = ctx.call::<Charge>("ann".to_owned()).await?;
            let turns = ctx.turns("count", charged, |n: u32, ctx: Ctx| async move {
                post(&ctx, "in the turn").await?;
                let drawn = ctx.step("number", &n, |_| number).await?;
                Ok(counterfoil::flow::Turn::<u32, _>::Done(u32::try_from(drawn).unwrap() + n))
            });
            turns.await
        })
    };
    assert_eq!(mended(&world, code(u64::MAX), code(6), as_it_is).1, 7);
    assert_eq!(world.effects("post").len(), 1);
}

/// A present, whose input has got a note by this version of its type.
struct Gift<const VERSION: u32>(Arc<World>);

#[derive(Serialize, Deserialize)]
struct Wish {
    to: String,
    note: Option<String>,
}

impl<const VERSION: u32> Tool for Gift<VERSION> {
    const NAME: &'static str = "gift";
    const INPUT_VERSION: u32 = VERSION;
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = Wish;
    type Output = u32;

    fn key(&self, wish: &Wish) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&wish.to))
    }

    async fn call(&self, call: &Call, wish: &Wish) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(self.0.happen("gift", call.key(), &wish.to)))
    }
}

/// The same before the note.
struct Plain(Arc<World>);

impl Tool for Plain {
    const NAME: &'static str = "gift";
    type Effect = effect::Payment;
    type Contract = contract::ReplaysKey;
    type Input = BTreeMap<String, String>;
    type Output = u32;

    fn key(&self, wish: &BTreeMap<String, String>) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&wish["to"]))
    }

    async fn call(&self, call: &Call, wish: &BTreeMap<String, String>) -> Result<Done<u32>, ToolError> {
        Ok(Done::new(self.0.happen("gift", call.key(), &wish["to"])))
    }
}

async fn gives<const VERSION: u32>(ctx: &Ctx) -> Result<u32, Failure> {
    ctx.call::<Gift<VERSION>>(Wish { to: "ann".to_owned(), note: None }).await
}

/// An optional field has come into the input of a tool whose call is recorded.
fn the_input_type_of_a_recorded_call_is_raised(engine: &dyn Fn() -> EngineBuilder, world: &Arc<World>) {
    let first = flow!(world, |ctx, _n: ()| {
        let charged = ctx.call::<Charge>("ann".to_owned()).await?;
        let given = ctx.call::<Plain>(BTreeMap::from([("to".to_owned(), "ann".to_owned())])).await?;
        ctx.signal::<()>("go on").await?;
        Ok::<_, Failure>(charged + given)
    });
    let process = Process::start(world, engine().tool(Plain(world.clone())).workflow(NAME, 1, first.clone()));
    let run = process.on(async { process.acme().run(first, ()).start().await.unwrap().id() });
    process.on(process.state(run, "waiting"));
    process.shut_down();

    let forgotten = flow!(world, |ctx, _n: ()| {
        let charged = ctx.call::<Charge>("ann".to_owned()).await?;
        let given = gives::<1>(&ctx).await?;
        ctx.signal::<()>("go on").await?;
        Ok::<_, Failure>(charged + given)
    });
    let process = Process::start(world, engine().tool(Gift::<1>(world.clone())).workflow(NAME, 1, forgotten));
    process.on(async { process.acme().handle::<u32>(run).signal("go on", ()).await.unwrap() });
    let asked = process.on(blocked(&process, world, run, QuestionKind::Diverged));
    for words in ["gift:ann", "/note", "raise `INPUT_VERSION`", "skip_serializing_if"] {
        assert!(asked.question.contains(words), "{words}: {}", asked.question);
    }
    process.shut_down();

    let raised = flow!(world, |ctx, _n: ()| {
        let charged = ctx.call::<Charge>("ann".to_owned()).await?;
        let given = gives::<2>(&ctx).await?;
        ctx.signal::<()>("go on").await?;
        Ok::<_, Failure>(charged + given)
    });
    let process = Process::start(world, engine().tool(Gift::<2>(world.clone())).workflow(NAME, 1, raised));
    process.on(async {
        process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap();
        assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 2);
    });
    process.shut_down();
    let counts = ["charge", "refund", "gift"].map(|what| world.effects(what).len());
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn a_run_waits_for_the_version_of_an_input() {
    let world = World::new();
    let engine = || {
        let tap = world.tap.clone();
        let engine = Engine::sqlite(world.path()).wrap_store(move |store| tap.around(store));
        engine.tool(Charge(world.clone()))
    };
    the_input_type_of_a_recorded_call_is_raised(&engine, &world);
}

#[test]
fn a_run_waits_for_the_version_of_an_input_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let engine = || {
        let tap = world.tap.clone();
        let engine = Engine::postgres_with(crate::server::url(), schema.options());
        engine.wrap_store(move |store| tap.around(store)).tool(Charge(world.clone()))
    };
    the_input_type_of_a_recorded_call_is_raised(&engine, &world);
}

/// A person who does not wait for another build ends the run, and what it did is undone.
#[test]
fn a_run_that_is_not_to_be_mended_is_undone_by_a_person_s_word() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        ctx.call::<Charge>("ann".to_owned()).await?;
        post(&ctx, "note").await
    });
    let process = life(&world, code.clone(), as_it_is);
    let run = process.on(async { process.acme().run(code, ()).start().await.unwrap().id() });
    let asked = process.on(blocked(&process, &world, run, QuestionKind::Unregistered));
    process.on(async {
        process.acme().answer(asked.id, Resolution::Abandon, "ann").await.unwrap();
        process.acme().handle::<u32>(run).result().await.unwrap_err();
    });
    assert_eq!(world.effects("refund").len(), 1);
    process.shut_down();
}

/// The table of docs/design.md says of each failure code whether a run fails with it or is blocked.
#[test]
fn the_table_of_the_design_says_which_failures_block_a_run() {
    let unknown = serde_json::from_str::<FailureCode>("\"none\"").unwrap_err().to_string();
    let codes: Vec<_> = unknown.split('`').skip(1).step_by(2).filter(|code| *code != "none").collect();
    assert!(codes.len() > 10, "serde lists the codes: {unknown}");
    let page = include_str!("../../../docs/design.md");
    for code in codes {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{code}` |")))
            .unwrap_or_else(|| panic!("{code} is missing"));
        let says = row.split('|').nth(2).unwrap().trim();
        let code: FailureCode = serde_json::from_value(code.into()).unwrap();
        assert_eq!(says, if code.blocks_run() { "is blocked" } else { "fails" }, "{code:?}");
    }
}
