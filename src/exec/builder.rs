//! Putting an executor together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::consumers::{Consumers, MessageRetention};
use super::core::{Core, Parts};
use super::executor::Executor;
use super::orphans::take_up_orphans;
use super::outbox::Publisher;
use super::pulse::beat;
use super::restores::Declared;
use super::reviewers::{Named, Reviewers, SharedReviewers};
use super::sleeper::run;
use crate::clock::{Clock, SharedClock, SystemClock, Timestamp};
use crate::id::{Entropy, SystemEntropy};
use crate::payload::Limits;
use crate::store::own::OwnDatabase;
use crate::store::{Group, Model, Store, StoreError};
use crate::tool::{DynamicTool, RegisterError, Registry, Tool};

/// Why an executor or an engine did not start.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database was refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue was refused.
    #[error("the queue {name:?} cannot be declared: {reason}")]
    Queue {
        /// The queue.
        name: String,
        /// Why.
        reason: String,
    },
    /// The retention of a consumer's messages was refused.
    #[error("the messages of {consumer:?} cannot be kept so: {reason}")]
    Messages {
        /// The consumer.
        consumer: String,
        /// Why.
        reason: String,
    },
    /// A workflow was refused.
    #[error("the workflow {name:?} cannot be registered: {reason}")]
    Workflow {
        /// The workflow.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Where the records are.
pub(crate) enum Place {
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
    /// A file that is only looked at.
    #[cfg(feature = "sqlite")]
    SqliteToRead(std::path::PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(String, Box<crate::store::postgres::Options>),
    Store(Arc<dyn Store>),
}

/// How long a worker that says nothing is taken for alive, unless the builder says otherwise.
const LEASE: Duration = Duration::from_secs(10);

type Wrap = Box<dyn FnOnce(Arc<dyn Store>) -> Arc<dyn Store> + Send>;

/// An executor to be. Errors of registration are kept and reported by [`open`](Self::open).
#[must_use]
pub struct ExecutorBuilder {
    place: Place,
    database: Option<Arc<dyn OwnDatabase>>,
    wrap: Option<Wrap>,
    registry: Result<Registry, RegisterError>,
    clock: SharedClock,
    entropy: Arc<dyn Entropy>,
    limits: Limits,
    namespace: String,
    lease: Duration,
    reviewers: SharedReviewers,
    publisher: Option<Publisher>,
    sweeps: Option<bool>,
    restored: Option<Declared>,
    consumers: BTreeMap<String, MessageRetention>,
}

impl ExecutorBuilder {
    /// On a SQLite file.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<std::path::PathBuf>) -> Self {
        Self::at(Place::Sqlite(path.into()))
    }

    /// On a PostgreSQL database, beside other workers. The URL may name several hosts, of which one is the primary.
    #[cfg(feature = "postgres")]
    pub fn postgres(url: impl Into<String>) -> Self {
        Self::postgres_with(url, crate::store::postgres::Options::default())
    }

    /// The same with other than the default options.
    #[cfg(feature = "postgres")]
    pub fn postgres_with(url: impl Into<String>, options: crate::store::postgres::Options) -> Self {
        Self::at(Place::Postgres(url.into(), Box::new(options)))
    }

    /// In memory: for tests, and for trying out. Nothing outlives the process, so a crash loses what was recorded.
    pub fn in_memory() -> Self {
        Self::store(Arc::new(Model::volatile()))
    }

    /// On any store.
    pub fn store(store: Arc<dyn Store>) -> Self {
        Self::at(Place::Store(store))
    }

    fn at(place: Place) -> Self {
        Self {
            place,
            database: None,
            wrap: None,
            registry: Ok(Registry::default()),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            limits: Limits::default(),
            namespace: String::new(),
            lease: LEASE,
            reviewers: Arc::new(Named),
            publisher: None,
            sweeps: None,
            restored: None,
            consumers: BTreeMap::new(),
        }
    }

    /// Registers a typed tool, and beside it what [undoes](crate::tool::Compensate) its effects.
    pub fn tool<T: Tool>(self, tool: T) -> Self {
        self.register(|registry| registry.tool(tool))
    }

    /// Registers a typed tool, and tells models of it by the schema of its input type and that type's documentation:
    /// [`Executor::tools_for_model`] lists it. A property that the schema does not name is refused. An input that is no object is given in
    /// the property `input`, as the schema says.
    #[cfg(feature = "agent")]
    pub fn tool_for_model<T: Tool<Input: schemars::JsonSchema>>(self, tool: T) -> Self {
        self.register(|registry| registry.tool_for_model(tool))
    }

    /// Registers a tool that is known only at run time.
    pub fn dynamic_tool(self, tool: DynamicTool) -> Self {
        self.register(|registry| tool.register(registry))
    }

    /// What was registered.
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

    /// Puts something between the queue and the store: a simulator's crash points, say. What was put there
    /// before stays, behind it.
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

    /// Where the user's own tables are, if the store does not hold them itself.
    #[cfg(all(feature = "sim", feature = "sqlite"))]
    pub(crate) fn database(self, database: Arc<dyn OwnDatabase>) -> Self {
        Self { database: Some(database), ..self }
    }

    /// Another clock than the machine's. In a shared store the database's wall time counts instead of this clock's.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Another source of chance than the machine's.
    pub fn entropy(mut self, entropy: impl Entropy + 'static) -> Self {
        self.entropy = Arc::new(entropy);
        self
    }

    /// Who may decide about approvals; unless it is said, those whom a review names.
    pub fn reviewers(mut self, reviewers: impl Reviewers) -> Self {
        self.reviewers = Arc::new(reviewers);
        self
    }

    /// How large payloads may be.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps the keys of two deployments that share a provider account apart. A change holds for calls that begin after it: one of
    /// unknown outcome is settled under the key that went out.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// In a store that several workers share: how long one that says nothing is taken for alive; 10 s unless it is
    /// said. So long after its death, at the latest, its work is taken over. One that cannot reach its store for nine
    /// tenths of it sends nothing any more until it can.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Publishes what is in the outbox: to a [`Sink`](super::outbox::Sink), or by a [`Publisher`] that says how. Of several
    /// workers one publishes at a time; give all of them the same sink.
    pub fn sink(mut self, sink: impl Into<Publisher>) -> Self {
        self.publisher = Some(sink.into());
        self
    }

    /// Whether this worker retires the records, runs and messages whose time is over, by the [`Retention`](crate::ledger::Retention) of
    /// their tools, workflows and consumers, a few at a time. It does, unless it is told not to. Where no worker does, everything is kept.
    /// A simulation retires nothing unless it is told to.
    pub fn sweep(mut self, sweeps: bool) -> Self {
        self.sweeps = Some(sweeps);
        self
    }

    /// For how long the processed messages of a consumer are known; with their results for 30 days and then by their ids, unless it is
    /// said. Messages that are forgotten sooner than their sender stops delivering them are refused when this is
    /// [opened](Self::open).
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

    /// Says that the ledger may be older than the world: it was restored from a backup of this instant, or is new beside an older
    /// system. The first send of each key is then preceded by its lookup, and a call that cannot be looked up asks a
    /// person, until somebody [lifts](super::Executor::lift_restored) it. The age of a key counts from `as_of`; without
    /// it nothing is known of a key's age.
    ///
    /// It is durable: say it at one start. Said again with the same `as_of`, it changes nothing; without `as_of` it begins
    /// anew at each start.
    pub fn restored(mut self, as_of: Option<Timestamp>) -> Self {
        self.restored = Some(Declared::Restored { as_of });
        self
    }

    /// The simulated disk is in doubt whether the ledger is older than the world.
    #[cfg(feature = "sim")]
    pub(crate) fn doubtful(mut self, why: &'static str) -> Self {
        self.restored = Some(Declared::Doubtful(why));
        self
    }

    pub(crate) fn sweeps(&self) -> bool {
        self.sweeps.unwrap_or(true)
    }

    pub(crate) fn take_publisher(&mut self) -> Option<Publisher> {
        self.publisher.take()
    }

    /// Only to look at what is there: a file is neither locked nor written.
    #[cfg_attr(not(feature = "sqlite"), allow(unused_mut, reason = "other stores are opened as they are"))]
    pub(crate) fn read_only(mut self) -> Self {
        #[cfg(feature = "sqlite")]
        if let Place::Sqlite(path) = self.place {
            self.place = Place::SqliteToRead(path);
        }
        self
    }

    /// Opens the store and enrols. Calls that an earlier process left behind are taken up at once, each by its
    /// tool's contract.
    ///
    /// # Errors
    /// If a tool or the database was refused. Nothing was changed.
    pub async fn open(mut self) -> Result<Executor, StartError> {
        let (publisher, sweeps) = (self.take_publisher(), self.sweeps());
        let core = Core::enrol(self.open_store().await?).await?;
        core.lasting("agenda", |core| run(core, None));
        core.lasting("heartbeat", |core| beat(core, None));
        core.watch_late_answers();
        core.attend();
        core.begin_publishing(publisher);
        core.begin_sweeping(sweeps, Vec::new());
        take_up_orphans(&core).await?;
        Ok(Executor::alone(core))
    }

    /// Opens the store, [lifts](Executor::lift_restored) what a restore has brought about, and closes the store. Nothing is taken
    /// up: this process has no tools.
    #[cfg(all(feature = "cli", any(feature = "sqlite", feature = "postgres")))]
    pub(crate) async fn lift_restored(
        self,
        by: &str,
        because: &str,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let executor = Executor::alone(Core::enrol(self.open_store().await?).await?);
        let lifted = executor.lift_restored(by, because).await;
        executor.shutdown(std::time::Duration::ZERO).await;
        Ok(lifted?)
    }

    /// Opens the store behind its queue; this worker is not yet enrolled.
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
        let registry = self.registry?;
        let (store, database): (Arc<dyn Store>, Option<Arc<dyn OwnDatabase>>) = match self.place {
            Place::Store(store) => (store, self.database),
            #[cfg(feature = "sqlite")]
            Place::Sqlite(path) => {
                let sqlite = Arc::new(crate::store::sqlite::Sqlite::open(path).await?);
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
        };
        let store = match self.wrap {
            Some(wrap) => wrap(store),
            None => store,
        };
        let group = Group::new(store, self.clock.clone());
        Ok(Parts {
            group,
            clock: self.clock,
            entropy: self.entropy,
            registry,
            limits: self.limits,
            namespace: self.namespace.into(),
            lease: self.lease,
            database,
            reviewers: self.reviewers,
            restored: self.restored,
            consumers: Consumers::of(self.consumers),
        })
    }
}
