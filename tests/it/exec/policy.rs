//! Effects that a policy of their tool approves: at the executor's door, in the record, and after a crash.

use std::sync::Arc;

use counterfoil::exec::{ExecutorBuilder, RequestError};
use counterfoil::ledger::{
    ApprovalError, Contract, ContractClass, EffectClass, ErrorKind, Key, Record, ReviewPolicy, State,
};
use counterfoil::tool::approval::{self, Verdict};
use counterfoil::tool::{
    ApprovalPolicy, Call, Done, DynamicTool, Guarantee, Tool, ToolError, contract, effect,
};
use counterfoil::{Approval, ApprovalSubject, Executor, Outcome, ToolRequest};
use serde_json::{Value, json};

use crate::world::{Keys, Process, Reply, TestClock, World, acme, brief, executor};

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
}

impl Scene {
    fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(Keys::Honours) }
    }

    fn with(&self, tool: DynamicTool) -> ExecutorBuilder {
        executor(&self.dir, &self.clock).dynamic_tool(tool)
    }

    /// A tool of the world, under this version of the policy.
    fn under(&self, version: u32, policy: fn(&Value) -> Verdict) -> ExecutorBuilder {
        self.with(self.notify().policy("transactional-mail", version, policy))
    }

    fn notify(&self) -> DynamicTool {
        let contract = Contract::new(ContractClass::ReplaysKey);
        self.world.tool("notify", EffectClass::Notification, contract).retry(brief())
    }
}

/// Receipts go out, newsletters do not, and people decide about the rest.
fn by_text(input: &Value) -> Verdict {
    match input["text"].as_str() {
        Some("receipt") => Verdict::Allow,
        Some("newsletter") => Verdict::refuse("newsletters go out by the newsletter tool"),
        _ => Verdict::Ask(ReviewPolicy::by(["ann", "bob"])),
    }
}

fn mail(text: &str) -> Value {
    json!({ "case": "c1", "text": text })
}

fn request(text: &str) -> ToolRequest {
    ToolRequest::new(acme(), "notify", mail(text))
}

async fn recorded(executor: &Executor) -> Option<Record> {
    let key = Key::of("notify").target("c1").render().unwrap();
    executor.record(&acme(), &key).await.unwrap().map(|(record, _)| record)
}

/// The approval of the record, in words.
async fn approved(executor: &Executor) -> String {
    recorded(executor).await.unwrap().approval.unwrap().to_string()
}

#[tokio::test]
async fn a_call_that_the_policy_allows_goes_out_and_its_record_names_the_policy() {
    let scene = Scene::new();
    let executor = scene.under(3, by_text).open().await.unwrap();
    let outcome = executor.execute(request("receipt")).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(approved(&executor).await, "by policy transactional-mail, version 3");
    assert_eq!(scene.world.count(), 1);

    let guarantee = Guarantee::of(executor.tools()[0]);
    assert_eq!(guarantee.approval, "by policy transactional-mail, version 3");
    assert!(guarantee.to_string().contains("approval: by policy transactional-mail"), "{}", guarantee);
}

#[tokio::test]
async fn a_call_that_the_policy_asks_about_waits_for_the_decision_of_a_person() {
    let scene = Scene::new();
    let executor = scene.under(1, by_text).open().await.unwrap();
    let outcome = executor.execute(request("apology")).await.unwrap();
    let Outcome::Refused(error) = &outcome else { panic!("{outcome:?}") };
    let RequestError::Approval(ApprovalError::PersonNeeded { review, .. }) = &**error else {
        panic!("{error}");
    };
    assert!(review.reviewers.contains("ann"), "{review:?}");
    assert!(outcome.for_model().text.contains("needs a person's approval"), "{:?}", outcome.for_model());
    assert_eq!((recorded(&executor).await, scene.world.requests()), (None, 0));

    // The people are shown the whole input, because the tool names no package.
    let approval = Approval::of("ann", &ApprovalSubject::of("notify", &mail("apology"))).unwrap();
    let outcome = executor.execute(request("apology").approved_by(&approval)).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(approved(&executor).await, "by ann");
}

#[tokio::test]
async fn a_call_that_the_policy_refuses_is_recorded_and_not_sent() {
    let scene = Scene::new();
    let executor = scene.under(1, by_text).open().await.unwrap();
    // A person's approval does not make up for it.
    let approval = Approval::of("ann", &ApprovalSubject::of("notify", &mail("newsletter"))).unwrap();
    for refused in [request("newsletter"), request("newsletter").approved_by(&approval)] {
        let outcome = executor.execute(refused).await.unwrap();
        let Outcome::Failed(failure) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind, ErrorKind::PolicyDenied);
        assert_eq!(failure.detail["policy"], json!({ "name": "transactional-mail", "version": 1 }));
        assert_eq!(
            outcome.for_model().text,
            "Nothing was done: the policy transactional-mail, version 1, refuses it: newsletters go out by the newsletter \
             tool. Do not make the same call again; go on without it, or make one that the policy allows."
        );
        assert!(matches!(recorded(&executor).await.unwrap().state, State::Failed { .. }));
    }
    assert_eq!(scene.world.requests(), 0);
    executor.shutdown(std::time::Duration::ZERO).await;

    // A new request is a new question to the policy.
    let executor = scene.under(2, |_| Verdict::Allow).open().await.unwrap();
    let outcome = executor.execute(request("newsletter")).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(approved(&executor).await, "by policy transactional-mail, version 2");
}

