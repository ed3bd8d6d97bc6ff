//! EXE-2: a call whose approval does not count any more asks for another one, and the run waits for it. On both stores.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::Reviewers;
use counterfoil::flow::{EngineBuilder, FailureCode, RunError, WorkflowFn};
use counterfoil::guard::approval::ApprovalRefused;
use counterfoil::ledger::{Review, ReviewPolicy, VoteRefused};
use counterfoil::tool::{Call, Done, NeedsApproval, Tool, ToolError, approval, contract, effect};
use counterfoil::{Approval, ApprovalSubject, Ctx, Failure, Key, Tenant};

use crate::flow::lives::NAME;
use crate::flow::world::{Process, World};
use crate::guard::approval::{approve, open_about};
use crate::store::postgres::Schema;
use crate::world::TestClock;

/// A payment that two of three people have to approve.
struct Transfer(Arc<World>);

impl Tool for Transfer {
    const NAME: &'static str = "transfer";
    type Effect = effect::Payment<approval::Person>;
    type Contract = contract::ReplaysKey;
    type Input = String;
    type Output = u32;

    fn key(&self, to: &String) -> Option<Key> {
        Some(Key::of(Self::NAME).target(to))
    }

    async fn call(&self, call: &Call, to: &String) -> Result<Done<u32>, ToolError> {
        self.0.pass("transfer before").await;
        Ok(Done::new(self.0.happen("transfer", call.key(), to)))
    }
}

impl NeedsApproval for Transfer {
    fn package(&self, to: &String) -> ApprovalSubject {
        ApprovalSubject::of("transfer", to)
    }

    fn review(&self) -> ReviewPolicy {
        ReviewPolicy::by(["ann", "bob", "carl"]).quorum(2).expires_in(Duration::from_hours(72))
    }
}

/// Pays by an approval that was given to something else.
async fn pays(ctx: Ctx, to: String) -> Result<u32, Failure> {
    let stale = Approval::of("bob", &ApprovalSubject::of("transfer", "somebody else"))?;
    ctx.call::<Transfer>(to).approved_by(&stale).await
}

fn start<W: WorkflowFn<String, u32>>(engine: EngineBuilder, world: &Arc<World>, code: W) -> Process {
    Process::start(world, engine.tool(Transfer(world.clone())).workflow(NAME, 1, code))
}

#[test]
fn the_people_of_the_tool_are_asked_once_and_the_call_goes_on_under_their_approval() {
    for shared in [false, true] {
        let (world, schema) = (World::new(), Schema::new());
        let process = start(world.engine_in(&schema, shared), &world, pays);
        let run = process.on(async {
            let run = process.acme().run(pays, "eve".to_owned()).start().await.unwrap();
            let review = open_about(&process, "eve").await;
            assert_eq!((review.review.what.as_str(), review.review.quorum), ("transfer", 2));
            assert!(review.review.expires_at.is_some() && review.review.single_use);
            let stranger = approve(&process.acme(), &review, "mallory").await.unwrap_err();
            assert!(matches!(stranger, ApprovalRefused::Vote(VoteRefused::NotEntitled { .. })), "{stranger}");
            approve(&process.acme(), &review, "ann").await.unwrap();
            run.id()
        });
        process.crash(); // while the run waits
        world.hold("transfer before");
        let process = start(world.engine_in(&schema, shared), &world, pays);
        process.on(async {
            let review = open_about(&process, "eve").await;
            assert_eq!(review.review.votes.len(), 1, "nobody is asked again");
            approve(&process.acme(), &review, "carl").await.unwrap();
            world.reached("transfer before").await;
        });
        process.crash(); // while it is under way
        world.release("transfer before");
        let process = start(world.engine_in(&schema, shared), &world, pays);
        process.on(async {
            let result = process.acme().handle::<u32>(run).result().await;
            result.unwrap();
            assert_eq!(process.acme().reviews(None).await.unwrap(), []);
            let key = Key::of("transfer").target("eve").render().unwrap();
            let executor = process.engine().executor();
            let record = executor.record(&Tenant::new("acme").unwrap(), &key).await.unwrap().unwrap().0;
            assert_eq!(record.approval.unwrap().by, "ann, carl");
        });
        assert_eq!(world.effects("transfer"), ["eve"]);
        process.shut_down();
    }
}

#[test]
fn who_is_refused_is_told_so_and_nothing_is_sent() {
    let world = World::new();
    let process = start(world.engine(), &world, pays);
    process.on(async {
        let run = process.acme().run(pays, "eve".to_owned()).start().await.unwrap();
        let review = open_about(&process, "eve").await;
        process.acme().decide(&review.id, 1).reject("ann", "who is she").await.unwrap();
        let Err(RunError::Failed { failure, .. }) = run.result().await else { panic!("it was rejected") };
        assert_eq!((failure.code, &failure.detail["reason"]), (FailureCode::Rejected, &"who is she".into()));
    });
    assert_eq!(world.effects("transfer"), Vec::<String>::new());
    process.shut_down();
}

// The code calls again when nobody has decided in time: that is another question, and not the answer to the first one.
#[test]
fn a_call_after_an_undecided_one_is_asked_about_anew() {
    async fn pays_again(ctx: Ctx, to: String) -> Result<u32, Failure> {
        match pays(ctx.clone(), to.clone()).await {
            Err(failure) if failure.code == FailureCode::Undecided => pays(ctx, to).await,
            ended => ended,
        }
    }
    let (world, hands) = (World::new(), TestClock::default());
    let process = start(world.engine_on(hands.clone()), &world, pays_again);
    process.on(async {
        let run = process.acme().run(pays_again, "eve".to_owned()).start().await.unwrap();
        let first = open_about(&process, "eve").await;
        hands.advance(Duration::from_hours(72));
        process
            .until(async |acme| acme.reviews(None).await.unwrap().iter().any(|open| open.id != first.id))
            .await;
        let open = process.acme().reviews(None).await.unwrap();
        let again = open.into_iter().find(|open| open.id != first.id).unwrap();
        for by in ["ann", "bob"] {
            approve(&process.acme(), &again, by).await.unwrap();
        }
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("transfer"), ["eve"]);
    process.shut_down();
}

/// Ann's vote counts at the first check of a decided review, and at no later one.
struct AnnLeaves(Arc<World>);

impl Reviewers for AnnLeaves {
    fn may_decide(&self, _: &Tenant, reviewer: &str, review: &Review) -> bool {
        reviewer != "ann" || review.outcome.is_none() || self.0.count("ann checked") == 1
    }
}

// I07: the right to decide is lost between the record of the attempt and its send.
#[test]
fn an_approval_that_is_lost_directly_before_the_send_is_asked_for_again() {
    let world = World::new();
    let process = start(world.engine().reviewers(AnnLeaves(world.clone())), &world, pays);
    process.on(async {
        let run = process.acme().run(pays, "eve".to_owned()).start().await.unwrap();
        let review = open_about(&process, "eve").await;
        for by in ["ann", "carl"] {
            approve(&process.acme(), &review, by).await.unwrap();
        }
        let again = open_about(&process, "eve").await;
        assert_eq!((again.version, world.effects("transfer").len()), (2, 0));
        for by in ["bob", "carl"] {
            approve(&process.acme(), &again, by).await.unwrap();
        }
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("transfer"), ["eve"]);
    process.shut_down();
}
