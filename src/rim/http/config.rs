//! The configuration of a guarded route: the fields that a key is bound to, the parts of an answer that are kept, and
//! the answers to callers.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{HeaderName, InvalidHeaderName};
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::Value;

use super::fingerprint::Bound;
use super::layer::IdempotencyLayer;
use super::problem::TYPES;
use super::route::HandlerCall;
use super::stored::NEVER;
use super::transaction::{On, Transactions};
use crate::exec::{Executor, OwnConnection, Wait};
use crate::id::Tenant;
use crate::ledger::{Contract, ContractClass, EffectClass, LookupResult, Retention};
use crate::rim::door::LogFields;
use crate::tool::{RegisterError, ToolError};

/// The tenant and the route of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RequestScope {
    pub(super) tenant: Tenant,
    pub(super) route: String,
}

impl RequestScope {
    /// A request of a tenant to a route. The tenant comes from the authenticated identity, never from a header that
    /// the client sets by itself. The route is the template, `/orders/{id}`, and not the path: keys of one template
    /// are one scope.
    pub fn new(tenant: Tenant, route: impl Into<String>) -> Self {
        Self { tenant, route: route.into() }
    }
}

/// The fate of a key after the handler's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFate {
    /// The request took effect, or may have: the answer is kept, and given again.
    Kept,
    /// The request had no effect: the next request with this key is handled, also with another body.
    Freed,
}

impl KeyFate {
    /// The default table. Freed are the statuses by which a request is refused before its effect begins: validation
    /// (400, 405, 406, 411, 413, 414, 415, 417, 422, 428, 431), authentication (401, 403), rate limits (421, 425,
    /// 426, 429). All others are kept, 5xx included. A handler whose status does not match its effect sets
    /// [`NothingHappened`](super::NothingHappened) or [`TookEffect`](super::TookEffect).
    ///
    /// ```
    /// use counterfoil::http::KeyFate;
    /// use http::StatusCode;
    /// assert_eq!(KeyFate::of(StatusCode::UNPROCESSABLE_ENTITY), KeyFate::Freed);
    /// assert_eq!(KeyFate::of(StatusCode::INTERNAL_SERVER_ERROR), KeyFate::Kept);
    /// ```
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            400 | 401 | 403 | 405 | 406 | 411 | 413 | 414 | 415 | 417 | 421 | 422 | 425 | 426 | 428 | 429
            | 431 => Self::Freed,
            _ => Self::Kept,
        }
    }
}

/// The answer to a client whose first request is still being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Conflict,
    Accepted,
}

pub(super) type ScopeFn = dyn Fn(&Parts) -> Option<RequestScope> + Send + Sync;
pub(super) type ReconcileFn = dyn Fn(HandlerCall, Value) -> BoxFuture<'static, Result<LookupResult<Response<Bytes>>, ToolError>>
    + Send
    + Sync;

/// The configuration of guarded routes.
pub(super) struct Config {
    pub(super) scope: Box<ScopeFn>,
    pub(super) is_required: bool,
    pub(super) bound: Bound,
    pub(super) kept: Vec<HeaderName>,
    pub(super) max_request: usize,
    pub(super) max_response: usize,
    pub(super) conflict: StatusCode,
    pub(super) shows_diff: bool,
    pub(super) wait: Wait,
    in_flight: InFlight,
    pub(super) status_at: Option<String>,
    pub(super) created_then_ok: bool,
    pub(super) fate: Box<dyn Fn(StatusCode) -> KeyFate + Send + Sync>,
    pub(super) reconcile: Option<Box<ReconcileFn>>,
    pub(super) contract: Contract,
    pub(super) transactions: Option<Box<dyn Transactions>>,
    pub(super) effect: EffectClass,
    pub(super) timeout: Duration,
    pub(super) retention: Retention,
    pub(super) types: String,
    pub(super) log: LogFields,
    /// The maximum size of a payload in the ledger, in bytes.
    pub(super) max_payload: usize,
}

