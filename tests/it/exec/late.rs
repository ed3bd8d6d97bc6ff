//! What arrives beyond the settle bound: found by the confirming lookup, listed, never settled in silence.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil::exec::Compensated;
use counterfoil::id::QuestionId;
use counterfoil::ledger::{
    Basis, Compensation, Contract, ContractClass, EffectClass, ErrorKind, Key, State, Undone,
};
use counterfoil::payload::Stored;
use counterfoil::sim::{CrashPoint, Watch};
use counterfoil::store::{
    Change, Model, Question, QuestionKind, Resolution, Store, StoreError, StoreFuture, Verdict,
};
use counterfoil::tool::{Call, DynamicTool, OriginalCall};
use counterfoil::{Executor, Outcome};
use serde_json::json;

use crate::world::{
    Keys, Look, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, settle, until,
};

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    /// Where payments are taken back, if they can be.
    refunds: Option<Arc<World>>,
}

impl Scene {
    fn tool(&self) -> DynamicTool {
        let contract = Contract::new(ContractClass::Lookup);
        let tool = self.world.tool("pay_out", EffectClass::Payment, contract).retry(brief());
        let Some(refunds) = self.refunds.clone() else { return tool };
        let found = refunds.clone();
        tool.compensate(Compensation::Automatic, move |call: Call, forward: OriginalCall| {
            let (refunds, key) = (refunds.clone(), call.key().to_owned());
            async move {
                refunds.request(&key, json!(forward.external_ref())).await?;
                Ok(Undone::whole().into())
            }
        })
        .find_compensation(move |call: Call, _| {
            let (refunds, key) = (found.clone(), call.key().to_owned());
            async move { refunds.lookup(&key, None).await?.try_map(|_| Ok(Undone::whole())) }
        })
    }

    async fn process(&self) -> Process {
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(self.tool())).await.unwrap()
    }

    /// A request was on its way when its process died; it was believed lost, and sent again.
    async fn believed_lost() -> (Self, Process, Outcome) {
        Self::lost(None).await
    }

    async fn lost(refunds: Option<Arc<World>>) -> (Self, Process, Outcome) {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let scene = Self { dir, clock, world: World::new(Keys::Ignores), refunds };
        scene.world.replies([Reply::Late]);
        let process = scene.process().await;
        drop(process.execute(request("pay_out")));
        scene.world.requested(1).await;
        process.kill();
        let process = scene.process().await;
        let (outcome, settled) = settle(&scene.clock, process.execute(request("pay_out"))).await;
        assert!(settled);
        assert_eq!((scene.world.count(), scene.world.lookups().len()), (1, 2));
        (scene, process, outcome)
    }

    /// Lets the confirming lookup fall due, and waits until it has been made.
    async fn confirm(&self, lookup: usize) {
        self.clock.slept(SETTLE).await;
        self.clock.advance(SETTLE);
        self.world.looked_up(lookup).await;
    }
}

/// What is listed when everything that is under way has been finished.
async fn listed(process: Process) -> Vec<Question> {
    let executor = process.executor();
    process.spawn(process.executor().shutdown(SETTLE * 1000)).await.unwrap();
    executor.questions(&acme()).await.unwrap()
}

fn is_duplicate(listed: &[Question]) {
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].kind, QuestionKind::Duplicated);
    assert!(listed[0].question.contains("2 times (effect-1, effect-2)"), "{}", listed[0].question);
}

// R-EXE-6, C02: beyond the settle bound there is a duplicate, and it is not silent.
#[tokio::test]
async fn what_lands_beyond_the_bound_is_found_and_listed() {
    let (scene, process, outcome) = Scene::believed_lost().await;
    assert_eq!(outcome.answer().unwrap().basis, Basis::Answer);
    scene.world.land();
    scene.confirm(3).await;
    is_duplicate(&listed(process).await);

    // It was asked once, the first result stands, and nothing is sent.
    let process = scene.process().await;
    let again = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert_eq!(again.answer().unwrap().response, outcome.answer().unwrap().response);
    let open = process.executor().questions(&acme()).await.unwrap();
    let result = Resolution::Happened(json!("no result is asked for"));
    process.executor().answer(&acme(), open[0].id, result, "ann").await.unwrap_err();
    process.executor().answer(&acme(), open[0].id, Resolution::Keep, "ann").await.unwrap();
    assert!(listed(process).await.is_empty());
    assert_eq!((scene.world.requests(), scene.world.lookups().len()), (2, 3));
}

