//! A person is asked because the lookup does not answer: it is made again beside the question, and before "it did not happen" is
//! believed.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::ExecError;
use counterfoil::ledger::{
    Basis, Contract, ContractClass, EffectClass, Key, LookupOffer, OperationKey, Reason, Record, State,
};
use counterfoil::store::{Question, QuestionKind, Resolution};
use counterfoil::{Executor, Outcome};

use crate::world::{
    Keys, Look, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, soon,
};

/// The first pause beside a question.
const FIRST: Duration = Duration::from_secs(5);

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    contract: Contract,
}

fn key() -> OperationKey {
    Key::of("pay_out").target("c1").render().unwrap()
}

impl Scene {
    /// A call is sent in this way, its process dies, and the lookup does not answer the next one: a person is asked.
    async fn asked(contract: Contract, reply: Reply) -> (Self, Process) {
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        let scene = Self { dir, clock, world: World::new(Keys::Ignores), contract };
        scene.world.replies([reply]);
        let process = scene.process().await;
        drop(process.execute(request("pay_out")));
        scene.world.requested(1).await;
        process.kill();
        scene.fails(4);
        let process = scene.process().await;
        let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
        assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
        (scene, process)
    }

    async fn unanswered(reply: Reply) -> (Self, Process) {
        Self::asked(Contract::new(ContractClass::Lookup), reply).await
    }

    /// The next lookups have no answer.
    fn fails(&self, lookups: usize) {
        self.world.looks(std::iter::repeat_n(Look::Fail, lookups));
    }

    async fn process(&self) -> Process {
        let tool = self.world.tool("pay_out", EffectClass::InternalMutation, self.contract.clone());
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(tool.retry(brief()))).await.unwrap()
    }

    /// Waits until the next look is due after this pause, and lets it fall due.
    async fn falls_due(&self, executor: &Executor, pause: Duration) {
        let due = self.clock_after(pause);
        until(format!("no look is due after {pause:?}"), async || {
            let look = executor.next_look(&acme(), &key()).await.unwrap();
            look.is_some_and(|look| look.due_at == Some(due))
        })
        .await;
        self.clock.advance(pause);
    }

    fn clock_after(&self, pause: Duration) -> counterfoil::Timestamp {
        counterfoil::Clock::now(&self.clock).after(pause)
    }

    fn lookups(&self) -> usize {
        self.world.lookups().len()
    }
}

async fn until(otherwise: String, mut is: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !is().await {
            tokio::task::yield_now().await;
        }
        Ok::<(), ()>(())
    };
    soon(otherwise, waited).await;
}

async fn open(executor: &Executor) -> Vec<Question> {
    executor.questions(&acme()).await.unwrap()
}

async fn record(executor: &Executor) -> Record {
    executor.record(&acme(), &key()).await.unwrap().unwrap().0
}

/// Waits until the record is committed by a lookup.
async fn found(executor: &Executor) {
    until("the lookup has not settled it".to_owned(), async || {
        let record = record(executor).await;
        matches!(record.state, State::Committed { .. }) && record.basis == Basis::Lookup
    })
    .await;
}

#[tokio::test]
async fn a_lookup_that_answers_later_withdraws_the_question() {
    let (scene, mut process) = Scene::unanswered(Reply::EffectThenHang).await;
    scene.fails(2);
    scene.falls_due(&process.executor(), FIRST).await;
    scene.world.looked_up(5).await;
    let look = process.executor().next_look(&acme(), &key()).await.unwrap().unwrap();
    assert_eq!(look.reason, Reason::Unanswered);
    process.kill(); // and the next look is durable
    process = scene.process().await;
    scene.falls_due(&process.executor(), FIRST * 2).await;
    scene.world.looked_up(6).await;
    assert_eq!(open(&process.executor()).await.len(), 1);
    scene.falls_due(&process.executor(), FIRST * 4).await;
    found(&process.executor()).await;
    assert_eq!(open(&process.executor()).await, []);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

#[tokio::test]
async fn what_a_later_lookup_does_not_show_is_sent_once_it_has_settled() {
    let (scene, process) = Scene::unanswered(Reply::Hang).await;
    scene.falls_due(&process.executor(), FIRST).await;
    scene.clock.slept(SETTLE).await;
    assert_eq!(open(&process.executor()).await, []);
    scene.clock.advance(SETTLE);
    scene.world.requested(2).await;
    until("the answer is not recorded".to_owned(), async || {
        matches!(record(&process.executor()).await.state, State::Committed { .. })
    })
    .await;
    assert_eq!(scene.world.count(), 1);
}

#[tokio::test]
async fn the_old_account_withdraws_the_question_when_it_is_back() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let contract = |account: &str| Contract::new(ContractClass::Lookup).scope(account);
    let mut scene = Scene { dir, clock, world: World::new(Keys::Ignores), contract: contract("account 1") };
    scene.world.replies([Reply::EffectThenHang]);
    let process = scene.process().await;
    drop(process.execute(request("pay_out")));
    scene.world.requested(1).await;
    process.kill();
    scene.contract = contract("account 2");
    scene.world.looks([Look::NotFound, Look::NotFound]);
    let process = scene.process().await;
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    scene.falls_due(&process.executor(), FIRST).await;
    scene.world.looked_up(2).await;
    assert_eq!(open(&process.executor()).await.len(), 1, "there it proves nothing");
    process.kill();
    scene.contract = contract("account 1");
    let process = scene.process().await;
    scene.falls_due(&process.executor(), FIRST * 2).await;
    found(&process.executor()).await;
    assert_eq!(open(&process.executor()).await, []);
}

