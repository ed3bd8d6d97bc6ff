//! The configuration of a source of webhooks.

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
use crate::rim::reaction::{Addressee, Noted, Reaction, ReactionError, react};

/// The default tolerance, which is that of the reference libraries of Standard Webhooks and Stripe.
const TOLERANCE: Duration = Duration::from_mins(5);
/// The default maximum size of a body, in bytes. Standard Webhooks asks senders for less than 20 kB; GitHub sends up
/// to 25 MB.
const MAX_BODY: usize = 1 << 20;
const TRIES: u32 = 5;

type Identify = dyn Fn(&WebhookEvent) -> Option<EventIdentity> + Send + Sync;
type TenantOf = dyn Fn(&WebhookEvent) -> Option<Tenant> + Send + Sync;
type VersionOf = dyn Fn(&WebhookEvent) -> Option<(String, i64)> + Send + Sync;
/// The reaction to an event. Without an event, only the message is recorded.
type Reacts = dyn Fn(&Executor, Addressee, Message, Note, Option<WebhookEvent>) -> Reacting + Send + Sync;
type Reacting = BoxFuture<'static, Result<Processed<Note>, ReactionError>>;

/// The source of the identity of events.
pub(super) enum Identity {
    /// The sender's id, as the scheme defines it.
    Sender,
    /// The text that the host's closure returns.
    Host(Box<Identify>),
    /// The body, for this time.
    Body(Duration),
}

/// A source of webhooks without a reaction to its events yet.
#[must_use = "a source receives nothing until it is given what its events do, by `on`"]
pub struct WebhookBuilder {
    source: String,
    scheme: Scheme,
    secrets: Vec<Vec<u8>>,
    tolerance: Duration,
    max_body: usize,
    tries: u32,
    identity: Identity,
    /// True if the host's identity has a part that the signature does not cover.
    identity_is_unsigned: bool,
    trusts_unsigned_id: bool,
    tenant: Box<TenantOf>,
    version: Option<Box<VersionOf>>,
    log: LogFields,
    #[cfg(feature = "fence")]
    fence: Option<Fenced>,
}

/// A source that receives deliveries.
pub(super) struct Source {
    pub(super) executor: Executor,
    pub(super) name: String,
    pub(super) scheme: Scheme,
    pub(super) secrets: Vec<Vec<u8>>,
    pub(super) tolerance: i64,
    pub(super) max_body: usize,
    pub(super) tries: u32,
    pub(super) identity: Identity,
    /// True if each body is bound to the first id that it comes under.
    pub(super) binds_bodies: bool,
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
    /// The name of the source is invalid.
    #[error(transparent)]
    Name(#[from] IdError),
    /// A secret has the wrong form.
    #[error("secret number {number} of {source_name} is refused: {error}")]
    Secret {
        /// The name of the source.
        source_name: String,
        /// The number of the secret, from 1. The secret itself is not shown.
        number: usize,
        /// The reason why the secret is refused.
        error: SecretError,
    },
    /// The source has no secret, so that anybody could send.
    #[error("{source_name} has no secret, and could verify nothing: give it the sender's [configuration]")]
    NoSecret {
        /// The name of the source.
        source_name: String,
    },
    /// The policy names an environment variable that is not set.
    #[cfg(feature = "policy")]
    #[error(
        "{source_name} has its secret in the environment variable {variable}, which is not set [configuration]"
    )]
    NoVariable {
        /// The name of the source.
        source_name: String,
        /// The name of the environment variable.
        variable: String,
    },
    /// The window in which bodies distinguish events is shorter than the time for which deliveries are tolerated.
    #[error(
        "{source_name} tells events apart by their bodies for {window:?}, and tolerates deliveries that are {tolerance:?} old: one \
         would be known no longer when it comes again. Choose a window of at least twice that age, and of a second [configuration]"
    )]
    WindowTooShort {
        /// The name of the source.
        source_name: String,
        /// The window as given.
        window: Duration,
        /// The tolerance of the source.
        tolerance: Duration,
    },
}

impl Webhook {
    /// A source of webhooks whose deliveries are those of one tenant. While a secret is rotated, give both.
    ///
    /// The name identifies the sender: its events are known under this name for ever.
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
            identity_is_unsigned: false,
            trusts_unsigned_id: false,
            tenant: Box::new(move |_| Some(tenant.clone())),
            version: None,
            log: LogFields::ALL,
            #[cfg(feature = "fence")]
            fence: None,
        })
    }
}

