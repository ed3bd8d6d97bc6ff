//! A call in a workflow whose response is over the limit: the workflow may handle that. Otherwise the run is blocked, nothing is undone, and
//! under a higher limit the tool's lookup brings the response.

use std::sync::Arc;

use counterfoil::flow::{EngineBuilder, FailureCode, RunError, Turn, WorkflowFn};
use counterfoil::ledger::{LookupResult, Undone};
use counterfoil::payload::Limits;
use counterfoil::store::{Question, QuestionKind, Resolution};
use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key, RunId};

use crate::flow::lives::NAME;
use crate::flow::tools::{Post, post};
use crate::flow::world::{Process, World};
use crate::place::Place;
use crate::{flow, on_both_stores};

/// Prints a text of this length, which is its result. It can be looked up, and undone.
struct Print(Arc<World>);
/// The same, and it cannot be looked up.
struct Mute(Arc<World>);

macro_rules! prints {
    ($($tool:ident $name:literal $contract:ty;)+) => {$(
        impl Tool for $tool {
            const NAME: &'static str = $name;
            type Effect = effect::Undoable<effect::Payment>;
            type Contract = $contract;
            type Input = usize;
            type Output = String;

            fn key(&self, length: &usize) -> Option<Key> {
                Some(Key::of(Self::NAME).target(length))
            }

            async fn call(&self, call: &Call, length: &usize) -> Result<Done<String>, ToolError> {
                self.0.happen($name, call.key(), &length.to_string());
                Ok(Done::new("x".repeat(*length)).external_ref("page-1"))
            }
        }

        impl Compensate for $tool {
            async fn compensate(
                &self,
                call: &Call,
                forward: &OriginalCall<usize, String>,
            ) -> Result<Done<Undone>, ToolError> {
                let known = format!("{:?} {:?}", forward.output().map(String::len), forward.external_ref());
                self.0.happen("shred", call.key(), &known);
                Ok(Undone::whole().into())
            }

            async fn find_compensation(
                &self,
                _: &Call,
                _: &OriginalCall<usize, String>,
            ) -> Result<LookupResult<Undone>, ToolError> {
                Ok(LookupResult::Unknown)
            }
        }
    )+};
}

prints! {
    Print "print" contract::WithLookup<contract::ReplaysKey>;
    Mute "mute" contract::ReplaysKey;
}

impl Reconcile for Print {
    async fn reconcile(&self, _: &Call, length: &usize) -> Result<LookupResult<String>, ToolError> {
        self.0.count("print looked up");
        Ok(LookupResult::Committed { output: "x".repeat(*length), external_ref: Some("page-1".into()) })
    }
}

const LONG: usize = 2000;

fn life<W: WorkflowFn<(), u32>>(world: &Arc<World>, place: &Place, code: W, max_bytes: usize) -> Process {
    Process::start(world, engine(world, place).limits(limits(max_bytes)).workflow(NAME, 1, code))
}

fn engine(world: &Arc<World>, place: &Place) -> EngineBuilder {
    let tap = world.tap.clone();
    let engine = place.engine().wrap_store(move |store| tap.around(store));
    engine.tool(Print(world.clone())).tool(Mute(world.clone())).tool(Post(world.clone()))
}

const fn limits(max_bytes: usize) -> Limits {
    Limits { inline_bytes: 100, max_bytes }
}

fn start<W: WorkflowFn<(), u32>>(process: &Process, code: W) -> RunId {
    process.on(async { process.acme().run(code, ()).start().await.unwrap().id() })
}

/// The run is blocked, and nothing is undone.
fn blocked(process: &Process, world: &World, run: RunId) -> Question {
    process.on(process.state(run, "blocked"));
    let asked = process.on(process.question(QuestionKind::Quarantined));
    assert_eq!((asked.run, world.effects("shred").len()), (Some(run), 0), "{}", asked.question);
    asked
}

fn resume(process: &Process, asked: &Question) {
    process.on(async { process.acme().answer(asked.id, Resolution::Resume, "ann").await.unwrap() });
}

fn result(process: &Process, run: RunId) -> Result<u32, RunError> {
    process.on(async { process.acme().handle::<u32>(run).result().await })
}

fn length(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap()
}

