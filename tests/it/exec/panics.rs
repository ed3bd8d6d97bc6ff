//! Code of the host that panics: it costs the request that called it, and nothing else. The caller's task goes on, the record
//! stays, the key is free, and the same request is done once when the code is mended.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::exec::{Compensated, Reviewers};
use counterfoil::ledger::{
    Compensation, Contract, ContractClass, EffectClass, ErrorKind, Key, LookupOffer, LookupResult,
    OperationKey, Review, ReviewPolicy, Scopes, Undone,
};
use counterfoil::tool::approval::Verdict;
use counterfoil::tool::lookup::{Expected, HttpGet};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Approval, ApprovalSubject, Outcome, Tenant, ToolRequest};
use serde_json::json;

use crate::world::{Keys, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, soon};

/// Panics as often as it is told to, where it is burnt under the name that it was armed with.
#[derive(Clone, Default)]
struct Fuse(Arc<Mutex<(&'static str, u32)>>);

impl Fuse {
    fn arm(&self, what: &'static str, times: u32) {
        *self.0.lock().unwrap() = (what, times);
    }

    fn is_armed(&self, what: &str) -> bool {
        let (armed, left) = *self.0.lock().unwrap();
        armed == what && left > 0
    }

    fn burn(&self, what: &str) {
        if self.is_armed(what) {
            self.0.lock().unwrap().1 -= 1;
            panic!("a panic that was asked for");
        }
    }
}

impl Reviewers for Fuse {
    fn may_decide(&self, _: &Tenant, _: &str, _: &Review) -> bool {
        self.burn("reviewers");
        true
    }
}

fn key() -> OperationKey {
    Key::of("pay_out").target("c1").render().unwrap()
}

fn of(case: &str) -> ToolRequest {
    ToolRequest::new(acme(), "pay_out", json!({"case": case}))
}

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    fuse: Fuse,
}

impl Scene {
    fn new() -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(Keys::Honours), fuse: Fuse::default() }
    }

    /// A tool all of whose code has the fuse in it.
    fn tool(&self) -> DynamicTool {
        let (world, look) = (self.world.clone(), self.world.clone());
        let burn = |what: &'static str| {
            let fuse = self.fuse.clone();
            move || fuse.burn(what)
        };
        let (call, lookup, refresh) = (burn("call"), burn("lookup"), burn("refresh"));
        let (keyed, scopes, policy, package) = (burn("key"), burn("scopes"), burn("policy"), burn("package"));
        let (undo, find) = (burn("compensate"), burn("find_compensation"));
        let fuse = self.fuse.clone();
        let contract = Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong);
        DynamicTool::new("pay_out", EffectClass::InternalMutation, contract)
            .key(move |input| {
                keyed();
                Some(Key::of("pay_out").target(input["case"].as_str()?))
            })
            .scopes(move |_, _| {
                scopes();
                Some(Scopes::of("account 1"))
            })
            .package(move |input| {
                package();
                ApprovalSubject::of("payment", input)
            })
            .policy("all", 1, move |_| {
                policy();
                Verdict::Allow
            })
            .call(move |told, input| {
                call();
                let world = world.clone();
                async move { world.request(told.key(), input).await }
            })
            .reconcile(move |told, _| {
                lookup();
                let world = look.clone();
                async move { world.lookup(told.key(), None).await }
            })
            .refresh(move || {
                refresh();
                async { Ok(()) }
            })
            .compensate(Compensation::Automatic, move |_, _| {
                undo();
                // It is looked up if nobody knows what became of it.
                let is_unknown = fuse.is_armed("find_compensation");
                async move {
                    if is_unknown {
                        return Err(ToolError::new(ErrorKind::Disconnected, "no answer"));
                    }
                    Ok(Done::new(Undone::whole()))
                }
            })
            .find_compensation(move |_, _| {
                find();
                async { Ok(LookupResult::NotFound) }
            })
            .retry(brief())
    }

    async fn process(&self) -> Process {
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(self.tool())).await.unwrap()
    }
}

/// The code of a tool that is called on a call's way, and the reply of the provider that leads there.
const ON_THE_WAY: [(&str, Option<Reply>); 7] = [
    ("key", None),
    ("package", None),
    ("policy", None),
    ("scopes", None),
    ("call", None),
    ("lookup", Some(Reply::EffectThenFail(ErrorKind::Disconnected))),
    ("refresh", Some(Reply::Fail(ErrorKind::Unauthorized))),
];