/// The prefix of the source's consumer in the inbox.
pub(super) const PREFIX: &str = "webhook:";

impl fmt::Debug for WebhookBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBuilder").field("source", &self.source).finish_non_exhaustive()
    }
}

impl WebhookBuilder {
    /// Sets the function that finds the tenant of an event, if one source serves several tenants: for example by an
    /// account's id in the body. If the function returns `None`, the delivery is refused.
    pub fn tenant_of(mut self, of: impl Fn(&WebhookEvent) -> Option<Tenant> + Send + Sync + 'static) -> Self {
        self.tenant = Box::new(of);
        self
    }

    /// Sets the tolerance between the sender's clock and ours, in both directions. Default: five minutes.
    pub const fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets the maximum size of a body, in bytes. Default: 1 MiB. A longer body is refused with 413.
    pub const fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets the number of failed tries after which an event is set aside, as an open question. Default: five.
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// Sets the function that identifies an event, if the sender's id does not. If the function returns `None`, the
    /// delivery is refused. Read the identity from the body: most schemes do not sign headers, and a captured delivery
    /// is another event under another header.
    pub fn identify(
        mut self,
        identity: impl Fn(&WebhookEvent) -> Option<EventIdentity> + Send + Sync + 'static,
    ) -> Self {
        self.identity = Identity::Host(Box::new(identity));
        self.identity_is_unsigned = false;
        self
    }

    /// Declares that the identity has a part that the signature does not cover: a body is bound to the first identity that
    /// it comes under.
    #[cfg(feature = "policy")]
    pub(in crate::rim) const fn unsigned_identity(mut self) -> Self {
        self.identity_is_unsigned = true;
        self
    }

    /// Trusts the sender's id also if the scheme does not sign it, as with [GitHub](Scheme::github) and an [id in a
    /// header](super::HmacScheme::id). Whoever has captured one signed body can then have its event processed again
    /// under a new id, or have it take the id of another event, which is then never processed.
    ///
    /// Without this, a body is bound to the first id that it comes under. The same body under another id, and another
    /// body under the same id, are set aside, as open questions. Choose this if the sender builds the body again for
    /// each try, or sends several events with the same body, and if nobody else can reach the endpoint.
    pub const fn trust_unsigned_id(mut self) -> Self {
        self.trusts_unsigned_id = true;
        self
    }

    /// Identifies an event by its body, for a sender without ids, for this time after its first delivery. Choose a
    /// window that is longer than the sender retries; two events with the same body within the window are one.
    pub fn identify_by_body(mut self, window: Duration) -> Self {
        self.identity = Identity::Body(window);
        self
    }

    /// Sets the function that finds the aggregate and the version of an event: for example an object's sequence
    /// number, or its time of change in milliseconds. An event that is not newer than the last one of its aggregate
    /// is acknowledged and not applied.
    pub fn version(
        mut self,
        version: impl Fn(&WebhookEvent) -> Option<(String, i64)> + Send + Sync + 'static,
    ) -> Self {
        self.version = Some(Box::new(version));
        self
    }

    /// Sets a fence that is asked first: a storm of duplicates does not reach the database. Losing the fence loses
    /// nothing. Events that are [known by their bodies](Self::identify_by_body) bypass the fence.
    #[cfg(feature = "fence")]
    pub fn fence(mut self, fence: Fenced) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Sets the fields that are logged.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn logging(mut self, fields: LogFields) -> Self {
        self.log = fields;
        self
    }

    /// Sets the reaction to an event, carried out once. An error is a failed try: the sender gets 503, and sends the
    /// event again.
    ///
    /// # Errors
    /// If the source cannot distinguish events.
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
        let is_unsigned = match identity {
            Identity::Sender => !scheme.signs_id(),
            Identity::Host(_) => self.identity_is_unsigned,
            Identity::Body(_) => false,
        };
        let binds_bodies = is_unsigned && !self.trusts_unsigned_id;
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
            Box::pin(async move { react(&executor, to, Noted { message, note }, reaction).await })
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
            binds_bodies,
            tenant,
            version,
            reacts: Box::new(reacts),
            log,
            #[cfg(feature = "fence")]
            fence: self.fence,
        })))
    }
}