// SAGA-4, R-SIM-6: what is beyond the first effect is undone, by its own id, once, whatever dies; the question is answered.
#[tokio::test]
async fn what_lands_beyond_the_bound_is_undone_where_its_tool_can() {
    for dies in [false, true] {
        let (scene, mut process, _) = Scene::lost(Some(World::new(Keys::Ignores))).await;
        let refunds = scene.refunds.clone().unwrap();
        scene.world.land();
        if dies {
            refunds.replies([Reply::EffectThenHang]);
            scene.confirm(3).await;
            refunds.requested(1).await;
            process.kill();
            process = scene.process().await;
            refunds.looked_up(1).await;
        } else {
            scene.confirm(3).await;
            refunds.requested(1).await; // one that closes sends nothing new
        }
        assert!(listed(process).await.is_empty(), "dies: {dies}");
        let executor = scene.process().await.executor();
        let key = Key::of("pay_out").target("c1").render().unwrap();
        let record = executor.record(&acme(), &key).await.unwrap().unwrap().0;
        assert!(matches!(record.state, State::Committed { .. }), "the first is kept");
        let surplus = Key::of("undo pay_out").target(key.as_str());
        let kept = record.external_ref.unwrap();
        let undone = ["effect-1", "effect-2"].into_iter().find(|effect| *effect != kept).unwrap();
        let undo = executor.record(&acme(), &surplus.operation(undone).render().unwrap()).await.unwrap();
        let undo = undo.unwrap().0;
        assert!(matches!(undo.state, State::Committed { .. }));
        let Stored::Inline(told) = &undo.request else { panic!("{undo:?}") };
        let told = told.value().unwrap();
        let (input, output) = (&told["input"]["case"], &told["output"]["id"]);
        assert_eq!(
            (input, output),
            (&json!("c1"), &json!(undone)),
            "what the lookup has shown of that effect"
        );
        assert_eq!(refunds.count(), 1, "dies: {dies}");
    }
}

// C03: the first request lands when its effect has been undone. It is another effect, and undone, too.
#[tokio::test]
async fn what_lands_after_it_was_undone_is_undone_again() {
    let (scene, process, _) = Scene::lost(Some(World::new(Keys::Ignores))).await;
    let refunds = scene.refunds.clone().unwrap();
    let key = Key::of("pay_out").target("c1").render().unwrap();
    let undone = process.executor().compensate(&acme(), &key).await.unwrap();
    assert!(matches!(undone, Compensated::Undone(_)), "{undone:?}");
    scene.world.land();
    scene.confirm(3).await;
    refunds.requested(2).await; // one that closes sends nothing new
    assert!(listed(process).await.is_empty());
    assert_eq!((scene.world.count(), refunds.count()), (2, 2));
    let executor = scene.process().await.executor();
    let record = executor.record(&acme(), &key).await.unwrap().unwrap().0;
    assert!(matches!(record.state, State::Compensated { whole: true, .. }));
    assert_eq!(executor.next_look(&acme(), &key).await.unwrap(), None);
}

// R-EXE-6: most of the time there is nothing, and then there is no question.
#[tokio::test]
async fn a_confirming_lookup_that_finds_one_effect_asks_nothing() {
    let (scene, process, _) = Scene::believed_lost().await;
    scene.confirm(3).await;
    assert!(listed(process).await.is_empty());
    let executor = scene.process().await.executor();
    let key = Key::of("pay_out").target("c1").render().unwrap();
    let sealed = executor.record(&acme(), &key).await.unwrap().unwrap().0.updated_at;
    let next = executor.next_look(&acme(), &key).await.unwrap();
    assert_eq!(
        next.unwrap().due_at,
        Some(sealed.after(2 * SETTLE)),
        "and is made again, for a request that is still on its way"
    );
}

// R-EXE-6: the confirming lookup is durable.
#[tokio::test]
async fn a_confirming_lookup_survives_a_crash() {
    let (scene, process, _) = Scene::believed_lost().await;
    process.kill();
    scene.world.land();
    let process = scene.process().await;
    scene.confirm(3).await;
    is_duplicate(&listed(process).await);

    // And when the machine was off while it fell due, it is made at once.
    let (scene, process, _) = Scene::believed_lost().await;
    process.kill();
    scene.world.land();
    scene.clock.advance(SETTLE * 100);
    let process = scene.process().await;
    scene.world.looked_up(3).await;
    is_duplicate(&listed(process).await);
}

/// Closes its executor when a confirming lookup has been postponed and not yet been made.
#[derive(Default)]
struct Closer(OnceLock<Executor>);

