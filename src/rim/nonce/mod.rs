//! Short windows: a request that a client repeats within minutes has one effect, and the original result is returned,
//! over any transport. Feature `nonce`.
//!
//! A chat client draws a nonce for each message and sends the nonce with every try. With `enforce_nonce` the second
//! try gets the first message; without it the nonce is ignored and nothing is deduplicated. Nonces are short-lived:
//! after the window the same nonce makes another message.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::nonce::{Made, Nonce, NonceRequest, Nonces};
//! use counterfoil::{Executor, Tenant};
//!
//! let executor = Executor::sqlite(dir.path().join("chat.db")).open().await?;
//! let messages = Nonces::new(&executor, "message")?;
//! let (acme, nonce) = (Tenant::new("acme")?, Nonce::try_from("k3j9")?);
//! let sent = NonceRequest { author: "ann", nonce: Some(&nonce), enforce: true };
//! let post = || async { Ok("message 1".to_owned()) };
//! assert_eq!(messages.once(&acme, sent, post).await?, Made::Now("message 1".to_owned()));
//! assert_eq!(messages.once(&acme, sent, post).await?, Made::Before("message 1".to_owned()));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod form;
mod under;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use form::{Nonce, NonceFormError};
use under::{InTransaction, Make, Met, Under};

use super::door::{Decided, DoorDecision, LogFields};
use crate::exec::{ExecError, Executor, Outcome, OwnConnection, ResponseTooLarge, Wait};
use crate::id::{IdError, Name, QuestionId, Tenant, checked};
use crate::ledger::{
    Backoff, Contract, ContractClass, EffectClass, ErrorKind, Key, RecordedFailure, Retention, RetryPolicy,
    Scope,
};
use crate::payload::{Payload, PayloadError};
use crate::tool::{Call, Prepared as _, RegisterError, ToolError, ToolSpec};

/// The default window.
const WINDOW: Duration = Duration::from_mins(5);

/// A request to make a value, as a client has sent it.
#[derive(Clone, Copy, Debug)]
pub struct NonceRequest<'a> {
    /// The author. Two authors share no nonces.
    pub author: &'a str,
    /// The nonce that the client has sent with the request.
    pub nonce: Option<&'a Nonce>,
    /// True if the nonce counts. Otherwise the value is made in any case.
    pub enforce: bool,
}

impl<'a> NonceRequest<'a> {
    /// The nonce, if it counts.
    fn enforced(&self) -> Option<&'a Nonce> {
        self.nonce.filter(|_| self.enforce)
    }
}

/// The result of a request with a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Made<T> {
    /// The value was made now.
    Now(T),
    /// The original value, made within the window by an earlier request with this nonce. Nothing was made now.
    Before(T),
}

impl<T> Made<T> {
    /// The value that was made, now or before.
    pub fn into_inner(self) -> T {
        match self {
            Self::Now(made) | Self::Before(made) => made,
        }
    }
}

/// The reason why a request has no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NonceError {
    /// The closure failed, and reports that nothing was made. The nonce may be sent again.
    #[error("nothing was made: {}; send the nonce again [tool_failed]", .0.message)]
    Failed(RecordedFailure),
    /// The closure ended with an unknown outcome. Nothing is made under this nonce until the question is answered.
    #[error(
        "nobody knows whether the value of this nonce was made: nothing is made under the nonce before {0} is answered; answer it, and \
         send the same nonce again [open_question]"
    )]
    Unknown(QuestionId),
    /// The outcome was unknown and a person has abandoned it, or the effect was undone.
    #[error(
        "the value of this nonce was settled by hand, and nothing is made under the nonce any more: {0}; send another nonce to have it \
         made once more [abandoned]"
    )]
    Settled(String),
    /// It was made, and is over the limit of what is kept. Another nonce would make it once more.
    #[error(transparent)]
    TooLarge(Box<ResponseTooLarge>),
    /// The value cannot be serialized, or cannot be read as this type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The ledger could not be read or written.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// Makes values of one kind, one for each nonce within the window.
#[derive(Clone)]
pub struct Nonces {
    executor: Executor,
    spec: Arc<ToolSpec>,
    sealed: Arc<ToolSpec>,
    log: LogFields,
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nonces").field("kind", &self.spec.name).finish_non_exhaustive()
    }
}

impl Nonces {
    /// Nonces for values of this kind, such as `message`, with a window of 300 seconds.
    ///
    /// # Errors
    /// If the kind is not a name, or is the name of a registered tool.
    pub fn new(executor: &Executor, kind: &str) -> Result<Self, RegisterError> {
        Self::within(executor, kind, WINDOW)
    }

    /// Nonces with another window, counted from the first request with a nonce: at least eight seconds.
    ///
    /// # Errors
    /// If the window is too short for a try and its retries, or as for [`new`](Self::new).
    pub fn within(executor: &Executor, kind: &str, window: Duration) -> Result<Self, RegisterError> {
        let spec = |kind: &str, contract| Ok::<_, RegisterError>(Arc::new(spec(kind, contract, window)?));
        let plain = spec(kind, Contract::new(ContractClass::Blind))?;
        let sealed = spec(&format!("{kind} in transaction"), Contract::sealed_with_effect())?;
        for spec in [&plain, &sealed] {
            executor.meet(Arc::new(Met(spec.clone())))?;
        }
        Ok(Self { executor: executor.clone(), spec: plain, sealed, log: LogFields::ALL })
    }

