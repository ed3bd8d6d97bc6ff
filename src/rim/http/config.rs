//! How a route is guarded: what its keys are bound to, what is kept of its answers, what its callers are told.

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

/// Whose request it is, and which route it took.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct RequestScope {
    pub(super) tenant: Tenant,
    pub(super) route: String,
}

impl RequestScope {
    /// A tenant's request to a route. The tenant comes from the authenticated identity, never from a header that the client writes
    /// by itself. The route is its template, `/orders/{id}`, and not the path: keys of one template are one scope.
    pub fn new(tenant: Tenant, route: impl Into<String>) -> Self {
        Self { tenant, route: route.into() }
    }
}

/// What becomes of the key when the handler has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFate {
    /// The request took effect, or may have: the answer is kept, and given again.
    Kept,
    /// Nothing happened: the next request with this key is let in, also with another body.
    Freed,
}

impl KeyFate {
    /// The table that counts unless the host has its own. Freed are the statuses with which a request is refused before its effect
    /// begins: validation (400, 405, 406, 411, 413, 414, 415, 417, 422, 428, 431), authentication (401, 403), rate limits (421,
    /// 425, 426, 429). Everything else is kept, 5xx included. A handler that answers otherwise than it acts says so with
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

/// What a client is told whose first request is still being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    Conflict,
    Accepted,
}

pub(super) type ScopeFn = dyn Fn(&Parts) -> Option<RequestScope> + Send + Sync;
pub(super) type ReconcileFn = dyn Fn(HandlerCall, Value) -> BoxFuture<'static, Result<LookupResult<Response<Bytes>>, ToolError>>
    + Send
    + Sync;

/// What the host has said about its guarded routes.
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
    /// The longest payload that the ledger takes, in bytes.
    pub(super) max_payload: usize,
}

impl Config {
    /// A client is told where the first answer will be, instead of that it is to come again.
    pub(super) fn accepts(&self) -> bool {
        self.in_flight == InFlight::Accepted
    }
}

/// Why a layer was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A header of this name cannot be kept or compared.
    #[error("{name:?} is no name of a header that can be kept or compared: leave it out")]
    Header {
        /// The name.
        name: String,
    },
    /// A field of the body is named by something else than a JSON pointer.
    #[error("{pointer:?} is no JSON pointer (RFC 6901): begin it with a slash, `/metadata/sent_at`")]
    Pointer {
        /// The text.
        pointer: String,
    },
    /// Responses could be longer than what the ledger takes.
    #[error(
        "responses of {bytes} bytes do not fit the ledger's limit of {max}: raise `Limits::max_bytes`, or lower this one"
    )]
    TooLong {
        /// The limit of responses.
        bytes: usize,
        /// The ledger's limit.
        max: usize,
    },
    /// Clients are to be sent to a status URL, and there is none.
    #[error("clients are to be sent to a status URL, and the layer serves none: say where with `status_at`")]
    NoStatusUrl,
    /// Conflicts are answered with a status that is none of a client's errors.
    #[error("{status} does not say that a request is refused: answer conflicts with 409 or 422")]
    Status {
        /// The status.
        status: u16,
    },
    /// An effect of this class needs an approval, and a request brings none.
    #[error(
        "a {class} needs an approval, which an HTTP request cannot bring: let the handler call a registered tool"
    )]
    ApprovalRequired {
        /// The class.
        class: &'static str,
    },
    /// What the route declares is unsafe.
    #[error("{reason}")]
    Unsafe {
        /// Why.
        reason: String,
    },
}

impl From<RegisterError> for ConfigError {
    fn from(error: RegisterError) -> Self {
        Self::Unsafe { reason: error.to_string() }
    }
}

/// An idempotency layer to be: see the [module](super). What is not said is as Stripe has it.
#[must_use]
pub struct Idempotency {
    executor: Executor,
    config: Config,
    headers: Vec<String>,
    kept: Vec<String>,
    #[cfg(feature = "policy")]
    settled_by: Option<SettledBy>,
}

/// What a policy says that the program does about a handler that died.
#[cfg(feature = "policy")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rim) enum SettledBy {
    Lookup,
    Transaction,
}

impl Idempotency {
    /// A layer on an executor's ledger. The closure says whose request it is, from what the host's authentication has left in its
    /// extensions, and which route it took; without an answer the request is refused with 401.
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

    /// A request without a key is let through unguarded, instead of being refused with 400.
    pub fn optional(mut self) -> Self {
        self.config.is_required = false;
        self
    }

    /// Binds a header to the key: a request with another value of it is a conflict.
    pub fn bind_header(mut self, name: impl Into<String>) -> Self {
        self.headers.push(name.into());
        self
    }

