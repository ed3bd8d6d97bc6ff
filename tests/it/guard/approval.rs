//! Approvals (GUARD-1, HAZARDS I01 to I07): who decides about what, once, and what goes out by it.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::Reviewers;
use counterfoil::flow::{EngineBuilder, FailureCode, RunError, RunHandle, TenantClient, WorkflowFn};
use counterfoil::guard::approval::{ApprovalRefused, Decided, OpenReview};
use counterfoil::ledger::{Review, ReviewOutcome, VoteRefused};
use counterfoil::store::QuestionKind;
use counterfoil::{ApprovalSubject, Ctx, Engine, Failure, Tenant};
use futures_util::future::Either;
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use crate::flow;
use crate::flow::lives::NAME;
use crate::flow::store::Tap;
use crate::flow::tools::Tell;
use crate::flow::world::{Process, World};
use crate::store::postgres::Schema;
use crate::world::TestClock;

const HOUR: Duration = Duration::from_hours(1);

fn notice(text: &str) -> ApprovalSubject {
    ApprovalSubject::of("notice", text)
}

/// Tells somebody what was approved.
async fn tell(ctx: &Ctx, text: &str, approval: &counterfoil::Approval) -> Result<u32, Failure> {
    ctx.call::<Tell>(text.to_owned()).approved_by(approval).await
}

/// Asks, and tells.
fn plain(world: &Arc<World>) -> impl WorkflowFn<(), u32> + Clone {
    flow!(world, |ctx, _n: ()| {
        let approval = ctx.approval(notice("granted")).reviewers(["ann", "bob", "carl"]).quorum(2).await?;
        world.count(&format!("approved by {}", approval.by));
        tell(&ctx, "granted", &approval).await
    })
}

fn life<W: WorkflowFn<(), u32>>(engine: EngineBuilder, world: &Arc<World>, code: W) -> Process {
    Process::start(world, engine.workflow(NAME, 1, code))
}

/// A run of this code, and what it asks.
async fn asked<W: WorkflowFn<(), u32> + Clone>(process: &Process, code: W) -> (RunHandle<u32>, OpenReview) {
    let run = process.acme().run(code, ()).start().await.unwrap();
    (run, one_open(process).await)
}

async fn one_open(process: &Process) -> OpenReview {
    process.until(async |acme| acme.reviews(None).await.unwrap().len() == 1).await;
    process.acme().reviews(None).await.unwrap().remove(0)
}

/// The open review about this content.
pub(crate) async fn open_about(process: &Process, content: &str) -> OpenReview {
    let find = async |acme: &TenantClient| {
        let open = acme.reviews(None).await.unwrap();
        open.into_iter().find(|open| open.review.content == content)
    };
    process.until(async |acme| find(acme).await.is_some()).await;
    find(&process.acme()).await.unwrap()
}

async fn reject(acme: &TenantClient, review: &OpenReview) {
    acme.decide(&review.id, review.version).reject("carl", "no").await.unwrap();
}

pub(crate) async fn approve(
    acme: &TenantClient,
    review: &OpenReview,
    by: &str,
) -> Result<Decided, ApprovalRefused> {
    acme.decide(&review.id, review.version).approve(by).await
}

fn code<T: std::fmt::Debug>(result: Result<T, RunError>) -> FailureCode {
    match result {
        Err(RunError::Failed { failure, .. }) => failure.code,
        other => panic!("{other:?}"),
    }
}

// I01, I02: a double click is one decision, a changed vote is none.
#[test]
fn a_quorum_counts_people_and_each_decides_once() {
    let world = World::new();
    let code = plain(&world);
    let process = life(world.engine(), &world, code.clone());
    process.on(async {
        let (run, review) = asked(&process, code).await;
        let acme = process.acme();
        let seen = &review.review;
        assert_eq!((seen.what.as_str(), &seen.content, seen.quorum), ("notice", &"granted".into(), 2));
        let first = approve(&acme, &review, "ann").await.unwrap();
        assert_eq!(first, Decided { outcome: None, approvals: 1, quorum: 2 });
        assert_eq!(approve(&acme, &review, "ann").await.unwrap(), first, "a double click");
        let changed = acme.decide(&review.id, 1).reject("ann", "on second thoughts").await.unwrap_err();
        assert!(
            matches!(changed, ApprovalRefused::Vote(VoteRefused::Changed { approved: true, .. })),
            "{changed}"
        );
        assert_eq!(world.effects("tell"), Vec::<String>::new());
        let (one, two) = tokio::join!(approve(&acme, &review, "bob"), approve(&acme, &review, "bob"));
        assert_eq!(one.unwrap(), two.unwrap(), "two tabs");
        run.result().await.unwrap();
        assert_eq!(approve(&acme, &review, "ann").await.unwrap(), first, "the original answer");
        let late = approve(&acme, &review, "carl").await.unwrap_err();
        assert!(matches!(&late, ApprovalRefused::Vote(VoteRefused::Over { .. })), "{late}");
        assert_eq!(acme.reviews(None).await.unwrap(), []);
    });
    assert_eq!((world.effects("tell").len(), world.counted("approved by ann, bob")), (1, 1));
    process.shut_down();
}

