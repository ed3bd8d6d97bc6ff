//! A client: a handle on a database for processes that carry nothing out.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::inner::Inner;
use super::queue::Queues;
use super::tenant::TenantClient;
use super::workflow::Workflows;
use crate::clock::Clock;
use crate::exec::{Core, ExecutorBuilder, Reviewers, StartError, verify_ledger};
use crate::id::{Entropy, IdError, Tenant};
use crate::payload::Limits;
use crate::store::chain::{Anchor, ChainKey, ChainReport};
use crate::store::{Store, StoreError};

/// The pause between two looks for the end of a run that a caller waits for, unless a hint comes first.
const POLL: Duration = Duration::from_secs(1);
/// The time within which several hints count as one.
const TOGETHER: Duration = Duration::from_millis(20);
/// The pause between two measurements of the database's clock.
const MEASURE: Duration = Duration::from_mins(1);

/// A handle on a database for a process that has no workflows, no tools and no lease: a web front end, an operator's
/// bot, a script. What it writes is taken up by the engines that work on the database, at once, or when one is started.
///
/// [`TenantClient`] is the same type as an engine's. A client knows workflows by their names: start and address runs by
/// [`run_named`](TenantClient::run_named) and [`run_of_named`](TenantClient::run_of_named).
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use counterfoil::{Client, Ctx, Engine, Failure};
/// use serde_json::json;
///
/// async fn greet(_: Ctx, name: String) -> Result<String, Failure> {
///     Ok(format!("Hello, {name}"))
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("agents.db");
/// let engine = Engine::sqlite(&path).workflow("greet", 1, greet).start().await?; // in one process
/// let client = Client::sqlite(&path).open().await?; // in another one
/// let greeting = client.default_tenant().run_named("greet", "Ann").key("g1").await?;
/// assert_eq!(greeting, json!("Hello, Ann"));
/// # client.shutdown(std::time::Duration::ZERO).await;
/// # engine.shutdown(std::time::Duration::ZERO).await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("core", &self.inner.core).finish_non_exhaustive()
    }
}

/// A builder of a [`Client`].
#[must_use]
pub struct ClientBuilder {
    executor: ExecutorBuilder,
}

impl Client {
    /// A client on a SQLite file, beside the process that has an engine on it. An engine must have made the file.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<std::path::PathBuf>) -> ClientBuilder {
        ClientBuilder::on(ExecutorBuilder::sqlite(path))
    }

    /// A client on a PostgreSQL database. The URL may name several hosts, one of which is the primary.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::on(ExecutorBuilder::postgres(url))
    }

    /// A client on a PostgreSQL database with these options instead of the default ones.
    #[cfg(feature = "postgres")]
    pub fn postgres_with(url: impl Into<String>, options: crate::store::postgres::Options) -> ClientBuilder {
        ClientBuilder::on(ExecutorBuilder::postgres_with(url, options))
    }

    /// A client on any [`Store`], such as the one of an engine of this process.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn store(store: Arc<dyn Store>) -> ClientBuilder {
        ClientBuilder::on(ExecutorBuilder::store(store))
    }

    /// The operations of one tenant.
    pub fn tenant(&self, name: impl AsRef<str>) -> Result<TenantClient, IdError> {
        Ok(TenantClient::new(self.inner.clone(), Tenant::new(name)?))
    }

    /// The operations of a tenant whose name has been checked.
    pub fn as_tenant(&self, tenant: &Tenant) -> TenantClient {
        TenantClient::new(self.inner.clone(), tenant.clone())
    }

    /// The operations of the [default tenant](Tenant::default), for programs that have only one.
    pub fn default_tenant(&self) -> TenantClient {
        TenantClient::new(self.inner.clone(), Tenant::default())
    }

    /// Compares all rows on which evidence rests with the ledger's [chain of evidence](crate::store::chain): see
    /// [`Executor::verify_chain`](crate::Executor::verify_chain).
    pub async fn verify_chain(&self, anchor: Option<&Anchor>) -> Result<Option<ChainReport>, StoreError> {
        verify_ledger(&self.inner.core, anchor).await
    }

    /// Waits at most `drain` for writes under way, and closes the connections. Callers that wait for a run are told that
    /// its end is not heard of here; the run goes on.
    pub async fn shutdown(self, drain: Duration) {
        self.inner.core.close(drain).await;
        self.inner.ends.give_up_all();
    }
}

