//! The streams of events by which a page knows that it is out of date.

use std::sync::Arc;

use axum::Extension;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::Response;
use http::request::Parts;

use crate::flow::TenantClient;
use crate::rim::api::{Caller, Failed, Shared};
use crate::rim::events::{Subject, Watch};

pub(super) async fn of_tenant(
    Extension(client): Extension<TenantClient>,
    Extension(shared): Extension<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Parts,
) -> Result<Response, Failed> {
    Watch { client, shared, caller, request, subject: Subject::Tenant }.begin().await
}

pub(super) async fn of_run(
    Extension(client): Extension<TenantClient>,
    Extension(shared): Extension<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Parts,
) -> Result<Response, Failed> {
    let Path((_, run)) = path.map_err(Failed::malformed)?;
    let subject = Subject::Run(run.parse()?);
    Watch { client, shared, caller, request, subject }.begin().await
}
