//! A process dies in the middle of a call, and the next one is a build that declares something else (issue 16, A13): what went
//! out is settled by what was declared then.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::Compensated;
use counterfoil::ledger::{Basis, Compensation, Contract, ContractClass, EffectClass, Undone};
use counterfoil::store::QuestionKind;
use counterfoil::tool::DynamicTool;
use counterfoil::{Key, Outcome};

use crate::world::{Keys, Look, Process, Reply, TestClock, World, acme, brief, executor, request, settle};

const TOOL: &str = "pay_out";

/// What a build declares.
#[derive(Clone)]
struct Build {
    effect: EffectClass,
    contract: Contract,
    namespace: &'static str,
}

impl Build {
    fn of(contract: Contract) -> Self {
        Self { effect: EffectClass::InternalMutation, contract, namespace: "" }
    }
}

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
}

impl Scene {
    fn new(keys: Keys) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(keys) }
    }

    async fn process(&self, build: &Build) -> Process {
        let tool = self.world.tool(TOOL, build.effect, build.contract.clone()).retry(brief());
        self.start(build, tool).await
    }

    async fn start(&self, build: &Build, tool: DynamicTool) -> Process {
        let executor = executor(&self.dir, &self.clock).namespace(build.namespace).dynamic_tool(tool);
        Process::start(executor).await.unwrap()
    }

    /// The first build dies while its call is under way, and the second one makes the call again.
    async fn changed(&self, reply: Reply, first: &Build, second: &Build) -> (Process, Outcome) {
        self.world.replies([reply]);
        let process = self.process(first).await;
        drop(process.execute(request(TOOL)));
        self.world.requested(1).await;
        process.kill();
        let process = self.process(second).await;
        let (outcome, _) = settle(&self.clock, process.execute(request(TOOL))).await;
        (process, outcome)
    }
}

async fn question(process: &Process) -> String {
    let open = process.executor().questions(&acme()).await.unwrap();
    let [asked] = &open[..] else { panic!("{open:?}") };
    assert_eq!(asked.kind, QuestionKind::Ambiguous);
    asked.question.clone()
}

fn replays() -> Contract {
    Contract::new(ContractClass::ReplaysKey)
}

#[tokio::test]
async fn another_namespace_or_key_length_gives_the_second_attempt_no_other_key() {
    let first = Build::of(replays());
    for second in [
        Build { namespace: "blue", ..first.clone() },
        Build::of(replays().key_max_len(36)),
        Build { namespace: "green", ..Build::of(replays().key_max_len(255)) },
    ] {
        let scene = Scene::new(Keys::Honours);
        let (_process, outcome) = scene.changed(Reply::EffectThenHang, &first, &second).await;
        assert!(matches!(outcome, Outcome::Done(answer) if answer.basis == Basis::Declaration));
        assert_eq!((scene.world.count(), scene.world.requests()), (1, 2), "{}", second.namespace);
        assert_eq!(scene.world.wire_keys().len(), 1, "{}", second.namespace);
    }
}

// The key goes to the lookup as well.
#[tokio::test]
async fn a_lookup_goes_by_the_key_that_went_out() {
    let lookup = Contract::new(ContractClass::Lookup);
    let (first, second) = (Build::of(lookup.clone()), Build { namespace: "blue", ..Build::of(lookup) });
    let scene = Scene::new(Keys::Ignores);
    let (_process, outcome) = scene.changed(Reply::EffectThenHang, &first, &second).await;
    assert!(matches!(outcome, Outcome::Done(answer) if answer.basis == Basis::Lookup));
    assert_eq!(scene.world.count(), 1);
}

#[tokio::test]
async fn a_call_that_left_a_mark_is_not_repeated_because_its_tool_only_reads_by_now() {
    let first = Build::of(Contract::new(ContractClass::Blind));
    for effect in [EffectClass::ReadOnly, EffectClass::Pure, EffectClass::ModelCall] {
        let scene = Scene::new(Keys::Ignores);
        let second = Build { effect, ..first.clone() };
        let (process, outcome) = scene.changed(Reply::EffectThenHang, &first, &second).await;
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
        assert_eq!((scene.world.count(), scene.world.requests()), (1, 1), "{effect:?}");
        let asked = question(&process).await;
        assert!(asked.contains("the effect class was \"internal mutation\""), "{asked}");
    }
}

