//! Committed records are looked up again: what is missing is asked about, a doubled request is found, an audit looks at all.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::exec::{Audit, ExecError, ExecutorBuilder};
use counterfoil::ledger::{
    Confirm, Contract, ContractClass, EffectClass, Key, Look, LookupOffer, OperationKey, Reason, State,
};
use counterfoil::store::conformance::sample::Sample;
use counterfoil::store::{Change, Model, QuestionKind, Resolution, Store, StoreError, StoreFuture, Verdict};
use counterfoil::{Executor, Outcome, Timestamp};

use crate::world::{
    Chance, Keys, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, settle, soon,
};

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    effect: EffectClass,
    contract: Contract,
}

fn key() -> OperationKey {
    Key::of("pay_out").target("c1").render().unwrap()
}

impl Scene {
    fn new(effect: EffectClass, contract: Contract) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(Keys::Ignores), effect, contract }
    }

    fn payment() -> Self {
        Self::new(EffectClass::Payment, Contract::new(ContractClass::Lookup))
    }

    fn builder(&self) -> ExecutorBuilder {
        let tool = |name: &str| self.world.tool(name, self.effect, self.contract.clone()).retry(brief());
        let builder = executor(&self.dir, &self.clock);
        builder.dynamic_tool(tool("pay_out")).dynamic_tool(tool("take_back"))
    }

    async fn process(&self) -> Process {
        Process::start(self.builder()).await.unwrap()
    }

    /// A payment that is sent once, in this way.
    async fn paid(&self, reply: Reply) -> Process {
        self.world.replies([reply]);
        let process = self.process().await;
        let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        process
    }

    /// Waits until the next look is due after this pause, lets it fall due, and waits until so many lookups have been made.
    async fn look(&self, executor: &Executor, pause: Duration, lookups: usize) {
        self.is_due_after(executor, pause).await;
        self.clock.advance(pause);
        self.world.looked_up(lookups).await;
    }

    /// Waits until the answer to the last look is written.
    async fn is_due_after(&self, executor: &Executor, pause: Duration) {
        let written = async {
            let due = Some(self.clock.now().after(pause));
            while executor
                .next_look(&acme(), &key())
                .await
                .unwrap()
                .is_none_or(|look| look.tries > 0 || look.due_at != due)
            {
                tokio::task::yield_now().await;
            }
            Ok::<(), ()>(())
        };
        soon(format!("no look is due after {pause:?}"), written).await;
    }
}

/// The kinds of the open questions, when everything that is under way has been finished.
async fn asked(process: Process) -> Vec<QuestionKind> {
    let executor = process.executor();
    process.spawn(process.executor().shutdown(SETTLE * 1000)).await.unwrap();
    executor.questions(&acme()).await.unwrap().into_iter().map(|open| open.kind).collect()
}

async fn is_looked_at_again(executor: &Executor) -> bool {
    executor.next_look(&acme(), &key()).await.unwrap().is_some()
}

#[tokio::test]
async fn a_payment_that_the_network_doubled_is_found_by_one_look() {
    let scene = Scene::payment();
    let process = scene.paid(Reply::Twice).await;
    assert_eq!((scene.world.count(), scene.world.lookups().len()), (2, 0));
    scene.look(&process.executor(), SETTLE, 1).await;
    assert_eq!(asked(process).await, [QuestionKind::Duplicated]);
}

// Looks beside questions about a tool that is not registered here stay due. They hide no look behind them.
#[tokio::test]
async fn looks_that_nobody_here_can_make_hide_no_other_look() {
    let scene = Scene::payment();
    let store = Arc::new(Model::default());
    let other = Sample::enrol(&*store, "other").await;
    for i in 0..65 {
        let started = other.record(&i.to_string());
        let committed = other.committed(&started);
        let look = Look { reason: Reason::Unanswered, ..other.look(&committed, 1) };
        let changes = [other.change().record(started), other.change().record(committed).look(look)];
        let verdicts = store.commit(&changes).await.unwrap();
        assert!(verdicts.iter().all(Verdict::is_admitted), "{verdicts:?}");
    }
    let tool = scene.world.tool("pay_out", scene.effect, scene.contract.clone()).retry(brief());
    let builder = Executor::store(store).clock(scene.clock.clone()).entropy(Chance::least());
    let process = Process::start(builder.dynamic_tool(tool)).await.unwrap();
    scene.world.replies([Reply::Answer]);
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    scene.look(&process.executor(), SETTLE, 1).await;
}

