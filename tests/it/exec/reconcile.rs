//! Calls of unknown outcome, per class of provider: what the world saw, and what the decision was.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::ledger::{
    Basis, Contract, ContractClass, EffectClass, ErrorKind, LookupOffer, LookupPolicy, Scopes,
};
use counterfoil::tool::DynamicTool;
use counterfoil::{Key, Outcome, Tenant};
use serde_json::Value;

use crate::world::{
    Keys, Look, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, settle,
};

type Running = tokio::task::JoinHandle<Result<Outcome, counterfoil::exec::ExecError>>;

const HOUR: Duration = Duration::from_hours(1);

fn none(class: ContractClass) -> Contract {
    Contract::new(class).lookup(LookupOffer::None)
}

fn strong(class: ContractClass) -> Contract {
    Contract::new(class).lookup(LookupOffer::Strong)
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

    fn tool(&self, contract: &Contract) -> DynamicTool {
        self.world.tool("pay_out", EffectClass::InternalMutation, contract.clone()).retry(brief())
    }

    async fn process(&self, contract: &Contract) -> Process {
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(self.tool(contract))).await.unwrap()
    }

    /// A process dies while its call is under way.
    async fn crash(&self, contract: &Contract, reply: Reply) {
        self.world.replies([reply]);
        let process = self.process(contract).await;
        drop(process.execute(request("pay_out")));
        self.world.requested(1).await;
        process.kill();
    }

    /// The next process makes the call again.
    async fn restart(&self, contract: &Contract) -> (Process, Outcome, bool) {
        let process = self.process(contract).await;
        let (outcome, settled) = settle(&self.clock, process.execute(request("pay_out"))).await;
        (process, outcome, settled)
    }

    /// Where a second send collides with the first, nothing settles: time stands still, so that the confirming
    /// lookup after it is not due yet.
    async fn outcome(&self, contract: &Contract, call: Running) -> (Outcome, bool) {
        if contract.class.collides() {
            (call.await.unwrap().unwrap(), false)
        } else {
            settle(&self.clock, call).await
        }
    }

    /// What the world saw: effects, requests, lookups.
    fn seen(&self) -> (usize, usize, usize) {
        assert!(self.world.wire_keys().len() <= 1, "one operation, one key");
        (self.world.count(), self.world.requests(), self.world.lookups().len())
    }
}

/// What a call of unknown outcome ends as.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Done(Basis),
    Parked,
}

fn end(outcome: &Outcome) -> End {
    match outcome {
        Outcome::Done(answer) => End::Done(answer.basis),
        Outcome::NeedsDecision { .. } => End::Parked,
        other => panic!("{other:?}"),
    }
}

/// Contract, the provider's way with keys, and for a request that had no effect and for one that had: effects,
/// requests and lookups, whether it had to settle, and the end.
type Row = (Contract, Keys, [((usize, usize, usize), bool, End); 2]);

fn table() -> Vec<Row> {
    use ContractClass::{Blind, Lookup, NaturalKey, RejectsKey, ReplaysKey, Transactional};
    const DECLARED: End = End::Done(Basis::Declaration);
    const FOUND: ((usize, usize, usize), bool, End) = ((1, 1, 1), false, End::Done(Basis::Lookup));
    let resent = ((1, 2, 0), false, DECLARED);
    let missed_and_resent = ((1, 2, 1), false, DECLARED);
    let asks = |effects| ((effects, 1, 0), false, End::Parked);
    vec![
        (none(ReplaysKey), Keys::Honours, [resent, resent]),
        (strong(ReplaysKey), Keys::Honours, [missed_and_resent, FOUND]),
        (strong(RejectsKey), Keys::Rejects, [missed_and_resent, FOUND]),
        (none(NaturalKey), Keys::Honours, [resent, resent]),
        (strong(NaturalKey), Keys::Honours, [missed_and_resent, FOUND]),
        (strong(Lookup), Keys::Ignores, [((1, 2, 2), true, End::Done(Basis::Answer)), FOUND]),
        (none(Blind), Keys::Ignores, [asks(0), asks(1)]),
        // Cannot happen: its record and its effect are one transaction. If it does, nothing is assumed.
        (none(Transactional), Keys::Ignores, [asks(0), asks(1)]),
    ]
}