impl Config {
    /// True if a client gets the URL of the first answer, instead of being told to repeat the request.
    pub(super) fn accepts(&self) -> bool {
        self.in_flight == InFlight::Accepted
    }
}

/// The reason why a layer was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A header of this name cannot be kept or compared.
    #[error("{name:?} is no name of a header that can be kept or compared: leave it out [configuration]")]
    Header {
        /// The name as given.
        name: String,
    },
    /// The text that names a field of the body is not a JSON pointer.
    #[error(
        "{pointer:?} is no JSON pointer (RFC 6901): begin it with a slash, `/metadata/sent_at` [configuration]"
    )]
    Pointer {
        /// The text as given.
        pointer: String,
    },
    /// The limit of responses exceeds the limit of the ledger.
    #[error(
        "responses of {bytes} bytes do not fit the ledger's limit of {max}: raise `Limits::max_bytes`, or lower this one [configuration]"
    )]
    TooLong {
        /// The limit of responses, in bytes.
        bytes: usize,
        /// The limit of the ledger, in bytes.
        max: usize,
    },
    /// Clients are to be sent to a status URL, and there is none.
    #[error(
        "clients are to be sent to a status URL, and the layer serves none: say where with `status_at` [configuration]"
    )]
    NoStatusUrl,
    /// The status for conflicts is not a client error.
    #[error(
        "{status} does not say that a request is refused: answer conflicts with 409 or 422 [configuration]"
    )]
    Status {
        /// The status as given.
        status: u16,
    },
    /// An effect of this class needs an approval, which a request cannot bring.
    #[error(
        "a {class} needs an approval, which an HTTP request cannot bring: let the handler call a registered tool [configuration]"
    )]
    ApprovalRequired {
        /// The effect class.
        class: &'static str,
    },
    /// The declaration of the route is unsafe.
    #[error("{reason} [configuration]")]
    Unsafe {
        /// The reason why the declaration is unsafe.
        reason: String,
    },
}

impl From<RegisterError> for ConfigError {
    fn from(error: RegisterError) -> Self {
        Self::Unsafe { reason: error.to_string() }
    }
}

/// The configuration of an idempotency layer: see the [module](super). The defaults are those of Stripe.
#[must_use]
pub struct Idempotency {
    executor: Executor,
    config: Config,
    headers: Vec<String>,
    kept: Vec<String>,
    #[cfg(feature = "policy")]
    settled_by: Option<SettledBy>,
}

/// The means by which the program settles requests of a dead handler, as a policy requires.
#[cfg(feature = "policy")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rim) enum SettledBy {
    Lookup,
    Transaction,
}

impl Idempotency {
    /// A layer on an executor's ledger. The closure returns the request's tenant, from the extensions that the host's
    /// authentication has set, and the route of the request; if the closure returns `None`, the request is refused
    /// with 401.
    pub fn new(
        executor: &Executor,
        scope: impl Fn(&Parts) -> Option<RequestScope> + Send + Sync + 'static,
    ) -> Self {
        let config = Config {
            scope: Box::new(scope),
            is_required: true,
            bound: Bound::default(),
            kept: Vec::new(),
            max_request: 1024 * 1024,
            max_response: 1024 * 1024,
            conflict: StatusCode::CONFLICT,
            shows_diff: true,
            wait: Wait::No,
            in_flight: InFlight::Conflict,
            status_at: None,
            created_then_ok: false,
            fate: Box::new(KeyFate::of),
            reconcile: None,
            contract: Contract::new(ContractClass::Blind),
            transactions: None,
            effect: EffectClass::InternalMutation,
            timeout: Duration::from_mins(5),
            retention: Retention::default(),
            types: TYPES.to_owned(),
            log: LogFields::ALL,
            max_payload: executor.limits().max_bytes,
        };
        Self {
            executor: executor.clone(),
            config,
            headers: Vec::new(),
            kept: Vec::new(),
            #[cfg(feature = "policy")]
            settled_by: None,
        }
    }

    /// Lets a request without a key through unguarded, instead of refusing it with 400.
    pub fn optional(mut self) -> Self {
        self.config.is_required = false;
        self
    }