#[tokio::test]
async fn after_a_single_send_one_look_is_made_and_the_record_is_not_written_again() {
    let scene = Scene::payment();
    let process = scene.paid(Reply::Answer).await;
    let executor = process.executor();
    let before = executor.record(&acme(), &key()).await.unwrap().unwrap().0;
    scene.look(&process.executor(), SETTLE, 1).await;
    assert_eq!(asked(process).await, []);
    let executor = scene.process().await.executor();
    assert_eq!(executor.record(&acme(), &key()).await.unwrap().unwrap().0, before);
    assert!(!is_looked_at_again(&executor).await);
}

#[tokio::test]
async fn what_needs_no_look_after_a_single_send_gets_none_unless_it_says_so() {
    let lookup = || Contract::new(ContractClass::Lookup);
    let replays = Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong);
    for (effect, contract, looks) in [
        (EffectClass::Payment, lookup(), true),
        (EffectClass::Payment, lookup().confirm(Confirm::AfterDoubt), false),
        (EffectClass::Payment, replays, false),
        (EffectClass::InternalMutation, lookup(), false),
        (EffectClass::InternalMutation, lookup().confirm(Confirm::Always), true),
    ] {
        let scene = Scene::new(effect, contract.clone());
        let process = scene.paid(Reply::Answer).await;
        assert_eq!(is_looked_at_again(&process.executor()).await, looks, "{effect:?}: {contract:?}");
    }
}

#[tokio::test]
async fn what_is_reported_done_and_not_there_is_asked_about_after_two_looks() {
    let scene = Scene::payment();
    let mut process = scene.paid(Reply::Forget).await;
    scene.look(&process.executor(), SETTLE, 1).await;
    scene.is_due_after(&process.executor(), SETTLE).await;
    assert_eq!(process.executor().questions(&acme()).await.unwrap(), [], "once is no question");
    process.kill(); // and the second look is durable
    process = scene.process().await;
    scene.look(&process.executor(), SETTLE, 2).await;
    assert_eq!(asked(process).await, [QuestionKind::Missing]);

    // That it is not there has it sent again: as an operation of its own, under the next revision of its key.
    let process = scene.process().await;
    let executor = process.executor();
    let open = executor.questions(&acme()).await.unwrap();
    assert!(
        open[0].question.contains("pay_out:c1") && open[0].answers()[1].consequence.contains("next revision"),
        "{open:?}"
    );
    let (asked, answering) = (open[0].id, executor.clone());
    let answered = async move { answering.answer(&acme(), asked, Resolution::Again, "ann").await.unwrap() };
    process.spawn(answered).await.unwrap();
    assert_eq!(executor.questions(&acme()).await.unwrap(), []);
    let record = executor.record(&acme(), &key()).await.unwrap().unwrap().0;
    assert!(matches!(record.state, State::Committed { .. }));
    drop(executor);
    process.kill(); // and the next process does it
    let process = scene.process().await;
    let executor = process.executor();
    scene.clock.slept(SETTLE).await; // a look has shown nothing: it might be on its way
    assert_eq!((scene.world.count(), scene.world.requests()), (0, 1));
    scene.clock.advance(SETTLE);
    scene.world.requested(2).await;
    let revised = Key::of("pay_out").target("c1").revision(1);
    let again = process.execute(request("pay_out").key(revised)).await.unwrap().unwrap();
    assert!(matches!(again, Outcome::Done(answer) if !answer.first), "it was sent");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 2));
    // It is not asked again by an audit.
    let audit = executor.audit(&acme(), Timestamp::MIN).await.unwrap();
    assert_eq!((audit.looked, audit.missing, audit.asked_before), (1, 0, 1));
}

/// A store that writes the answers to questions and gives no answer itself, however often it is asked.
#[derive(Debug)]
struct LosesAnswers(Arc<dyn Store>);