    /// Sets the fields that are logged.
    #[cfg(feature = "policy")]
    pub(super) fn logging(mut self, fields: LogFields) -> Self {
        self.log = fields;
        self
    }

    /// Runs the closure, unless the author has sent this nonce within the window: then the original value is
    /// returned, whatever else the request contains. Without a nonce that counts, the closure runs in any case.
    ///
    /// Of two concurrent requests one runs its closure, and the other one waits for the result. A closure that ends
    /// without an answer (a panic, a crash, an error that does not say that nothing happened) leaves an open
    /// question.
    ///
    /// # Errors
    /// If nothing was made, or the outcome is unknown.
    pub async fn once<T, F, Fut>(
        &self,
        tenant: &Tenant,
        request: NonceRequest<'_>,
        make: F,
    ) -> Result<Made<T>, NonceError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let Some(nonce) = request.enforced() else {
            return make().await.map(Made::Now).map_err(|error| failed(&error));
        };
        let make = move |_: &Call| -> BoxFuture<'static, Result<Payload, ToolError>> {
            let making = make();
            Box::pin(async move { written(&making.await?) })
        };
        self.made(tenant, request.author, nonce, Under::new(self.spec.clone(), make)).await
    }

    /// Runs the closure in a transaction on the ledger's own database: its changes and its record are committed
    /// together, exactly once. The closure must leave the transaction open, and has five seconds. This method shares
    /// no nonces with [`once`](Self::once).
    ///
    /// # Errors
    /// If nothing was made: the changes of the closure were rolled back.
    pub async fn once_in_transaction<C, T, E, F>(
        &self,
        tenant: &Tenant,
        request: NonceRequest<'_>,
        make: F,
    ) -> Result<Made<T>, NonceError>
    where
        C: OwnConnection + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: fmt::Display + Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    {
        let executor = self.executor.clone();
        // Without deduplication, a drawn nonce that no client has.
        let drawn = || Nonce::drawn(self.executor.entropy());
        let nonce = request.enforced().cloned().unwrap_or_else(drawn);
        let make = InTransaction::new(executor, make);
        self.made(tenant, request.author, &nonce, Under::new(self.sealed.clone(), make)).await
    }

    async fn made<T, M>(
        &self,
        tenant: &Tenant,
        author: &str,
        nonce: &Nonce,
        tool: Under<M>,
    ) -> Result<Made<T>, NonceError>
    where
        T: DeserializeOwned,
        M: Make + 'static,
    {
        let kind = tool.spec().name.to_string();
        let key = Key::given(&kind, nonce.as_str()).scope(Scope::User(author.to_owned())).hashed();
        let outcome = self.executor.inline(tenant, &key, Arc::new(tool), Wait::ForOutcome).await;
        let decision = outcome.as_ref().map_or(Decided::Failed, Decided::of);
        DoorDecision {
            tenant: Some(tenant.clone()),
            idempotency_key: Some(nonce.to_string()),
            decision,
            effect_id: outcome.as_ref().ok().and_then(Outcome::answer).map(|answer| answer.record),
            source_type: "nonce",
            source_id: kind,
        }
        .log(self.log);
        match outcome? {
            Outcome::Done(answer) if answer.first => Ok(Made::Now(answer.decode()?)),
            Outcome::Done(answer) => Ok(Made::Before(answer.decode()?)),
            Outcome::Failed(failure) => Err(NonceError::Failed(failure)),
            Outcome::NeedsDecision { question } | Outcome::Pending { question } => {
                Err(NonceError::Unknown(question))
            }
            Outcome::Abandoned { reason } => Err(NonceError::Settled(reason)),
            Outcome::ResponseTooLarge(made) => Err(NonceError::TooLarge(made)),
            other => Err(NonceError::Settled(other.for_model().text)),
        }
    }
}

fn spec(kind: &str, contract: Contract, window: Duration) -> Result<ToolSpec, IdError> {
    checked("kind of things", kind, Name::MAX_BYTES)?;
    let second = Duration::from_secs(1);
    let retry = RetryPolicy {
        attempts: 3, // further attempts are made only if it is certain that nothing was made
        backoff: Backoff { base: second, cap: second },
        attempt_timeout: (window / 4).min(Duration::from_secs(30)),
        retry_after_cap: second,
    };
    let contract = contract.settled_for(&retry);
    let spec = ToolSpec::of(Name::new(kind)?, EffectClass::InternalMutation, contract, retry);
    Ok(ToolSpec { retention: Retention::forget_after(window), ..spec })
}

fn written<T: Serialize>(made: &T) -> Result<Payload, ToolError> {
    // The value was made, so a failure to serialize it leaves the outcome unknown.
    Payload::of(made).map_err(|error| ToolError::new(ErrorKind::Unknown, error.to_string()))
}

fn failed(error: &ToolError) -> NonceError {
    let (kind, message) = (error.kind, error.message.clone());
    NonceError::Failed(RecordedFailure { kind, message, detail: serde_json::Value::Null })
}
