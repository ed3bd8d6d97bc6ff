//! The policy of a tool in a run: its verdict is recorded, and stands over crashes and changed policies. On both stores.

use std::sync::Arc;

use counterfoil::flow::{EngineBuilder, FailureCode, RunError, WorkflowFn};
use counterfoil::ledger::{Record, ReviewPolicy};
use counterfoil::tool::approval::{self, Verdict};
use counterfoil::tool::{ApprovalPolicy, Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Failure, Key};

use crate::flow::lives::NAME;
use crate::flow::world::{Process, World};
use crate::guard::approval::{approve, open_about};
use crate::store::postgres::Schema;

type Policy = fn() -> Verdict;

/// A receipt to a customer, by the policy of the build.
struct Receipt(Arc<World>, Policy);

impl Tool for Receipt {
    const NAME: &'static str = "receipt";
    type Effect = effect::Notification<approval::Policy>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;

    fn key(&self, to: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(to))
    }

    async fn call(&self, call: &Call, to: &String) -> Result<Done<u32>, ToolError> {
        self.0.pass("receipt before").await;
        Ok(Done::new(self.0.happen("receipt", call.key(), to)))
    }
}

impl ApprovalPolicy for Receipt {
    const POLICY: &'static str = "transactional-mail";

    fn policy(&self, _: &String) -> Verdict {
        self.1()
    }
}

fn allows() -> Verdict {
    Verdict::Allow
}

fn asks() -> Verdict {
    Verdict::Ask(ReviewPolicy::by(["ann", "bob"]))
}

fn refuses() -> Verdict {
    Verdict::refuse("no mail today")
}

async fn sends(ctx: Ctx, to: String) -> Result<u32, Failure> {
    ctx.call::<Receipt>(to).await
}

/// Goes on after a refusal, and waits for a word.
async fn goes_on(ctx: Ctx, to: String) -> Result<String, Failure> {
    let code = ctx.call::<Receipt>(to).await.map_or_else(|refused| refused.code, |_| FailureCode::Workflow);
    let word: String = ctx.signal("word").await?;
    Ok(format!("{code:?}, {word}"))
}

fn start<W, O>(engine: EngineBuilder, world: &Arc<World>, policy: Policy, code: W) -> Process
where
    W: WorkflowFn<String, O> + Clone,
    O: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    Process::start(world, engine.tool(Receipt(world.clone(), policy)).workflow(NAME, 1, code))
}

/// The record of the receipt.
async fn record(process: &Process) -> Record {
    let key = Key::of("receipt").target("eve").render().unwrap();
    let acme = counterfoil::Tenant::new("acme").unwrap();
    process.engine().executor().record(&acme, &key).await.unwrap().unwrap().0
}

#[test]
fn a_verdict_stands_although_the_policy_changes_while_its_call_is_under_way() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        world.hold("receipt before");
        let process = start(world.engine_in(&schema, shared), &world, allows, sends);
        let run = process.on(async {
            let run = process.acme().run(sends, "eve".to_owned()).start().await.unwrap();
            world.reached("receipt before").await;
            let approval = record(&process).await.approval.unwrap();
            assert_eq!(approval.to_string(), "by policy transactional-mail, version 1", "before it is sent");
            run.id()
        });
        process.crash();
        world.release("receipt before");
        let process = start(world.engine_in(&schema, shared), &world, refuses, sends);
        process.on(async {
            process.acme().handle::<u32>(run).result().await.unwrap();
            assert_eq!(record(&process).await.approval.unwrap().by, "transactional-mail");
        });
        assert_eq!(world.effects("receipt"), ["eve"]);
        process.shut_down();
    }
}

#[test]
fn people_whom_the_policy_asks_decide_although_the_policy_changes_meanwhile() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let process = start(world.engine_in(&schema, shared), &world, asks, sends);
        let run = process.on(async {
            let run = process.acme().run(sends, "eve".to_owned()).start().await.unwrap();
            let review = open_about(&process, "eve").await;
            assert_eq!(review.review.what, "receipt");
            assert_eq!(review.review.reviewers.iter().collect::<Vec<_>>(), ["ann", "bob"]);
            run.id()
        });
        process.crash(); // while the run waits
        let process = start(world.engine_in(&schema, shared), &world, refuses, sends);
        process.on(async {
            let review = open_about(&process, "eve").await;
            approve(&process.acme(), &review, "ann").await.unwrap();
            process.acme().handle::<u32>(run).result().await.unwrap();
            let approval = record(&process).await.approval.unwrap();
            assert_eq!((approval.to_string(), approval.policy), ("by ann".to_owned(), None));
        });
        assert_eq!(world.effects("receipt"), ["eve"]);
        process.shut_down();
    }
}

#[test]
fn a_refusal_is_a_failure_that_stays_although_the_policy_changes() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let process = start(world.engine_in(&schema, shared), &world, refuses, goes_on);
        let run = process.on(async {
            let run = process.acme().run(goes_on, "eve".to_owned()).start().await.unwrap();
            process.state(run.id(), "waiting").await;
            run.id()
        });
        process.crash();
        let process = start(world.engine_in(&schema, shared), &world, allows, goes_on);
        process.on(async {
            let handle = process.acme().handle::<String>(run);
            handle.signal("word", "on").await.unwrap();
            assert_eq!(handle.result().await.unwrap(), "PolicyRefused, on");
        });
        assert_eq!(world.effects("receipt"), Vec::<String>::new());
        process.shut_down();
    }
}

#[test]
fn a_run_that_does_not_handle_a_refusal_fails_with_the_reason() {
    let world = World::new();
    let process = start(world.engine(), &world, refuses, sends);
    let result = process.on(process.acme().run(sends, "eve".to_owned()));
    let Err(RunError::Failed { failure, .. }) = result else { panic!("{result:?}") };
    assert_eq!(failure.code, FailureCode::PolicyRefused);
    assert_eq!(failure.detail["detail"]["reason"], "no mail today");
    process.shut_down();
}