impl Store for LosesAnswers {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        Box::pin(async move {
            let verdicts = self.0.commit(changes).await?;
            let is_answered = |change: &Change| change.escalations.iter().any(|asked| asked.answer.is_some());
            if changes.iter().any(is_answered) {
                return Err(StoreError::Unreachable { detail: "cut off".into() });
            }
            Ok(verdicts)
        })
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

// The question is closed then. The call was sent only after a restart.
#[tokio::test]
async fn what_is_to_be_sent_again_is_sent_although_the_store_gave_no_answer_to_the_write_that_asks_for_it() {
    let scene = Scene::payment();
    let process = scene.paid(Reply::Forget).await;
    scene.look(&process.executor(), SETTLE, 1).await;
    scene.look(&process.executor(), SETTLE, 2).await;
    assert_eq!(asked(process).await, [QuestionKind::Missing]);

    let builder = scene.builder().wrap_store(|store| Arc::new(LosesAnswers(store)));
    let process = Process::start(builder).await.unwrap();
    let executor = process.executor();
    let open = executor.questions(&acme()).await.unwrap();
    let (asked, answering) = (open[0].id, executor.clone());
    let answered =
        process.spawn(async move { answering.answer(&acme(), asked, Resolution::Again, "ann").await });
    for pause in [50, 250].map(Duration::from_millis) {
        scene.clock.slept(pause).await; // the store's queue tries the write again
        scene.clock.advance(pause);
    }
    let error = answered.await.unwrap().unwrap_err();
    assert!(matches!(error, ExecError::Store { .. }), "{error}");
    assert_eq!(executor.questions(&acme()).await.unwrap(), []);
    scene.clock.slept(SETTLE).await; // the record is one of unknown outcome: a look has shown nothing
    assert_eq!((scene.world.count(), scene.world.requests()), (0, 1));
    scene.clock.advance(SETTLE);
    scene.world.requested(2).await;
    let revised = Key::of("pay_out").target("c1").revision(1);
    let again = process.execute(request("pay_out").key(revised)).await.unwrap().unwrap();
    assert!(matches!(again, Outcome::Done(answer) if !answer.first), "it was sent");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 2));
}

#[tokio::test]
async fn an_audit_counts_what_it_cannot_look_up_for_want_of_the_tool() {
    let scene = Scene::payment();
    let process = scene.paid(Reply::Answer).await;
    process.kill();
    let process = Process::start(executor(&scene.dir, &scene.clock)).await.unwrap();
    let audit = process.executor().audit(&acme(), Timestamp::MIN).await.unwrap();
    assert_eq!((audit.looked, audit.without_tool), (0, 1));
    process.kill();
    let process = scene.process().await;
    let audit = process.executor().audit(&acme(), Timestamp::MIN).await.unwrap();
    assert_eq!((audit.looked, audit.without_tool), (1, 0));
}