#[tokio::test]
async fn it_did_not_happen_is_looked_up_first() {
    let (scene, process) = Scene::unanswered(Reply::EffectThenHang).await;
    let executor = process.executor();
    let asked = open(&executor).await.remove(0);
    process
        .spawn(executor.answer(&acme(), asked.id, Resolution::DidNotHappen, "ann").into_future())
        .await
        .unwrap()
        .unwrap();
    found(&executor).await;
    assert_eq!(open(&executor).await, []);
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert_eq!(outcome.answer().unwrap().basis, Basis::Lookup);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// The client cannot look up: it would be the last to believe a person's error.
#[tokio::test]
async fn it_did_not_happen_is_looked_up_first_although_a_client_says_so() {
    let (scene, process) = Scene::unanswered(Reply::EffectThenHang).await;
    let client = counterfoil::Client::sqlite(scene.dir.path().join("agents.db")).clock(scene.clock.clone());
    let client = client.open().await.unwrap();
    let asked = open(&process.executor()).await.remove(0);
    let acme = client.tenant("acme").unwrap();
    acme.answer(asked.id, Resolution::DidNotHappen, "ann").await.unwrap();
    found(&process.executor()).await;
    assert_eq!(open(&process.executor()).await, []);
    let refused = acme.answer(asked.id, Resolution::LookNow, "ann").await.unwrap_err().to_string();
    assert!(refused.contains("it has been answered"), "{refused}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// A client does not know if the tool has a lookup. The answer waited for ever for one that there was not.
#[tokio::test]
async fn it_did_not_happen_counts_for_a_tool_without_a_lookup_although_a_client_says_so() {
    let (scene, process) = Scene::asked(Contract::new(ContractClass::Blind), Reply::Hang).await;
    let client = counterfoil::Client::sqlite(scene.dir.path().join("agents.db")).clock(scene.clock.clone());
    let client = client.open().await.unwrap();
    let asked = open(&process.executor()).await.remove(0);
    client.tenant("acme").unwrap().answer(asked.id, Resolution::DidNotHappen, "ann").await.unwrap();
    until("the answer does not count".to_owned(), async || open(&process.executor()).await.is_empty()).await;
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests(), scene.lookups()), (1, 2, 0));
}

// A page for operators is served by a client: its button "look now" must not be refused where a worker can look.
#[tokio::test]
async fn look_now_of_a_client_is_made_by_a_worker() {
    let (scene, process) = Scene::unanswered(Reply::EffectThenHang).await;
    let client = counterfoil::Client::sqlite(scene.dir.path().join("agents.db")).clock(scene.clock.clone());
    let client = client.open().await.unwrap();
    let asked = open(&process.executor()).await.remove(0);
    let before = scene.lookups();
    client.tenant("acme").unwrap().answer(asked.id, Resolution::LookNow, "ann").await.unwrap();
    found(&process.executor()).await;
    assert_eq!(open(&process.executor()).await, []);
    assert!(scene.lookups() > before, "it is looked up");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

// Nor can an engine that was deployed without the tool. The answer waits there, however long, for a worker that knows it.
#[tokio::test]
async fn it_did_not_happen_is_looked_up_first_although_an_engine_without_the_tool_takes_the_answer() {
    let (scene, process) = Scene::unanswered(Reply::EffectThenHang).await;
    process.kill();
    let process = Process::start(executor(&scene.dir, &scene.clock)).await.unwrap();
    let executor = process.executor();
    let asked = open(&executor).await.remove(0);
    assert_eq!(asked.kind, QuestionKind::Ambiguous);
    executor.answer(&acme(), asked.id, Resolution::DidNotHappen, "ann").await.unwrap();
    scene.clock.advance(Duration::from_hours(48));
    let waits = open(&executor).await.remove(0);
    assert_eq!(waits.waiting.as_ref().map(|answer| answer.by.as_str()), Some("ann"), "{waits:?}");
    let says = "does not know the tool \"pay_out\": a worker that knows it makes the lookup";
    assert!(waits.question.contains(says), "{waits:?}");
    assert_eq!(record(&executor).await.state, State::Started);
    drop(executor);
    process.kill();

    let process = scene.process().await;
    let executor = process.executor();
    found(&executor).await;
    assert_eq!(open(&executor).await, []);
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 1));
}

