//! What a provider's answers mean for the next attempt, and how long it waits.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::Outcome;
use counterfoil::ledger::{
    Basis, Contract, ContractClass, EffectClass, ErrorKind, Key, LookupOffer, RetryPolicy,
};
use counterfoil::store::QuestionKind;

use crate::world::{Chance, Keys, Process, Reply, TestClock, World, acme, brief, executor, request, settle};

const BLIND: Contract = Contract::new(ContractClass::Blind);
const REPLAYS: Contract = Contract::new(ContractClass::ReplaysKey);
const LOOKUP: Contract = Contract::new(ContractClass::Lookup);

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

    async fn process(&self, contract: &Contract, retry: RetryPolicy, chance: Chance) -> Process {
        let tool = self.world.tool("pay_out", EffectClass::InternalMutation, contract.clone()).retry(retry);
        let builder = executor(&self.dir, &self.clock).entropy(chance).dynamic_tool(tool);
        Process::start(builder).await.unwrap()
    }

    /// Makes the call, whose requests are answered so.
    async fn call(&self, contract: &Contract, replies: &[Reply]) -> Outcome {
        self.world.replies(replies.iter().cloned());
        let process = self.process(contract, brief(), Chance::least()).await;
        settle(&self.clock, process.execute(request("pay_out"))).await.0
    }

    fn seen(&self) -> (usize, usize) {
        (self.world.count(), self.world.requests())
    }
}

fn basis(outcome: &Outcome) -> Basis {
    outcome.answer().unwrap_or_else(|| panic!("{outcome:?}")).basis
}

fn failure(outcome: &Outcome) -> ErrorKind {
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    failure.kind
}

// R-EXE-2, F01: nothing was sent, so even a blind provider may be called again.
#[tokio::test]
async fn what_was_never_sent_is_sent_again() {
    for kind in [ErrorKind::Unreachable, ErrorKind::TimeoutBeforeEffect, ErrorKind::RateLimited] {
        let scene = Scene::new(Keys::Ignores);
        let outcome = scene.call(&BLIND, &[Reply::Fail(kind), Reply::Fail(kind)]).await;
        assert_eq!((basis(&outcome), scene.seen()), (Basis::Answer, (1, 3)), "{kind:?}");
        assert_eq!(scene.world.wire_keys().len(), 1, "{kind:?}"); // D11
    }
}

// R-EXE-2, F02, HAZARDS 0.8: it may have happened before it failed.
#[tokio::test]
async fn an_error_after_something_was_sent_is_ambiguous() {
    use ErrorKind::{Disconnected, Server, TimeoutDuringEffect, Unknown};
    let after = [Server, Disconnected, TimeoutDuringEffect, Unknown].map(Reply::EffectThenFail);
    for reply in after.into_iter().chain([Reply::EffectThenPanic]) {
        let scene = Scene::new(Keys::Ignores); // A11: a panic is no exception
        let outcome = scene.call(&LOOKUP, std::slice::from_ref(&reply)).await;
        assert_eq!((basis(&outcome), scene.seen()), (Basis::Lookup, (1, 1)), "{reply:?}");

        let scene = Scene::new(Keys::Ignores);
        let outcome = scene.call(&BLIND, std::slice::from_ref(&reply)).await;
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{reply:?}: {outcome:?}");
        assert_eq!(scene.seen(), (1, 1), "{reply:?}");
    }
}

// R-EXE-2: what the provider would refuse again is not sent again.
#[tokio::test]
async fn a_refusal_is_not_repeated() {
    use ErrorKind::{BudgetExceeded, PolicyDenied, Validation, VersionConflict};
    for kind in [Validation, PolicyDenied, VersionConflict, BudgetExceeded] {
        let scene = Scene::new(Keys::Ignores);
        let outcome = scene.call(&LOOKUP, &[Reply::Fail(kind)]).await;
        assert_eq!((failure(&outcome), scene.seen()), (kind, (0, 1)));
        assert!(scene.world.lookups().is_empty());
    }
}