on_both_stores! {
    fn unhandled_it_blocks_the_run_until_the_limit_is_raised(place) {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| {
            let before = post(&ctx, "before").await?;
            let printed = ctx.call::<Print>(LONG).await?;
            Ok::<_, Failure>(before + length(&printed))
        });
        let process = life(&world, &place, code.clone(), 1000);
        let run = start(&process, code.clone());
        let asked = blocked(&process, &world, run);
        for words in ["print:2000 happened", "2002 bytes", "page-1", "Raise the limit and go on, or abandon"] {
            assert!(asked.question.contains(words), "{words}: {}", asked.question);
        }
        resume(&process, &asked);
        process.on(process.until(async |acme| {
            acme.questions().await.unwrap().iter().any(|open| open.id != asked.id)
        }));
        let again = blocked(&process, &world, run);
        assert_eq!(world.counted("print looked up"), 0, "under the same limit nothing is looked up");
        process.crash();
        let process = life(&world, &place, code, 10_000);
        resume(&process, &again);
        assert_eq!(result(&process, run).unwrap(), 1 + 2000);
        process.on(async { assert_eq!(process.acme().questions().await.unwrap(), []) });
        process.shut_down();
        assert_eq!((world.effects("print").len(), world.counted("print looked up")), (1, 1));
        assert_eq!((world.effects("post").len(), world.effects("shred").len()), (1, 0));
    }

    /// What the code made of the failure stays, also when the limit would not show it any more.
    fn handled_it_is_given_in_every_life(place) {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| {
            let failure = ctx.call::<Print>(LONG).await.unwrap_err();
            assert_eq!(failure.code, FailureCode::ResponseTooLarge);
            assert_eq!(failure.detail["external_ref"], "page-1");
            let after = post(&ctx, "instead").await?;
            ctx.signal::<()>("go on").await?;
            Ok::<_, Failure>(after)
        });
        let process = life(&world, &place, code.clone(), 1000);
        let run = start(&process, code.clone());
        process.on(process.state(run, "waiting"));
        process.crash();
        let process = life(&world, &place, code, 10_000);
        process.on(async { process.acme().handle::<u32>(run).signal("go on", ()).await.unwrap() });
        assert_eq!(result(&process, run).unwrap(), 1);
        process.shut_down();
        assert_eq!((world.effects("print").len(), world.effects("post").len()), (1, 1));
        assert_eq!(world.counted("print looked up"), 0);
    }

    fn without_a_lookup_a_mended_build_handles_it(place) {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| Ok::<_, Failure>(length(&ctx.call::<Mute>(LONG).await?)));
        let process = life(&world, &place, code.clone(), 1000);
        let run = start(&process, code.clone());
        let asked = blocked(&process, &world, run);
        process.shut_down();
        let process = life(&world, &place, code, 10_000);
        resume(&process, &asked);
        process.on(process.until(async |acme| {
            acme.questions().await.unwrap().iter().any(|open| open.id != asked.id)
        }));
        let asked = blocked(&process, &world, run);
        process.shut_down();
        let mended = flow!(world, |ctx, _n: ()| {
            let unreadable = ctx.call::<Mute>(LONG).await.is_err();
            ctx.signal::<()>("go on").await?;
            Ok::<_, Failure>(if unreadable { 7 } else { 0 })
        });
        let process = life(&world, &place, mended.clone(), 10_000);
        resume(&process, &asked);
        process.on(process.state(run, "waiting"));
        process.crash();
        let process = life(&world, &place, mended, 10_000);
        process.on(async { process.acme().handle::<u32>(run).signal("go on", ()).await.unwrap() });
        assert_eq!(result(&process, run).unwrap(), 7);
        process.shut_down();
        assert_eq!(world.effects("mute").len(), 1);
    }

    /// The compensation is told the provider's id in place of the response.
    fn an_abandoned_run_undoes_the_effect(place) {
        let world = World::new();
        let code = flow!(world, |ctx, _n: ()| Ok::<_, Failure>(length(&ctx.call::<Mute>(LONG).await?)));
        let process = life(&world, &place, code.clone(), 1000);
        let run = start(&process, code);
        let asked = blocked(&process, &world, run);
        process.on(async { process.acme().answer(asked.id, Resolution::Abandon, "ann").await.unwrap() });
        result(&process, run).unwrap_err();
        process.shut_down();
        assert_eq!(world.effects("shred"), ["None Some(\"page-1\")"]);
    }
}

#[test]
fn the_turn_of_a_loop_blocks_with_it() {
    let (world, place) = (World::new(), Place::sqlite());
    let code = flow!(world, |ctx, _n: ()| {
        let turns = ctx.turns("print", 0_u32, |n: u32, ctx: Ctx| async move {
            let printed = ctx.call::<Print>(LONG).await?;
            Ok(Turn::<u32, _>::Done(n + length(&printed)))
        });
        turns.await
    });
    let process = life(&world, &place, code.clone(), 1000);
    let run = start(&process, code.clone());
    let asked = blocked(&process, &world, run);
    process.shut_down();
    let process = life(&world, &place, code, 10_000);
    resume(&process, &asked);
    assert_eq!(result(&process, run).unwrap(), 2000);
    process.shut_down();
}

/// Another run that asks for the same is told the same, and rests on the effect.
#[test]
fn another_run_is_told_the_same() {
    let (world, place) = (World::new(), Place::sqlite());
    let code = flow!(world, |ctx, _n: ()| {
        let failure = ctx.call::<Print>(LONG).await.unwrap_err();
        Ok::<_, Failure>(u32::try_from(failure.detail["bytes"].as_u64().unwrap()).unwrap())
    });
    let process = life(&world, &place, code.clone(), 1000);
    for _ in 0..2 {
        let run = start(&process, code.clone());
        assert_eq!(result(&process, run).unwrap(), 2002);
    }
    process.shut_down();
    assert_eq!(world.effects("print").len(), 1);
}