#[tokio::test]
async fn what_was_not_to_be_repeated_blindly_is_not_because_it_may_be_by_now() {
    let blind = Contract::new(ContractClass::Blind);
    let (first, second) = (Build::of(blind.clone()), Build::of(blind.repeat_blindly()));
    let scene = Scene::new(Keys::Ignores);
    let (process, outcome) = scene.changed(Reply::EffectThenHang, &first, &second).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!(scene.world.requests(), 1);
    assert!(question(&process).await.contains("blind repetition was false and is true"));
    // What begins under the new declaration goes by it.
    scene.world.replies([Reply::EffectThenFail(counterfoil::ledger::ErrorKind::Disconnected)]);
    let other = request(TOOL).key(Key::of(TOOL).target("another"));
    let (outcome, _) = settle(&scene.clock, process.execute(other)).await;
    assert!(matches!(outcome, Outcome::Done(answer) if answer.basis == Basis::Repeat));
}

// A key that was not sent as one collides with nothing.
#[tokio::test]
async fn a_provider_that_honours_keys_only_now_is_no_reason_to_send_again() {
    let first = Build::of(Contract::new(ContractClass::Blind));
    let scene = Scene::new(Keys::Ignores);
    let (_process, outcome) = scene.changed(Reply::EffectThenHang, &first, &Build::of(replays())).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

#[tokio::test]
async fn a_lookup_that_only_the_new_build_has_is_asked_and_its_miss_is_not_believed() {
    let first = Build::of(Contract::new(ContractClass::Blind));
    let second = Build::of(Contract::new(ContractClass::Lookup));
    let scene = Scene::new(Keys::Ignores);
    let (_process, outcome) = scene.changed(Reply::EffectThenHang, &first, &second).await;
    assert!(matches!(outcome, Outcome::Done(answer) if answer.basis == Basis::Lookup));

    let scene = Scene::new(Keys::Ignores);
    scene.world.looks([Look::NotFound, Look::NotFound]);
    let (process, outcome) = scene.changed(Reply::EffectThenHang, &first, &second).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!(scene.world.requests(), 1);
    assert!(question(&process).await.contains("the contract was \"blind\" and is \"lookup\""));
}

// It may still be on its way for as long as the first build said.
#[tokio::test]
async fn a_miss_is_believed_only_after_the_longer_settle_time() {
    let lookup = Contract::new(ContractClass::Lookup);
    let long = Duration::from_mins(10);
    let (first, second) = (Build::of(lookup.clone().settle(long)), Build::of(lookup));
    let scene = Scene::new(Keys::Ignores);
    scene.world.replies([Reply::Late]);
    let process = scene.process(&first).await;
    drop(process.execute(request(TOOL)));
    scene.world.requested(1).await;
    process.kill();
    let process = scene.process(&second).await;
    let call = process.execute(request(TOOL));
    scene.clock.slept(long).await;
    scene.world.land();
    scene.clock.advance(long);
    let outcome = call.await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Done(answer) if answer.basis == Basis::Lookup));
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// What undoes it is told the key that it was sent under.
#[tokio::test]
async fn what_is_undone_is_named_by_the_key_that_went_out() {
    let scene = Scene::new(Keys::Honours);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tool = || {
        let told = told.clone();
        let tool = scene.world.tool(TOOL, EffectClass::InternalMutation, replays()).retry(brief());
        tool.compensate(Compensation::Automatic, move |_, forward| {
            told.lock().unwrap().push(forward.key().to_owned());
            async { Ok(Undone::whole().into()) }
        })
    };
    let first = Build::of(replays());
    let process = scene.start(&first, tool()).await;
    let outcome = process.execute(request(TOOL)).await.unwrap().unwrap();
    let Outcome::Done(answer) = outcome else { panic!("{outcome:?}") };
    assert_eq!(answer.basis, Basis::Answer);
    process.kill();
    let second = Build { namespace: "blue", ..first };
    let key = Key::of(TOOL).target("c1").render().unwrap();
    let process = scene.start(&second, tool()).await;
    let undone = process.executor().compensate(&acme(), &key).await.unwrap();
    assert!(matches!(undone, Compensated::Undone(_)), "{undone:?}");
    assert_eq!(*told.lock().unwrap(), scene.world.wire_keys());
}