// R-EXE-6, R-EXE-7, A02, A03, A05: SIGKILL before the effect and after it.
#[tokio::test]
async fn a_crash_in_the_window_is_settled_by_what_the_provider_offers() {
    for (contract, keys, expected) in table() {
        for (reply, (seen, settles, ends)) in [Reply::Hang, Reply::EffectThenHang].into_iter().zip(expected) {
            let case = format!("{:?} {:?} {reply:?}", contract.class, contract.lookup);
            let scene = Scene::new(keys);
            scene.crash(&contract, reply).await;
            let process = scene.process(&contract).await;
            let (outcome, settled) = scene.outcome(&contract, process.execute(request("pay_out"))).await;
            assert_eq!((scene.seen(), settled, end(&outcome)), (seen, settles, ends), "{case}");
            let listed = process.executor().questions(&acme()).await.unwrap();
            assert_eq!(listed.len(), usize::from(ends == End::Parked), "{case}");
        }
    }
}

// R-EXE-8: cut off by its timeout, in a process that lives on.
#[tokio::test]
async fn a_timeout_in_the_window_is_settled_by_what_the_provider_offers() {
    for (contract, keys, expected) in table() {
        for (reply, (seen, settles, ends)) in [Reply::Hang, Reply::EffectThenHang].into_iter().zip(expected) {
            let case = format!("{:?} {:?} {reply:?}", contract.class, contract.lookup);
            let scene = Scene::new(keys);
            scene.world.replies([reply]);
            let process = scene.process(&contract).await;
            let call = process.execute(request("pay_out"));
            scene.world.requested(1).await;
            scene.clock.advance(brief().attempt_timeout);
            let (outcome, settled) = scene.outcome(&contract, call).await;
            assert_eq!((scene.seen(), settled, end(&outcome)), (seen, settles, ends), "{case}");
        }
    }
}

// C01, DESIGN 4.2: the request is still on its way when its sender is dead and the lookup says "not there".
#[tokio::test]
async fn a_request_that_lands_late_is_not_doubled() {
    for (contract, keys, _) in table() {
        let case = format!("{:?} {:?}", contract.class, contract.lookup);
        let scene = Scene::new(keys);
        scene.crash(&contract, Reply::Late).await;
        let process = scene.process(&contract).await;
        let call = process.execute(request("pay_out"));
        if contract.class == ContractClass::Lookup {
            scene.clock.slept(SETTLE).await; // it has looked, and does not believe what it saw
            scene.world.land();
        }
        let (outcome, _) = settle(&scene.clock, call).await;
        scene.world.land();
        assert_eq!(scene.world.count(), 1, "{case}: {outcome:?}");
    }
}

// R-EXE-6: the settle time is waited in full on the boot clock, whatever happens to the wall clock.
#[tokio::test]
async fn no_clock_that_jumps_shortens_the_settle_time() {
    let (scene, contract) = (Scene::new(Keys::Ignores), strong(ContractClass::Lookup));
    scene.crash(&contract, Reply::Late).await;
    scene.clock.jump_wall(HOUR);
    let process = scene.process(&contract).await;
    let call = process.execute(request("pay_out"));
    scene.clock.slept(SETTLE).await;
    scene.clock.jump_wall(HOUR);
    scene.clock.advance(SETTLE.saturating_sub(Duration::from_secs(1)));
    process.kill();
    assert_eq!(scene.seen(), (0, 1, 1));
    drop(call);

    // Whoever comes next has fenced anew, and waits in full again.
    let process = scene.process(&contract).await;
    let call = process.execute(request("pay_out"));
    scene.clock.slept(SETTLE).await;
    scene.world.land();
    scene.clock.advance(SETTLE);
    assert_eq!(end(&call.await.unwrap().unwrap()), End::Done(Basis::Lookup));
    assert_eq!(scene.world.count(), 1);
}

// R-EXE-7, K03, B10, HAZARDS 0.4: past its last safe instant the same key is a new request.
#[tokio::test]
async fn past_the_window_of_its_key_nothing_is_sent_under_it() {
    for contract in [none(ContractClass::ReplaysKey), strong(ContractClass::ReplaysKey)] {
        let contract = contract.key_window(HOUR);
        let scene = Scene::new(Keys::Honours);
        scene.crash(&contract, Reply::EffectThenHang).await;
        scene.world.forget_keys();
        scene.clock.advance(HOUR);
        let (_process, outcome, _) = scene.restart(&contract).await;
        let can_look = contract.lookup == LookupOffer::Strong;
        let expected = if can_look { End::Done(Basis::Lookup) } else { End::Parked };
        assert_eq!((end(&outcome), scene.world.count(), scene.world.requests()), (expected, 1, 1));
    }
    // With a lookup that shows nothing, what is left is to settle, to send and to confirm.
    let contract = strong(ContractClass::ReplaysKey).key_window(HOUR);
    let scene = Scene::new(Keys::Honours);
    scene.crash(&contract, Reply::Hang).await;
    scene.clock.advance(HOUR);
    let (_process, outcome, settled) = scene.restart(&contract).await;
    assert_eq!((end(&outcome), settled, scene.seen()), (End::Done(Basis::Answer), true, (1, 2, 2)));
}