#[tokio::test]
async fn it_may_be_there_all_the_same_or_be_left() {
    let scene = Scene::payment();
    let process = scene.paid(Reply::Forget).await;
    scene.look(&process.executor(), SETTLE, 1).await;
    scene.look(&process.executor(), SETTLE, 2).await;
    assert_eq!(asked(process).await, [QuestionKind::Missing]);
    let process = scene.process().await;
    let executor = process.executor();
    let open = executor.questions(&acme()).await.unwrap();
    executor.answer(&acme(), open[0].id, Resolution::Keep, "ann").await.unwrap();
    assert_eq!(executor.questions(&acme()).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_there_at_the_second_look_is_not_asked_about() {
    let scene = Scene::payment();
    let process = scene.paid(Reply::Answer).await;
    scene.world.looks([crate::world::Look::NotFound]);
    scene.look(&process.executor(), SETTLE, 1).await;
    scene.look(&process.executor(), SETTLE, 2).await;
    assert_eq!(asked(process).await, []);
    assert!(!is_looked_at_again(&scene.process().await.executor()).await);
}

#[tokio::test]
async fn what_need_not_be_shown_is_not_asked_about() {
    let lookup = || Contract::new(ContractClass::Lookup);
    for contract in [
        lookup().shown_for(SETTLE / 2),
        lookup().lookup(LookupOffer::Eventual),
        lookup().removed_by("take_back"),
    ] {
        let removed = !contract.removed_by.is_empty();
        let scene = Scene::new(EffectClass::Payment, contract.clone());
        let process = scene.paid(Reply::Forget).await;
        if removed {
            let _ = process.execute(request("take_back")).await.unwrap().unwrap();
        }
        scene.look(&process.executor(), SETTLE, 1).await;
        assert_eq!(asked(process).await, [], "{contract:?}");
        assert!(!is_looked_at_again(&scene.process().await.executor()).await, "{contract:?}");
    }
}

#[tokio::test]
async fn what_lands_after_several_settle_times_is_found() {
    let scene = Scene::new(EffectClass::InternalMutation, Contract::new(ContractClass::Lookup));
    scene.world.replies([Reply::Late]);
    let process = scene.process().await;
    drop(process.execute(request("pay_out")));
    scene.world.requested(1).await;
    process.kill();
    let mut process = scene.process().await;
    let (_, settled) = settle(&scene.clock, process.execute(request("pay_out"))).await;
    assert!(settled);
    // Lookups 1 and 2 led to the second send. One, two and four settle times after it there is one effect.
    for (lookup, pause) in [(3, SETTLE), (4, SETTLE), (5, SETTLE * 2)] {
        scene.look(&process.executor(), pause, lookup).await;
    }
    // The process that has sent it ends; the next one looks when it is due, eight settle times after the seal.
    scene.is_due_after(&process.executor(), SETTLE * 4).await;
    assert_eq!(asked(process).await, []);
    scene.world.land();
    process = scene.process().await;
    scene.look(&process.executor(), SETTLE * 4, 6).await;
    assert_eq!(asked(process).await, [QuestionKind::Duplicated]);
}

#[tokio::test]
async fn an_audit_finds_what_is_missing_and_what_is_there_twice() {
    let contract = || Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong);
    for (reply, found, kinds) in [
        (Reply::Answer, Audit::default(), vec![]),
        (Reply::Forget, one_missing(), vec![QuestionKind::Missing]),
        (Reply::Twice, one_duplicated(), vec![QuestionKind::Duplicated]),
    ] {
        let scene = Scene::new(EffectClass::Payment, contract());
        let sent = scene.clock.now();
        let process = scene.paid(reply).await;
        let executor = process.executor();
        let later = executor.audit(&acme(), sent.after(Duration::from_hours(1))).await.unwrap();
        assert_eq!(later, Audit::default(), "what was written before is left");
        let mut expected = found;
        expected.looked = 1;
        assert_eq!(executor.audit(&acme(), sent).await.unwrap(), expected);
        if expected.missing > 0 {
            scene.look(&process.executor(), SETTLE, 2).await; // once more, one settle time later
        }
        assert_eq!(asked(process).await, kinds);
    }
}

fn one_missing() -> Audit {
    let mut audit = Audit::default();
    audit.missing = 1;
    audit
}

fn one_duplicated() -> Audit {
    let mut audit = Audit::default();
    audit.duplicated = 1;
    audit
}

#[tokio::test]
async fn a_settle_time_below_the_timeout_of_an_attempt_is_refused_where_a_miss_is_believed() {
    let started = async |contract: Contract| {
        let scene = Scene::new(EffectClass::InternalMutation, contract);
        let tool = scene.world.tool("pay_out", scene.effect, scene.contract.clone()).retry(brief());
        let started = Process::start(executor(&scene.dir, &scene.clock).dynamic_tool(tool)).await;
        started.map(drop).map_err(|error| error.to_string())
    };
    let short = brief().attempt_timeout / 2;
    let lookup = || Contract::new(ContractClass::Lookup).settle(short);
    let error = started(lookup()).await.unwrap_err();
    assert!(error.contains("a miss is believed after 5s, but an attempt may last 10s"), "{error}");
    for safe in [
        lookup().settle(brief().attempt_timeout),
        lookup().ends_with_sender(),
        lookup().lookup(LookupOffer::Eventual),
        Contract::new(ContractClass::ReplaysKey).lookup(LookupOffer::Strong).settle(short),
    ] {
        started(safe).await.unwrap();
    }
}