    /// Binds a header to the key: a request with another value of the header is a conflict.
    pub fn bind_header(mut self, name: impl Into<String>) -> Self {
        self.headers.push(name.into());
        self
    }

    /// Binds only these query parameters to the key, instead of all.
    pub fn bind_query<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.config.bound.query = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Leaves a field of a JSON body, named by its JSON pointer, out of the comparison: for example the time of
    /// sending. The exclusion is part of the record.
    pub fn exclude(mut self, pointer: impl Into<String>) -> Self {
        self.config.bound.excluded.push(pointer.into());
        self
    }

    /// Leaves the body out of the comparison: another body under a known key gets the first answer. Changes by a
    /// client between two tries are lost silently, so this is for bodies that differ as a whole in each try. The
    /// exclusion is part of the record.
    pub fn ignore_body(mut self) -> Self {
        self.config.bound.ignores_body = true;
        self
    }

    /// Keeps a digest of a field of a JSON body, named by its JSON pointer, instead of the field itself: for example
    /// a card number. The field is compared all the same, and never shown.
    pub fn redact(mut self, pointer: impl Into<String>) -> Self {
        self.config.bound.secret.push(pointer.into());
        self
    }

    /// Keeps a header of the response, besides those that describe its content.
    pub fn keep_header(mut self, name: impl Into<String>) -> Self {
        self.kept.push(name.into());
        self
    }