// HAZARDS 0.5, F10: keys are scoped to an account; with another one there is no key.
#[tokio::test]
async fn under_another_scope_there_is_no_key() {
    let scene = Scene::new(Keys::Honours);
    let contract = none(ContractClass::ReplaysKey);
    scene.crash(&contract.clone().scope("account 1"), Reply::EffectThenHang).await;
    scene.world.forget_keys(); // the other account has never seen it
    let (_process, outcome, _) = scene.restart(&contract.scope("account 2")).await;
    assert_eq!((end(&outcome), scene.seen()), (End::Parked, (1, 1, 0)));
}

// And a lookup there shows nothing of what happened here.
#[tokio::test]
async fn under_another_scope_a_miss_proves_nothing() {
    for class in [ContractClass::Lookup, ContractClass::ReplaysKey, ContractClass::RejectsKey] {
        let (scene, contract) = (Scene::new(Keys::Honours), strong(class));
        scene.crash(&contract.clone().scope("account 1"), Reply::EffectThenHang).await;
        scene.world.looks([Look::NotFound]);
        let (process, outcome, settled) = scene.restart(&contract.scope("account 2")).await;
        assert_eq!((end(&outcome), settled, scene.seen()), (End::Parked, false, (1, 1, 1)), "{class:?}");
        let open = process.executor().questions(&acme()).await.unwrap();
        assert!(open[0].question.contains("another account"), "{}", open[0].question);
    }
}

/// A tool whose calls are sent from this device, and looked up in the room that their input names.
async fn from_device(scene: &Scene, contract: &Contract, device: &'static str) -> Process {
    let scopes = move |tenant: &Tenant, input: &Value| {
        assert_eq!(*tenant, acme());
        Some(Scopes::key(device).lookup(format!("room of {}", input["case"])))
    };
    let tool = scene.tool(contract).scopes(scopes);
    Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(tool)).await.unwrap()
}

// HAZARDS 0.5, F10: what a key is scoped to may differ from call to call, and from what its lookup is scoped to. A chat server tells keys
// apart by device, and shows a room to all of them.
#[tokio::test]
async fn a_key_may_be_void_where_its_lookup_still_holds() {
    const FIRST: &str = "device 1";
    for (device, class, lookup, had_effect, expected) in [
        (
            FIRST,
            ContractClass::ReplaysKey,
            LookupOffer::None,
            true,
            (End::Done(Basis::Declaration), false, (1, 2, 0)),
        ),
        ("device 2", ContractClass::ReplaysKey, LookupOffer::None, true, (End::Parked, false, (1, 1, 0))),
        (
            "device 2",
            ContractClass::ReplaysKey,
            LookupOffer::Strong,
            true,
            (End::Done(Basis::Lookup), false, (1, 1, 1)),
        ),
        // The miss is believed when nothing can be under way any more.
        (
            "device 2",
            ContractClass::ReplaysKey,
            LookupOffer::Strong,
            false,
            (End::Done(Basis::Answer), true, (1, 2, 2)),
        ),
    ] {
        let scene = Scene::new(Keys::Honours);
        let contract = Contract::new(class).lookup(lookup);
        scene.world.replies([if had_effect { Reply::EffectThenHang } else { Reply::Hang }]);
        let first = from_device(&scene, &contract, FIRST).await;
        drop(first.execute(request("pay_out")));
        scene.world.requested(1).await;
        first.kill();
        let process = from_device(&scene, &contract, device).await;
        let (outcome, settled) = settle(&scene.clock, process.execute(request("pay_out"))).await;
        assert_eq!((end(&outcome), settled, scene.seen()), expected, "{device} {lookup:?} {had_effect}");
        let key = Key::of("pay_out").target("c1").render().unwrap();
        let record = process.executor().record(&acme(), &key).await.unwrap().unwrap().0;
        assert_eq!(*record.scopes.unwrap(), Scopes::key(FIRST).lookup("room of \"c1\""));
    }
}

// F07, HAZARDS 0.2: *duplicate* is not *done*. It is looked up; and if nothing is there, the key is burned.
#[tokio::test]
async fn a_refused_duplicate_is_looked_up() {
    let (scene, contract) = (Scene::new(Keys::Rejects), strong(ContractClass::RejectsKey));
    scene.world.replies([Reply::EffectThenFail(ErrorKind::Server)]);
    scene.world.looks([Look::NotFound]); // too early; the key is sent again, and refused
    let (_process, outcome, _) = scene.restart(&contract).await;
    assert_eq!((end(&outcome), scene.seen()), (End::Done(Basis::Lookup), (1, 2, 2)));

    let scene = Scene::new(Keys::Rejects);
    scene.world.replies([Reply::Burn]);
    let (process, outcome, settled) = scene.restart(&contract).await;
    assert_eq!((end(&outcome), settled), (End::Parked, true));
    assert_eq!((scene.world.count(), scene.world.requests()), (0, 2));
    let open = process.executor().questions(&acme()).await.unwrap();
    assert!(open[0].question.contains("shows no effect"), "{}", open[0].question);
}

