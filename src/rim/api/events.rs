//! Streams of server-sent events: a run's, and a tenant's.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use http::request::Parts;

use super::caller::Caller;
use super::gate::Shared;
use super::page::At;
use super::problem::Failed;
use super::runs::OfRun;
use crate::flow::TenantClient;
use crate::rim::events::{Subject, Watch};

pub(super) async fn of_run(
    Extension(client): Extension<TenantClient>,
    Extension(shared): Extension<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    At(run): At<OfRun>,
    request: Parts,
) -> Result<Response, Failed> {
    let run = run.handle(&client)?.id();
    Watch { client, shared, caller, request, subject: Subject::Run(run) }.begin().await
}

pub(super) async fn of_tenant(
    Extension(client): Extension<TenantClient>,
    Extension(shared): Extension<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Parts,
) -> Result<Response, Failed> {
    Watch { client, shared, caller, request, subject: Subject::Tenant }.begin().await
}
