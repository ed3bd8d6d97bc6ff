//! GUARD-1 without a workflow: the executor alone asks, people decide from anywhere, and the call goes out by the approval. On both stores.

use std::time::Duration;

use counterfoil::exec::{ExecutorBuilder, RequestError};
use counterfoil::guard::approval::{ApprovalRefused, Approvals, AskRefused, OpenReview};
use counterfoil::ledger::{
    ApprovalError, Contract, ContractClass, EffectClass, ReviewOutcome, ReviewPolicy, VoteRefused,
};
use counterfoil::{ApprovalSubject, Executor, Outcome, Tenant, ToolRequest};
use serde_json::{Value, json};

use crate::store::postgres::{Schema, url};
use crate::world::{Keys, TestClock, World, acme, brief};

const HOUR: Duration = Duration::from_hours(1);

/// A store that workers open one after the other, or at once where it is shared.
struct Place {
    dir: tempfile::TempDir,
    schema: Option<Schema>,
}

impl Place {
    fn each() -> [Self; 2] {
        [false, true]
            .map(|shared| Self { dir: tempfile::tempdir().unwrap(), schema: shared.then(Schema::new) })
    }

    fn builder(&self) -> ExecutorBuilder {
        match &self.schema {
            Some(schema) => ExecutorBuilder::postgres_with(url(), schema.options()),
            None => Executor::sqlite(self.dir.path().join("agents.db")),
        }
    }
}

fn notice(text: &str) -> Value {
    json!({"case": "c1", "text": text})
}

fn package(text: &str) -> ApprovalSubject {
    ApprovalSubject::of("notice", &notice(text))
}

fn two_of_three() -> ReviewPolicy {
    ReviewPolicy::by(["ann", "bob", "carl"]).quorum(2)
}

async fn approve(approvals: &Approvals, asked: &OpenReview, by: &str) -> Result<u32, ApprovalRefused> {
    approvals.decide(&asked.id, asked.version).approve(by).await.map(|decided| decided.approvals)
}

#[tokio::test]
async fn a_call_goes_out_once_by_what_people_have_approved() {
    for place in Place::each() {
        let world = World::new(Keys::Ignores);
        let open = || {
            let contract = Contract::new(ContractClass::Lookup);
            let tool = world.tool("notify", EffectClass::Notification, contract).retry(brief());
            place.builder().dynamic_tool(tool.package(|input| ApprovalSubject::of("notice", input))).open()
        };
        let executor = open().await.unwrap();
        let approvals = executor.approvals(&acme());
        let asked = approvals.ask("c1", package("granted"), two_of_three()).await.unwrap();
        assert_eq!(approvals.reviews(None).await.unwrap(), std::slice::from_ref(&asked));
        assert_eq!(approve(&approvals, &asked, "ann").await.unwrap(), 1);
        executor.shutdown(Duration::from_secs(5)).await;

        // The next process knows who was asked, and who has decided.
        let executor = open().await.unwrap();
        let approvals = executor.approvals(&acme());
        let again = approvals.ask("c1", package("granted"), two_of_three()).await.unwrap();
        assert_eq!((&again.id, again.review.votes.len()), (&asked.id, 1));
        assert_eq!(approvals.approval(&asked.id).await.unwrap(), None);
        assert_eq!(approve(&approvals, &asked, "ann").await.unwrap(), 1, "a double click counts once");
        assert_eq!(approve(&approvals, &asked, "carl").await.unwrap(), 2);
        assert_eq!(approvals.reviews(None).await.unwrap(), []);
        let approval = approvals.approval(&asked.id).await.unwrap().unwrap();
        assert_eq!(approval.by, "ann, carl");

        let call = |text: &str| ToolRequest::new(acme(), "notify", notice(text)).approved_by(&approval);
        let other = executor.execute(call("refused")).await.unwrap();
        assert!(matches!(lacking(&other), ApprovalError::OtherContent { .. }), "{other:?}");
        for first in [true, false] {
            let sent = executor.execute(call("granted")).await.unwrap();
            assert_eq!(sent.answer().map(|answer| answer.first), Some(first), "{sent:?}");
        }
        let second = counterfoil::Key::of("notify").target("c2");
        let second = executor.execute(call("granted").key(second)).await.unwrap();
        assert!(matches!(lacking(&second), ApprovalError::Used { .. }), "{second:?}");
        assert_eq!(world.count(), 1);
    }
}

/// Why an approval did not count.
fn lacking(outcome: &Outcome) -> &ApprovalError {
    let Outcome::Refused(error) = outcome else { panic!("{outcome:?}") };
    let RequestError::Approval(error) = &**error else { panic!("{error}") };
    error
}

