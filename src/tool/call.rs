//! What a tool is told about the call it carries out.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{Declaration, OperationKey};
use crate::store::StoreError;

/// One attempt, or one lookup. A clone is the same attempt; once that is over, it notes nothing more.
#[derive(Clone)]
pub struct Call {
    pub(crate) tenant: Tenant,
    pub(crate) operation_key: OperationKey,
    /// What the wire key is made of.
    pub(crate) declaration: Arc<Declaration>,
    /// Derived when it is asked for: not every tool sends it.
    pub(crate) wire_key: OnceLock<String>,
    pub(crate) attempt: u32,
    pub(crate) external_ref: Option<String>,
    pub(crate) first_sent: Option<Timestamp>,
    /// Absent during a lookup, which notes nothing.
    pub(crate) noting: Option<Arc<dyn Noting>>,
}

/// Notes an external reference in the record, durably.
pub(crate) trait Noting: Send + Sync {
    fn note(&self, external_ref: String) -> BoxFuture<'_, Result<(), StoreError>>;
    /// The last instant at which a request of the attempt may leave.
    fn use_until(&self) -> Timestamp;
    /// How long it is until then.
    fn time_left(&self) -> Duration;
    /// The attempt's timeout counts from now on.
    fn alive(&self);
    /// What seals the record in the transaction of its effect. `None` if the attempt is over.
    #[cfg(feature = "_sealed")]
    fn seals(self: Arc<Self>, contract: crate::ledger::ContractClass) -> Option<Box<dyn super::Seals>>;
}

impl Call {
    /// The key as it goes downstream: the same in every attempt, `[0-9a-z]`, within the length that the
    /// contract declares. For an `Idempotency-Key` header, a client reference, or the provider's own field.
    pub fn key(&self) -> &str {
        self.wire_key.get_or_init(|| self.declaration.wire_key(&self.operation_key, &self.tenant))
    }

    /// The readable key, for metadata and for people.
    pub fn operation_key(&self) -> &OperationKey {
        &self.operation_key
    }

    /// Whose call it is.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Which attempt this is, from 1. During a lookup: how many have been made.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The instant before which no request of this operation left, by the ledger's clock (UTC): the beginning of its first attempt, in
    /// this and in every later one, and in lookups. It bounds a list that cannot be searched (`created[gte]=…`); allow for the
    /// provider's clock being behind the ledger's.
    ///
    /// `None` where that is not known: before anything is sent, and while the ledger may be older than the world.
    pub fn first_sent(&self) -> Option<Timestamp> {
        self.first_sent
    }

    /// The instant before which a request of this attempt must have left: the earliest of the attempt's timeout, the key's last
    /// safe instant, the end of the approval, of the run's or the operation's time, and of this worker's lease as it
    /// stands now. `None` during a lookup.
    ///
    /// The attempt is cut off then (the lease is renewed while it lasts, and cuts nothing off). A client that queues, connects
    /// or retries by itself must give up by then: hand it this instant, or [`time_left`](Self::time_left) as its timeout.
    pub fn use_until(&self) -> Option<Timestamp> {
        self.noting.as_ref().map(|noting| noting.use_until())
    }

    /// How long it is until [`use_until`](Self::use_until).
    pub fn time_left(&self) -> Option<Duration> {
        self.noting.as_ref().map(|noting| noting.time_left())
    }

    /// Says that the attempt goes on: its [timeout](crate::ledger::RetryPolicy::attempt_timeout) counts from now on. For long calls, at
    /// each sign of life from the provider. It prolongs no approval, no key's window and no budget. Nothing during a lookup.
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

    /// The provider's id that an earlier attempt noted.
    pub fn external_ref(&self) -> Option<&str> {
        self.external_ref.as_deref()
    }

    /// What seals the record in the transaction of its effect, while the attempt is under way.
    #[cfg(feature = "_sealed")]
    pub(crate) fn seals(&self) -> Option<Box<dyn super::Seals>> {
        self.noting.clone()?.seals(self.declaration.class)
    }

    /// Notes the provider's id as soon as it is known, before the answer is complete (REC-4): after a crash it
    /// is what a lookup can go by. Returns when the note is durable.
    ///
    /// # Errors
    /// If the store failed, or this worker has been fenced meanwhile; go on, and let the answer be recorded.
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
