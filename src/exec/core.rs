//! The shared parts of the executor: the queue to the disk, the clocks, this worker's fence.

#[cfg(feature = "memory")]
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::agenda::{Agenda, Due};
use super::attendance::Attendance;
use super::ceased::Ceased;
use super::consumers::Consumers;
use super::declarations::Declarations;
use super::guesses::Guesses;
use super::inflight::InFlight;
use super::outbox::Publishing;
use super::outcome::{ExecError, admitted, failed};
use super::peers::Peers;
use super::quiet::Quiet;
use super::request_error::RequestError;
use super::restores::{Declared, Restores};
use super::reviewers::SharedReviewers;
use super::throttle::Gates;
use super::toolless::Toolless;
use crate::clock::{SharedClock, Timestamp};
use crate::id::{Entropy, Fence, Ids, Tenant};
use crate::ledger::{EffectClass, OperationKey, Record};
use crate::meter::Meter;
use crate::payload::{DigestKey, Encrypted, Limits, Payload, PayloadDigest, PayloadError, Response, Stored};
#[cfg(feature = "encryption")]
use crate::store::Mark;
use crate::store::chain::ChainKey;
#[cfg(feature = "encryption")]
use crate::store::encryption::EncryptionKeys;
use crate::store::own::OwnDatabase;
use crate::store::{Change, Document, Group, OrderingKey, Question, Store as _, StoreError};
use crate::tool::Registry;
use crate::trace::Spans;

pub(crate) struct Core {
    pub(crate) group: Group,
    pub(crate) meter: Meter,
    pub(crate) spans: Spans,
    /// The clock of the store if the store is shared, else this machine's clock.
    pub(crate) clock: SharedClock,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) registry: Registry,
    pub(crate) limits: Limits,
    /// The namespace that keeps two deployments apart that share a provider account.
    pub(crate) namespace: Arc<str>,
    pub(crate) fence: Fence,
    /// The name that this worker was given.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) ids: Ids,
    pub(super) peers: Peers,
    pub(super) in_flight: Arc<InFlight>,
    /// The messages in flight, by consumer and message.
    #[cfg(feature = "_messages")]
    pub(super) messages: Arc<InFlight>,
    /// The limits of tools that declare a quota.
    pub(super) gates: Gates,
    pub(crate) agenda: Arc<Agenda>,
    pub(crate) publishing: Publishing,
    /// The consumers whose messages are retired when their retention is over.
    pub(super) consumers: Consumers,
    /// Wakes the sweeper.
    pub(super) begun: Arc<Notify>,
    /// The flag that callers of calls in flight were woken.
    pub(super) attendance: Arc<Attendance>,
    /// True once another process has written into the store of this only worker: a client beside it.
    pub(super) has_clients: AtomicBool,
    /// Notified when this core ends, for the task that listens to clients.
    pub(super) gone: Arc<Notify>,
    /// Notified when the store may have opened a question about a late answer.
    pub(super) late: Arc<Notify>,
    /// The tasks of calls whose callers went away, and of background lookups.
    pub(crate) tracker: TaskTracker,
    lanes: AtomicU64,
    closing: AtomicBool,
    tenant_keys: Mutex<HashMap<Tenant, DigestKey>>,
    /// Wrong guesses of guards.
    pub(crate) guesses: Guesses,
    /// The memory guard's cache. Its type belongs to a layer above.
    #[cfg(feature = "memory")]
    memories: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// The database that the store shares with the user's own tables, if there is one.
    pub(crate) database: Option<Arc<dyn OwnDatabase>>,
    /// The secret of a chain of evidence, for a verification.
    pub(super) chain: ChainKey,
    /// The keys for encryption, to compare the first one of each tenant with its mark.
    #[cfg(feature = "encryption")]
    keys: Option<Arc<dyn EncryptionKeys>>,
    pub(crate) reviewers: SharedReviewers,
    /// The restore that is in force, as far as this worker knows.
    pub(super) restores: Restores,
    /// The calls whose tool is not here.
    pub(super) toolless: Toolless,
    /// For each question, the instant since which nothing is sent for its call.
    pub(super) quiet: Quiet,
    /// The engine whose runs wait for answers, if there is one.
    engine: OnceLock<Weak<dyn Due>>,
    /// The declarations of tools under which calls went out.
    pub(super) declarations: Declarations,
    /// The instants at which the senders of calls ceased to send that are not settled yet.
    pub(super) ceased: Ceased,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("fence", &self.fence).finish_non_exhaustive()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.agenda.wake(); // it sees that there is nothing left to do
        self.group.events().notify_one(); // and so does the publisher
        self.begun.notify_one(); // and the sweeper
        self.late.notify_one();
        self.gone.notify_one();
        self.attendance.end();
    }
}