#[tokio::test]
async fn a_panic_on_a_calls_way_costs_at_most_that_request() {
    for (what, reply) in ON_THE_WAY {
        let scene = Scene::new();
        let process = scene.process().await;
        scene.world.replies(reply);
        scene.fuse.arm(what, 1);
        let met =
            process.execute(request("pay_out")).await.unwrap_or_else(|_| panic!("{what} reached the caller"));
        match met {
            // The rest of the call finds out what became of it.
            Ok(outcome) if ["call", "lookup", "refresh"].contains(&what) => {
                assert!(outcome.answer().is_some(), "{what}: {outcome:?}");
            }
            Ok(outcome) => assert!(matches!(outcome, Outcome::Refused(_)), "{what}: {outcome:?}"),
            Err(error) => assert!(error.to_string().ends_with("[panicked]"), "{what}: {error}"),
        }
        assert!(!scene.fuse.is_armed(what), "{what} was not called");
        let other = process.execute(of("c2")).await.unwrap().unwrap();
        assert!(other.answer().is_some(), "{what}: {other:?}");
        let again = process.execute(request("pay_out")).await.unwrap().unwrap();
        assert!(again.answer().is_some(), "{what}: {again:?}");
        assert_eq!(scene.world.count(), 2, "{what}: one effect of each");
        process.spawn(process.executor().shutdown(Duration::from_secs(5))).await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_while_an_effect_is_undone_leaves_it_to_be_undone() {
    for what in ["scopes", "compensate", "find_compensation"] {
        let scene = Scene::new();
        let process = scene.process().await;
        assert!(process.execute(request("pay_out")).await.unwrap().unwrap().answer().is_some());
        let executor = process.executor();
        let undo = || {
            let executor = executor.clone();
            process.spawn(async move { executor.compensate(&acme(), &key()).await })
        };
        scene.fuse.arm(what, 1);
        let met = undo().await.unwrap_or_else(|_| panic!("{what} reached the caller"));
        if let Err(error) = &met {
            assert!(error.to_string().ends_with("[panicked]"), "{what}: {error}");
        }
        assert!(!scene.fuse.is_armed(what), "{what} was not called");
        let undone = undo().await.unwrap().unwrap();
        assert!(matches!(&undone, Compensated::Undone(undone) if undone.is_whole()), "{what}: {undone:?}");
    }
}

// The rule about the reviewers is asked when a person votes, and again directly before the effect.
#[tokio::test]
async fn a_panic_of_the_rule_about_reviewers_counts_no_vote_and_sends_nothing() {
    let scene = Scene::new();
    let tool =
        scene.world.tool("pay_out", EffectClass::InternalMutation, Contract::new(ContractClass::ReplaysKey));
    let tool = tool.package(|input| ApprovalSubject::of("payment", input)).review(ReviewPolicy::by(["ann"]));
    let builder = executor(&scene.dir, &scene.clock).dynamic_tool(tool).reviewers(scene.fuse.clone());
    let process = Process::start(builder).await.unwrap();
    let approvals = process.executor().approvals(&acme());
    let package = ApprovalSubject::of("payment", &json!({"case": "c1"}));
    let ask = approvals.ask("r1", package, ReviewPolicy::by(["ann"]));
    let asked = process.spawn(ask.into_future()).await.unwrap().unwrap();
    let vote = async || {
        let vote = approvals.decide(&asked.id, asked.version).approve("ann").into_future();
        process.spawn(vote).await.expect("the panic reached the caller")
    };
    scene.fuse.arm("reviewers", 1);
    let refused = vote().await.unwrap_err().to_string();
    assert!(refused.starts_with(&asked.id) && refused.ends_with("[panicked]"), "{refused}");
    assert_eq!(approvals.approval(&asked.id).await.unwrap(), None, "no vote was counted");
    vote().await.unwrap();

    let approval: Approval = approvals.approval(&asked.id).await.unwrap().unwrap();
    let approved = || process.execute(request("pay_out").approved_by(&approval));
    scene.fuse.arm("reviewers", 1);
    let refused = approved().await.expect("the panic reached the caller").unwrap_err().to_string();
    assert!(refused.ends_with("[panicked]"), "{refused}");
    assert_eq!(scene.world.count(), 0, "nothing was sent");
    let outcome = approved().await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
}

// Looks that are due are made together: one whose tool's code panics does not keep the others from being written.
#[tokio::test]
async fn a_look_that_panics_holds_up_no_other_look() {
    let scene = Scene::new();
    let poison = scene.fuse.clone();
    let contract = Contract::new(ContractClass::Lookup);
    let tool = scene.world.tool("pay_out", EffectClass::Payment, contract).without_approval().retry(brief());
    let tool = tool.scopes(move |_, input| {
        if input["case"] == "c1" {
            poison.burn("look");
        }
        None
    });
    let process = Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(tool)).await.unwrap();
    for case in ["c1", "c2"] {
        let outcome = process.execute(of(case)).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }
    let executor = process.executor();
    let due = async |case: &str| {
        let key = Key::of("pay_out").target(case).render().unwrap();
        executor.next_look(&acme(), &key).await.unwrap()
    };
    assert!(due("c1").await.is_some() && due("c2").await.is_some(), "both are looked at once afterwards");
    scene.fuse.arm("look", u32::MAX);
    scene.clock.advance(SETTLE);
    let written = async {
        while due("c2").await.is_some() {
            tokio::task::yield_now().await;
        }
        Ok::<_, ()>(())
    };
    soon("the look that does not panic is not written".to_owned(), written).await;
    assert!(due("c1").await.is_some(), "it is made again");
}

/// Code that is given with the call itself.
fn burns() -> Result<u32, ToolError> {
    panic!("a panic that was asked for")
}

#[tokio::test]
async fn a_function_that_panics_is_of_unknown_outcome() {
    let scene = Scene::new();
    let process = scene.process().await;
    let executor = process.executor();
    let once = async move {
        let key = Key::of("mail").target("ann").operation("welcome");
        executor.execute_once(&acme(), key, "Welcome", || async { burns() }).await
    };
    let outcome = process.spawn(once).await.expect("the panic reached the caller").unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
}

// The input of an earlier build is brought up to date before it is compared.
#[tokio::test]
async fn a_panic_while_a_stored_input_is_upgraded_changes_nothing() {
    let scene = Scene::new();
    let process = scene.process().await;
    assert!(process.execute(request("pay_out")).await.unwrap().unwrap().answer().is_some());
    process.spawn(process.executor().shutdown(Duration::from_secs(5))).await.unwrap();

    let fuse = scene.fuse.clone();
    let upgrade = move |_: u32, mut stored: serde_json::Value| {
        fuse.burn("upgrade");
        stored["currency"] = json!("EUR");
        Some(stored)
    };
    let builder = executor(&scene.dir, &scene.clock).dynamic_tool(scene.tool().input_version(2, upgrade));
    let process = Process::start(builder).await.unwrap();
    let mut input = request("pay_out").input;
    input["currency"] = json!("EUR");
    let asks = || process.execute(ToolRequest::new(acme(), "pay_out", input.clone()));
    scene.fuse.arm("upgrade", 1);
    let error = asks().await.expect("the panic reached the caller").unwrap_err().to_string();
    assert!(error.contains("a panic that was asked for") && error.ends_with("[panicked]"), "{error}");
    let other = process.execute(of("c2")).await.unwrap().unwrap();
    assert!(other.answer().is_some(), "{other:?}");
    let again = asks().await.unwrap().unwrap();
    assert!(again.answer().is_some_and(|answer| !answer.first), "{again:?}");
    assert_eq!(scene.world.count(), 2, "one effect of each");
}

// A ready-made lookup signs its requests by a closure of the program: a panic of it is a lookup without an answer.
#[tokio::test]
async fn a_panic_while_a_lookup_is_authorized_is_a_lookup_without_an_answer() {
    let scene = Scene::new();
    let fuse = scene.fuse.clone();
    let web = HttpGet::list("http://127.0.0.1:9/", "", Duration::from_secs(1)).unwrap();
    let web = web.authorize(move |_| fuse.burn("authorize"));
    let (fuse, look) = (scene.fuse.clone(), scene.world.clone());
    let tool = scene.tool().reconcile(move |told, _| {
        let (web, fuse, world) = (web.clone(), fuse.clone(), look.clone());
        async move {
            if fuse.is_armed("authorize") {
                web.find(told.key(), &Expected::new(), Ok::<_, serde_json::Error>).await?;
            }
            world.lookup(told.key(), None).await
        }
    });
    let process = Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(tool)).await.unwrap();
    scene.world.replies([Reply::EffectThenFail(ErrorKind::Disconnected)]);
    scene.fuse.arm("authorize", 1);
    let outcome = process.execute(request("pay_out")).await.expect("the panic reached the caller").unwrap();
    assert!(!scene.fuse.is_armed("authorize"), "the hook was not called");
    assert!(outcome.answer().is_some(), "{outcome:?}");
    let again = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(again.answer().is_some(), "{again:?}");
    assert_eq!(scene.world.count(), 1);
}