// R-EXE-2: one more try, for a token that has been refreshed.
#[tokio::test]
async fn an_unauthorized_call_is_tried_once_more() {
    let refused = Reply::Fail(ErrorKind::Unauthorized);
    let scene = Scene::new(Keys::Ignores);
    let outcome = scene.call(&BLIND, std::slice::from_ref(&refused)).await;
    assert_eq!((basis(&outcome), scene.seen()), (Basis::Answer, (1, 2)));

    let scene = Scene::new(Keys::Ignores);
    let outcome = scene.call(&BLIND, &[refused.clone(), refused.clone(), refused]).await;
    assert_eq!((failure(&outcome), scene.seen()), (ErrorKind::Unauthorized, (0, 2)));
}

// F05, F06: under the same key, as often as the policy says; then a person is asked, and no new key is made.
#[tokio::test]
async fn a_provider_that_honours_keys_is_asked_under_the_same_one() {
    let scene = Scene::new(Keys::Honours);
    let outcome = scene.call(&REPLAYS, &[Reply::Fail(ErrorKind::InProgress)]).await;
    assert_eq!((basis(&outcome), scene.seen()), (Basis::Declaration, (1, 2)));

    let scene = Scene::new(Keys::Honours);
    let outcome = scene.call(&REPLAYS, &[ErrorKind::Server; 9].map(Reply::EffectThenFail)).await;
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    assert_eq!((scene.seen(), scene.world.wire_keys().len()), ((1, 3), 1));
}

// R-EXE-2, invariant 3: that the second attempt did nothing says nothing about the first.
#[tokio::test]
async fn an_attempt_that_did_nothing_does_not_settle_an_earlier_one() {
    let sent = Reply::EffectThenFail(ErrorKind::Disconnected);
    let unreachable = Reply::Fail(ErrorKind::Unreachable);
    let scene = Scene::new(Keys::Honours);
    let outcome = scene.call(&REPLAYS, &[sent.clone(), unreachable.clone()]).await;
    assert_eq!((basis(&outcome), scene.seen()), (Basis::Declaration, (1, 3)));

    // Not "failed for certain": it happened. Not sent for ever, either.
    for refusal in [unreachable, Reply::Fail(ErrorKind::Validation)] {
        let scene = Scene::new(Keys::Honours);
        let outcome = scene.call(&REPLAYS, &[sent.clone(), refusal.clone(), refusal.clone()]).await;
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{refusal:?}: {outcome:?}");
        let requests = if refusal == Reply::Fail(ErrorKind::Validation) { 2 } else { 3 };
        assert_eq!(scene.seen(), (1, requests), "{refusal:?}");
    }
}

// DESIGN, first page: a provider that ignores the key it claims to honour, with nothing to look at. The
// duplicate cannot be prevented, and it is marked.
#[tokio::test]
async fn a_duplicate_of_a_provider_that_lies_is_marked() {
    let scene = Scene::new(Keys::Ignores);
    let sent = Reply::EffectThenFail(ErrorKind::Disconnected);
    let outcome = scene.call(&REPLAYS, &[sent, Reply::Fail(ErrorKind::Unreachable)]).await;
    assert_eq!((basis(&outcome), scene.world.count()), (Basis::Declaration, 2));
    let again = scene.call(&REPLAYS, &[]).await;
    assert_eq!((basis(&again), scene.world.count()), (Basis::Declaration, 2)); // and stays marked
}