/// The parts from which a core is made.
pub(crate) struct Parts {
    pub(crate) group: Group,
    pub(crate) meter: Meter,
    pub(crate) spans: Spans,
    pub(crate) clock: SharedClock,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) registry: Registry,
    pub(crate) limits: Limits,
    pub(crate) namespace: Arc<str>,
    /// The lease of a worker in a shared store.
    pub(crate) lease: Duration,
    /// The name that the worker was given.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) database: Option<Arc<dyn OwnDatabase>>,
    /// The marks that the ledger is to be given.
    pub(crate) marks: Vec<Document>,
    /// The secret of a chain of evidence.
    pub(crate) chain: ChainKey,
    #[cfg(feature = "encryption")]
    pub(crate) keys: Option<Arc<dyn EncryptionKeys>>,
    pub(crate) reviewers: SharedReviewers,
    /// The declaration that the ledger may be older than the world, if one was made.
    pub(crate) restored: Option<Declared>,
    pub(crate) consumers: Consumers,
}

impl Core {
    /// A core that only reads: it is no worker, and can write nothing.
    pub(crate) fn looking_on(parts: Parts) -> Arc<Self> {
        let since = parts.clock.boot();
        Self::of(parts, Fence(0), Peers::Alone { since })
    }

    pub(super) fn of(parts: Parts, fence: Fence, peers: Peers) -> Arc<Self> {
        let Parts {
            group,
            meter,
            spans,
            clock,
            entropy,
            registry,
            limits,
            namespace,
            database,
            reviewers,
            consumers,
            name,
            chain,
            #[cfg(feature = "encryption")]
            keys,
            ..
        } = parts;
        let gates = Gates::of(&registry, !matches!(peers, Peers::Shared(_)), clock.boot());
        Arc::new(Self {
            group,
            meter,
            spans,
            clock,
            entropy,
            registry,
            limits,
            namespace,
            fence,
            name,
            ids: Ids::new(fence),
            peers,
            in_flight: Arc::default(),
            #[cfg(feature = "_messages")]
            messages: Arc::default(),
            gates,
            agenda: Arc::default(),
            publishing: Publishing::default(),
            begun: Arc::default(),
            attendance: Arc::default(),
            has_clients: AtomicBool::new(false),
            gone: Arc::default(),
            late: Arc::default(),
            tracker: TaskTracker::new(),
            lanes: AtomicU64::new(1),
            closing: AtomicBool::new(false),
            tenant_keys: Mutex::default(),
            guesses: Guesses::default(),
            #[cfg(feature = "memory")]
            memories: OnceLock::new(),
            database,
            chain,
            #[cfg(feature = "encryption")]
            keys,
            reviewers,
            consumers,
            restores: Restores::default(),
            quiet: Quiet::default(),
            toolless: Toolless::default(),
            engine: OnceLock::new(),
            declarations: Declarations::default(),
            ceased: Ceased::default(),
        })
    }

