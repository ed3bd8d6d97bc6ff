//! EXE-4: what a model's calls may use up, on both stores: a price for each, out of the budget of the run. A crash gives nothing back.

use std::sync::Arc;

use counterfoil::agent::{AgentAnswer, Message, Model, Prompt, Reply, Usage};
use counterfoil::flow::{EngineBuilder, FailureCode, RunError, Workflow};
use counterfoil::ledger::{Budget, Price, Quota};
use counterfoil::tool::{Call, ToolError};
use counterfoil::{Ctx, Failure};

use crate::agent::models::{Asked, posts};
use crate::flow::tools::Post;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;

/// A model of which each answer costs thirty cents.
struct Priced(Asked);

impl Model for Priced {
    async fn complete(&self, call: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        self.0.complete(call, prompt).await
    }

    fn quota(&self) -> Quota {
        Quota::default().price(Price::new(30, "cent"))
    }
}

/// Goes on for as long as it is let.
async fn talks(ctx: Ctx, (): ()) -> Result<AgentAnswer, Failure> {
    ctx.agent("m").tool::<Post>().run([Message::user("go")]).await
}

/// A run may spend a euro.
fn engine(world: &Arc<World>, schema: &Schema, shared: bool) -> EngineBuilder {
    let engine = world.engine_in(schema, shared);
    let model = Priced(Asked::turns(world, ["a", "b", "c", "d"].map(|what| posts([what]))));
    let talks = Workflow::new("talks", talks).budget(Budget::default().cost("cent", 100));
    engine.model("m", model).register(talks)
}

#[test]
fn a_run_asks_its_model_no_more_often_than_it_can_pay_for() {
    for shared in [false, true] {
        for dies in [false, true] {
            let (world, schema) = (World::new(), Schema::new());
            let mut process = Process::start(&world, engine(&world, &schema, shared));
            if dies {
                world.hold("answer 1");
            }
            let run = process.on(process.acme().run(talks, ()).start()).unwrap().id();
            if dies {
                process.on(world.reached("answer 1"));
                process.crash(); // the question was put, and is paid for
                world.release("answer 1");
                process = Process::start(&world, engine(&world, &schema, shared));
            }
            let result = process.on(process.acme().handle::<AgentAnswer>(run).result());
            let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
            assert_eq!(failure.code, FailureCode::BudgetExceeded, "{failure}");
            assert_eq!(failure.detail["detail"]["budget"], "run.cost");
            let expected = if dies { vec!["a", "b"] } else { vec!["a", "b", "c"] };
            let what = format!("shared: {shared}, dies: {dies}");
            assert_eq!(
                (world.counted("asked"), world.effects("post")),
                (3, expected.into_iter().map(str::to_owned).collect()),
                "{what}"
            );
            process.shut_down();
        }
    }
}

/// A model whose answers are estimated at thirty tokens, and take ten.
struct Counted(Asked);

impl Model for Counted {
    async fn complete(&self, call: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        Ok(self.0.complete(call, prompt).await?.usage(Usage::tokens(4, 6)))
    }

    fn quota(&self) -> Quota {
        Quota::default().price(Price::new(30, "token"))
    }
}

// An estimate is reserved for each question, and settled by what the answer says. Of a question whose answer was lost it stands.
#[test]
fn an_answer_costs_what_it_has_really_taken() {
    for shared in [false, true] {
        for dies in [false, true] {
            let (world, schema) = (World::new(), Schema::new());
            let build = || {
                let turns = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(|what| posts([what]));
                let model = Counted(Asked::turns(&world, turns));
                let talks = Workflow::new("talks", talks).budget(Budget::default().cost("token", 100));
                world.engine_in(&schema, shared).model("m", model).register(talks)
            };
            let mut process = Process::start(&world, build());
            if dies {
                world.hold("answer 1");
            }
            let run = process.on(process.acme().run(talks, ()).start()).unwrap().id();
            if dies {
                process.on(world.reached("answer 1"));
                process.crash();
                world.release("answer 1");
                process = Process::start(&world, build());
            }
            let result = process.on(process.acme().handle::<AgentAnswer>(run).result());
            let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
            assert_eq!(failure.detail["detail"]["budget"], "run.cost", "{failure}");
            // The next question is refused when a hundred are no longer there for it: after eight answers, or after thirty and five.
            let (asked, answered) = if dies { (6, 5) } else { (8, 8) };
            let seen = (world.counted("asked"), world.effects("post").len());
            assert_eq!(seen, (asked, answered), "shared: {shared}, dies: {dies}");
            process.shut_down();
        }
    }
}