impl Watch for Closer {
    fn at(&self, point: CrashPoint) {
        if let (CrashPoint::AfterConfirming, Some(executor)) = (point, self.0.get()) {
            tokio::spawn(executor.clone().shutdown(SETTLE * 1000));
        }
    }
}

// R-EXE-6, A10: closing waits for a confirming lookup that is under way. Were the worker retired first, what the
// lookup finds could not be written any more, and would be found once more only after the next start.
#[tokio::test]
async fn a_confirming_lookup_under_way_is_finished_before_closing() {
    let (scene, process, _) = Scene::believed_lost().await;
    process.kill();
    scene.world.land();
    let closer = Arc::new(Closer::default());
    let builder = executor(&scene.dir, &scene.clock).dynamic_tool(scene.tool()).watch(closer.clone());
    let process = Process::start(builder).await.unwrap();
    let executor = process.executor();
    assert!(closer.0.set(executor.clone()).is_ok());
    scene.confirm(3).await;
    is_duplicate(&listed(process).await);
}

/// A store that is slow to write and quick to read: whoever can run meanwhile does.
#[derive(Debug, Default)]
struct Slow(Model);

impl Store for Slow {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            self.0.commit(changes).await
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

// R-EXE-6: a confirming lookup that falls due before the answer that it belongs to is durable is made all the same,
// and not only after the next start.
#[tokio::test]
async fn a_confirming_lookup_that_is_due_at_once_is_made() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let world = World::new(Keys::Ignores);
    world.replies([Reply::Late]);
    let contract = Contract::new(ContractClass::Lookup).settle(Duration::ZERO).ends_with_sender();
    let tool = world.tool("pay_out", EffectClass::Payment, contract).retry(brief());
    let builder = executor(&dir, &clock).dynamic_tool(tool).wrap_store(|_| Arc::new(Slow::default()));
    let process = Process::start(builder).await.unwrap();
    let call = process.execute(request("pay_out"));
    world.requested(1).await;
    clock.advance(brief().attempt_timeout);
    let outcome = call.await.unwrap().unwrap();
    assert_eq!((world.count(), world.requests()), (1, 2), "{outcome:?}");
    world.looked_up(2).await;
}

/// A store that cannot read the questions about late answers the first time.
#[derive(Debug, Default)]
struct Unreadable {
    model: Model,
    asked: AtomicU32,
}

impl Store for Unreadable {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        self.model.commit(changes)
    }

    fn escalation_duplicated(&self, after: QuestionId, limit: u32) -> StoreFuture<'_, Vec<Question>> {
        match self.asked.fetch_add(1, Ordering::SeqCst) {
            0 => Box::pin(async { Err(StoreError::Io { detail: "as told".into() }) }),
            _ => self.model.escalation_duplicated(after, limit),
        }
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&self.model)
    }
}

// Nothing else would have them read before the next start.
#[tokio::test]
async fn questions_that_could_not_be_read_are_read_again_after_a_pause() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let store = Arc::new(Unreadable::default());
    let wrapped = store.clone();
    let _process = Process::start(executor(&dir, &clock).wrap_store(move |_| wrapped)).await.unwrap();
    until("the first look", async || store.asked.load(Ordering::SeqCst) == 1).await;
    let pause = Duration::from_secs(5);
    clock.slept(pause).await;
    clock.advance(pause);
    until("the second look", async || store.asked.load(Ordering::SeqCst) == 2).await;
}

// C10: without an answer it is made again later: not at once and for ever, and not never.
#[tokio::test]
async fn a_confirming_lookup_without_an_answer_is_repeated_in_time() {
    for look in [Look::Fail, Look::Unknown, Look::Panic, Look::Hang] {
        let (scene, process, _) = Scene::believed_lost().await;
        scene.world.looks([look]);
        scene.world.land();
        scene.confirm(3).await;
        scene.clock.slept(SETTLE * 2).await;
        assert_eq!(scene.world.lookups().len(), 3, "{look:?}");
        scene.clock.advance(SETTLE * 2);
        scene.world.looked_up(4).await;
        is_duplicate(&listed(process).await);
    }
}

/// Lets a lookup that hangs run into its limit.
async fn give_up_waiting(scene: &Scene) {
    scene.clock.slept(brief().attempt_timeout).await;
    scene.clock.advance(brief().attempt_timeout);
}

