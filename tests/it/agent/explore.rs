//! FLOW-6: a model is asked once more what it was asked before. Its new answer is recorded beside the first one and never replaces it; where an
//! effect rests on the first one, it is not asked. On both stores.

use std::sync::Arc;

use counterfoil::agent::{AgentAnswer, Message, Reply};
use counterfoil::flow::{EngineBuilder, RunError};
use counterfoil::{Ctx, Failure};

use crate::agent::models::{Asked, posts, spoken};
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

async fn chat(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    ctx.agent("m").tool::<Post>().run([Message::user("which colour?")]).await
}

/// A model that says another colour each time, behind as many letters as it is to post first.
fn engine(world: &Arc<World>, schema: &Schema, shared: bool, letters: usize) -> EngineBuilder {
    let counts = world.clone();
    let model = Asked::by(world, move |prompt| {
        Ok(if spoken(prompt) < letters {
            posts(["a letter"])
        } else {
            Reply::text(format!("colour {}", counts.count("said")))
        })
    });
    world.engine_in(schema, shared).model("m", model).workflow("chat", 1, chat)
}

fn said(answer: &AgentAnswer) -> &str {
    &answer.text
}

#[test]
fn a_new_answer_stands_beside_the_first_one() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let process = Process::start(&world, engine(&world, &schema, shared, 0));
        let (run, other) = process.on(async {
            let run = process.acme().run(chat, ()).start().await.unwrap();
            assert_eq!(said(&run.result().await.unwrap()), "colour 1");
            let other =
                run.fork("ann", "another colour?").from_step("model/m").explore().key("1").await.unwrap();
            assert_eq!(said(&other.result().await.unwrap()), "colour 2");
            let same =
                run.fork("ann", "another colour?").from_step("model/m").explore().key("1").await.unwrap();
            assert_eq!(same.id(), other.id(), "a command is given once");
            (run.id(), other.id())
        });
        process.crash();
        let process = Process::start(&world, engine(&world, &schema, shared, 0));
        process.on(async {
            for (run, colour) in [(run, "colour 1"), (other, "colour 2")] {
                let answer = process.acme().handle::<AgentAnswer>(run).result().await.unwrap();
                assert_eq!(said(&answer), colour, "neither has replaced the other");
            }
        });
        assert_eq!(world.counted("said"), 2);
        process.shut_down();
    }
}

#[test]
fn what_an_effect_rests_on_is_not_asked_again() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let process = Process::start(&world, engine(&world, &schema, shared, 1));
        process.on(async {
            let run = process.acme().run(chat, ()).start().await.unwrap();
            assert_eq!(said(&run.result().await.unwrap()), "colour 1");
            let refused = run.fork("ann", "another?").from_step("model/m").explore().await.err().unwrap();
            let RunError::EffectRests { key, .. } = &refused else { panic!("{refused}") };
            assert!(key.starts_with("post:"), "{key}");
        });
        assert_eq!((world.counted("said"), world.effects("post").len()), (1, 1));
        process.shut_down();
    }
}
