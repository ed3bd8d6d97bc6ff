//! A fence that does as it is told, in front of the ledger: what is asked of it, and when.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil::fence::{
    Claimed, FenceError, FenceToken, FenceTtl, Fenced, FencedAnswer, KeyFence, LedgerDecision,
    MAX_FENCE_VALUE,
};

use super::super::HOUR;
use super::Service;

/// The answers to claims, in their order; behind them the key is free. No answer: it hangs.
type Answers = VecDeque<Option<Result<Claimed, FenceError>>>;

#[derive(Clone, Default)]
struct Scripted {
    answers: Arc<Mutex<Answers>>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn with(answers: impl IntoIterator<Item = Option<Result<Claimed, FenceError>>>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    fn hears(&self, what: &str, ttl: Duration) {
        self.heard.lock().unwrap().push(format!("{what} {}", ttl.as_secs()));
    }

    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

impl KeyFence for Scripted {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    async fn claim(&self, _: &str, _: &FenceToken, ttl: Duration) -> Result<Claimed, FenceError> {
        self.hears("claim", ttl);
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            None => Ok(Claimed::New),
            Some(Some(answer)) => answer,
            Some(None) => pending().await,
        }
    }

    async fn seal(&self, _: &str, _: &FenceToken, value: &[u8], ttl: Duration) -> Result<bool, FenceError> {
        if value.len() > MAX_FENCE_VALUE {
            return Err(FenceError::TooLarge { bytes: value.len() });
        }
        self.hears(&format!("seal {}", String::from_utf8_lossy(&value[32..])), ttl);
        Ok(true)
    }

    async fn release(&self, _: &str, _: &FenceToken) -> Result<bool, FenceError> {
        self.hears("release", Duration::ZERO);
        Ok(true)
    }
}

type Decided = Result<LedgerDecision<u32>, &'static str>;

async fn ask(fenced: &Fenced, decided: Decided) -> Result<FencedAnswer<u32>, &'static str> {
    fenced.through("k", b"body", async || decided).await
}

#[allow(clippy::unnecessary_wraps, reason = "as the ledger gives it")]
fn settled() -> Decided {
    Ok(LedgerDecision::settled(7, "receipt"))
}

const AWAY: Option<Result<Claimed, FenceError>> = Some(Err(FenceError::Late));
const LEDGER: Result<FencedAnswer<u32>, &str> = Ok(FencedAnswer::Ledger(7));

#[tokio::test]
async fn a_settled_decision_is_sealed_and_any_other_frees_the_key() {
    let service = Service::open().await;
    let fence = Scripted::default();
    let ttl = FenceTtl { pending: Duration::from_secs(3), sealed: HOUR };
    let fenced = service.behind(fence.clone()).ttl(ttl);
    assert_eq!(ask(&fenced, settled()).await, LEDGER);
    assert_eq!(fence.heard(), ["claim 3", "seal receipt 3600"]);
    assert_eq!(ask(&fenced, Ok(LedgerDecision::open(7))).await, LEDGER);
    assert_eq!(fence.heard(), ["claim 3", "release 0"]);
    assert_eq!(ask(&fenced, Err("no database")).await, Err("no database"));
    assert_eq!(fence.heard(), ["claim 3", "release 0"]);
}

// The claim may have been made: without the seal its key would stay pending.
#[tokio::test]
async fn a_claim_without_an_answer_is_sealed_all_the_same() {
    let service = Service::open().await;
    for lost in [AWAY, None] {
        let fence = Scripted::with([lost]);
        let fenced = service.behind(fence.clone()).time_limit(Duration::from_millis(20));
        assert_eq!(ask(&fenced, settled()).await, LEDGER);
        assert_eq!(fence.heard(), ["claim 10", "seal receipt 86400"]);
    }
}

#[tokio::test]
async fn a_fence_that_is_away_is_asked_once_in_a_pause() {
    let service = Service::open().await;
    // A claim and a seal each.
    let fence = Scripted::with([AWAY, AWAY, AWAY]);
    let fenced = service.behind(Mute(fence.clone())).pause(HOUR);
    for _ in 0..10 {
        assert_eq!(ask(&fenced, settled()).await, LEDGER);
    }
    assert_eq!(fence.heard(), ["claim 10", "claim 10"]);
    let fenced = service.behind(Mute(fence.clone())).pause(Duration::ZERO);
    for _ in 0..5 {
        assert_eq!(ask(&fenced, settled()).await, LEDGER);
    }
    assert_eq!(fence.heard(), ["claim 10"; 5]);
}

#[tokio::test]
async fn a_single_late_answer_is_no_outage() {
    let service = Service::open().await;
    let fence = Scripted::with([AWAY, Some(Ok(Claimed::New)), AWAY, Some(Ok(Claimed::New))]);
    let fenced = service.behind(fence.clone()).pause(HOUR);
    for _ in 0..5 {
        assert_eq!(ask(&fenced, settled()).await, LEDGER);
    }
    assert_eq!(fence.heard().iter().filter(|heard| *heard == "claim 10").count(), 5);
}

/// Never seals or releases.
struct Mute(Scripted);

impl KeyFence for Mute {
    fn kind(&self) -> &'static str {
        "mute"
    }

    async fn claim(&self, key: &str, token: &FenceToken, ttl: Duration) -> Result<Claimed, FenceError> {
        self.0.claim(key, token, ttl).await
    }

    async fn seal(&self, _: &str, _: &FenceToken, _: &[u8], _: Duration) -> Result<bool, FenceError> {
        Err(FenceError::Late)
    }

    async fn release(&self, _: &str, _: &FenceToken) -> Result<bool, FenceError> {
        Err(FenceError::Late)
    }
}

#[tokio::test]
async fn a_pending_key_is_waited_for_at_the_fence() {
    let service = Service::open().await;
    let pending = || Some(Ok(Claimed::Pending));
    let fence = Scripted::with([pending(), pending(), pending()]);
    assert_eq!(ask(&service.behind(fence.clone()), settled()).await, LEDGER, "it became free");
    assert_eq!(fence.heard().len(), 5);

    let fence = Scripted::with([pending()]);
    let hasty = service.behind(fence.clone()).patience(Duration::ZERO);
    assert_eq!(ask(&hasty, settled()).await, LEDGER, "the holder may be dead");
    assert_eq!(fence.heard(), ["claim 10"], "the key is another's");

    let fence = Scripted::with([pending()]);
    let telling = service.behind(fence.clone()).patience(Duration::ZERO).answer_in_progress();
    assert_eq!(ask(&telling, Err("is not asked")).await, Ok(FencedAnswer::InProgress));
    assert_eq!(fence.heard(), ["claim 10"]);
}

#[tokio::test]
async fn a_receipt_that_is_too_large_is_no_outage() {
    let service = Service::open().await;
    let fence = Scripted::default();
    let fenced = service.behind(fence.clone()).pause(HOUR);
    for _ in 0..2 {
        let large = LedgerDecision::settled(7, vec![b'x'; MAX_FENCE_VALUE]);
        assert_eq!(ask(&fenced, Ok(large)).await, LEDGER);
        assert_eq!(fence.heard(), ["claim 10"]);
    }
    assert_eq!(ask(&fenced, settled()).await, LEDGER);
    assert_eq!(fence.heard(), ["claim 10", "seal receipt 86400"]);
}
