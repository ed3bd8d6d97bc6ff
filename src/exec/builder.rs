//! The builder of an executor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::consumers::{Consumers, MessageRetention};
use super::core::{Core, Parts};
use super::executor::Executor;
use super::orphans::take_up_orphans;
use super::outbox::Publisher;
use super::protection::{Extent, Protected, Protection};
use super::pulse::beat;
use super::restores::Declared;
use super::reviewers::{Reviewers, SharedReviewers};
use super::sleeper::run;
use crate::clock::{Clock, SharedClock, SystemClock, Timestamp};
use crate::id::{Entropy, IdError, Name, SystemEntropy};
use crate::meter::Meter;
use crate::payload::Limits;
use crate::store::chain::ChainKey;
use crate::store::durable::Reports;
#[cfg(feature = "encryption")]
use crate::store::encryption::EncryptionKeys;
use crate::store::own::OwnDatabase;
use crate::store::{Group, Model, Outage, Store, StoreError};
use crate::tool::{DynamicTool, RegisterError, Registry, Tool, debug_in_full};
use crate::trace::{SpanSink, Spans};

/// The reason why an executor or an engine did not start.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database was refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue was refused.
    #[error("the queue {name:?} cannot be declared: {reason} [declaration]")]
    Queue {
        /// The name of the queue.
        name: String,
        /// The reason for the refusal.
        reason: String,
    },
    /// The retention of a consumer's messages was refused.
    #[error("the messages of {consumer:?} cannot be kept so: {reason} [declaration]")]
    Messages {
        /// The name of the consumer.
        consumer: String,
        /// The reason for the refusal.
        reason: String,
    },
    /// The name of the worker was refused.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A workflow was refused.
    #[error("the workflow {name:?} cannot be registered: {reason} [declaration]")]
    Workflow {
        /// The name of the workflow.
        name: String,
        /// The reason for the refusal.
        reason: String,
    },
}

debug_in_full!(StartError);

/// The place of the records.
pub(crate) enum Place {
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
    /// A file that is written beside its engine.
    #[cfg(feature = "sqlite")]
    SqliteBeside(std::path::PathBuf),
    /// A file that is opened read-only.
    #[cfg(feature = "sqlite")]
    SqliteToRead(std::path::PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(String, Box<crate::store::postgres::Options>),
    /// A database that is opened as it is.
    #[cfg(feature = "postgres")]
    PostgresToExamine(String, Box<crate::store::postgres::Options>),
    Memory,
    Store(Arc<dyn Store>),
}

impl Place {
    /// True if the database is opened as it is, and only read: its tables may be older ones.
    const fn is_examined(&self) -> bool {
        match self {
            #[cfg(feature = "sqlite")]
            Self::SqliteToRead(_) => true,
            #[cfg(feature = "postgres")]
            Self::PostgresToExamine(..) => true,
            _ => false,
        }
    }

    /// The kind of the store, for the log.
    const fn kind(&self) -> &'static str {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) | Self::SqliteBeside(_) | Self::SqliteToRead(_) => "sqlite",
            #[cfg(feature = "postgres")]
            Self::Postgres(..) | Self::PostgresToExamine(..) => "postgres",
            Self::Memory => "memory",
            Self::Store(_) => "other",
        }
    }
}

/// The default lease of a worker.
const LEASE: Duration = Duration::from_secs(10);

type Wrap = Box<dyn FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send>;

/// A builder of an [`Executor`]. Errors of registration are kept and reported by [`open`](Self::open).
#[must_use]
pub struct ExecutorBuilder {
    place: Place,
    database: Option<Arc<dyn OwnDatabase>>,
    wrap: Option<Wrap>,
    protection: Protection,
    /// True if only rows about the ledger as a whole are read and written, which are not encrypted.
    is_about_ledger: bool,
    registry: Result<Registry, RegisterError>,
    clock: SharedClock,
    entropy: Arc<dyn Entropy>,
    limits: Limits,
    namespace: String,
    lease: Duration,
    name: Result<Option<Name>, IdError>,
    reviewers: SharedReviewers,
    publisher: Option<Publisher>,
    sweeps: Option<bool>,
    restored: Option<Declared>,
    consumers: BTreeMap<String, MessageRetention>,
    #[cfg(feature = "metrics")]
    metrics: Option<crate::metrics::Metrics>,
    spans: Spans,
}