// I07: not entitled, their own request, another tenant; nothing is changed by that.
#[test]
fn who_may_not_decide_is_told_so() {
    let world = World::new();
    let code = flow!(world, |ctx, _n: ()| {
        let ask =
            ctx.approval(notice("granted").for_whom("eve")).reviewers(["ann", "bob"]).requested_by("ann");
        let approval = ask.await?;
        world.count("on");
        // For eve, and the tool says for nobody: another approval is asked for.
        tell(&ctx, "granted", &approval).await
    });
    let process = life(world.engine(), &world, code.clone());
    process.on(async {
        let (run, review) = asked(&process, code).await;
        let acme = process.acme();
        let why = approve(&acme, &review, "mallory").await.unwrap_err();
        assert!(
            matches!(&why, ApprovalRefused::Vote(VoteRefused::NotEntitled { by, .. }) if by == "mallory"),
            "{why}"
        );
        let why = approve(&acme, &review, "ann").await.unwrap_err();
        assert!(matches!(why, ApprovalRefused::Vote(VoteRefused::OwnRequest { .. })), "{why}");
        let why = approve(&acme, &review, "").await.unwrap_err();
        assert!(matches!(why, ApprovalRefused::Id(_)), "{why}");
        let globex = process.engine().tenant("globex").unwrap();
        assert_eq!(globex.reviews(None).await.unwrap(), []);
        let why = approve(&globex, &review, "bob").await.unwrap_err();
        assert!(matches!(why, ApprovalRefused::Unknown { .. }), "{why}");
        let stale = acme.decide(&review.id, 2).approve("bob").await.unwrap_err();
        assert!(matches!(
            stale,
            ApprovalRefused::Vote(VoteRefused::StaleVersion { seen: 2, version: 1, .. })
        ));
        assert_eq!(acme.review(&review.id).await.unwrap().unwrap().review.votes, []);
        assert_eq!(review.review.for_whom.as_deref(), Some("eve"));
        approve(&acme, &review, "bob").await.unwrap();
        process
            .until(async |acme| acme.reviews(None).await.unwrap().iter().any(|open| open.id != review.id))
            .await;
        assert_eq!(world.effects("tell"), Vec::<String>::new());
        approve(&acme, &one_open(&process).await, "bob").await.unwrap();
        run.result().await.unwrap();
    });
    process.shut_down();
}

#[test]
fn a_rejection_ends_it_and_says_who_and_why() {
    let world = World::new();
    let code_of_run = plain(&world);
    let process = life(world.engine(), &world, code_of_run.clone());
    process.on(async {
        let (run, review) = asked(&process, code_of_run).await;
        let acme = process.acme();
        approve(&acme, &review, "ann").await.unwrap();
        let decided = acme.decide(&review.id, 1).reject("bob", "no such case").await.unwrap();
        let rejected = ReviewOutcome::Rejected { by: "bob".into(), reason: "no such case".into() };
        assert_eq!(decided.outcome, Some(rejected));
        let Err(RunError::Failed { failure, .. }) = run.result().await else { panic!("it was rejected") };
        assert_eq!(failure.code, FailureCode::Rejected);
        assert_eq!(failure.detail["by"], "bob");
    });
    assert_eq!(world.effects("tell"), Vec::<String>::new());
    process.shut_down();
}

