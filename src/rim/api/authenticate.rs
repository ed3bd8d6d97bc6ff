//! The seam for a host's own authentication.

use futures_util::future::BoxFuture;
use http::request::Parts;

use super::caller::Caller;
use crate::exec::ExecError;

/// Finds out who makes a request. A request without a caller is refused with 401: access without authentication exists only where
/// an implementation returns a caller for it.
///
/// ```
/// use counterfoil::api::{Authenticate, Caller, Role, TenantScope};
/// use counterfoil::exec::ExecError;
/// use counterfoil::types::{BoxFuture, http::request::Parts};
///
/// /// Callers as a proxy has authenticated them, which removes this header from what clients send.
/// struct Proxy;
///
/// impl Authenticate for Proxy {
///     fn caller<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Caller>, ExecError>> {
///         let name = request.headers.get("x-user").and_then(|name| name.to_str().ok());
///         let caller = name.and_then(|name| Caller::new(name, Role::Read, TenantScope::All).ok());
///         Box::pin(async move { Ok(caller) })
///     }
/// }
/// ```
pub trait Authenticate: Send + Sync + 'static {
    /// The caller of a request; `None` if nobody is authenticated. An error is answered with 503 or 500.
    fn caller<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Caller>, ExecError>>;
}