// R-EXE-6, invariant 8: a lookup that never answers is asked ever more rarely, and in the end a person is.
#[tokio::test]
async fn a_confirming_lookup_that_never_answers_becomes_a_question() {
    for look in [Look::Fail, Look::Unknown, Look::Hang] {
        let (scene, mut process, outcome) = Scene::believed_lost().await;
        scene.world.looks([look; 100]);
        scene.confirm(3).await;
        // The pauses after each of the first tries, across a crash.
        for (lookup, minutes) in (4..).zip([2, 4, 8, 16, 32, 64, 128, 256, 512]) {
            if look == Look::Hang {
                give_up_waiting(&scene).await;
            }
            if minutes == 16 {
                process.kill();
                process = scene.process().await;
            }
            let before = process.executor().questions(&acme()).await.unwrap();
            assert_eq!((scene.world.lookups().len(), before), (lookup - 1, vec![]), "{look:?}");
            scene.clock.advance(Duration::from_mins(minutes));
            scene.world.looked_up(lookup).await;
        }
        if look == Look::Hang {
            give_up_waiting(&scene).await;
        }
        let open = listed(process).await;
        assert_eq!(open.len(), 1, "{look:?}: {open:?}");
        assert_eq!(open[0].kind, QuestionKind::Unconfirmed);
        assert!(
            open[0].question.contains("is committed") && open[0].question.contains("pay_out:c1"),
            "{open:?}"
        );

        // It is not asked again, what was answered stands, and the question can be closed.
        let process = scene.process().await;
        scene.clock.advance(Duration::from_hours(10_000));
        let again = process.execute(request("pay_out")).await.unwrap().unwrap();
        assert_eq!(again.answer().unwrap().response, outcome.answer().unwrap().response);
        process.executor().answer(&acme(), open[0].id, Resolution::Keep, "ann").await.unwrap();
        assert!(listed(process).await.is_empty());
        assert_eq!((scene.world.requests(), scene.world.lookups().len()), (2, 12), "{look:?}");
    }
}

// Invariant 8: whose tool is gone cannot be confirmed, and is not forgotten for that.
#[tokio::test]
async fn what_cannot_be_looked_up_any_more_becomes_a_question() {
    let (scene, process, _) = Scene::believed_lost().await;
    process.kill();
    let process = Process::start(executor(&scene.dir, &scene.clock)).await.unwrap();
    for minutes in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
        scene.clock.slept(Duration::from_mins(minutes)).await;
        scene.clock.advance(Duration::from_mins(minutes));
    }
    // The last look may be over before the sleeper asks for the next one, and then it asks for none.
    let executor = process.executor();
    until("the question", async || !executor.questions(&acme()).await.unwrap().is_empty()).await;
    let open = listed(process).await;
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!(open[0].kind, QuestionKind::Unconfirmed);
}

// R-EXE-6: a send that came to nothing does not make the first one certain; the send after it is confirmed too.
#[tokio::test]
async fn what_was_believed_lost_is_confirmed_after_the_last_send() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let scene = Scene { dir, clock, world: World::new(Keys::Ignores), refunds: None };
    scene.world.replies([Reply::Late, Reply::Fail(ErrorKind::Unreachable)]);
    let process = scene.process().await;
    let call = process.execute(request("pay_out"));
    scene.world.requested(1).await;
    scene.clock.advance(brief().attempt_timeout);
    let (outcome, _) = settle(&scene.clock, call).await;
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 3), "{outcome:?}");
    scene.world.land();
    scene.confirm(scene.world.lookups().len() + 1).await;
    is_duplicate(&listed(process).await);
}

// C07, HAZARDS 0: more than one effect on several pages of the list, found when the call is settled.
#[tokio::test]
async fn duplicates_on_several_pages_are_found() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let scene = Scene { dir, clock, world: World::new(Keys::Ignores), refunds: None };
    scene.world.replies([Reply::EffectThenHang]);
    let process = scene.process().await;
    drop(process.execute(request("pay_out")));
    scene.world.requested(1).await;
    process.kill();
    let key = scene.world.wire_keys().remove(0);
    for other in ["x", "y", &key, "z", "w", &key] {
        let _ = scene.world.request(other, json!({})).await.unwrap();
    }
    let process = scene.process().await;
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    let answer = outcome.answer().unwrap();
    assert_eq!((answer.external_ref.as_deref(), answer.basis), (Some("effect-1"), Basis::Lookup));
    let listed = listed(process).await;
    assert_eq!((listed.len(), listed[0].kind), (1, QuestionKind::Duplicated));
    assert!(listed[0].question.contains("3 times (effect-1, effect-4, effect-7)"), "{}", listed[0].question);
}