    /// Binds only these query parameters to the key, instead of all.
    pub fn bind_query<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.config.bound.query = Some(names.into_iter().map(str::to_owned).collect());
        self
    }

    /// Leaves a field of a JSON body out of the comparison, by its JSON pointer: a time of sending, say. The exclusion is part of
    /// the record.
    pub fn exclude(mut self, pointer: impl Into<String>) -> Self {
        self.config.bound.excluded.push(pointer.into());
        self
    }

    /// Does not compare the body: another one under a known key gets the first answer. What a client changed between two tries is
    /// lost without a word, so this is for bodies that differ from try to try as a whole. It is part of the record.
    pub fn ignore_body(mut self) -> Self {
        self.config.bound.ignores_body = true;
        self
    }

    /// Keeps a digest of a field of a JSON body instead of the field itself, by its JSON pointer: a card number, say. It is
    /// compared all the same, and never shown.
    pub fn redact(mut self, pointer: impl Into<String>) -> Self {
        self.config.bound.secret.push(pointer.into());
        self
    }

    /// Keeps this header of the response, beside those that describe its content.
    pub fn keep_header(mut self, name: impl Into<String>) -> Self {
        self.kept.push(name.into());
        self
    }

    /// The longest body of a request, in bytes; 1 MiB unless it is said. A longer one is refused with 413.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.config.max_request = bytes;
        self
    }

    /// The longest body of a response, in bytes; 1 MiB unless it is said. Of a longer one, or a stream of events, the client is
    /// told that the request took effect and that its response could not be kept.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.config.max_response = bytes;
        self
    }

    /// The status with which another request under a known key is refused: 409 unless it is said, 422 as the IETF draft has it.
    pub fn conflict_status(mut self, status: StatusCode) -> Self {
        self.config.conflict = status;
        self
    }

    /// Does not show what differs from the first request under a key.
    pub fn without_diff(mut self) -> Self {
        self.config.shows_diff = false;
        self
    }

    /// Has a request wait for the first one under its key, at most for so long, instead of refusing it at once with 409.
    pub fn wait_at_most(mut self, wait: Duration) -> Self {
        self.config.wait = Wait::AtMost(wait);
        self
    }

    /// Serves a status URL for each operation under this path: 202 while it is being handled, then its response.
    pub fn status_at(mut self, path: impl Into<String>) -> Self {
        self.config.status_at = Some(path.into());
        self
    }

    /// Answers a request whose first one is still being handled with 202 and its status URL, instead of 409.
    pub fn accept_in_flight(mut self) -> Self {
        self.config.in_flight = InFlight::Accepted;
        self
    }

    /// Gives 201 the first time, and 200 when the response is given again.
    pub fn created_then_ok(mut self) -> Self {
        self.config.created_then_ok = true;
        self
    }

    /// Another table of what becomes of the key, by the status of the handler's answer, than [`KeyFate::of`].
    pub fn key_fate(mut self, fate: impl Fn(StatusCode) -> KeyFate + Send + Sync + 'static) -> Self {
        self.config.fate = Box::new(fate);
        self
    }

    /// How to find out what became of a request whose handler died: by the key that the handler sent on, or by what the request
    /// says. The closure gets the recorded request (`method`, `path`, `query`, `headers`, `body`) and gives the response that the
    /// handler would have given. Without it such a request is an open question.
    ///
    /// The contract says what the lookup is worth, and how long a call of the handler may still be on its way after its process has
    /// died.
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

    /// The handlers change nothing but the ledger's own database, by the [`LedgerTransaction`](super::LedgerTransaction) among a
    /// request's extensions: what a handler changes and its answer are committed together, exactly once. An answer other than 2xx and
    /// 3xx rolls back and frees the key. A handler that dies has done nothing, and the next request is handled.
    pub fn transactional<C: OwnConnection + 'static>(mut self) -> Self {
        self.config.transactions = Some(Box::new(On::<C>::default()));
        self.config.contract = Contract::sealed_with_effect();
        self.config.reconcile = None;
        self
    }

    /// What the handler does to the world; changes its own system unless it is said. A payment without a lookup is refused.
    pub fn effect(mut self, class: EffectClass) -> Self {
        self.config.effect = class;
        self
    }

    /// How long a handler may take, its response included; five minutes unless it is said. Then it is cut off, and what became of
    /// its request is unknown.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long responses are kept, and what is left of them; tombstones after 30 days unless it is said.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.config.retention = retention;
        self
    }

    /// The prefix of the types of problems: where the host's documentation has a page for each [`Problem`](super::Problem).
    pub fn problem_types(mut self, prefix: impl Into<String>) -> Self {
        self.config.types = prefix.into();
        self
    }

    /// Logs these fields alone.
    #[cfg(feature = "policy")]
    pub(in crate::rim) fn logging(mut self, fields: LogFields) -> Self {
        self.config.log = fields;
        self
    }

    /// The policy counts on the program for this: without it there is no layer.
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

    /// The layer.
    ///
    /// # Errors
    /// If what was said is unsafe, or does not fit the ledger.
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
