//! The table of the routes: method, path, role and handler of each. The router is built from it, and a test compares it with the
//! table of `docs/api.md`.

use axum::routing::{MethodRouter, get, post};

#[cfg(feature = "guard-service")]
use super::caller::Role::Call;
use super::caller::Role::{self, Admin, Decide, Operate, Read};
#[cfg(feature = "guard-service")]
use super::guard;
use super::{commands, events, figures, inspect, kept, ledger, outbox, records, runs, verdicts, workflows};

/// The rows that a route reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of one tenant.
    Tenant,
    /// Those of the ledger as a whole: only callers for all tenants may use the route.
    Ledger,
}

impl Reach {
    /// The name, as the table of the documentation has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Ledger => "ledger",
        }
    }
}

/// A route of the API.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Route {
    /// The HTTP method.
    pub method: &'static str,
    /// The path, with the names of its parts in braces.
    pub path: &'static str,
    /// The role that a caller needs at least.
    pub role: Role,
    /// The rows that the route reads or writes.
    pub reach: Reach,
    handler: fn() -> MethodRouter,
}

impl Route {
    /// The paths under which the route is served.
    pub(super) fn paths(&self) -> impl Iterator<Item = String> {
        let by_name = (self.reach == Reach::Tenant).then(|| format!("/tenants/{{tenant}}{}", self.path));
        std::iter::once(self.path.to_owned()).chain(by_name)
    }

    pub(super) fn handler(&self) -> MethodRouter {
        (self.handler)()
    }
}

/// A route from its handler.
macro_rules! route {
    (GET $path:literal, $role:ident, $reach:ident, $handler:path) => {
        Route { method: "GET", path: $path, role: $role, reach: Reach::$reach, handler: || get($handler) }
    };
    (POST $path:literal, $role:ident, $reach:ident, $handler:path) => {
        Route { method: "POST", path: $path, role: $role, reach: Reach::$reach, handler: || post($handler) }
    };
}

pub(super) static ROUTES: &[Route] = &[
    route!(GET "/runs", Read, Tenant, runs::list),
    route!(GET "/runs/{run}", Read, Tenant, runs::show),
    route!(GET "/runs/{run}/history", Read, Tenant, runs::history),
    route!(GET "/runs/{run}/events", Read, Tenant, events::of_run),
    route!(GET "/events", Read, Tenant, events::of_tenant),
    route!(GET "/questions", Read, Tenant, inspect::questions),
    route!(GET "/questions/{question}", Read, Tenant, inspect::question),
    route!(GET "/approvals", Read, Tenant, inspect::approvals),
    route!(GET "/approvals/{approval}", Read, Tenant, inspect::approval),
    route!(GET "/records", Read, Tenant, records::list),
    route!(GET "/records/{key}", Read, Tenant, records::show),
    route!(GET "/records/{key}/evidence", Read, Tenant, records::evidence),
    route!(GET "/artifacts", Read, Tenant, kept::artifacts),
    route!(GET "/artifacts/{kind}/{id}", Read, Tenant, kept::artifact),
    #[cfg(feature = "memory")]
    route!(GET "/memories", Read, Tenant, kept::memories),
    route!(GET "/outbox", Read, Tenant, outbox::list),
    #[cfg(feature = "schedule")]
    route!(GET "/schedules", Read, Tenant, inspect::schedules),
    route!(GET "/figures", Read, Tenant, figures::list),
    route!(GET "/workflows", Read, Tenant, workflows::list),
    route!(GET "/tenants", Read, Ledger, ledger::tenants),
    route!(GET "/stuck", Read, Ledger, ledger::stuck),
    route!(GET "/throttles", Read, Ledger, ledger::throttles),
    route!(GET "/queues", Read, Ledger, ledger::queues),
    route!(GET "/workers", Read, Ledger, ledger::workers),
    route!(GET "/tokens", Admin, Ledger, ledger::tokens),
    route!(POST "/runs", Operate, Tenant, commands::start),
    route!(POST "/runs/{run}/signals", Operate, Tenant, commands::signal),
    route!(POST "/runs/{run}/pause", Operate, Tenant, commands::pause),
    route!(POST "/runs/{run}/resume", Operate, Tenant, commands::resume),
    route!(POST "/runs/{run}/cancel", Operate, Tenant, commands::cancel),
    route!(POST "/runs/{run}/retry", Operate, Tenant, commands::retry),
    route!(POST "/runs/{run}/fork", Operate, Tenant, commands::fork),
    route!(POST "/erase", Admin, Tenant, commands::erase),
    route!(POST "/questions/{question}/answer", Decide, Tenant, verdicts::answer),
    route!(POST "/approvals/{approval}/decision", Decide, Tenant, verdicts::decide),
    route!(POST "/outbox/{question}/release", Decide, Tenant, outbox::release),
    route!(POST "/outbox/{question}/skip", Decide, Tenant, outbox::skip),
    #[cfg(feature = "guard-service")]
    route!(POST "/guard/begin", Call, Tenant, guard::begin),
    #[cfg(feature = "guard-service")]
    route!(POST "/guard/seal", Call, Tenant, guard::seal),
    #[cfg(feature = "guard-service")]
    route!(POST "/guard/reconcile", Call, Tenant, guard::reconcile),
    #[cfg(feature = "guard-service")]
    route!(POST "/guard/poll", Call, Tenant, guard::poll),
    route!(POST "/tokens/{token}/revoke", Admin, Ledger, ledger::revoke),
];
