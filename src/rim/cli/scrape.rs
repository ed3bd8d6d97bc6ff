//! `GET /metrics` of a server: what Prometheus scrapes. It tells of all tenants together, so it needs a token for all of them.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::request::Parts;

use crate::metrics::Prometheus;
use crate::rim::api::{Failed, Gate};

/// The route of the metrics, behind a gate.
pub(super) fn router(prometheus: Prometheus, gate: Gate) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(Arc::new((prometheus, gate)))
}

async fn scrape(
    State(of): State<Arc<(Prometheus, Gate)>>,
    request: Parts,
) -> Result<impl IntoResponse, Failed> {
    let (prometheus, gate) = &*of;
    gate.admit(&request).await?;
    Ok(([(CONTENT_TYPE, Prometheus::CONTENT_TYPE)], prometheus.render()))
}