// I03: the draft is changed after the first version was approved.
#[test]
fn a_changed_draft_needs_a_new_approval() {
    let world = World::new();
    let code_of_run = flow!(world, |ctx, _n: ()| {
        let first = ctx.approval(notice("granted")).id("draft").await?;
        let other_content = tell(&ctx, "granted, with a typo mended", &first).await.unwrap_err();
        assert_eq!(other_content.code, FailureCode::Rejected);
        let second = ctx.approval(notice("granted.")).id("draft").version(2).await?;
        let superseded = tell(&ctx, "granted", &first).await.unwrap_err();
        assert_eq!(superseded.code, FailureCode::Rejected);
        tell(&ctx, "granted.", &second).await
    });
    let process = life(world.engine(), &world, code_of_run.clone());
    process.on(async {
        let (run, first) = asked(&process, code_of_run).await;
        let acme = process.acme();
        approve(&acme, &first, "ann").await.unwrap();
        reject(&acme, &open_about(&process, "granted, with a typo mended").await).await;
        open_about(&process, "granted.").await;
        let late = approve(&acme, &first, "bob").await.unwrap_err();
        assert!(
            matches!(late, ApprovalRefused::Vote(VoteRefused::StaleVersion { version: 2, .. })),
            "{late}"
        );
        approve(&acme, &open_about(&process, "granted.").await, "ann").await.unwrap();
        reject(&acme, &open_about(&process, "granted").await).await;
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("tell"), ["granted."]);
    process.shut_down();
}

// The code was edited while people were deciding: what they see is not what the run would send.
#[test]
fn a_question_about_other_content_on_resume_blocks_the_run() {
    let world = World::new();
    let asks = |text: &'static str| {
        flow!(world, |ctx, _n: ()| {
            let approval = ctx.approval(notice(text)).await?;
            tell(&ctx, text, &approval).await
        })
    };
    let process = life(world.engine(), &world, asks("granted"));
    let run = process.on(asked(&process, asks("granted"))).0.id();
    process.crash();
    let process = life(world.engine(), &world, asks("denied"));
    process.on(process.state(run, "blocked"));
    let question = process.on(process.question(QuestionKind::Diverged));
    assert!(question.question.contains("another input"), "{}", question.question);
    process.shut_down();
}

