//! The fence in front of the ledger: it spares the database the storm, and losing it loses nothing.

mod scripted;
mod storm;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil::exec::ExecError;
use counterfoil::fence::{Fenced, FencedAnswer, KeyFence, LedgerDecision, RedisFence};
use counterfoil::store::{Change, Store, StoreFuture, Verdict};
use counterfoil::{Executor, Key, Outcome, Tenant};
use tempfile::TempDir;

use super::server::Redis;
use super::{HOUR, patient, token};

/// A service with its ledger, whose effects and questions to the store are counted.
struct Service {
    _folder: TempDir,
    executor: Executor,
    acme: Tenant,
    effects: Arc<AtomicU32>,
    decisions: AtomicU32,
    asked: Arc<AtomicU32>,
}

/// Counts the questions about records, and the writes of them.
#[derive(Debug)]
struct Counted(Arc<dyn Store>, Arc<AtomicU32>);

impl Store for Counted {
    fn commit<'a>(&'a self, changes: &'a [Change]) -> StoreFuture<'a, Vec<Verdict>> {
        let records = changes.iter().filter(|change| change.record.is_some()).count();
        self.1.fetch_add(u32::try_from(records).unwrap(), Ordering::SeqCst);
        self.0.commit(changes)
    }

    fn record_find<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a counterfoil::ledger::OperationKey,
    ) -> StoreFuture<'a, Option<counterfoil::ledger::Record>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.record_find(tenant, key)
    }

    fn behind(&self) -> Option<&dyn Store> {
        Some(&*self.0)
    }
}

