//! The fence in front of the ledger: it relieves the database of duplicates, and losing the fence loses nothing.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::outage::Outage;
use super::{AnyFence, Claimed, FenceError, FenceToken, FenceTtl, KeyFence};
use crate::clock::Boot;
use crate::exec::Executor;

/// The first pause before a pending key is asked for again; it doubles up to [`LONGEST_POLL`].
const FIRST_POLL: Duration = Duration::from_millis(5);
const LONGEST_POLL: Duration = Duration::from_millis(80);
/// The bytes of a fingerprint's digest, at the beginning of each sealed value.
const DIGEST: usize = 32;

/// The answer of [`Fenced::through`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum FencedAnswer<T> {
    /// The ledger has decided about this request before: this is the receipt of that decision. The ledger was not
    /// asked.
    Sealed(Vec<u8>),
    /// Another request with this key is under way. The ledger was not asked. Only with [`Fenced::answer_in_progress`].
    InProgress,
    /// The ledger was asked, and this is its decision.
    Ledger(T),
}

/// A decision of the ledger, with a receipt if the decision is final.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct LedgerDecision<T> {
    value: T,
    receipt: Option<Vec<u8>>,
}

impl<T> LedgerDecision<T> {
    /// A final decision: each later request gets this receipt, of a few hundred bytes rather than thousands.
    pub fn settled(value: T, receipt: impl Into<Vec<u8>>) -> Self {
        Self { value, receipt: Some(receipt.into()) }
    }

    /// A decision that may change: in progress, failed and free, an open question. The next request asks the ledger
    /// again.
    pub const fn open(value: T) -> Self {
        Self { value, receipt: None }
    }
}

/// A fence in front of the ledger.
///
/// A sealed key is answered by the fence. In all other cases the ledger decides: for an unknown key, if the fence is
/// unreachable, late, full or refuses, and if another request (by its fingerprint) was sealed under the key. A final
/// decision is sealed at the fence. So the fence can be flushed, killed or replaced at any time: each key costs the
/// ledger one more question, and no effect is made twice.
///
/// A restored ledger has lost what the fence still knows. So the fence is not asked while the ledger may be older than the
/// world, and what was sealed before is not found afterwards.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// use counterfoil::exec::ExecError;
/// use counterfoil::fence::{Fenced, FencedAnswer, LedgerDecision, SqlFence};
/// use counterfoil::{Executor, Key, Outcome, Tenant};
///
/// let executor = Executor::sqlite(dir.path().join("shop.db")).open().await?;
/// let acme = Tenant::new("acme")?;
/// let fenced = Fenced::new(&executor, SqlFence::new(&executor, acme.clone())); // a `RedisFence` in production
///
/// let body = "order 17";
/// let deliver = || fenced.through("acme/orders/17", body.as_bytes(), || async {
///     let key = Key::of("ship").target("17");
///     let outcome = executor.execute_once(&acme, key, body, || async { Ok("shipped".to_owned()) }).await?;
///     Ok::<_, ExecError>(match &outcome {
///         Outcome::Done(answer) => LedgerDecision::settled(outcome.clone(), answer.response.as_str()),
///         _ => LedgerDecision::open(outcome),
///     })
/// });
/// assert!(matches!(deliver().await?, FencedAnswer::Ledger(Outcome::Done(_))));
/// assert_eq!(deliver().await?, FencedAnswer::Sealed(br#""shipped""#.to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Fenced {
    fence: Arc<dyn AnyFence>,
    executor: Executor,
    ttl: FenceTtl,
    time_limit: Duration,
    pause: Duration,
    patience: Duration,
    says_in_progress: bool,
    outage: Arc<Outage>,
    era: Arc<Mutex<Option<Era>>>,
}

/// The ledger's life since its last restore. The fence knows keys of this life alone.
#[derive(Clone)]
struct Era {
    /// The restore that this worker had learned of when the era was read.
    learned: Option<Boot>,
    /// The prefix of keys at the fence. Empty if the ledger was never restored.
    prefix: String,
}

impl fmt::Debug for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced")
            .field("fence", &self.fence.kind())
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

/// The next step for a request.
enum Way {
    Sealed(Vec<u8>),
    InProgress,
    /// The ledger decides, and the token may hold the key: after the decision, the token seals or releases the key.
    LedgerWithClaim,
    Ledger,
}

impl Fenced {
    /// Puts a fence in front of an executor's ledger, whose clock it uses.
    pub fn new(executor: &Executor, fence: impl KeyFence) -> Self {
        Self {
            fence: Arc::new(fence),
            executor: executor.clone(),
            ttl: FenceTtl { pending: Duration::from_secs(10), ..FenceTtl::default() },
            time_limit: Duration::from_millis(50),
            pause: Duration::from_secs(1),
            patience: Duration::from_secs(1),
            says_in_progress: false,
            outage: Arc::default(),
            era: Arc::default(),
        }
    }

    /// Sets the times to live at the fence. Default: 10 s pending and 24 h sealed. Let `sealed` be at most as long as
    /// the ledger keeps its records: for this time the fence answers, even if the record is gone.
    #[must_use]
    pub fn ttl(self, ttl: FenceTtl) -> Self {
        Self { ttl, ..self }
    }

