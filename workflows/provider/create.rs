//! Creating a notice: the one place where the effect happens, and where the faults around it are played.
//!
//! hyper drops a handler when its client goes away. A real provider does not undo what it has begun, so all that matters
//! runs in a spawned task, and the handler only waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::behaviour::{Behaviour, Contract};
use super::notices::{Content, Created, Request};
use super::{Failed, World};

pub async fn post(
    State(world): State<World>,
    headers: HeaderMap,
    Json(content): Json<Content>,
) -> Result<Response, Failed> {
    let key = match headers.get("idempotency-key").map(HeaderValue::to_str).transpose() {
        Ok(key) => key.map(str::to_owned),
        // Not to be taken for "no key": that would be an effect without the protection which the client asked for.
        Err(_) => {
            return Ok(reply(StatusCode::BAD_REQUEST, &json!({ "error": "unreadable key" }), false));
        }
    };
    create(world, Request { id: None, key, content }).await
}

pub async fn put(
    State(world): State<World>,
    Path(id): Path<String>,
    Json(content): Json<Content>,
) -> Result<Response, Failed> {
    create(world, Request { id: Some(id), key: None, content }).await
}

/// An answer that the provider was told to give instead of the right one.
pub fn fault(status: u16, behaviour: &Behaviour) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = reply(status, &json!({ "error": "fault", "status": status.as_u16() }), false);
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
        && let Some(seconds) = behaviour.retry_after_s
    {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

async fn create(world: World, request: Request) -> Result<Response, Failed> {
    let behaviour = world.behaviour().take_for_create();
    match tokio::spawn(act(world, behaviour, request)).await?? {
        Some(response) => Ok(response),
        // Here and not in the spawned task, so that it ends when the client gives up.
        None => std::future::pending().await,
    }
}

/// Has the effect and gives the answer, or none if there shall never be one.
async fn act(world: World, behaviour: Behaviour, request: Request) -> Result<Option<Response>, sqlx::Error> {
    let notices = world.notices;
    let in_hand = InHand::one_more(world.in_hand);
    // First of all: a test that sees the count rise knows that the request is in the provider's hands.
    notices.count_request().await?;
    if let Some(status) = behaviour.status_before {
        return Ok(Some(fault(status, &behaviour)));
    }
    pause(behaviour.apply_late_ms).await;
    // The contract is applied only now: a request held back meets the keys and ids that overtook it.
    let created = notices.create(&request, &behaviour).await?;
    drop(in_hand);
    pause(behaviour.answer_late_ms).await;
    if behaviour.hang_after_commit {
        return Ok(None);
    }
    Ok(Some(match behaviour.status_after {
        Some(status) => fault(status, &behaviour),
        None => answer(created, &behaviour),
    }))
}

/// Counts a request until it has had its effect, or will have none.
struct InHand(Arc<AtomicU64>);

impl InHand {
    fn one_more(count: Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answer(created: Created, behaviour: &Behaviour) -> Response {
    let cut = behaviour.truncate_answer;
    match created {
        Created::New(notice) => reply(StatusCode::CREATED, &json!(notice), cut),
        Created::IdTaken(notice) => reply(StatusCode::PRECONDITION_FAILED, &json!(notice), cut),
        Created::KeyKnown { .. } if behaviour.contract == Contract::RejectsKey => {
            reply(StatusCode::CONFLICT, &json!({ "error": "duplicate" }), cut)
        }
        Created::KeyKnown { same_content: false, .. } => {
            reply(StatusCode::BAD_REQUEST, &json!({ "error": "idempotency_error" }), cut)
        }
        Created::KeyKnown { first, .. } => {
            let mut response = reply(StatusCode::OK, &json!(first), cut);
            response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
            response
        }
    }
}

/// A JSON answer. `cut` breaks the JSON and not the HTTP: the client gets the status and a body that ends too early.
fn reply(status: StatusCode, body: &Value, cut: bool) -> Response {
    let mut body = body.to_string().into_bytes();
    if cut {
        body.truncate(body.len() / 2);
    }
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

#[allow(clippy::disallowed_methods, reason = "the outside world has its own time, and being late is its job")]
async fn pause(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