impl ExecutorBuilder {
    /// An executor on a SQLite file.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<std::path::PathBuf>) -> Self {
        Self::at(Place::Sqlite(path.into()))
    }

    /// An executor on a PostgreSQL database, which other workers may share. The URL may name several hosts, one of
    /// which is the primary.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> Self {
        Self::postgres_with(url, crate::store::postgres::Options::default())
    }

    /// An executor on a PostgreSQL database with these options instead of the default ones.
    #[cfg(feature = "postgres")]
    pub fn postgres_with(url: impl Into<String>, options: crate::store::postgres::Options) -> Self {
        Self::at(Place::Postgres(url.into(), Box::new(options)))
    }

    /// An executor in memory, for tests and for trying out. Nothing outlives the process: a crash loses all records.
    pub fn in_memory() -> Self {
        Self::at(Place::Memory)
    }

    /// An executor on any [`Store`].
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn store(store: Arc<dyn Store>) -> Self {
        Self::at(Place::Store(store))
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            database: None,
            wrap: None,
            protection: Protection::default(),
            is_about_ledger: false,
            registry: Ok(Registry::default()),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            limits: Limits::default(),
            namespace: String::new(),
            lease: LEASE,
            name: Ok(None),
            reviewers: None,
            publisher: None,
            sweeps: None,
            restored: None,
            consumers: BTreeMap::new(),
            #[cfg(feature = "metrics")]
            metrics: None,
            spans: Spans::default(),
        }
    }

    /// Registers a typed tool, together with the tool that [undoes](crate::tool::Compensate) its effects.
    pub fn tool<T: Tool>(self, tool: T) -> Self {
        self.register(|registry| registry.tool(tool))
    }

    /// Registers a typed tool and describes it to models by the schema and the documentation of its input type:
    /// [`Executor::tools_for_model`] lists it. A property that the schema does not name is refused. An input that is
    /// not an object is passed in the property `input`, as the schema says.
    #[cfg(feature = "agent")]
    pub fn tool_for_model<T: Tool<Input: schemars::JsonSchema>>(self, tool: T) -> Self {
        self.register(|registry| registry.tool_for_model(tool))
    }

    /// Registers a tool that is known only at run time.
    pub fn dynamic_tool(self, tool: DynamicTool) -> Self {
        self.register(|registry| tool.register(registry))
    }

    /// Registers tools that are known only at run time, such as those of a file.
    pub fn dynamic_tools(self, tools: impl IntoIterator<Item = DynamicTool>) -> Self {
        tools.into_iter().fold(self, Self::dynamic_tool)
    }

    /// The registry as built so far.
    pub(crate) fn registry(&self) -> Result<&Registry, StartError> {
        self.registry.as_ref().map_err(|error| error.clone().into())
    }

    pub(crate) fn register(
        mut self,
        register: impl FnOnce(&mut Registry) -> Result<(), RegisterError>,
    ) -> Self {
        if let Ok(registry) = &mut self.registry
            && let Err(error) = register(registry)
        {
            self.registry = Err(error);
        }
        self
    }

    /// Puts a wrapper between the queue and the store, such as a simulator's crash points. An earlier wrapper stays,
    /// behind the new one.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn wrap_store(
        mut self,
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send + 'static,
    ) -> Self {
        self.wrap = Some(match self.wrap.take() {
            None => Box::new(wrap),
            Some(inner) => Box::new(move |store| wrap(inner(store))),
        });
        self
    }

    /// Encrypts payloads, texts and digests before they are stored, under the keys of their tenants
    /// ([`store::encryption`](crate::store::encryption) lists what stays readable). Each process that works on the ledger
    /// needs the keys, from the first start on an empty ledger on.
    ///
    /// # Errors
    /// [`open`](Self::open) fails with [`OpenError::InTheClear`](crate::store::OpenError::InTheClear) on a ledger with rows
    /// that are not encrypted, and with [`OpenError::WrongKey`](crate::store::OpenError::WrongKey) if the first key is another
    /// one. Without keys, an encrypted ledger is refused as [`OpenError::Encrypted`](crate::store::OpenError::Encrypted).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use counterfoil::Executor;
    /// use counterfoil::store::encryption::{EncryptionKey, TenantKeys};
    ///
    /// # let secret = [7; 32];
    /// let keys = TenantKeys::new(EncryptionKey::new("2026-11", secret)?);
    /// let executor = Executor::in_memory().encrypted(keys).open().await?;
    /// # executor.shutdown(std::time::Duration::ZERO).await;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "encryption")]
    pub fn encrypted(mut self, keys: impl EncryptionKeys) -> Self {
        self.protection.keys = Some(Arc::new(keys));
        self
    }

    /// Gives each change of a row on which evidence rests a link of a [chain of evidence](crate::store::chain), signed by
    /// this secret: whoever changes such rows in the database is found out by a
    /// [verification](super::Executor::verify_chain). Each process that works on the ledger needs the secret. Stop all
    /// workers before the first start with a chain; rows from before are covered from their next change on.
    ///
    /// # Errors
    /// [`open`](Self::open) fails with [`OpenError::WrongChainSecret`](crate::store::OpenError::WrongChainSecret) if the chain
    /// was begun with another secret, or without one. Without a secret, a ledger with a chain is refused as
    /// [`OpenError::Chained`](crate::store::OpenError::Chained).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use counterfoil::Executor;
    /// use counterfoil::store::chain::ChainKey;
    ///
    /// # let secret = [7; 32];
    /// let executor = Executor::in_memory().evidence_chain(ChainKey::new(secret)).open().await?;
    /// let report = executor.verify_chain(None).await?.expect("the ledger has a chain");
    /// assert!(report.is_whole());
    /// # executor.shutdown(std::time::Duration::ZERO).await;
    /// # Ok(()) }
    /// ```
    pub fn evidence_chain(mut self, key: ChainKey) -> Self {
        self.protection.chain = Some(key);
        self
    }

    /// Takes back what was asked for by [`encrypted`](Self::encrypted) and [`evidence_chain`](Self::evidence_chain).
    #[cfg(feature = "sim")]
    pub(crate) fn unprotected(self) -> Self {
        Self { protection: Protection::default(), ..self }
    }

    /// Sets the database with the user's own tables, for a store that does not hold them itself.
    #[cfg(all(feature = "sim", feature = "sqlite"))]
    pub(crate) fn database(self, database: Arc<dyn OwnDatabase>) -> Self {
        Self { database: Some(database), ..self }
    }

    /// Sets a clock other than the machine's. In a shared store the database's wall time counts instead of this
    /// clock's.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets a source of randomness other than the machine's.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn entropy(mut self, entropy: impl Entropy + 'static) -> Self {
        self.entropy = Arc::new(entropy);
        self
    }

    /// Sets the rule that says who may decide about approvals. Default: the people whom a review names.
    ///
    /// The ledger remembers that a worker has a rule of its own. From then on a process without a rule, such as
    /// `counterfoil serve` beside the host, refuses to decide about a review that names nobody.
    pub fn reviewers(mut self, reviewers: impl Reviewers) -> Self {
        self.reviewers = Some(Arc::new(reviewers));
        self
    }

    /// Sets the limits of payload sizes.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets a namespace, which keeps the keys of two deployments apart that share a provider account. A change applies
    /// to calls that begin after it: a call of unknown outcome is settled under the key that went out.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the lease in a store that several workers share: a worker that has not renewed it for this time is taken
    /// for dead, and its work is taken over. Default: 10 s. A worker that cannot reach its store for nine tenths of the
    /// lease sends nothing until it can.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Gives this worker a name, such as the one of its host or pod. It is shown with the worker's number in lists of
    /// workers, in evidence, in [`Health`](super::Health) and in the log. Several workers may have one name.
    pub fn worker_name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Name::new(name).map(Some);
        self
    }

    /// Publishes the events of the outbox to a [`Sink`](super::outbox::Sink), or by a [`Publisher`] with settings. Of
    /// several workers one publishes at a time; give all of them the same sink.
    pub fn sink(mut self, sink: impl Into<Publisher>) -> Self {
        self.publisher = Some(sink.into());
        self
    }

    /// Enables or disables the sweeper of this worker. The sweeper retires records, runs and messages, a few at a time,
    /// by the [`Retention`](crate::ledger::Retention) of their tools, workflows and consumers. Default: enabled; in a
    /// simulation: disabled. If no worker has a sweeper, everything is kept.
    pub fn sweep(mut self, sweeps: bool) -> Self {
        self.sweeps = Some(sweeps);
        self
    }

    /// Sets the retention of a consumer's processed messages. Default: known with their results for 30 days, and after
    /// that by their ids. If messages would be forgotten before their sender stops delivering them,
    /// [opening](Self::open) fails.
    ///
    /// ```
    /// use std::time::Duration;
    /// use counterfoil::{Executor, inbox::MessageRetention};
    ///
    /// let day = Duration::from_hours(24);
    /// let executor = Executor::sqlite("agents.db").messages("clicks", MessageRetention::forget_after(7 * day, 3 * day));
    /// ```
    pub fn messages(mut self, consumer: impl Into<String>, retention: MessageRetention) -> Self {
        self.consumers.insert(consumer.into(), retention);
        self
    }

    /// Sets the receiver of the spans of calls. Without it no spans are made, and tools still pass the trace on. See
    /// [`crate::trace`].
    pub fn spans(mut self, sink: impl SpanSink) -> Self {
        self.spans = Spans::to(sink);
        self
    }

    /// Sets the recorder of metrics, and their labels. Without it no metrics are recorded. See [`crate::metrics`].
    ///
    /// ```
    /// use counterfoil::Executor;
    /// use counterfoil::metrics::Metrics;
    ///
    /// let executor = Executor::sqlite("agents.db").metrics(Metrics::global().by_tenant());
    /// ```
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: crate::metrics::Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Declares that the ledger may be older than the world: it was restored from a backup of this instant, or is new
    /// beside an older system. Each key's first send is then preceded by a lookup, and a call that cannot be looked up
    /// asks a person, until somebody [lifts](super::Executor::lift_restored) the declaration. The age of a key counts
    /// from `as_of`; without `as_of` no key's age is known.
    ///
    /// The declaration is durable: make it at one start. Repeated with the same `as_of`, it changes nothing; without
    /// `as_of` it begins again at each start.
    pub fn restored(mut self, as_of: Option<Timestamp>) -> Self {
        self.restored = Some(Declared::Restored { as_of });
        self
    }

    /// Declares that the simulated disk may have lost writes, so that the ledger may be older than the world.
    #[cfg(feature = "sim")]
    pub(crate) fn doubtful(mut self, why: &'static str) -> Self {
        self.restored = Some(Declared::Doubtful(why));
        self
    }

    pub(crate) fn sweeps(&self) -> bool {
        self.sweeps.unwrap_or(true)
    }

    pub(crate) const fn kind(&self) -> &'static str {
        self.place.kind()
    }

    pub(crate) fn take_publisher(&mut self) -> Option<Publisher> {
        self.publisher.take()
    }

    /// Opens the store only for reading: a file is neither locked nor written.
    #[cfg_attr(not(feature = "sqlite"), allow(unused_mut, reason = "other stores are opened as they are"))]
    pub(crate) fn read_only(mut self) -> Self {
        #[cfg(feature = "sqlite")]
        if let Place::Sqlite(path) = self.place {
            self.place = Place::SqliteToRead(path);
        }
        self
    }

    /// Opens the store only for reading, and as it is: no migration is made.
    #[cfg(feature = "cli")]
    #[cfg_attr(not(feature = "postgres"), allow(unused_mut, reason = "a file is never migrated for reading"))]
    pub(crate) fn for_examination(mut self) -> Self {
        #[cfg(feature = "postgres")]
        if let Place::Postgres(url, options) = self.place {
            self.place = Place::PostgresToExamine(url, options);
        }
        self.read_only()
    }

    /// Opens the store beside the workers, as a client.
    #[cfg_attr(not(feature = "sqlite"), allow(unused_mut, reason = "other stores are opened as they are"))]
    pub(crate) async fn attach(mut self) -> Result<Arc<Core>, StartError> {
        #[cfg(feature = "sqlite")]
        if let Place::Sqlite(path) = self.place {
            self.place = Place::SqliteBeside(path);
        }
        let store = self.kind();
        let core = Core::attach(self.open_store().await?).await?;
        tracing::info!(store, client = %core.fence, "client attached");
        Ok(core)
    }

    /// Opens the store and enrols this worker. Calls that an earlier process left behind are taken up at once, each by
    /// its tool's contract.
    ///
    /// # Errors
    /// [`StartError`] if a tool or the database was refused. Nothing was changed.
    pub async fn open(mut self) -> Result<Executor, StartError> {
        let (publisher, sweeps, store) = (self.take_publisher(), self.sweeps(), self.kind());
        let core = Core::enrol(self.open_store().await?).await?;
        core.lasting("agenda", |core| run(core, None));
        core.lasting("heartbeat", |core| beat(core, None));
        core.watch_late_answers();
        #[cfg(feature = "metrics")]
        core.begin_gauging();
        core.attend();
        core.begin_publishing(publisher);
        core.begin_sweeping(sweeps, Vec::new());
        take_up_orphans(&core).await?;
        let tools = core.registry.specs().len();
        let name = core.name.as_deref();
        tracing::info!(store, worker = %core.fence, name, tools, "executor started");
        Ok(Executor::alone(core))
    }

    /// Opens the store, [lifts](Executor::lift_restored) the consequences of a restore, and closes the store. No calls
    /// are taken up: this process has no tools.
    #[cfg(all(feature = "cli", any(feature = "sqlite", feature = "postgres")))]
    pub(crate) async fn lift_restored(
        self,
        by: &str,
        because: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let about_ledger = Self { is_about_ledger: true, ..self };
        let executor = Executor::alone(Core::enrol(about_ledger.open_store().await?).await?);
        let lifted = executor.lift_restored(by, because).await;
        executor.shutdown(std::time::Duration::ZERO).await;
        Ok(lifted?)
    }

    /// Opens the store, notes that it is of this instant and may be older than the world, and closes it. No calls are
    /// taken up.
    #[cfg(all(feature = "cli", feature = "sqlite"))]
    pub(crate) async fn quarantine(self, as_of: Option<Timestamp>) -> Result<(), StartError> {
        let restored = Some(Declared::Replaced { as_of });
        let about_ledger = Self { is_about_ledger: true, restored, ..self };
        let executor = Executor::alone(Core::enrol(about_ledger.open_store().await?).await?);
        executor.shutdown(std::time::Duration::ZERO).await;
        Ok(())
    }

    /// Opens the store and its queue, without enrolling this worker.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(clippy::unused_async, reason = "only a database takes time to open")
    )]
    pub(crate) async fn open_store(self) -> Result<Parts, StartError> {
        for (consumer, retention) in &self.consumers {
            if let Some(reason) = retention.objection() {
                return Err(StartError::Messages { consumer: consumer.clone(), reason });
            }
        }
        let (registry, name) = (self.registry?, self.name?);
        let extent = match &self.place {
            place if place.is_examined() => Extent::Examined,
            _ if self.is_about_ledger => Extent::About,
            _ => Extent::Whole,
        };
        let (store, database): (Arc<dyn Store>, Option<Arc<dyn OwnDatabase>>) = match self.place {
            Place::Store(store) => (store, self.database),
            Place::Memory => (Arc::new(Model::volatile()), self.database),
            #[cfg(feature = "sqlite")]
            Place::Sqlite(path) => {
                let sqlite = Arc::new(crate::store::sqlite::Sqlite::open(path).await?);
                (sqlite.clone(), Some(sqlite))
            }
            #[cfg(feature = "sqlite")]
            Place::SqliteBeside(path) => {
                let options = crate::store::sqlite::Options::default();
                let sqlite = Arc::new(crate::store::sqlite::Sqlite::open_beside(path, options).await?);
                (sqlite.clone(), Some(sqlite))
            }
            #[cfg(feature = "sqlite")]
            Place::SqliteToRead(path) => {
                (Arc::new(crate::store::sqlite::Sqlite::open_read_only(path).await?), None)
            }
            #[cfg(feature = "postgres")]
            Place::Postgres(url, options) => {
                let postgres = crate::store::postgres::Postgres::open_with(&url, *options).await?;
                let postgres = Arc::new(postgres);
                (postgres.clone(), Some(postgres))
            }
            #[cfg(feature = "postgres")]
            Place::PostgresToExamine(url, options) => {
                let postgres = crate::store::postgres::Postgres::open_to_examine(&url, *options).await?;
                (Arc::new(postgres), None)
            }
        };
        let store = match self.wrap {
            Some(wrap) => wrap(store),
            None => store,
        };
        #[cfg(feature = "encryption")]
        let keys = self.protection.keys.clone();
        let opened = Protected::none(store, database);
        let Protected { store, database, marks, chain } =
            opened.by(self.protection, extent, &self.clock, &*self.entropy).await?;
        let outage = database.as_ref().and_then(|database| database.outage());
        let outage = outage.unwrap_or_else(|| Arc::new(Outage::by(self.clock.clone())));
        #[cfg(feature = "metrics")]
        let meter = Meter::of(self.metrics, registry.specs().into_iter().map(|spec| spec.name.as_str()));
        #[cfg(not(feature = "metrics"))]
        let meter = Meter::off();
        let reports = Reports { meter: meter.clone(), spans: self.spans.clone() };
        let group = Group::reporting(store, self.clock.clone(), outage, reports);
        Ok(Parts {
            group,
            meter,
            spans: self.spans,
            clock: self.clock,
            entropy: self.entropy,
            registry,
            limits: self.limits,
            namespace: self.namespace.into(),
            lease: self.lease,
            name: name.map(|name| name.text()),
            database,
            marks,
            chain,
            #[cfg(feature = "encryption")]
            keys,
            reviewers: self.reviewers,
            restored: self.restored,
            consumers: Consumers::of(self.consumers),
        })
    }
}