// C06: a miss in a lookup that lags is never followed by a send.
#[tokio::test]
async fn a_lookup_that_lags_never_leads_to_a_send() {
    let contract = Contract::new(ContractClass::Lookup).lookup(LookupOffer::Eventual);
    let scene = Scene::new(Keys::Ignores);
    scene.crash(&contract, Reply::Hang).await;
    let (_process, outcome, settled) = scene.restart(&contract).await;
    assert_eq!((end(&outcome), settled, scene.seen()), (End::Parked, true, (0, 1, 2)));

    let scene = Scene::new(Keys::Ignores);
    scene.crash(&contract, Reply::EffectThenHang).await;
    scene.world.looks([Look::NotFound]);
    let (_process, outcome, settled) = scene.restart(&contract).await;
    assert_eq!((end(&outcome), settled, scene.seen()), (End::Done(Basis::Lookup), true, (1, 1, 2)));
}

// C10: a lookup that fails, hangs, panics or cannot tell is asked again, a few times; then a person is.
#[tokio::test]
async fn a_lookup_without_an_answer_is_repeated_then_escalated() {
    let contract = strong(ContractClass::Lookup);
    for look in [Look::Fail, Look::Unknown, Look::Panic, Look::Hang] {
        for (misses, ends) in [(3, End::Done(Basis::Lookup)), (4, End::Parked)] {
            let scene = Scene::new(Keys::Ignores);
            scene.crash(&contract, Reply::EffectThenHang).await;
            scene.world.looks(std::iter::repeat_n(look, misses));
            let process = scene.process(&contract).await;
            let call = process.execute(request("pay_out"));
            for hung in 1..=misses {
                scene.world.looked_up(hung).await;
                if look == Look::Hang {
                    scene.clock.slept(brief().attempt_timeout).await;
                    scene.clock.advance(brief().attempt_timeout);
                }
            }
            let outcome = call.await.unwrap().unwrap();
            assert_eq!((end(&outcome), scene.seen()), (ends, (1, 1, 4)), "{look:?} {misses} times");
        }
    }
}

// The tool says how often its lookup is tried before a person is asked, and how long one may take.
#[tokio::test]
async fn a_lookup_is_tried_as_often_and_for_as_long_as_its_tool_says() {
    let contract = strong(ContractClass::Lookup);
    let lookup_timeout = brief().attempt_timeout / 2;
    let policy = LookupPolicy::default().attempts(2).timeout(lookup_timeout);
    for (look, misses, ends) in [
        (Look::Fail, 1, End::Done(Basis::Lookup)),
        (Look::Fail, 2, End::Parked),
        (Look::Hang, 2, End::Parked),
    ] {
        let scene = Scene::new(Keys::Ignores);
        scene.crash(&contract, Reply::EffectThenHang).await;
        scene.world.looks(std::iter::repeat_n(look, misses));
        let tool = scene.tool(&contract).lookups(policy);
        let process = Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(tool)).await.unwrap();
        let call = process.execute(request("pay_out"));
        for hung in 1..=misses {
            scene.world.looked_up(hung).await;
            if look == Look::Hang {
                scene.clock.slept(lookup_timeout).await;
                scene.clock.advance(lookup_timeout);
            }
        }
        let outcome = call.await.unwrap().unwrap();
        assert_eq!((end(&outcome), scene.seen()), (ends, (1, 1, 2)), "{look:?} {misses} times");
    }
}

// DESIGN 4.2 (d): what is safe to repeat by its nature is repeated. Nothing was recorded before the first call.
#[tokio::test]
async fn what_may_be_repeated_is_repeated() {
    let scene = Scene::new(Keys::Ignores);
    let tool =
        || scene.world.tool("pay_out", EffectClass::ReadOnly, none(ContractClass::Blind)).retry(brief());
    let process = || Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(tool()));
    scene.world.replies([Reply::EffectThenHang]);
    let first = process().await.unwrap();
    drop(first.execute(request("pay_out")));
    scene.world.requested(1).await;
    first.kill();
    let outcome = process().await.unwrap().execute(request("pay_out")).await.unwrap().unwrap();
    assert_eq!((end(&outcome), scene.world.requests()), (End::Done(Basis::Answer), 2));
}