#[tokio::test]
async fn what_was_rejected_superseded_or_is_another_tenants_is_not_approved() {
    for place in Place::each() {
        let executor = place.builder().open().await.unwrap();
        let approvals = executor.approvals(&acme());
        let asked = approvals.ask("c1", package("granted"), two_of_three()).await.unwrap();
        approve(&approvals, &asked, "ann").await.unwrap();

        let other = approvals.ask("c1", package("refused"), two_of_three()).await.unwrap_err();
        assert!(matches!(other, AskRefused::Conflict { version: 1, next: 2, .. }), "{other}");
        let second = approvals.ask("c1", package("refused"), two_of_three()).version(2).await.unwrap();
        assert_eq!((&second.id, second.review.votes.len()), (&asked.id, 0));
        let stale = approve(&approvals, &asked, "bob").await.unwrap_err();
        assert!(matches!(stale, ApprovalRefused::Vote(VoteRefused::StaleVersion { .. })), "{stale}");
        let late = approvals.ask("c1", package("granted"), two_of_three()).await.unwrap_err();
        assert!(matches!(late, AskRefused::Superseded { version: 1, by: 2, .. }), "{late}");

        let rejected = approvals.decide(&second.id, 2).reject("bob", "no such case").await.unwrap();
        assert!(matches!(rejected.outcome, Some(ReviewOutcome::Rejected { .. })), "{rejected:?}");
        let changed = approve(&approvals, &second, "bob").await.unwrap_err();
        assert!(matches!(changed, ApprovalRefused::Vote(VoteRefused::Changed { .. })), "{changed}");
        assert_eq!(approvals.approval(&second.id).await.unwrap(), None);

        let theirs = executor.approvals(&Tenant::new("globex").unwrap());
        assert_eq!(theirs.review(&second.id).await.unwrap(), None);
        let unknown = approve(&theirs, &second, "ann").await.unwrap_err();
        assert!(matches!(unknown, ApprovalRefused::Unknown { .. }), "{unknown}");

        let own = approvals
            .ask("c3", package("x"), ReviewPolicy::by(["ann"]))
            .requested_by("ann")
            .await
            .unwrap_err();
        assert!(matches!(own, AskRefused::Undecidable { .. }), "{own}");
        let nameless = approvals.ask("", package("x"), two_of_three()).await.unwrap_err();
        assert!(matches!(nameless, AskRefused::Id(_)), "{nameless}");
    }
}

#[tokio::test]
async fn nobody_decides_when_the_time_is_over() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let executor = Executor::sqlite(dir.path().join("agents.db")).clock(clock.clone()).open().await.unwrap();
    let approvals = executor.approvals(&acme());
    let in_an_hour = two_of_three().expires_in(HOUR);
    let asked = approvals.ask("c1", package("granted"), in_an_hour.clone()).await.unwrap();
    approve(&approvals, &asked, "ann").await.unwrap();
    clock.advance(HOUR);
    let late = approve(&approvals, &asked, "bob").await.unwrap_err();
    assert!(matches!(late, ApprovalRefused::Vote(VoteRefused::Expired { .. })), "{late}");
    assert_eq!(approvals.reviews(None).await.unwrap(), [], "nothing is left to decide");
    let review = approvals.review(&asked.id).await.unwrap().unwrap().review;
    assert_eq!(review.outcome, Some(ReviewOutcome::Expired));
    assert_eq!(approvals.approval(&asked.id).await.unwrap(), None);
    let again = approvals.ask("c1", package("granted"), in_an_hour).version(2).await.unwrap();
    assert_eq!(approve(&approvals, &again, "bob").await.unwrap(), 1);
}

// Time is the database's, whichever worker somebody decides at: a machine whose clock is hours off neither loses a vote nor lets one in
// that comes too late.
#[tokio::test]
async fn votes_are_counted_by_the_clock_of_the_database() {
    let schema = Schema::new();
    let open = async |off: Duration, slow: bool| {
        let clock = TestClock::breathing();
        if !slow {
            clock.jump_wall(off);
        } // otherwise it stands in the year in which tests begin
        let builder = ExecutorBuilder::postgres_with(url(), schema.options()).clock(clock);
        builder.open().await.unwrap()
    };
    let (slow, fast) = (open(Duration::ZERO, true).await, open(200 * 365 * 24 * HOUR, false).await);
    let (slow, fast) = (slow.approvals(&acme()), fast.approvals(&acme()));
    let asked = slow.ask("c1", package("granted"), two_of_three().expires_in(HOUR)).await.unwrap();
    assert_eq!(approve(&fast, &asked, "ann").await.unwrap(), 1);
    assert_eq!(approve(&slow, &asked, "bob").await.unwrap(), 2);
    let review = fast.review(&asked.id).await.unwrap().unwrap().review;
    assert!(matches!(review.outcome, Some(ReviewOutcome::Approved { .. })), "{review:?}");
    let now = counterfoil::Clock::now(&counterfoil::SystemClock);
    for vote in &review.votes {
        let apart = vote.at.until(now).max(now.until(vote.at));
        assert!(apart < Duration::from_mins(5), "{vote:?} is far from {now:?}");
    }

    let over = slow.ask("c2", package("granted"), two_of_three().expires_in(Duration::ZERO)).await.unwrap();
    for (approvals, by) in [(&slow, "ann"), (&fast, "bob")] {
        let late = approve(approvals, &over, by).await.unwrap_err();
        assert!(matches!(late, ApprovalRefused::Vote(VoteRefused::Expired { .. })), "{late}");
    }
}

#[tokio::test]
async fn what_a_run_waits_for_is_decided_by_an_engine() {
    use counterfoil::{Ctx, Engine, Failure};
    async fn asks(ctx: Ctx, (): ()) -> Result<String, Failure> {
        Ok(ctx.approval(package("granted")).await?.by)
    }
    let dir = tempfile::tempdir().unwrap();
    let engine =
        Engine::sqlite(dir.path().join("agents.db")).workflow("asks", 1, asks).start().await.unwrap();
    let acme = engine.tenant("acme").unwrap();
    let run = acme.run(asks, ()).start().await.unwrap();
    let review = loop {
        match acme.reviews(None).await.unwrap().pop() {
            Some(review) => break review,
            None => tokio::task::yield_now().await,
        }
    };
    let alone = engine.executor().approvals(&crate::world::acme());
    let refused = approve(&alone, &review, "ann").await.unwrap_err();
    assert!(matches!(refused, ApprovalRefused::OfARun { .. }), "{refused}");
    approve(&acme.approvals(), &review, "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "ann");
}