    /// Sets the time limit of one question to the fence. Default: 50 ms. After it the ledger is asked.
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets the time for which the fence is not asked after three questions in a row without an answer. Default: 1 s.
    /// Then one request asks the fence, and the others go to the ledger until the fence answers.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Sets the time for which a request waits while another request with its key is in progress. Default: 1 s. The
    /// request waits at the fence, without touching the database. After that the ledger is asked, which knows whether
    /// the other request's worker is alive.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Answers [`FencedAnswer::InProgress`] instead of asking the ledger when the patience is over. This causes no
    /// duplicate effect, but a request whose process died is reported as in progress until the pending time to live
    /// is over, and so is another request under the same key.
    #[must_use]
    pub fn answer_in_progress(self) -> Self {
        Self { says_in_progress: true, ..self }
    }

    /// Returns the receipt that was sealed for this key and fingerprint, or lets the ledger decide. The key is text
    /// of any length that includes all that distinguishes keys: the tenant, the kind of door. The fingerprint
    /// distinguishes two requests under one key; only its digest is kept.
    ///
    /// # Errors
    /// The error of `decide`, and no other. The key is released then.
    ///
    /// # Crash
    /// Before the seal: the key is pending until its time to live is over. Requests wait for their patience and then
    /// ask the ledger.
    pub async fn through<T, E, F, Fut>(
        &self,
        key: &str,
        fingerprint: &[u8],
        decide: F,
    ) -> Result<FencedAnswer<T>, E>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<LedgerDecision<T>, E>>,
    {
        let Some(key) = Box::pin(self.key_of_era(key)).await else {
            return Ok(FencedAnswer::Ledger(decide().await?.value));
        };
        let token = FenceToken::drawn_from(self.executor.entropy());
        let digest: [u8; DIGEST] = Sha256::digest(fingerprint).into();
        let way = self.way(&key, &token, &digest).await;
        let claimed = match way {
            Way::Sealed(receipt) => return Ok(FencedAnswer::Sealed(receipt)),
            Way::InProgress => return Ok(FencedAnswer::InProgress),
            Way::LedgerWithClaim => true,
            Way::Ledger => false,
        };
        let decided = decide().await;
        if claimed {
            let receipt = decided.as_ref().ok().and_then(|decision| decision.receipt.as_deref());
            self.settle(&key, &token, &digest, receipt).await;
        }
        Ok(FencedAnswer::Ledger(decided?.value))
    }

    /// The key at the fence. `None` if the ledger decides without the fence: a restored ledger may have lost what the fence
    /// has sealed, and the answer of the fence would lose the effect.
    async fn key_of_era(&self, key: &str) -> Option<String> {
        if self.executor.may_be_older().await {
            return None;
        }
        let learned = self.executor.learned_of_restore();
        let known = self.era.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let era = match known.filter(|era| era.learned == learned) {
            Some(era) => era,
            None => {
                let restored = self.executor.last_restore().await.ok()?;
                let prefix = restored.map(|at| format!("{}@", at.0)).unwrap_or_default();
                let era = Era { learned, prefix };
                *self.era.lock().unwrap_or_else(PoisonError::into_inner) = Some(era.clone());
                era
            }
        };
        Some(era.prefix + key)
    }

    /// Asks the fence for the next step.
    async fn way(&self, key: &str, token: &FenceToken, digest: &[u8; DIGEST]) -> Way {
        let clock = self.executor.clock();
        let begun = clock.boot();
        let mut poll = FIRST_POLL;
        loop {
            if !self.outage.may_ask(clock.boot(), self.pause) {
                return Way::Ledger;
            }
            match self.answer(self.fence.claim(key, token, self.ttl.pending)).await {
                Some(Claimed::Sealed(value)) => {
                    // Another request was sealed under this key: the ledger decides about the conflict.
                    return match value.strip_prefix(digest) {
                        Some(receipt) => Way::Sealed(receipt.to_vec()),
                        None => Way::Ledger,
                    };
                }
                Some(Claimed::Pending) if begun.until(clock.boot()) < self.patience => {
                    clock.sleep(poll).await;
                    poll = (poll * 2).min(LONGEST_POLL);
                }
                // The holder may be dead, which only the ledger knows.
                Some(Claimed::Pending) if self.says_in_progress => return Way::InProgress,
                Some(Claimed::Pending) => return Way::Ledger,
                // A claim may have been made although its answer was lost: then only this token can seal it.
                Some(Claimed::New) | None => return Way::LedgerWithClaim,
            }
        }
    }

    /// Seals or releases the key at the fence. If the fence does not get this, the ledger is asked once more.
    async fn settle(&self, key: &str, token: &FenceToken, digest: &[u8; DIGEST], receipt: Option<&[u8]>) {
        let _ = match receipt {
            Some(receipt) => {
                let value = [digest, receipt].concat();
                self.answer(self.fence.seal(key, token, &value, self.ttl.sealed)).await
            }
            None => self.answer(self.fence.release(key, token)).await,
        };
    }

    /// The fence's answer; `None` if the answer is late or an error.
    async fn answer<A>(&self, asked: impl Future<Output = Result<A, FenceError>>) -> Option<A> {
        let clock = self.executor.clock();
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            () = clock.sleep(self.time_limit) => Err(FenceError::Late),
        };
        let fence = self.fence.kind();
        match answer {
            Ok(answer) => {
                if self.outage.answered() {
                    tracing::info!(fence, "fence back");
                }
                Some(answer)
            }
            // An error about this key alone, and no outage.
            Err(error @ (FenceError::TooLarge { .. } | FenceError::Damaged)) => {
                tracing::warn!(fence, %error, "key not fenced, ledger is asked each time");
                None
            }
            Err(error) => {
                if self.outage.unanswered(clock.boot(), self.pause) {
                    tracing::warn!(fence, %error, "fence away, ledger is asked");
                }
                None
            }
        }
    }
}