    /// Sets the maximum size of a request body, in bytes. Default: 1 MiB. A longer body is refused with 413.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.config.max_request = bytes;
        self
    }

    /// Sets the maximum size of a response body, in bytes. Default: 1 MiB. If a body is longer, or a stream of
    /// events, the client learns that the request took effect and that its response could not be kept.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.config.max_response = bytes;
        self
    }

    /// Sets the status for another request under a known key. Default: 409; the IETF draft uses 422.
    pub fn conflict_status(mut self, status: StatusCode) -> Self {
        self.config.conflict = status;
        self
    }

    /// Hides the difference from the first request under a key in the answer to a conflict.
    pub fn without_diff(mut self) -> Self {
        self.config.shows_diff = false;
        self
    }

    /// Lets a request wait for the first one under its key, at most for this time, instead of refusing it at once
    /// with 409.
    pub fn wait_at_most(mut self, wait: Duration) -> Self {
        self.config.wait = Wait::AtMost(wait);
        self
    }

    /// Serves a status URL for each operation under this path: 202 while the request is being handled, then its
    /// response.
    pub fn status_at(mut self, path: impl Into<String>) -> Self {
        self.config.status_at = Some(path.into());
        self
    }

    /// Answers a repeat of a request that is still being handled with 202 and its status URL, instead of 409.
    pub fn accept_in_flight(mut self) -> Self {
        self.config.in_flight = InFlight::Accepted;
        self
    }

    /// Changes a first answer of 201 to 200 when the response is given again.
    pub fn created_then_ok(mut self) -> Self {
        self.config.created_then_ok = true;
        self
    }

    /// Sets another table for the fate of the key, by the status of the handler's answer, than [`KeyFate::of`].
    pub fn key_fate(mut self, fate: impl Fn(StatusCode) -> KeyFate + Send + Sync + 'static) -> Self {
        self.config.fate = Box::new(fate);
        self
    }

    /// Sets the lookup for a request whose handler died: by the key that the handler sent on, or by the content of
    /// the request. The closure gets the recorded request (`method`, `path`, `query`, `headers`, `body`) and returns
    /// the response that the handler would have given. Without a lookup such a request becomes an open question.
    ///
    /// The contract declares the reliability of the lookup, and the time for which a call of the handler may still be
    /// in flight after its process has died.
    pub fn reconcile<F>(
        mut self,
        contract: Contract,
        lookup: impl Fn(HandlerCall, Value) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<LookupResult<Response<Bytes>>, ToolError>> + Send + 'static,
    {
        self.config.reconcile = Some(Box::new(move |call, request| Box::pin(lookup(call, request))));
        self.config.contract = contract;
        self.config.transactions = None;
        self
    }

    /// Declares that the handlers change nothing but the ledger's own database, by the
    /// [`LedgerTransaction`](super::LedgerTransaction) among a request's extensions: the changes of a handler and its
    /// answer are committed together, exactly once. An answer other than 2xx and 3xx rolls back and frees the key. A
    /// handler that dies has done nothing, and the next request is handled.
    pub fn transactional<C: OwnConnection + 'static>(mut self) -> Self {
        self.config.transactions = Some(Box::new(On::<C>::default()));
        self.config.contract = Contract::sealed_with_effect();
        self.config.reconcile = None;
        self
    }

    /// Sets the effect class of the handler. Default: internal mutation. A payment without a lookup is refused.
    pub fn effect(mut self, class: EffectClass) -> Self {
        self.config.effect = class;
        self
    }

    /// Sets the time limit of the handler, its response included. Default: five minutes. A handler that exceeds the
    /// limit is stopped, and the outcome of its request is unknown.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// Sets the retention of responses. Default: tombstones after 30 days.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.config.retention = retention;
        self
    }

    /// Sets the prefix of the types of problems: a URL where the host's documentation has a page for each
    /// [`Problem`](super::Problem).
    pub fn problem_types(mut self, prefix: impl Into<String>) -> Self {
        self.config.types = prefix.into();
        self
    }

    /// Sets the fields that are logged.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn logging(mut self, fields: LogFields) -> Self {
        self.config.log = fields;
        self
    }

    /// Requires that the program settles requests as its policy says: otherwise no layer is made.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn settled_by(mut self, what: SettledBy) -> Self {
        self.settled_by = Some(what);
        self
    }

    #[cfg(feature = "policy")]
    fn keeps_policy(&self) -> Result<(), ConfigError> {
        let missing = match self.settled_by {
            Some(SettledBy::Lookup) if self.config.reconcile.is_none() => {
                "`on_unknown: lookup`, and the layer has none: call `.reconcile(…)`"
            }
            Some(SettledBy::Transaction) if self.config.transactions.is_none() => {
                "`on_unknown: transaction`, and the layer has none: call `.transactional::<…>()`"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::Unsafe { reason: format!("the policy says {missing}") })
    }

    /// Builds the idempotency layer.
    ///
    /// # Errors
    /// If the configuration is unsafe, or does not fit the ledger.
    pub fn layer(self) -> Result<IdempotencyLayer, ConfigError> {
        #[cfg(feature = "policy")]
        self.keeps_policy()?;
        let Self { executor, mut config, headers, kept, .. } = self;
        let name = |name: String| {
            let parsed: Result<HeaderName, InvalidHeaderName> = name.parse();
            parsed.map_err(|_| ConfigError::Header { name })
        };
        let headers: Result<Vec<_>, _> = headers.into_iter().map(name).collect();
        config.bound.headers = headers?.iter().map(HeaderName::to_string).collect();
        config.kept = kept.into_iter().map(name).collect::<Result<_, _>>()?;
        if let Some(never) = config.kept.iter().find(|name| NEVER.contains(&name.as_str())) {
            return Err(ConfigError::Header { name: never.to_string() });
        }
        let pointers = config.bound.excluded.iter().chain(&config.bound.secret);
        if let Some(pointer) =
            pointers.clone().find(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
        {
            return Err(ConfigError::Pointer { pointer: pointer.clone() });
        }
        if config.max_response > config.max_payload {
            return Err(ConfigError::TooLong { bytes: config.max_response, max: config.max_payload });
        }
        if config.accepts() && config.status_at.is_none() {
            return Err(ConfigError::NoStatusUrl);
        }
        if !config.conflict.is_client_error() {
            return Err(ConfigError::Status { status: config.conflict.as_u16() });
        }
        if config.effect.needs_approval() {
            return Err(ConfigError::ApprovalRequired { class: config.effect.name() });
        }
        IdempotencyLayer::of(executor, config)
    }
}