impl ClientBuilder {
    /// A client beside the engines on the database of this executor.
    pub(crate) const fn on(executor: ExecutorBuilder) -> Self {
        Self { executor }
    }

    /// Sets the rule that says who may decide about approvals. Default: the people whom a review names. Give a client the
    /// rule of the engine, which asks once more directly before the effect.
    pub fn reviewers(self, reviewers: impl Reviewers) -> Self {
        Self { executor: self.executor.reviewers(reviewers) }
    }

    /// Sets the keys of an encrypted ledger, as
    /// [`ExecutorBuilder::encrypted`](crate::exec::ExecutorBuilder::encrypted) says.
    #[cfg(feature = "encryption")]
    pub fn encrypted(self, keys: impl crate::store::encryption::EncryptionKeys) -> Self {
        Self { executor: self.executor.encrypted(keys) }
    }

    /// Sets the secret of a chain of evidence, as
    /// [`ExecutorBuilder::evidence_chain`](crate::exec::ExecutorBuilder::evidence_chain) says.
    pub fn evidence_chain(self, key: ChainKey) -> Self {
        Self { executor: self.executor.evidence_chain(key) }
    }

    /// Sets the limits of payload sizes.
    pub fn limits(self, limits: Limits) -> Self {
        Self { executor: self.executor.limits(limits) }
    }

    /// Sets a clock other than the machine's. In a shared store the database's wall time counts instead of this clock's.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { executor: self.executor.clock(clock) }
    }

    /// Sets a source of randomness other than the machine's.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn entropy(self, entropy: impl Entropy + 'static) -> Self {
        Self { executor: self.executor.entropy(entropy) }
    }

    /// Sets the recorder of metrics, and their labels. A client records the gauges of the database, such as the open questions.
    #[cfg(feature = "metrics")]
    pub fn metrics(self, metrics: crate::metrics::Metrics) -> Self {
        Self { executor: self.executor.metrics(metrics) }
    }

    /// Opens the database beside the engines that work on it.
    ///
    /// # Errors
    /// [`StartError`] if the database was refused. A SQLite file must exist, in the schema version of this build: an
    /// engine makes it.
    pub async fn open(self) -> Result<Client, StartError> {
        let core = self.executor.attach().await?;
        #[cfg(feature = "metrics")]
        core.begin_gauging();
        let inner = Arc::new(Inner::elsewhere(core.clone()));
        let ends = Arc::downgrade(&inner);
        core.lasting("client", move |_| hear_ends(ends.clone()));
        Ok(Client { inner })
    }
}

impl Inner {
    fn elsewhere(core: Arc<Core>) -> Self {
        Self::of(core, Workflows::default(), Queues::elsewhere(), |_, _, _| {})
    }
}

/// Looks for the ends of the runs that callers wait for here, until the client is gone. While nobody waits, it only
/// measures the database's clock.
async fn hear_ends(client: Weak<Inner>) {
    let mut measured = None;
    while let Some(inner) = client.upgrade().filter(|inner| !inner.core.is_closing()) {
        let boot = inner.core.clock.boot();
        if measured.is_none_or(|last: crate::clock::Boot| last.until(boot) >= MEASURE) {
            measured = Some(boot);
            log_failure(inner.core.measure_time().await);
        }
        log_failure(inner.look_for_ends().await);
        let (clock, store) = (inner.core.clock.clone(), inner.core.group.store().clone());
        let (began, waits) = (inner.ends.began.clone(), !inner.ends.is_empty());
        drop(inner); // a sleeper must not keep a closed client
        tokio::select! {
            biased;
            () = began.notified() => {}
            woken = store.woken(), if waits => clock.sleep(if woken.is_ok() { TOGETHER } else { POLL }).await,
            () = clock.sleep(if waits { POLL } else { MEASURE }) => {}
        }
    }
}

fn log_failure(looked: Result<(), StoreError>) {
    if let Err(error) = looked {
        log_trouble!(error, "ends of runs not read, will retry");
    }
}
