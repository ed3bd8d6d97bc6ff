//! An answer "it happened, with this result" is read as what the tool returns before it counts. Accepted unread, a slip would be handed
//! to the workflow for ever: the first result wins.

use std::sync::Arc;

use counterfoil::flow::{EngineBuilder, WorkflowFn};
use counterfoil::store::{Question, QuestionKind, Resolution};
use counterfoil::{Engine, RunId};
use serde_json::json;

use crate::flow;
use crate::flow::lives::{NAME, died_in};
use crate::flow::store::Tap;
use crate::flow::tools::Ring;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;
use crate::world::TestClock;

/// Where a world's runs are stored.
pub(crate) enum Place {
    File,
    Schema(Schema),
}

impl Place {
    pub(crate) fn both() -> [Self; 2] {
        [Self::File, Self::Schema(Schema::new())]
    }

    fn bare(&self, world: &World) -> EngineBuilder {
        match self {
            Self::File => Engine::sqlite(world.path()),
            Self::Schema(schema) => {
                Engine::postgres_with(crate::server::url(), schema.options()).lease(crate::server::LEASE)
            }
        }
    }

    /// An engine with all tools of the world.
    pub(crate) fn engine(&self, world: &Arc<World>) -> EngineBuilder {
        world.equip(self.bare(world), &world.tap)
    }

    /// A process that knows all tools.
    pub(crate) fn life<W: WorkflowFn<(), u32>>(&self, world: &Arc<World>, code: W) -> Process {
        Process::start(world, self.engine(world).workflow(NAME, 1, code))
    }

    /// A process that knows the workflow and none of its tools.
    fn without_tools<W: WorkflowFn<(), u32>>(&self, world: &Arc<World>, code: W) -> Process {
        Process::start(world, self.toolless(world).workflow(NAME, 1, code))
    }

    /// An engine that knows no tool.
    fn toolless(&self, world: &Arc<World>) -> EngineBuilder {
        let tap = world.tap.clone();
        self.bare(world).wrap_store(move |store| Tap::around(&tap, store))
    }

    /// A run that nobody can tell of whether it rang: its process died behind the effect.
    pub(super) fn rang<W: WorkflowFn<(), u32> + Clone>(&self, world: &Arc<World>, code: W) -> RunId {
        died_in(world, self.life(world, code.clone()), "ring after", code)
    }
}

fn is_misfit(asked: &Question) -> bool {
    asked.waiting.as_ref().is_some_and(|answer| answer.misfit.is_some())
}

async fn answer(process: &Process, question: &Question, result: serde_json::Value) -> Result<(), String> {
    let happened = Resolution::Happened(result);
    let answered = process.acme().answer(question.id, happened, "ann").await;
    answered.map_err(|error| error.to_string())
}

// R-REC-3: one slip of a person must not spoil the run for ever.
#[test]
fn a_result_that_does_not_fit_is_refused() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
        let run = place.rang(&world, code.clone());
        let process = place.life(&world, code);
        process.on(async {
            process.until(async |acme| !acme.questions().await.unwrap().is_empty()).await;
            process.state(run, "waiting").await;
            let question = process.question(QuestionKind::Ambiguous).await;
            let refused = answer(&process, &question, json!({"rung": 7})).await.unwrap_err();
            assert!(refused.contains("does not fit `u32`, which the tool \"ring\" returns"), "{refused}");
            assert!(refused.ends_with("; nothing was changed [answer]"), "{refused}");
            assert_eq!(process.question(QuestionKind::Ambiguous).await, question);
            answer(&process, &question, json!(7)).await.unwrap();
            assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 7);
        });
        assert_eq!(world.effects("ring").len(), 1);
        process.shut_down();
    }
}

// The answer waits for a worker alone. Looks at the provider begin some seconds later.
#[test]
fn an_answer_that_waits_for_a_worker_is_read_without_a_pause() {
    let (world, place, standing) = (World::new(), Place::File, TestClock::breathing());
    let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
    let life = |engine: EngineBuilder| {
        Process::start(&world, engine.clock(standing.clone()).workflow(NAME, 1, code.clone()))
    };
    let run = died_in(&world, life(place.engine(&world)), "ring after", code.clone());
    let process = life(place.engine(&world));
    process.on(process.until(async |acme| !acme.questions().await.unwrap().is_empty()));
    process.shut_down();
    let process = life(place.toolless(&world));
    process.on(async {
        let question = process.question(QuestionKind::Ambiguous).await;
        answer(&process, &question, json!(7)).await.unwrap();
    });
    process.shut_down();
    let process = life(place.engine(&world));
    assert_eq!(process.on(process.acme().handle::<u32>(run).result()).unwrap(), 7);
    process.shut_down();
}

// The person's process may be one that knows no tool: the answer waits for one that does.
#[test]
fn an_answer_waits_for_somebody_who_knows_the_tool() {
    for place in Place::both() {
        let world = World::new();
        let code = flow!(world, |ctx, _input: ()| ctx.call::<Ring>("door".into()).await);
        let run = place.rang(&world, code.clone());
        let process = place.life(&world, code.clone());
        process.on(process.state(run, "waiting"));
        process.shut_down();

        for (result, counts) in [(json!("seven"), false), (json!(7), true)] {
            let process = place.without_tools(&world, code.clone());
            process.on(async {
                let question = process.question(QuestionKind::Ambiguous).await;
                answer(&process, &question, result).await.unwrap();
                let waits = process.question(QuestionKind::Ambiguous).await;
                assert!(waits.waiting.is_some(), "{waits:?}");
                assert!(waits.question.contains("An answer waits: ann says that it happened."), "{waits:?}");
            });
            process.shut_down();

            let process = place.life(&world, code.clone());
            process.on(async {
                if counts {
                    assert_eq!(process.acme().handle::<u32>(run).result().await.unwrap(), 7);
                    return;
                }
                let read = async |acme: &counterfoil::flow::TenantClient| {
                    acme.questions().await.unwrap().iter().all(is_misfit)
                };
                process.until(read).await;
                let asked = process.question(QuestionKind::Ambiguous).await;
                let says =
                    "An answer does not count: ann says that it happened, and the result does not fit `u32`";
                assert!(asked.question.contains(says), "{asked:?}");
                process.state(run, "waiting").await;
            });
            process.shut_down();
        }
        assert_eq!(world.effects("ring").len(), 1);
    }
}