#[tokio::test]
async fn it_did_not_happen_waits_for_the_lookup_and_is_confirmed_afterwards() {
    let (scene, process) = Scene::unanswered(Reply::Hang).await;
    scene.fails(1);
    let executor = process.executor();
    let asked = open(&executor).await.remove(0);
    let answer =
        executor.answer(&acme(), asked.id, Resolution::DidNotHappen, "ann").because("not in the portal");
    process.spawn(answer.into_future()).await.unwrap().unwrap();
    assert_eq!(scene.lookups(), 5, "it is looked up at once");
    let waits = open(&executor).await.remove(0);
    let waiting = waits.waiting.clone().unwrap();
    assert_eq!((waiting.by.as_str(), waiting.reason()), ("ann", Some("not in the portal")));
    for said in ["An answer waits", "ann", "not in the portal", "lookup"] {
        assert!(waits.question.contains(said), "{}", waits.question);
    }
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");

    // It waits over a restart; and a miss is believed only when nothing can be under way any more.
    drop(executor);
    process.kill();
    let process = scene.process().await;
    let executor = process.executor();
    scene.falls_due(&executor, FIRST * 2).await;
    scene.world.looked_up(6).await;
    scene.falls_due(&executor, SETTLE.saturating_sub(FIRST * 2)).await;
    until("the answer has not taken effect".to_owned(), async || open(&executor).await.is_empty()).await;
    let failed = record(&executor).await;
    assert!(
        matches!(&failed.state, State::Failed { failure } if failure.message.contains("not in the portal")),
        "{failed:?}"
    );
    assert_eq!(scene.world.requests(), 1);

    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests()), (1, 2));
    let look = executor.next_look(&acme(), &key()).await.unwrap().unwrap();
    assert_eq!(look.reason, Reason::Doubt, "a first request that lands after all is found");
}

#[tokio::test]
async fn send_without_looking_is_an_answer_of_its_own() {
    let (scene, process) = Scene::unanswered(Reply::Hang).await;
    let executor = process.executor();
    let asked = open(&executor).await.remove(0);
    let reason = "the customer is at the counter".to_owned();
    executor.answer(&acme(), asked.id, Resolution::SendWithoutLooking { reason }, "ann").await.unwrap();
    assert_eq!((open(&executor).await, scene.lookups()), (vec![], 4));
    let failed = record(&executor).await;
    assert!(
        matches!(&failed.state, State::Failed { failure } if failure.message.contains("at the counter")),
        "{failed:?}"
    );
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(outcome.answer().is_some(), "{outcome:?}");
    assert_eq!((scene.world.count(), scene.world.requests(), scene.lookups()), (1, 2, 4));
    assert!(executor.next_look(&acme(), &key()).await.unwrap().is_some());
}

#[tokio::test]
async fn an_answer_that_waits_gives_way_to_another_one() {
    for resolution in [Resolution::Abandon, Resolution::Happened(serde_json::json!("seen"))] {
        let (scene, process) = Scene::unanswered(Reply::Hang).await;
        scene.fails(1);
        let executor = process.executor();
        let asked = open(&executor).await.remove(0);
        executor.answer(&acme(), asked.id, Resolution::DidNotHappen, "ann").await.unwrap();
        assert!(open(&executor).await[0].waiting.is_some());
        executor.answer(&acme(), asked.id, resolution, "bob").await.unwrap();
        assert_eq!(open(&executor).await, []);
        assert_eq!(
            executor.next_look(&acme(), &key()).await.unwrap(),
            None,
            "nothing is left to be looked up"
        );
        assert!(!matches!(record(&executor).await.state, State::Started | State::Failed { .. }));
    }
}

#[tokio::test]
async fn look_now_looks_at_once() {
    let (scene, process) = Scene::unanswered(Reply::EffectThenHang).await;
    scene.fails(1);
    let executor = process.executor();
    let asked = open(&executor).await.remove(0);
    let view = executor.question(&acme(), asked.id).await.unwrap().unwrap();
    assert!(view.answers.iter().any(|answer| answer.name == "look_now"), "{view}");
    let look_now = async || {
        let answer = executor.answer(&acme(), asked.id, Resolution::LookNow, "ann");
        process.spawn(answer.into_future()).await.unwrap()
    };
    look_now().await.unwrap();
    assert_eq!((open(&executor).await, scene.lookups()), (vec![asked.clone()], 5));
    look_now().await.unwrap();
    found(&executor).await;
    assert_eq!(open(&executor).await, []);
    assert!(matches!(look_now().await, Err(ExecError::Unanswerable { .. })));
}

#[tokio::test]
async fn what_cannot_be_looked_up_says_so_and_a_persons_word_counts_at_once() {
    let contract = Contract::new(ContractClass::Blind).lookup(LookupOffer::None);
    let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let scene = Scene { dir, clock, world: World::new(Keys::Ignores), contract };
    scene.world.replies([Reply::Fail(counterfoil::ledger::ErrorKind::Disconnected)]);
    let process = scene.process().await;
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::NeedsDecision { .. }), "{outcome:?}");
    let executor = process.executor();
    let asked = open(&executor).await.remove(0);
    let refused = executor.answer(&acme(), asked.id, Resolution::LookNow, "ann").await.unwrap_err();
    assert!(refused.to_string().contains("cannot be looked up"), "{refused}");
    executor.answer(&acme(), asked.id, Resolution::DidNotHappen, "ann").await.unwrap();
    assert!(matches!(record(&executor).await.state, State::Failed { .. }));
}
