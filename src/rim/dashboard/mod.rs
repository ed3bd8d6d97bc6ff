//! A dashboard for operators: pages that a browser shows, beside the [API](crate::api) and for the same callers. Feature
//! `dashboard`.
//!
//! The pages are made by the server, and work without script; a small script refreshes what has changed. Whoever signs in does so
//! with a token of the API, and sees and may do what the token's role and tenants allow. `docs/dashboard.md` shows the pages.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("agents.db");
//! use counterfoil::Engine;
//! use counterfoil::api::Api;
//! use counterfoil::types::axum::Router;
//!
//! let engine = Engine::sqlite(&path).start().await?;
//! let api = Api::of_engine(&engine);
//! let app = Router::new().nest_service("/ui", api.dashboard().router()).merge(api.router());
//! # let _: Router = app;
//! # engine.shutdown(std::time::Duration::ZERO).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod approvals;
mod assets;
mod chart;
mod evidence;
mod figure;
mod gate;
mod layout;
mod ledger;
mod live;
mod overview;
mod pieces;
mod questions;
mod run;
mod runs;
#[cfg(feature = "schedule")]
mod schedules;
mod session;
mod sign_in;
mod site;
mod timeline;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, OriginalUri, Path, Request};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use http::StatusCode;

use self::gate::Gate;
use self::sign_in::Public;
use self::site::Site;
use crate::rim::api::{Caller, Reach, Role, Shared};

/// The maximum length of a form, in bytes.
const MAX_FORM: usize = 1024 * 1024;

/// The dashboard of a ledger, made by [`Api::dashboard`](crate::api::Api::dashboard), to be made a [router](Self::router): see the
/// [module](self).
#[must_use]
pub struct Dashboard {
    shared: Arc<Shared>,
    behind_tls: bool,
}

impl Dashboard {
    pub(in crate::rim) const fn of(shared: Arc<Shared>) -> Self {
        Self { shared, behind_tls: false }
    }

    /// Says that a proxy in front of this server speaks TLS. Cookies are then sent over TLS only, whatever host the proxy names in its
    /// requests. Default: false; cookies are then sent in the clear to a host with a loopback name, such as `127.0.0.1`, and many
    /// proxies name that.
    ///
    /// ```no_run
    /// # fn pages(client: &counterfoil::Client) {
    /// use counterfoil::api::Api;
    ///
    /// let pages = Api::new(client).dashboard().behind_tls(true).router();
    /// # let _ = pages;
    /// # }
    /// ```
    pub const fn behind_tls(mut self, behind_tls: bool) -> Self {
        self.behind_tls = behind_tls;
        self
    }

    /// The router. It finds the path under which it is mounted by itself: mount it with
    /// [`nest_service`](axum::Router::nest_service), which serves `/ui/` as well as `/ui`.
    pub fn router(self) -> Router {
        let Self { shared, behind_tls } = self;
        let page = |role, reach, handler: MethodRouter| {
            let door = crate::rim::api::Gate { shared: shared.clone(), role, reach, query: None };
            Gate { door, behind_tls }.before(handler)
        };
        let tenants = |handler| page(Role::Read, Reach::Tenant, handler);
        let whole = |handler| page(Role::Read, Reach::Ledger, handler);
        let may = |role, handler| page(role, Reach::Tenant, handler);
        let home = |Extension(caller): Extension<Caller>, Extension(site): Extension<Site>| async move {
            overview::home(caller, &site)
        };
        let router = Router::new()
            .route("/", tenants(get(home)))
            .route("/tenants", whole(get(ledger::tenants)))
            .route("/queues", whole(get(ledger::queues)))
            .route("/workers", whole(get(ledger::workers)))
            .route("/t/{tenant}", tenants(get(overview::tenant)))
            .route("/t/{tenant}/runs", tenants(get(runs::list)))
            .route(
                "/t/{tenant}/runs/{run}",
                tenants(get(run::show)).merge(may(Role::Operate, post(run::command))),
            )
            .route("/t/{tenant}/questions", tenants(get(questions::list)))
            .route("/t/{tenant}/set-aside", tenants(get(questions::set_aside)))
            .route(
                "/t/{tenant}/questions/{question}",
                tenants(get(questions::show)).merge(may(Role::Decide, post(questions::answer))),
            )
            .route("/t/{tenant}/approvals", tenants(get(approvals::list)))
            .route(
                "/t/{tenant}/approvals/{approval}",
                tenants(get(approvals::show)).merge(may(Role::Decide, post(approvals::decide))),
            )
            .route("/t/{tenant}/evidence", tenants(get(evidence::show)))
            .route("/t/{tenant}/events", tenants(get(live::of_tenant)))
            .route("/t/{tenant}/runs/{run}/events", tenants(get(live::of_run)));
        #[cfg(feature = "schedule")]
        let router = router.route("/t/{tenant}/schedules", tenants(get(schedules::list)));
        let public = Router::new()
            .route("/sign-in", get(sign_in::form).post(sign_in::sign_in))
            .route("/sign-out", post(sign_in::sign_out))
            .with_state(Public { shared: shared.clone(), behind_tls })
            .route("/assets/{name}", get(|name: Path<String>| async move { assets::asset(&name) }));
        router
            .merge(public)
            .fallback(|asked: OriginalUri, request: Request| async move {
                gate::lost(&asked, &request, StatusCode::NOT_FOUND, "There is no such page.")
            })
            .method_not_allowed_fallback(|asked: OriginalUri, request: Request| async move {
                let words = "The page does not take this method.";
                gate::lost(&asked, &request, StatusCode::METHOD_NOT_ALLOWED, words)
            })
            .layer(axum::middleware::from_fn(gate::harden))
            .layer(DefaultBodyLimit::max(MAX_FORM))
    }
}