    /// The memory guard's cache, empty at the first call.
    #[cfg(feature = "memory")]
    pub(crate) fn memories<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let kept = self.memories.get_or_init(|| Arc::new(T::default()));
        kept.clone().downcast().unwrap_or_default() // always of one type, because there is one memory guard
    }

    /// Sets the engine whose runs wait for answers to questions.
    pub(crate) fn belongs_to(&self, engine: Weak<dyn Due>) {
        let _ = self.engine.set(engine);
    }

    /// Tells the engine of a question that was answered without it, so that the runs that wait for the answer go on.
    pub(super) async fn tell_answered(&self, question: Question) {
        if let Some(engine) = self.engine.get().and_then(Weak::upgrade) {
            let id = question.id;
            if let Err(error) = engine.answered(question).await {
                log_trouble!(error, question = %id, "runs not woken by an answer, next process wakes them");
            }
        }
    }

    /// The state of the limits of tools and providers, as this worker has them.
    pub(crate) fn throttles(&self) -> Vec<super::throttle::ThrottleReport> {
        self.gates.reports(self.now(), self.clock.boot())
    }

    /// The present time for values that are stored or compared with stored ones: in a shared store by the database's
    /// clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// An empty change by this worker.
    pub(crate) fn change(&self, lane: Option<OrderingKey>) -> Change {
        Change::by(self.fence).in_lane(lane)
    }

    pub(crate) fn new_lane(&self) -> OrderingKey {
        OrderingKey(self.lanes.fetch_add(1, Ordering::Relaxed))
    }

    /// Wakes the sweeper, because a record, run, signal or message with a retention has begun or ended.
    pub(crate) fn wake_sweeper(&self) {
        self.begun.notify_one();
    }

    /// Begins to close: no new attempt is dispatched from now on.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        self.gates.close(); // an attempt that waits there would be refused after its turn
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Writes a change that must be admitted.
    pub(crate) async fn commit(&self, key: &OperationKey, change: Change) -> Result<(), ExecError> {
        admitted(key, self.group.commit_one(change).await)
    }

    /// The error that no tool of this name is registered.
    pub(crate) fn unknown_tool(&self, tool: &str) -> RequestError {
        // Compensations are left out, because nobody calls them by name.
        let tools = self.registry.specs().into_iter().filter(|spec| spec.effect != EffectClass::Compensation);
        let registered = tools.map(|spec| spec.name.to_string()).collect();
        RequestError::UnknownTool { tool: tool.to_owned(), registered }
    }

    pub(crate) async fn find(
        &self,
        tenant: &Tenant,
        key: &OperationKey,
    ) -> Result<Option<Box<Record>>, ExecError> {
        let found = self.group.record_find(tenant, key).await;
        found.map(|record| record.map(Box::new)).map_err(|source| failed(key, source))
    }

    /// True if a payload is stored in the row that refers to it.
    pub(super) fn is_small(&self, payload: &Payload) -> bool {
        payload.as_str().len() <= self.limits.inline_bytes
    }

    /// The stored form of a payload, and a payload row if it is large.
    pub(crate) fn storable(&self, payload: Payload) -> (Stored, Option<Payload>) {
        if self.is_small(&payload) {
            (Stored::Inline(payload), None)
        } else {
            (Stored::At(payload.digest()), Some(payload))
        }
    }

    /// The stored form of a response, and a payload row if it is large.
    pub(crate) fn storable_response(&self, response: Response) -> (Stored, Option<Payload>) {
        match response {
            Ok(response) => self.storable(response),
            Err(oversized) => (Stored::Oversized(oversized), None),
        }
    }

    /// Loads a stored response, or the digest that is left of one that was too large.
    pub(crate) async fn load_response(
        &self,
        tenant: &Tenant,
        stored: &Stored,
    ) -> Result<Response, ExecError> {
        match stored {
            Stored::Oversized(oversized) => Ok(Err(*oversized)),
            stored => self.load(tenant, stored).await.map(Ok),
        }
    }

    /// Loads a payload from its row, or from the payload table. A row of a list is left encrypted if its key is missing: it may
    /// be shown, and is never used.
    pub(crate) async fn load(&self, tenant: &Tenant, stored: &Stored) -> Result<Payload, ExecError> {
        match stored {
            Stored::Inline(payload) => match Encrypted::of(payload.as_str()) {
                None => Ok(payload.clone()),
                Some(Encrypted { key, .. }) => Err(ExecError::Store {
                    key: tenant.to_string(),
                    source: StoreError::NoKey { tenant: tenant.to_string(), key: key.to_owned() },
                }),
            },
            Stored::At(digest) => {
                let found = self.group.payload_find(tenant, *digest).await;
                found
                    .and_then(|payload| payload.ok_or_else(|| missing(*digest, "it is missing")))
                    .map_err(|source| ExecError::Store { key: tenant.to_string(), source })
            }
            Stored::Oversized(oversized) => Err(ExecError::Store {
                key: tenant.to_string(),
                source: missing(oversized.digest, "it was over the limit, and only its digest is kept"),
            }),
        }
    }

    /// The canonical form of a value, with digests in place of its secrets. The digests are keyed by the tenant's key.
    pub(crate) async fn canonical<E>(
        &self,
        tenant: &Tenant,
        write: impl Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>,
    ) -> Result<Payload, E>
    where
        E: From<PayloadError> + From<ExecError>,
    {
        let (payload, secret) = write(None)?;
        if !secret {
            return Ok(payload);
        }
        // Boxed because this case is rare: every call would reserve its memory.
        let key = Box::pin(self.tenant_key(tenant)).await?;
        Ok(write(Some(&key))?.0)
    }

    /// The tenant's key for digests of secrets. It is made when the first secret is recorded.
    pub(crate) async fn tenant_key(&self, tenant: &Tenant) -> Result<DigestKey, ExecError> {
        if let Some(key) = self.cached_tenant_key(tenant) {
            return Ok(key);
        }
        let store_failed = |source| ExecError::Store { key: tenant.to_string(), source };
        let mut found = self.group.tenant_key(tenant).await.map_err(store_failed)?;
        let mark = self.first_key_mark(tenant).await.map_err(store_failed)?;
        if found.is_none() || mark.is_some() {
            let mut change = self.change(None);
            if found.is_none() {
                change.tenant_key = Some((tenant.clone(), self.new_digest_key()));
            }
            change.documents.extend(mark);
            let _ = self.group.commit_one(change).await.map_err(store_failed)?;
            // Another caller's key and mark may have been first: the stored ones count.
            self.first_key_mark(tenant).await.map_err(store_failed)?;
            found = self.group.tenant_key(tenant).await.map_err(store_failed)?;
        }
        let key = found.ok_or_else(|| store_failed(StoreError::Closed))?;
        self.tenant_keys.lock().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone(), key.clone());
        Ok(key)
    }

    /// The mark of a tenant's first key for encryption, if it is to be written. Under another first key a digest is read as another
    /// one: an operation whose key is made of it would be carried out again.
    #[cfg(feature = "encryption")]
    async fn first_key_mark(&self, tenant: &Tenant) -> Result<Option<Document>, StoreError> {
        match self.keys.as_ref().and_then(|keys| keys.of(tenant)) {
            // A core that only reads can write no mark.
            Some(keys) if self.fence != Fence(0) => {
                Mark::compared_of(&self.group, tenant, &keys, self.now()).await
            }
            _ => Ok(None),
        }
    }

    #[cfg(not(feature = "encryption"))]
    #[allow(
        clippy::unnecessary_wraps,
        clippy::unused_async,
        clippy::unused_self,
        reason = "with encryption it asks the store"
    )]
    async fn first_key_mark(&self, _: &Tenant) -> Result<Option<Document>, StoreError> {
        Ok(None)
    }

    /// Takes back the mark of the first key of a tenant that was erased.
    #[cfg(feature = "encryption")]
    pub(super) async fn forget_first_key(&self, tenant: &Tenant) -> Result<(), StoreError> {
        if let Some(mark) = Mark::without(&self.group, tenant, self.now()).await? {
            let change = Change { documents: vec![mark], ..self.change(None) };
            let _ = self.group.commit_one(change).await?; // if it is refused, another process has done it
        }
        Ok(())
    }

    pub(super) fn new_digest_key(&self) -> DigestKey {
        DigestKey::drawn(&*self.entropy)
    }

    fn cached_tenant_key(&self, tenant: &Tenant) -> Option<DigestKey> {
        self.tenant_keys.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }
}

fn missing(payload: PayloadDigest, detail: &str) -> StoreError {
    StoreError::Corrupt {
        row: format!("payload {}", crate::payload::hex(&payload.0)),
        detail: detail.to_owned(),
    }
}