impl Service {
    async fn open() -> Self {
        let (folder, asked) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU32::new(0)));
        let counter = asked.clone();
        let executor = Executor::sqlite(folder.path().join("test.db"))
            .wrap_store(move |store| Arc::new(Counted(store, counter)))
            .open()
            .await
            .unwrap();
        let acme = Tenant::new("acme").unwrap();
        Self { _folder: folder, executor, acme, effects: Arc::default(), decisions: AtomicU32::new(0), asked }
    }

    /// A fence in front, that waits for as long as a busy machine may take.
    fn behind(&self, fence: impl KeyFence) -> Fenced {
        Fenced::new(&self.executor, fence).time_limit(HOUR).patience(HOUR)
    }

    /// The receipt of an event, whoever gives it: the number of the effect that was made for it.
    async fn deliver(&self, fenced: &Fenced, event: &str) -> String {
        match self.through(fenced, event, "body").await {
            FencedAnswer::Sealed(receipt) => String::from_utf8(receipt).unwrap(),
            FencedAnswer::Ledger(Outcome::Done(answer)) => answer.response.as_str().to_owned(),
            other => panic!("{event}: {other:?}"),
        }
    }

    async fn through(&self, fenced: &Fenced, event: &str, body: &str) -> FencedAnswer<Outcome> {
        let key = format!("acme/events/{event}");
        fenced.through(&key, body.as_bytes(), || self.decide(event, body)).await.unwrap()
    }

    async fn decide(&self, event: &str, body: &str) -> Result<LedgerDecision<Outcome>, ExecError> {
        self.decisions.fetch_add(1, Ordering::SeqCst);
        let effects = self.effects.clone();
        let effect = async move || Ok(effects.fetch_add(1, Ordering::SeqCst) + 1);
        let key = Key::of("book").target(event);
        let outcome = self.executor.execute_once(&self.acme, key, body, effect).await?;
        Ok(match &outcome {
            Outcome::Done(answer) => LedgerDecision::settled(outcome.clone(), answer.response.as_str()),
            _ => LedgerDecision::open(outcome),
        })
    }

    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    fn decisions(&self) -> u32 {
        self.decisions.load(Ordering::SeqCst)
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn what_is_sealed_is_answered_without_the_database() {
    let (service, redis) = (Service::open().await, Redis::start().await);
    let fenced = service.behind(patient(&redis));
    assert_eq!(service.deliver(&fenced, "e").await, "1");
    let asked = service.asked();
    assert!(asked > 0);
    for _ in 0..100 {
        assert_eq!(service.through(&fenced, "e", "body").await, FencedAnswer::Sealed(b"1".to_vec()));
    }
    assert_eq!((service.effects(), service.decisions(), service.asked()), (1, 1, asked));
    // Another process with the same fence.
    let other = service.behind(patient(&redis));
    assert_eq!(service.deliver(&other, "e").await, "1");
    assert_eq!(service.asked(), asked);
}

#[tokio::test]
async fn another_request_under_a_sealed_key_goes_to_the_ledger() {
    let (service, redis) = (Service::open().await, Redis::start().await);
    let fenced = service.behind(patient(&redis));
    assert_eq!(service.deliver(&fenced, "e").await, "1");
    for _ in 0..2 {
        let other = service.through(&fenced, "e", "another body").await;
        assert!(matches!(other, FencedAnswer::Ledger(Outcome::Conflict(_))), "{other:?}");
    }
    assert_eq!(service.decisions(), 3);
    assert_eq!(service.through(&fenced, "e", "body").await, FencedAnswer::Sealed(b"1".to_vec()));
}

// Also where the ledger has never met the key: a fence that somebody else has written to.
#[tokio::test]
async fn a_seal_without_this_fingerprint_is_not_believed() {
    let (service, redis) = (Service::open().await, Redis::start().await);
    let fence = patient(&redis);
    for (event, value) in [("short", &b"x"[..]), ("empty", b""), ("long", &[b'x'; 40])] {
        let holder = token();
        let key = format!("acme/events/{event}");
        let _ = fence.claim(&key, &holder, HOUR).await.unwrap();
        assert!(fence.seal(&key, &holder, value, HOUR).await.unwrap());
        let answer = service.through(&service.behind(fence.clone()), event, "body").await;
        assert!(matches!(answer, FencedAnswer::Ledger(Outcome::Done(_))), "{answer:?}");
    }
    assert_eq!(service.effects(), 3);
}

/// Whatever is wrong with Redis, each of these deliveries is answered by the ledger, and the effect is made once.
async fn goes_to_the_ledger(service: &Service, fenced: &Fenced, event: &str) {
    let (effects, decisions) = (service.effects(), service.decisions());
    let receipt = service.deliver(fenced, event).await;
    for _ in 0..3 {
        assert_eq!(service.deliver(fenced, event).await, receipt);
    }
    assert_eq!((service.effects() - effects, service.decisions() - decisions), (1, 4), "{event}");
}

#[tokio::test]
async fn without_a_fence_the_ledger_decides() {
    let service = Service::open().await;
    let mut redis = Redis::start().await;
    let fenced = service.behind(patient(&redis));
    // Not there, and not asked again before the pause is over.
    redis.kill();
    goes_to_the_ledger(&service, &fenced.clone().pause(HOUR), "killed").await;
    // Asked each time, in vain.
    let fenced = service.behind(patient(&redis)).pause(Duration::ZERO);
    goes_to_the_ledger(&service, &fenced, "still killed").await;
    redis.start_again().await;
    while !matches!(service.through(&fenced, "back", "body").await, FencedAnswer::Sealed(_)) {}
}

#[tokio::test]
async fn a_fence_that_refuses_is_no_error() {
    let (service, redis, primary) = (Service::open().await, Redis::start().await, Redis::start().await);
    let fenced = || service.behind(patient(&redis)).pause(Duration::ZERO);
    () = redis.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
    goes_to_the_ledger(&service, &fenced(), "full").await;
    () = redis.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;

    redis.follow(&primary).await;
    goes_to_the_ledger(&service, &fenced(), "replica").await;
    () = redis.tell(&["REPLICAOF", "NO", "ONE"]).await;

    let guess = RedisFence::new(&redis.url().replace("//", "//ann:guess@")).unwrap().time_limit(HOUR);
    goes_to_the_ledger(&service, &service.behind(guess), "wrong password").await;
}

#[tokio::test]
async fn a_fence_that_hangs_costs_its_time_limit_and_no_more() {
    let (service, redis) = (Service::open().await, Redis::start().await);
    redis.freeze();
    let fenced = service.behind(patient(&redis)).time_limit(Duration::from_millis(50)).pause(HOUR);
    goes_to_the_ledger(&service, &fenced, "frozen").await;
    redis.thaw();
}