#[tokio::test]
async fn a_recorded_verdict_stands_after_a_crash_although_the_policy_has_changed() {
    let scene = Scene::new();
    let process = Process::start(scene.under(1, by_text)).await.unwrap();
    scene.world.replies([Reply::Hang]);
    drop(process.execute(request("receipt")));
    scene.world.requested(1).await;
    process.kill();

    let process = Process::start(scene.under(2, |_| Verdict::refuse("no mail today"))).await.unwrap();
    let outcome = process.execute(request("receipt")).await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(approved(&process.executor()).await, "by policy transactional-mail, version 1");
    assert_eq!((scene.world.count(), scene.world.wire_keys().len()), (1, 1));
}

// A call that may be repeated goes out unrecorded otherwise.
#[tokio::test]
async fn a_verdict_is_recorded_before_an_idempotent_call_goes_out() {
    let scene = Scene::new();
    let contract = Contract::new(ContractClass::Idempotent);
    let tool = scene.world.tool("notify", EffectClass::InternalMutation, contract);
    let process =
        Process::start(scene.with(tool.policy("small-changes", 1, |_| Verdict::Allow))).await.unwrap();
    scene.world.replies([Reply::Hang]);
    let call = process.execute(request("receipt"));
    scene.world.requested(1).await;
    assert_eq!(approved(&process.executor()).await, "by policy small-changes, version 1");
    scene.world.release();
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_notification_goes_out_without_an_approval_if_its_tool_says_so() {
    let scene = Scene::new();
    let executor = scene.with(scene.notify().without_approval()).open().await.unwrap();
    let outcome = executor.execute(request("door bell")).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!(recorded(&executor).await.unwrap().approval, None);
    assert!(Guarantee::of(executor.tools()[0]).to_string().contains("approval: none"));
}

#[tokio::test]
async fn an_inline_effect_obeys_its_policy() {
    let scene = Scene::new();
    let executor = executor(&scene.dir, &scene.clock).open().await.unwrap();
    let send = async |text: &str, approval: Option<Approval>| {
        let effect = executor.effect(&acme(), Key::of("notify").target("c1").operation(text), mail(text));
        let effect = effect.class(EffectClass::Notification).contract(contract::ReplaysKey);
        let effect = effect.policy("transactional-mail", 1, by_text);
        let effect = match &approval {
            Some(approval) => effect.approved_by(ApprovalSubject::of("notify", &mail(text)), approval),
            None => effect,
        };
        let world = scene.world.clone();
        effect
            .outcome(move |call, args: Value| {
                let world = world.clone();
                async move { world.request(call.key(), args).await }
            })
            .await
    };
    assert!(send("receipt", None).await.unwrap().answer().is_some());
    let refused = send("newsletter", None).await.unwrap();
    assert!(matches!(&refused, Outcome::Failed(failure) if failure.kind == ErrorKind::PolicyDenied));
    let asks = send("apology", None).await.unwrap_err();
    assert!(asks.to_string().contains("wants a person to decide"), "{asks}");
    let ann = Approval::of("ann", &ApprovalSubject::of("notify", &mail("apology"))).unwrap();
    assert!(send("apology", Some(ann)).await.unwrap().answer().is_some());
    assert_eq!(scene.world.count(), 2);

    let rings = executor.effect(&acme(), Key::of("ring").target("c1"), ());
    let rings = rings.class(EffectClass::Notification).contract(contract::ReplaysKey).without_approval();
    rings.run(|_, ()| async { Ok(Done::new(1)) }).await.unwrap();
}

/// A refund by the tool's own policy.
struct Refund;

impl Tool for Refund {
    const NAME: &'static str = "refund";
    type Effect = effect::Payment<approval::Policy>;
    type Contract = contract::ReplaysKey;
    type Input = u64;
    type Output = u64;

    fn key(&self, cents: &u64) -> Option<Key> {
        Some(Key::of(Self::NAME).target(cents.to_string()))
    }

    async fn call(&self, _: &Call, cents: &u64) -> Result<Done<u64>, ToolError> {
        Ok(Done::new(*cents))
    }
}

impl ApprovalPolicy for Refund {
    const POLICY: &'static str = "small-refunds";
    const POLICY_VERSION: u32 = 4;

    fn policy(&self, cents: &u64) -> Verdict {
        if *cents <= 5_000 { Verdict::Allow } else { Verdict::refuse("more than 50.00") }
    }
}

#[tokio::test]
async fn a_typed_payment_obeys_its_policy() {
    let executor = Executor::in_memory().tool(Refund).open().await.unwrap();
    let outcome = executor.call::<Refund>(&acme(), 1_999, None).await.unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    let outcome = executor.call::<Refund>(&acme(), 5_001, None).await.unwrap();
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.message, "the policy small-refunds, version 4, refuses it: more than 50.00");
}