#[test]
fn an_approval_for_one_effect_lets_out_one() {
    let world = World::new();
    let code_of_run = flow!(world, |ctx, _n: ()| {
        let once = ctx.approval(notice("granted")).single_use().await?;
        tell(&ctx, "granted", &once).await?;
        let second = tell(&ctx, "granted", &once).await.unwrap_err();
        assert_eq!(second.code, FailureCode::Rejected);
        let often = ctx.approval(notice("denied")).await?;
        tell(&ctx, "denied", &often).await?;
        tell(&ctx, "denied", &often).await
    });
    let process = life(world.engine(), &world, code_of_run.clone());
    process.on(async {
        let (run, first) = asked(&process, code_of_run).await;
        approve(&process.acme(), &first, "ann").await.unwrap();
        process
            .until(async |acme| acme.reviews(None).await.unwrap().iter().any(|review| review.id != first.id))
            .await;
        reject(&process.acme(), &open_about(&process, "granted").await).await;
        approve(&process.acme(), &open_about(&process, "denied").await, "ann").await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("tell"), ["granted", "denied", "denied"]);
    process.shut_down();
}

/// Those who are in the house, which changes.
#[derive(Clone)]
struct House(Arc<World>);

impl Reviewers for House {
    fn may_decide(&self, _: &Tenant, reviewer: &str, review: &Review) -> bool {
        review.what == "notice" && self.0.counted(&format!("{reviewer} left")) == 0
    }
}

// I07: asked when they decide, and once more directly before the effect.
#[test]
fn who_has_left_the_house_decides_nothing_and_their_approval_lets_nothing_out() {
    let world = World::new();
    let code_of_run = flow!(world, |ctx, _n: ()| {
        let approval = ctx.approval(notice("granted")).await?;
        world.pass("approved").await;
        tell(&ctx, "granted", &approval).await
    });
    world.hold("approved");
    let process = life(world.engine().reviewers(House(world.clone())), &world, code_of_run.clone());
    process.on(async {
        let (run, review) = asked(&process, code_of_run).await;
        world.count("bob left");
        let why = approve(&process.acme(), &review, "bob").await.unwrap_err();
        assert!(matches!(why, ApprovalRefused::Vote(VoteRefused::NotEntitled { .. })), "{why}");
        approve(&process.acme(), &review, "ann").await.unwrap();
        world.reached("approved").await;
        world.count("ann left");
        world.release("approved");
        let again = one_open(&process).await;
        assert_eq!(world.effects("tell"), Vec::<String>::new());
        let why = approve(&process.acme(), &again, "ann").await.unwrap_err();
        assert!(matches!(why, ApprovalRefused::Vote(VoteRefused::NotEntitled { .. })), "{why}");
        approve(&process.acme(), &again, "carl").await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("tell"), ["granted"]);
    process.shut_down();
}

#[test]
fn nobody_decides_in_time() {
    let (world, hands) = (World::new(), TestClock::default());
    let code_of_run = flow!(world, |ctx, _n: ()| {
        let approval = ctx.approval(notice("granted")).expires_in(HOUR).await?;
        tell(&ctx, "granted", &approval).await
    });
    let process = life(world.engine_on(hands.clone()), &world, code_of_run.clone());
    process.on(async {
        let (run, review) = asked(&process, code_of_run).await;
        hands.advance(HOUR);
        let late = approve(&process.acme(), &review, "ann").await.unwrap_err();
        assert!(
            matches!(&late, ApprovalRefused::Vote(VoteRefused::Expired { .. } | VoteRefused::Over { .. })),
            "{late}"
        );
        assert_eq!(code(run.result().await), FailureCode::Undecided);
        let late = approve(&process.acme(), &review, "ann").await.unwrap_err();
        assert!(matches!(
            late,
            ApprovalRefused::Vote(VoteRefused::Over { outcome: ReviewOutcome::Expired, .. })
        ));
    });
    process.shut_down();
}

#[test]
fn an_approval_is_valid_for_so_long() {
    let (world, hands) = (World::new(), TestClock::default());
    let code_of_run = flow!(world, |ctx, _n: ()| {
        let approval = ctx.approval(notice("granted")).valid_for(HOUR).await?;
        world.pass("approved").await;
        tell(&ctx, "granted", &approval).await
    });
    world.hold("approved");
    let process = life(world.engine_on(hands.clone()), &world, code_of_run.clone());
    process.on(async {
        let (run, review) = asked(&process, code_of_run).await;
        approve(&process.acme(), &review, "ann").await.unwrap();
        world.reached("approved").await;
        hands.advance(HOUR);
        world.release("approved");
        let again = one_open(&process).await;
        assert_eq!(world.effects("tell"), Vec::<String>::new());
        approve(&process.acme(), &again, "bob").await.unwrap();
        run.result().await.unwrap();
    });
    assert_eq!(world.effects("tell"), ["granted"]);
    process.shut_down();
}

// A run that was cancelled, and one that has dropped its question, need no decision.
#[test]
fn a_decision_after_the_run_has_moved_on_changes_nothing_and_says_so() {
    let world = World::new();
    let code_of_run = flow!(world, |ctx, _n: ()| {
        match ctx
            .select("either", ctx.approval(notice("granted")).into_future(), ctx.signal::<u32>("go"))
            .await?
        {
            Either::Left(approval) => approval.map(|_| 1),
            Either::Right(signal) => {
                world.pass("on").await;
                signal
            }
        }
    });
    world.hold("on");
    let process = life(world.engine(), &world, code_of_run.clone());
    process.on(async {
        let (run, review) = asked(&process, code_of_run.clone()).await;
        run.signal("go", 7).await.unwrap();
        world.reached("on").await;
        let late = approve(&process.acme(), &review, "ann").await.unwrap_err();
        assert!(matches!(late, ApprovalRefused::MovedOn { .. }), "{late}");
        assert_eq!(process.acme().reviews(None).await.unwrap(), []);
        world.release("on");
        assert_eq!(run.result().await.unwrap(), 7);

        let (run, review) = asked(&process, code_of_run).await;
        run.cancel("ann", "no more").await.unwrap();
        assert_eq!(code(run.result().await), FailureCode::Cancelled);
        let late = approve(&process.acme(), &review, "ann").await.unwrap_err();
        assert!(matches!(late, ApprovalRefused::MovedOn { .. }), "{late}");
        let again = approve(&process.acme(), &review, "ann").await.unwrap_err();
        let ApprovalRefused::Vote(VoteRefused::Over { outcome: ReviewOutcome::Withdrawn, .. }) = again else {
            panic!("{again}")
        };
    });
    process.shut_down();
}

// I05: the process dies between the decision and the effect; and between the question and the decision.
#[test]
fn what_was_approved_is_not_asked_again_after_a_crash() {
    let world = World::new();
    let code_of_run = plain(&world);
    let process = life(world.engine(), &world, code_of_run.clone());
    let (run, review) = process.on(async {
        let (run, review) = asked(&process, code_of_run.clone()).await;
        (run.id(), review)
    });
    process.crash();
    world.hold("tell before granted");
    let process = life(world.engine(), &world, code_of_run.clone());
    process.on(async {
        for by in ["ann", "bob"] {
            approve(&process.acme(), &review, by).await.unwrap();
        }
        world.reached("tell before granted").await;
    });
    process.crash();
    world.release("tell before granted");
    let process = life(world.engine(), &world, code_of_run);
    process.on(async {
        process.acme().handle::<u32>(run).result().await.unwrap();
        assert_eq!(process.acme().reviews(None).await.unwrap(), []);
    });
    assert_eq!(world.effects("tell").len(), 1);
    process.shut_down();
}

// Two workers on one database: people decide at whichever they are connected to.
#[test]
fn two_workers_count_the_votes_of_one_review() {
    let (world, schema) = (World::new(), Schema::new());
    let code_of_run = plain(&world);
    let [one, other] = [world.tap.clone(), Tap::default()].map(|tap| {
        let engine = Engine::postgres_with(crate::server::url(), schema.options());
        life(world.equip(engine, &tap).lease(Duration::from_secs(2)), &world, code_of_run.clone())
    });
    let (run, review) = one.on(asked(&one, code_of_run.clone()));
    let elsewhere = other.acme();
    one.on(async {
        let here = one.acme();
        let votes = tokio::join!(
            approve(&here, &review, "ann"),
            approve(&elsewhere, &review, "bob"),
            approve(&elsewhere, &review, "ann"),
            approve(&here, &review, "carl"),
        );
        let counted = [votes.0, votes.1, votes.2].into_iter().flatten().count();
        assert!(counted >= 1, "somebody was counted");
        run.result().await.unwrap();
        let review = here.review(&review.id).await.unwrap().unwrap().review;
        assert_eq!((review.votes.len(), review.approvals()), (2, 2), "{review:?}");
    });
    assert_eq!(world.effects("tell").len(), 1);
    drop((run, elsewhere));
    one.shut_down();
    other.shut_down();
}

#[test]
fn what_cannot_be_decided_is_refused_before_anybody_is_asked() {
    let world = World::new();
    let code_of_run = flow!(world, |ctx, few: bool| {
        let ask = ctx.approval(notice("x")).reviewers(["ann", "bob"]).requested_by("ann");
        ask.quorum(if few { 2 } else { 0 }).await.map(drop)
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code_of_run.clone()));
    process.on(async {
        for (few, says) in [(true, "fewer people who may than have to"), (false, "nobody has to approve it")]
        {
            let blocked = process.acme().run(code_of_run.clone(), few).await.unwrap_err();
            assert!(
                matches!(&blocked, RunError::Blocked { .. }) && blocked.to_string().contains(says),
                "{blocked}"
            );
        }
        assert_eq!(process.acme().reviews(None).await.unwrap(), []);
    });
    process.shut_down();
}

// More reviews than a page holds are listed to the end; one that cannot be read hides none of those behind it.
#[test]
fn reviews_are_listed_to_the_end() {
    let world = World::new();
    let code = flow!(world, |ctx, number: u32| {
        let approval = ctx.approval(notice(&number.to_string())).await?;
        world.count(&approval.by);
        Ok(number)
    });
    let process = Process::start(&world, world.engine().workflow(NAME, 1, code.clone()));
    process.on(async {
        for number in 0..300 {
            process.acme().run(code.clone(), number).start().await.unwrap();
        }
        process.until(async |acme| listed(acme).await.len() == 300).await;
        let all = listed(&process.acme()).await;
        let mut own = SqliteConnectOptions::new().filename(world.path()).connect().await.unwrap();
        let damage = sqlx::query("UPDATE document SET body = '{}' WHERE kind = 'approval' AND id <= ?");
        let damaged = damage.bind(&all[269].id).execute(&mut own).await.unwrap().rows_affected();
        assert_eq!(damaged, 270, "more than a page");
        assert_eq!(listed(&process.acme()).await, all[270..]);
    });
    process.shut_down();
}

/// Page by page.
async fn listed(acme: &TenantClient) -> Vec<OpenReview> {
    let mut all: Vec<OpenReview> = Vec::new();
    loop {
        let page = acme.reviews(all.last().map(|last| last.id.as_str())).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}