// R-EXE-3, F09: neither lost nor shortened by a crash.
#[tokio::test]
async fn a_retry_after_survives_a_crash() {
    let scene = Scene::new(Keys::Ignores);
    let after = Duration::from_secs(40);
    scene.world.replies([Reply::FailUntil(after)]);
    let process = scene.process(&BLIND, brief(), Chance::least()).await;
    drop(process.execute(request("pay_out")));
    scene.clock.slept(after).await;
    scene.clock.advance(Duration::from_secs(15));
    process.kill();

    let process = scene.process(&BLIND, brief(), Chance::least()).await;
    let call = process.execute(request("pay_out"));
    let rest = Duration::from_secs(25);
    scene.clock.slept(rest).await;
    assert_eq!(scene.seen(), (0, 1));
    scene.clock.advance(rest);
    assert_eq!(basis(&call.await.unwrap().unwrap()), Basis::Answer);
    assert_eq!(scene.seen(), (1, 2));
}

// F09: obeyed up to a cap, whatever the provider writes.
#[tokio::test]
async fn a_retry_after_of_ten_years_is_capped() {
    let scene = Scene::new(Keys::Ignores);
    scene.world.replies([Reply::FailUntil(Duration::MAX)]);
    let process = scene.process(&BLIND, brief(), Chance::least()).await;
    let call = process.execute(request("pay_out"));
    scene.clock.slept(brief().retry_after_cap).await;
    scene.clock.advance(brief().retry_after_cap);
    assert_eq!(basis(&call.await.unwrap().unwrap()), Basis::Answer);
}

// R-EXE-3: a drawn delay is durable as well, and the count of attempts is.
#[tokio::test]
async fn a_backoff_and_its_count_survive_a_crash() {
    let scene = Scene::new(Keys::Ignores);
    scene.world.replies([ErrorKind::Unreachable; 9].map(Reply::Fail));
    let drawn = [199_999, 399_999].map(Duration::from_micros); // all but one microsecond of 200 and 400 ms
    let process = scene.process(&BLIND, brief(), Chance::most()).await;
    drop(process.execute(request("pay_out")));
    scene.clock.slept(drawn[0]).await;
    process.kill();
    let process = scene.process(&BLIND, brief(), Chance::most()).await;
    let call = process.execute(request("pay_out"));
    for (i, delay) in drawn.into_iter().enumerate() {
        scene.clock.slept(delay).await;
        assert_eq!(scene.world.requests(), i + 1);
        scene.clock.advance(delay);
    }
    assert_eq!(failure(&call.await.unwrap().unwrap()), ErrorKind::Unreachable);
    assert_eq!(scene.seen(), (0, 3));
}

// R-EXE-8: "the tool's code is slow" is no proof that nothing happened; it is asked, and told once.
#[tokio::test]
async fn a_blind_call_that_is_cut_off_is_one_question() {
    let scene = Scene::new(Keys::Ignores);
    scene.world.replies([Reply::EffectThenHang]);
    let process = scene.process(&BLIND, brief(), Chance::least()).await;
    let call = process.execute(request("pay_out"));
    scene.world.requested(1).await;
    scene.clock.advance(brief().attempt_timeout);
    let Outcome::NeedsDecision { question } = call.await.unwrap().unwrap() else { panic!("not parked") };
    let again = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert_eq!(again, Outcome::NeedsDecision { question });
    let open = process.executor().questions(&acme()).await.unwrap();
    assert_eq!((open.len(), open[0].kind), (1, QuestionKind::Ambiguous));
    let key = Key::of("pay_out").target("c1").render().unwrap();
    assert!(open[0].question.contains(key.as_str()), "{}", open[0].question);
    assert_eq!(scene.seen(), (1, 1));
}

// K02: found out when the tool is registered, not at three in the morning.
#[tokio::test]
async fn retries_beyond_the_key_window_are_refused_at_registration() {
    let scene = Scene::new(Keys::Honours);
    let contract = REPLAYS.lookup(LookupOffer::None).key_window(Duration::from_secs(20));
    let tool = scene.world.tool("pay_out", EffectClass::Payment, contract).retry(brief());
    let refused = executor(&scene.dir, &scene.clock).dynamic_tool(tool).open().await.unwrap_err();
    assert!(refused.to_string().contains("retry less, or give a lookup"), "{refused}");
}
