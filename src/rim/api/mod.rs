//! An HTTP API on a ledger, for operators and for programs in other languages: an [`axum::Router`] that a host mounts. Feature `api`.
//!
//! It works on the database alone: with a [`Client`], in a process without workflows and tools, or with an [`Engine`]. Each request
//! is made by an authenticated [`Caller`], who has a [`Role`] and belongs to one tenant or to all. `docs/api.md` has the table of
//! the routes.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("agents.db");
//! use counterfoil::api::{Api, Caller, Role, TenantScope};
//! use counterfoil::{Client, Engine, Tenant};
//!
//! let engine = Engine::sqlite(&path).start().await?; // in one process
//! let client = Client::sqlite(&path).open().await?; // in another one
//! let api = Api::new(&client);
//! let acme = TenantScope::One(Tenant::new("acme")?);
//! let token = api.tokens().create(Caller::new("ann", Role::Operate, acme)?).await?;
//! println!("{}", token.secret()); // shown once: the ledger holds a digest of it
//! let app = api.router(); // or `axum::Router::new().nest("/counterfoil", api.router())`
//! # let _ = app;
//! # engine.shutdown(std::time::Duration::ZERO).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Client`]: crate::Client
//! [`Engine`]: crate::Engine

mod authenticate;
mod caller;
mod commands;
mod events;
mod figures;
mod gate;
#[cfg(feature = "guard-service")]
mod guard;
mod history;
mod inspect;
mod kept;
mod ledger;
#[cfg(feature = "openapi")]
mod openapi;
mod outbox;
mod page;
mod problem;
mod rates;
mod records;
mod routes;
mod runs;
#[cfg(feature = "schedule")]
mod schedules;
mod token;
mod verdicts;
mod workflows;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;

pub use self::authenticate::Authenticate;
pub use self::caller::{Caller, Role, TenantScope};
#[cfg(feature = "dashboard")]
pub(in crate::rim) use self::gate::tenant;
pub(in crate::rim) use self::gate::{Gate, Shared};
#[cfg(feature = "dashboard")]
pub(in crate::rim) use self::history::{After, Limit, read as history_page};
pub(in crate::rim) use self::inspect::Listed;
#[cfg(feature = "dashboard")]
pub(in crate::rim) use self::problem::Refusal;
pub(in crate::rim) use self::problem::{Failed, Problem};
use self::rates::{Guesses, Rates};
pub use self::routes::{Reach, Route};
pub use self::token::{IssuedToken, NewToken, Tokens};
#[cfg(feature = "dashboard")]
pub(in crate::rim) use self::verdicts::answered;
use crate::flow::{Client, Engine, TenantClient};
use crate::ledger::Rate;
use crate::rim::events::Streams;
#[cfg(feature = "guard-service")]
use crate::rim::guard_service::GuardService;

/// The maximum length of a request's body, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// The API of a ledger, to be made a [router](Self::router): see the [module](self).
#[must_use]
pub struct Api {
    client: TenantClient,
    auth: Arc<dyn Authenticate>,
    rate: Rate,
    streams: Arc<Streams>,
    #[cfg(feature = "guard-service")]
    guard: Option<GuardService>,
}

impl Api {
    /// The API of a client's database.
    pub fn new(client: &Client) -> Self {
        Self::of(client.default_tenant())
    }

    /// The API of an engine's database, beside the engine in one process.
    pub fn of_engine(engine: &Engine) -> Self {
        Self::of(engine.default_tenant())
    }

    fn of(client: TenantClient) -> Self {
        let auth = Arc::new(Tokens::of(&client));
        Self {
            client,
            auth,
            rate: Rate::per_second(50).burst(200),
            streams: Arc::default(),
            #[cfg(feature = "guard-service")]
            guard: None,
        }
    }

    /// Serves the guard: programs in any language make their calls under it. The service works on an executor of this ledger.
    #[cfg(feature = "guard-service")]
    pub fn guard(self, service: &GuardService) -> Self {
        Self { guard: Some(service.clone()), ..self }
    }

    /// The bearer tokens that the ledger holds.
    pub fn tokens(&self) -> Tokens {
        Tokens::of(&self.client)
    }

    /// Sets the host's own authentication, in place of the ledger's [tokens](Self::tokens).
    pub fn auth(self, auth: impl Authenticate) -> Self {
        Self { auth: Arc::new(auth), ..self }
    }

    /// Sets the maximum rate of each caller's requests in this process. Default: 50 a second, 200 at once. All requests
    /// together whose token is not valid have the same rate.
    pub fn rate(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// The [dashboard](crate::dashboard): pages for the same callers, to be mounted beside the API.
    #[cfg(feature = "dashboard")]
    pub fn dashboard(&self) -> crate::rim::dashboard::Dashboard {
        crate::rim::dashboard::Dashboard::of(self.shared())
    }

    /// The streams of events of all routers of this API.
    #[cfg(feature = "cli")]
    pub(in crate::rim) fn streams(&self) -> Arc<Streams> {
        self.streams.clone()
    }

    /// A gate for a route beside the API's own, for callers for all tenants.
    #[cfg(all(feature = "cli", feature = "prometheus"))]
    pub(in crate::rim) fn gate(&self, role: Role) -> Gate {
        Gate { shared: self.shared(), role, reach: Reach::Ledger, query: None }
    }

    /// The state of a router's requests.
    fn shared(&self) -> Arc<Shared> {
        let (client, auth) = (self.client.clone(), self.auth.clone());
        let (rates, guesses) = (Rates::of(self.rate), Guesses::of(self.rate));
        Arc::new(Shared { client, auth, rates, guesses, streams: self.streams.clone() })
    }

    /// The routes of the API, without their handlers.
    pub fn routes() -> &'static [Route] {
        routes::ROUTES
    }

    /// The description of the routes in the words of `OpenAPI`, as JSON. The router serves it at `/openapi.json`, to everybody.
    ///
    /// ```
    /// # #[cfg(feature = "openapi")] {
    /// let described: serde_json::Value = serde_json::from_str(counterfoil::api::Api::openapi())?;
    /// assert!(described["paths"]["/runs"]["post"].is_object());
    /// # }
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[cfg(feature = "openapi")]
    pub fn openapi() -> &'static str {
        &openapi::DOCUMENT
    }

    /// The router. A route of one tenant is served twice: as `/runs` for the tenant of the caller, and as
    /// `/tenants/{tenant}/runs` for a tenant by name.
    pub fn router(self) -> Router {
        let shared = self.shared();
        let mut router = Router::new();
        for route in routes::ROUTES {
            let (role, reach, query) = (route.role, route.reach, route.query);
            let gate = Gate { shared: shared.clone(), role, reach, query };
            for path in route.paths() {
                router = router.route(&path, gate.before(route.handler()));
            }
        }
        #[cfg(feature = "openapi")]
        let router = router.route(
            "/openapi.json",
            axum::routing::get(|| async {
                ([(http::header::CONTENT_TYPE, "application/json")], Self::openapi())
            }),
        );
        let nothing = || async { Failed::of(Problem::NotFound, "There is no such route.") };
        let other = || async { Failed::of(Problem::Method, "The route does not take this method.") };
        let router = router.method_not_allowed_fallback(other).fallback(nothing);
        #[cfg(feature = "guard-service")]
        let router = router.layer(axum::Extension(self.guard));
        router.layer(DefaultBodyLimit::max(MAX_BODY))
    }
}
