//! A source of webhooks, as its host declares it.

use std::fmt::{self, Display};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Webhook;
use super::event::{EventIdentity, WebhookEvent};
use super::receive::Note;
use super::scheme::{Scheme, SecretError};
use crate::exec::inbox::{LONGEST, Message, Processed};
use crate::exec::{Executor, OwnConnection};
use crate::id::{IdError, Tenant, checked};
use crate::rim::door::LogFields;
#[cfg(feature = "fence")]
use crate::rim::fence::Fenced;
use crate::rim::reaction::{Addressee, Reaction, ReactionError, react};

/// The reference libraries of Standard Webhooks and Stripe tolerate this much.
const TOLERANCE: Duration = Duration::from_mins(5);
/// Standard Webhooks asks senders for less than 20 kB; GitHub sends up to 25 MB.
const MAX_BODY: usize = 1 << 20;
const TRIES: u32 = 5;

type Identify = dyn Fn(&WebhookEvent) -> Option<EventIdentity> + Send + Sync;
type TenantOf = dyn Fn(&WebhookEvent) -> Option<Tenant> + Send + Sync;
type VersionOf = dyn Fn(&WebhookEvent) -> Option<(String, i64)> + Send + Sync;
/// Without an event nothing is done, and that is recorded.
type Reacts = dyn Fn(&Executor, Addressee, Message, Note, Option<WebhookEvent>) -> Reacting + Send + Sync;
type Reacting = BoxFuture<'static, Result<Processed<Note>, ReactionError>>;

/// The identity of a source's events.
pub(super) enum Identity {
    /// Its sender's id, as the scheme has it.
    Sender,
    /// The text that a closure of the host's gives.
    Host(Box<Identify>),
    /// Its body, for so long.
    Body(Duration),
}

/// A source of webhooks, to be given what its events do.
#[must_use = "a source receives nothing until it is given what its events do, by `on`"]
pub struct WebhookBuilder {
    source: String,
    scheme: Scheme,
    secrets: Vec<Vec<u8>>,
    tolerance: Duration,
    max_body: usize,
    tries: u32,
    identity: Identity,
    tenant: Box<TenantOf>,
    version: Option<Box<VersionOf>>,
    log: LogFields,
    #[cfg(feature = "fence")]
    fence: Option<Fenced>,
}

/// A source that receives.
pub(super) struct Source {
    pub(super) executor: Executor,
    pub(super) name: String,
    pub(super) scheme: Scheme,
    pub(super) secrets: Vec<Vec<u8>>,
    pub(super) tolerance: i64,
    pub(super) max_body: usize,
    pub(super) tries: u32,
    pub(super) identity: Identity,
    pub(super) tenant: Box<TenantOf>,
    pub(super) version: Option<Box<VersionOf>>,
    pub(super) reacts: Box<Reacts>,
    pub(super) log: LogFields,
    #[cfg(feature = "fence")]
    pub(super) fence: Option<Fenced>,
}

/// The reason why a source is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookConfigError {
    /// Its name cannot be one.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A secret cannot be one.
    #[error("secret number {number} of {source_name} is refused: {error}")]
    Secret {
        /// Of which source.
        source_name: String,
        /// Which one, from 1 on. It is not shown.
        number: usize,
        /// Why.
        error: SecretError,
    },
    /// Without a secret everybody could send.
    #[error("{source_name} has no secret, and could verify nothing: give it the sender's")]
    NoSecret {
        /// Of which source.
        source_name: String,
    },
    /// The policy names a variable of the environment that is not there.
    #[cfg(feature = "policy")]
    #[error("{source_name} has its secret in the environment variable {variable}, which is not set")]
    NoVariable {
        /// Of which source.
        source_name: String,
        /// The variable.
        variable: String,
    },
    /// Events without ids are told apart by their bodies for a while, which is at least as long as a delivery is tolerated.
    #[error(
        "{source_name} tells events apart by their bodies for {window:?}, and tolerates deliveries that are {tolerance:?} old: one \
         would be known no longer when it comes again. Choose a window of at least twice that age, and of a second"
    )]
    WindowTooShort {
        /// Of which source.
        source_name: String,
        /// The choice.
        window: Duration,
        /// The tolerance.
        tolerance: Duration,
    },
}

