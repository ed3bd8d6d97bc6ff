//! That a call was refused can be learned after a doubt: from the lookup, or from a provider that gives each request under the key the
//! same answer. The record is settled, and nobody is asked.

use std::sync::Arc;

use counterfoil::Outcome;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, ErrorKind, Key, LookupOffer, Record, State};
use counterfoil::store::Resolution;

use crate::world::{
    Keys, Look, Process, Reply, SETTLE, TestClock, World, acme, brief, executor, request, soon,
};

struct Scene {
    dir: tempfile::TempDir,
    clock: TestClock,
    world: Arc<World>,
    contract: Contract,
}

impl Scene {
    fn new(class: ContractClass, lookup: LookupOffer) -> Self {
        let keys = if class == ContractClass::ReplaysKey { Keys::Honours } else { Keys::Ignores };
        let contract = Contract::new(class).lookup(lookup);
        let (dir, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
        Self { dir, clock, world: World::new(keys), contract }
    }

    /// A process dies before it hears what became of its request, which has no effect.
    async fn lost(class: ContractClass, lookup: LookupOffer) -> Self {
        let scene = Self::new(class, lookup);
        scene.world.replies([Reply::Hang]);
        let process = scene.process().await;
        drop(process.execute(request("pay_out")));
        scene.world.requested(1).await;
        process.kill();
        scene
    }

    async fn process(&self) -> Process {
        let tool = self.world.tool("pay_out", EffectClass::InternalMutation, self.contract.clone());
        Process::start(executor(&self.dir, &self.clock).dynamic_tool(tool.retry(brief()))).await.unwrap()
    }

    /// The record, once the next process has settled it or asks a person. Where nothing collides, the settle time passes meanwhile.
    async fn settled(&self, process: &Process) -> Record {
        if self.contract.class == ContractClass::Lookup {
            self.clock.slept(SETTLE).await;
            self.clock.advance(SETTLE);
        }
        self.ends(process).await
    }

    async fn ends(&self, process: &Process) -> Record {
        let executor = process.executor();
        let key = Key::of("pay_out").target("c1").render().unwrap();
        let record = async || executor.record(&acme(), &key).await.unwrap().unwrap().0;
        let ended = async {
            loop {
                let record = record().await;
                if record.state != State::Started || record.escalation.is_some() {
                    return Ok::<_, ()>(());
                }
                tokio::task::yield_now().await;
            }
        };
        soon("the call is not settled".to_owned(), ended).await;
        record().await
    }

    /// It is refused for certain, and nobody is asked.
    async fn is_refused(&self, process: &Process, record: &Record) {
        let State::Failed { failure } = &record.state else { panic!("{record:?}") };
        assert_eq!((failure.kind, &*failure.message), (ErrorKind::Validation, "declined"));
        assert!(!record.in_doubt && record.not_before.is_none(), "{record:?}");
        assert_eq!(process.executor().questions(&acme()).await.unwrap(), []);
        assert_eq!(self.world.count(), 0);
    }
}

#[tokio::test]
async fn the_lookup_says_that_it_was_refused() {
    // Within the settle time another request may be on its way: where nothing collides, it is looked up again.
    for (class, lookups) in [(ContractClass::Lookup, 2), (ContractClass::ReplaysKey, 1)] {
        let scene = Scene::lost(class, LookupOffer::Strong).await;
        scene.world.looks([Look::Failed, Look::Failed]);
        let process = scene.process().await;
        let record = scene.settled(&process).await;
        scene.is_refused(&process, &record).await;
        assert_eq!((scene.world.requests(), scene.world.lookups().len()), (1, lookups), "{class:?}");
    }
}

#[tokio::test]
async fn a_refusal_that_the_provider_replays_is_certain() {
    let scene = Scene::lost(ContractClass::ReplaysKey, LookupOffer::None).await;
    scene.world.replies([Reply::Decline]);
    let process = scene.process().await;
    let record = scene.settled(&process).await;
    scene.is_refused(&process, &record).await;
    assert_eq!(scene.world.requests(), 2);
}

// That this request was refused says nothing of the one before it.
#[tokio::test]
async fn a_refusal_of_one_request_is_no_answer_for_another() {
    for (class, reply) in [
        (ContractClass::ReplaysKey, Reply::Fail(ErrorKind::Validation)),
        (ContractClass::NaturalKey, Reply::Decline),
    ] {
        let scene = Scene::lost(class, LookupOffer::None).await;
        scene.world.replies([reply]);
        let process = scene.process().await;
        let record = scene.settled(&process).await;
        assert!(record.escalation.is_some(), "{class:?}: {record:?}");
    }
}

#[tokio::test]
async fn a_look_beside_the_question_learns_it() {
    let scene = Scene::lost(ContractClass::ReplaysKey, LookupOffer::Strong).await;
    // The key is refused as known, and the lookup shows nothing: a person is asked.
    scene.world.replies([Reply::Fail(ErrorKind::Duplicate)]);
    scene.world.looks([Look::NotFound, Look::NotFound, Look::NotFound, Look::Failed, Look::Failed]);
    let process = scene.process().await;
    scene.clock.slept(SETTLE).await;
    scene.clock.advance(SETTLE);
    let question = scene.ends(&process).await.escalation.expect("a question");
    process.executor().answer(&acme(), question, Resolution::LookNow, "ann").await.unwrap();
    let record = scene.ends(&process).await;
    scene.is_refused(&process, &record).await;
}

// The caller is told, and nothing is sent again.
#[tokio::test]
async fn a_caller_who_lost_the_answer_is_told_that_it_was_refused() {
    let scene = Scene::new(ContractClass::ReplaysKey, LookupOffer::Strong);
    scene.world.replies([Reply::Fail(ErrorKind::Disconnected)]);
    scene.world.looks([Look::Failed]);
    let process = scene.process().await;
    let outcome = process.execute(request("pay_out")).await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!(scene.world.requests(), 1);
    let record = scene.ends(&process).await;
    scene.is_refused(&process, &record).await;
}
