//! The call as its tool sees it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{Declaration, OperationKey};
use crate::store::StoreError;
use crate::trace::TraceContext;

/// One attempt, or one lookup, as the tool sees it. A clone is the same attempt; once the attempt is over it notes
/// nothing more.
#[derive(Clone)]
pub struct Call {
    pub(crate) tenant: Tenant,
    pub(crate) operation_key: OperationKey,
    /// The declaration from which the wire key is derived.
    pub(crate) declaration: Arc<Declaration>,
    /// The wire key, derived at its first use, because not every tool sends it.
    pub(crate) wire_key: OnceLock<Box<str>>,
    pub(crate) attempt: u32,
    pub(crate) external_ref: Option<String>,
    pub(crate) first_sent: Option<Timestamp>,
    /// The span of the attempt's run, or of the lookup. `None` for an attempt outside of runs.
    pub(crate) trace: Option<Arc<TraceContext>>,
    /// The note of the attempt. Absent during a lookup, which notes nothing.
    pub(crate) noting: Option<Arc<dyn Noting>>,
}

/// The tool's access to the record of its attempt: it notes an external reference, durably.
pub(crate) trait Noting: Send + Sync {
    fn note(&self, external_ref: String) -> BoxFuture<'_, Result<(), StoreError>>;
    /// The last instant at which a request of the attempt may leave.
    fn use_until(&self) -> Timestamp;
    /// The time until [`use_until`](Self::use_until).
    fn time_left(&self) -> Duration;
    /// Restarts the attempt's timeout.
    fn alive(&self);
    /// Claims the one send of the attempt.
    #[cfg(any(feature = "tool-http", feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
    fn claim_send(&self) -> Result<(), &'static str>;
    /// The handle that seals the record in the transaction of its effect. `None` if the attempt is over.
    #[cfg(feature = "_sealed")]
    fn seals(self: Arc<Self>, contract: crate::ledger::ContractClass) -> Option<Box<dyn super::Seals>>;
}

impl Call {
    /// The key as it goes to the provider: the same in every attempt, `[0-9a-z]`, within the length that the contract
    /// declares. For an `Idempotency-Key` header, a client reference, or the provider's own field.
    pub fn key(&self) -> &str {
        self.wire_key.get_or_init(|| self.declaration.wire_key(&self.operation_key, &self.tenant).into())
    }

    /// The readable key, for metadata and for people.
    pub fn operation_key(&self) -> &OperationKey {
        &self.operation_key
    }

    /// The tenant that owns the call.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The number of this attempt, from 1 on. During a lookup: the number of attempts so far.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The instant before which no request of this operation left, by the ledger's clock (UTC): the start of its first
    /// attempt, for this attempt, every later one and lookups. It bounds a list that cannot be searched
    /// (`created[gte]=…`); allow for a provider's clock that is behind the ledger's.
    ///
    /// `None` if the instant is not known: before anything is sent, and while the ledger may be older than the world.
    pub fn first_sent(&self) -> Option<Timestamp> {
        self.first_sent
    }

    /// The span of this attempt or lookup, for the header `traceparent` of the request: so the provider's work stands in the trace of
    /// the run, also when another process takes the run over.
    ///
    /// ```
    /// # use counterfoil::tool::Call;
    /// # fn request(http: &reqwest::Client, call: &Call) -> reqwest::RequestBuilder {
    /// http.post("https://bank.example/payments").header("traceparent", call.traceparent().to_string())
    /// # }
    /// ```
    pub fn traceparent(&self) -> TraceContext {
        // Derived at its use, because not every tool sends it.
        let key = self.operation_key.as_str();
        let own = || TraceContext::of_operation(self.tenant.as_str(), key);
        let within = self.trace.as_deref().copied().unwrap_or_else(own);
        if self.noting.is_some() { within.attempt(key, self.attempt) } else { within }
    }

    /// The instant before which a request of this attempt must have left: the earliest of the attempt's timeout, the
    /// key's last safe instant, the end of the approval, of the run's or the operation's time, and of this worker's
    /// present lease. `None` during a lookup.
    ///
    /// The attempt is cut off then (the lease is renewed during the attempt, and cuts nothing off). A client that
    /// queues, connects or retries by itself must give up by then: pass it this instant, or
    /// [`time_left`](Self::time_left) as its timeout.
    pub fn use_until(&self) -> Option<Timestamp> {
        self.noting.as_ref().map(|noting| noting.use_until())
    }

    /// The time until [`use_until`](Self::use_until).
    pub fn time_left(&self) -> Option<Duration> {
        self.noting.as_ref().map(|noting| noting.time_left())
    }

    /// Restarts the attempt's [timeout](crate::ledger::RetryPolicy::attempt_timeout). For long calls: call this at each
    /// sign of life from the provider. It prolongs no approval, no key's window and no budget. It does nothing during a
    /// lookup.
    ///
    /// ```
    /// # use counterfoil::tool::{Call, ToolError};
    /// # async fn next_chunk() -> Option<Vec<u8>> { None }
    /// async fn download(call: &Call) -> Result<usize, ToolError> {
    ///     let mut bytes = 0;
    ///     while let Some(chunk) = next_chunk().await {
    ///         call.alive();
    ///         bytes += chunk.len();
    ///     }
    ///     Ok(bytes)
    /// }
    /// ```
    pub fn alive(&self) {
        if let Some(noting) = &self.noting {
            noting.alive();
        }
    }

    /// Claims the one write of the attempt, directly before it is sent.
    ///
    /// # Errors
    /// If the attempt has sent already or is over, or if this is a lookup. The outcome of the attempt is then unknown,
    /// because nothing is known of the first send.
    #[cfg(any(feature = "tool-http", feature = "tool-command", all(feature = "mcp", feature = "sqlite")))]
    pub(crate) fn claim_send(&self) -> Result<(), super::ToolError> {
        let claimed =
            self.noting.as_ref().map_or(Err("a lookup changes nothing"), |noting| noting.claim_send());
        claimed.map_err(|why| {
            super::ToolError::unknown(format!("a second send was refused, and not sent: {why}"))
        })
    }

    /// The provider's id that an earlier attempt noted.
    pub fn external_ref(&self) -> Option<&str> {
        self.external_ref.as_deref()
    }

    /// The handle that seals the record in the transaction of its effect, while the attempt is in flight.
    #[cfg(feature = "_sealed")]
    pub(crate) fn seals(&self) -> Option<Box<dyn super::Seals>> {
        self.noting.clone()?.seals(self.declaration.class)
    }

    /// Notes the provider's id as soon as it is known, before the answer is complete. After a crash a lookup can use
    /// the id. Returns when the note is durable.
    ///
    /// # Errors
    /// [`StoreError`] if the store failed, or if this worker has been fenced meanwhile. Go on, and let the answer be
    /// recorded.
    pub async fn note(&self, external_ref: impl Into<String>) -> Result<(), StoreError> {
        match &self.noting {
            Some(noting) => noting.note(external_ref.into()).await,
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("tenant", &self.tenant)
            .field("key", &self.operation_key)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
