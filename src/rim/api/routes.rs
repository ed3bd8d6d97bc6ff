//! The table of the routes: method, path, role and handler of each. The router is built from it, and a test compares it with the
//! table of `docs/api.md`.

use axum::routing::{MethodRouter, get, post};

#[cfg(feature = "guard-service")]
use super::caller::Role::Call;
use super::caller::Role::{self, Admin, Decide, Operate, Read};
#[cfg(feature = "guard-service")]
use super::guard;
#[cfg(feature = "schedule")]
use super::schedules;
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
    /// The names of the query parameters that the route knows. Another one is refused: a list would be answered as if
    /// the mistyped filter had not been given. `None` for a route that does not look at the query, which a host's
    /// authentication may use.
    pub query: Option<&'static [&'static str]>,
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

/// A route from its handler. A list has the parameters of a page, and those that are named.
macro_rules! route {
    (GET $path:literal, $role:ident, $reach:ident, $handler:path) => {
        route!(GET $path, $role, $reach, $handler, [])
    };
    (GET $path:literal, $role:ident, $reach:ident, $handler:path, list [$($name:literal),*]) => {
        route!(GET $path, $role, $reach, $handler, ["after", "limit" $(, $name)*])
    };
    (GET $path:literal, $role:ident, $reach:ident, $handler:path, [$($name:literal),*]) => {
        Route {
            method: "GET",
            path: $path,
            role: $role,
            reach: Reach::$reach,
            query: Some(&[$($name),*]),
            handler: || get($handler),
        }
    };
    (STREAM $path:literal, $role:ident, $reach:ident, $handler:path) => {
        Route {
            method: "GET",
            path: $path,
            role: $role,
            reach: Reach::$reach,
            query: None,
            handler: || get($handler),
        }
    };
    (POST $path:literal, $role:ident, $reach:ident, $handler:path) => {
        Route {
            method: "POST",
            path: $path,
            role: $role,
            reach: Reach::$reach,
            query: None,
            handler: || post($handler),
        }
    };
}

pub(super) static ROUTES: &[Route] = &[
    route!(
        GET "/runs",
        Read,
        Tenant,
        runs::list,
        list ["state", "workflow", "key", "label", "since", "before", "newest_first"]
    ),
    route!(GET "/runs/{run}", Read, Tenant, runs::show),
    route!(GET "/runs/{run}/history", Read, Tenant, runs::history, list []),
    route!(STREAM "/runs/{run}/events", Read, Tenant, events::of_run),
    route!(STREAM "/events", Read, Tenant, events::of_tenant),
    route!(GET "/questions", Read, Tenant, inspect::questions, list ["answered", "kind", "run", "since", "before"]),
    route!(GET "/questions/{question}", Read, Tenant, inspect::question),
    route!(GET "/approvals", Read, Tenant, inspect::approvals, list ["decided", "what", "reviewer", "run"]),
    route!(GET "/approvals/{approval}", Read, Tenant, inspect::approval),
    route!(
        GET "/records",
        Read,
        Tenant,
        records::list,
        list ["key", "state", "tool", "label", "run", "since", "before"]
    ),
    route!(GET "/records/{key}", Read, Tenant, records::show),
    route!(GET "/records/{key}/evidence", Read, Tenant, records::evidence),
    route!(GET "/artifacts", Read, Tenant, kept::artifacts, list ["kind", "id", "run"]),
    route!(GET "/artifacts/{kind}/{id}", Read, Tenant, kept::artifact, ["version"]),
    #[cfg(feature = "memory")]
    route!(GET "/memories", Read, Tenant, kept::memories, list ["subject", "kind"]),
    route!(GET "/outbox", Read, Tenant, outbox::list, list ["aggregate", "kind", "since", "before"]),
    #[cfg(feature = "schedule")]
    route!(GET "/schedules", Read, Tenant, schedules::list, list ["state", "workflow"]),
    route!(GET "/figures", Read, Tenant, figures::list, list []),
    route!(GET "/workflows", Read, Tenant, workflows::list, list ["prefix"]),
    route!(GET "/tenants", Read, Ledger, ledger::tenants, list ["prefix"]),
    route!(GET "/stuck", Read, Ledger, ledger::stuck, list ["tenant", "kind"]),
    route!(GET "/throttles", Read, Ledger, ledger::throttles, list []),
    route!(GET "/queues", Read, Ledger, ledger::queues, list []),
    route!(GET "/workers", Read, Ledger, ledger::workers, list []),
    route!(GET "/tokens", Admin, Ledger, ledger::tokens, list ["tenant", "role"]),
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
