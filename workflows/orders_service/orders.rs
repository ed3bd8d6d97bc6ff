//! `POST /orders`: authenticated, then the fence, then the ledger, then the handler with its transaction.

use std::convert::Infallible;

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use counterfoil::Executor;
use counterfoil::fence::{Fenced, FencedAnswer, LedgerDecision};
use counterfoil::http::{LedgerTransaction, RequestScope, idempotency_key};
use counterfoil::policy::Policy;
use serde::Deserialize;
use serde_json::json;

use super::Failed;
use super::books::Books;
use super::user::User;

/// As much as the layer behind the fence reads.
const LONGEST: usize = 1 << 20;

#[derive(Deserialize)]
struct Order {
    number: String,
}

pub(crate) fn routes<C: Books>(
    policy: &Policy,
    executor: &Executor,
    fence: Option<Fenced>,
) -> Result<Router, Failed> {
    let layer = policy.http("orders")?.idempotency(executor, |request| {
        let User(tenant) = request.extensions.get::<User>()?;
        let route = request.extensions.get::<MatchedPath>()?;
        Some(RequestScope::new(tenant.clone(), route.as_str()))
    });
    let routes = Router::new().route("/orders", post(place::<C>));
    let routes = routes.layer(layer.transactional::<C>().layer()?);
    Ok(match fence {
        Some(fence) => routes.layer(from_fn_with_state(fence, fenced)),
        None => routes,
    })
}

/// The row and the answer are committed together.
async fn place<C: Books>(
    Extension(transaction): Extension<LedgerTransaction<C>>,
    Json(order): Json<Order>,
) -> Response {
    match transaction.run(|db| db.enter("order", order.number)).await {
        Ok(place) => (StatusCode::CREATED, Json(json!({ "order": place }))).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Answers a copy of a request that is settled without asking the ledger. The key at the fence holds everything that tells two
/// requests apart that may both be made, and the fingerprint holds the rest.
async fn fenced(State(fence): State<Fenced>, request: Request, next: Next) -> Response {
    let user = request.extensions().get::<User>();
    let (Some(User(tenant)), Ok(Some(key))) = (user, idempotency_key(request.headers())) else {
        return next.run(request).await; // the layer says what is missing
    };
    let key = format!("{tenant}/{} {}/{key}", request.method(), request.uri().path());
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LONGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let fingerprint = [parts.uri.to_string().as_bytes(), b"\n", &body].concat();
    let request = Request::from_parts(parts, Body::from(body));
    let decide = || async { Ok::<_, Infallible>(decision(next.run(request).await).await) };
    match fence.through(&key, &fingerprint, decide).await {
        Ok(FencedAnswer::Sealed(receipt)) => {
            let headers = [(CONTENT_TYPE.as_str(), "application/json"), ("idempotent-replayed", "true")];
            (headers, receipt).into_response()
        }
        Ok(FencedAnswer::Ledger(response)) => response,
        Ok(FencedAnswer::InProgress) => StatusCode::CONFLICT.into_response(),
        Err(never) => match never {},
    }
}

/// An order that was taken stays taken. Everything else may be answered otherwise next time.
async fn decision(response: Response) -> LedgerDecision<Response> {
    if !matches!(response.status(), StatusCode::CREATED | StatusCode::OK) {
        return LedgerDecision::open(response);
    }
    let (parts, body) = response.into_parts();
    match to_bytes(body, LONGEST).await {
        Ok(body) => {
            LedgerDecision::settled(Response::from_parts(parts, Body::from(body.clone())), body.to_vec())
        }
        Err(_) => LedgerDecision::open(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
    }
}
