//! Who sends a request: what the host's authentication finds out. This one knows a token for each tenant.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use counterfoil::Tenant;

#[derive(Clone)]
pub(crate) struct User(pub(crate) Tenant);

pub(crate) async fn authenticated(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
    let tenant = token.and_then(|token| token.strip_prefix("Bearer token-of-"));
    let Some(tenant) = tenant.and_then(|tenant| Tenant::new(tenant).ok()) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(User(tenant));
    next.run(request).await
}