impl Webhook {
    /// A source of webhooks whose deliveries are those of one tenant. While a secret is rotated, give both.
    ///
    /// The name stands for the sender: its events are known under it for ever.
    pub fn source<S: AsRef<str>>(
        name: impl Into<String>,
        scheme: impl Into<Scheme>,
        secrets: impl IntoIterator<Item = S>,
        tenant: Tenant,
    ) -> Result<WebhookBuilder, WebhookConfigError> {
        let (source, scheme) = (name.into(), scheme.into());
        checked("source of webhooks", &source, LONGEST - PREFIX.len())?;
        let read = |(place, text): (usize, S)| {
            scheme.secret(text.as_ref()).map_err(|error| WebhookConfigError::Secret {
                source_name: source.clone(),
                number: place + 1,
                error,
            })
        };
        let secrets = secrets.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        if secrets.is_empty() {
            return Err(WebhookConfigError::NoSecret { source_name: source });
        }
        Ok(WebhookBuilder {
            source,
            scheme,
            secrets,
            tolerance: TOLERANCE,
            max_body: MAX_BODY,
            tries: TRIES,
            identity: Identity::Sender,
            tenant: Box::new(move |_| Some(tenant.clone())),
            version: None,
            log: LogFields::ALL,
            #[cfg(feature = "fence")]
            fence: None,
        })
    }
}

/// The beginning of its consumer's name in the inbox.
pub(super) const PREFIX: &str = "webhook:";

impl fmt::Debug for WebhookBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBuilder").field("source", &self.source).finish_non_exhaustive()
    }
}

impl WebhookBuilder {
    /// Whose event it is, where one source serves several tenants: an account's id in the body, say. Where it is nobody's, the
    /// delivery is refused.
    pub fn tenant_of(mut self, of: impl Fn(&WebhookEvent) -> Option<Tenant> + Send + Sync + 'static) -> Self {
        self.tenant = Box::new(of);
        self
    }

    /// The tolerance between the sender's time and ours, in both directions: five minutes unless it is said.
    pub const fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The longest body, in bytes: 1 MiB unless it is said. A longer one is refused with 413.
    pub const fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// After so many tries in vain an event is set aside, as an open question: five unless it is said.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// The identity of an event, where that is not the sender's id. A delivery that has none is refused.
    pub fn identify(
        mut self,
        identity: impl Fn(&WebhookEvent) -> Option<EventIdentity> + Send + Sync + 'static,
    ) -> Self {
        self.identity = Identity::Host(Box::new(identity));
        self
    }

    /// For a sender without ids: an event is known by its body for so long after its first delivery. Choose longer than the sender
    /// tries again; two events with the same body within it are one.
    pub fn identify_by_body(mut self, window: Duration) -> Self {
        self.identity = Identity::Body(window);
        self
    }

    /// Of which aggregate an event brings which version: an object's sequence number, say, or its time of change in milliseconds.
    /// One that is not newer than what was seen of it is acknowledged and not applied.
    pub fn version(
        mut self,
        version: impl Fn(&WebhookEvent) -> Option<(String, i64)> + Send + Sync + 'static,
    ) -> Self {
        self.version = Some(Box::new(version));
        self
    }

    /// Asks this fence first: a storm of duplicates does not reach the database. Losing the fence loses nothing. Events that are
    /// [known by their bodies](Self::identify_by_body) go past it.
    #[cfg(feature = "fence")]
    pub fn fence(mut self, fence: Fenced) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The fields that are logged.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn logging(mut self, fields: LogFields) -> Self {
        self.log = fields;
        self
    }

    /// The reaction to an event, carried out once. An error is a failed try: the sender is answered 503, and sends the event again.
    ///
    /// # Errors
    /// If the source could not tell events apart.
    pub fn on<C, F, Fut, E>(self, executor: &Executor, react_to: F) -> Result<Webhook, WebhookConfigError>
    where
        C: OwnConnection + 'static,
        F: Fn(WebhookEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reaction<C>, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let Self {
            source, scheme, secrets, tolerance, max_body, tries, identity, tenant, version, log, ..
        } = self;
        if let Identity::Body(window) = identity
            && window < tolerance.saturating_mul(2).max(Duration::from_secs(1))
        {
            return Err(WebhookConfigError::WindowTooShort { source_name: source, window, tolerance });
        }
        let react_to = Arc::new(react_to);
        let reacts = move |executor: &Executor, to, message, note, event: Option<WebhookEvent>| -> Reacting {
            let (executor, react_to) = (executor.clone(), react_to.clone());
            let reaction = async move {
                match event {
                    Some(event) => react_to(event).await,
                    None => Ok(Reaction::ignore()),
                }
            };
            Box::pin(async move { react(&executor, to, message, note, reaction).await })
        };
        Ok(Webhook(Arc::new(Source {
            executor: executor.clone(),
            name: source,
            scheme,
            secrets,
            tolerance: i64::try_from(tolerance.as_secs()).unwrap_or(i64::MAX),
            max_body,
            tries,
            identity,
            tenant,
            version,
            reacts: Box::new(reacts),
            log,
            #[cfg(feature = "fence")]
            fence: self.fence,
        })))
    }
}
