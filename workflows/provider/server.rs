//! The provider's HTTP interface: routes, lookups and the switch for its behaviour. Creating is in `create.rs`.
//!
//! Include it from any crate root with `#[path = "../provider/server.rs"] mod provider;`. The submodules carry explicit paths
//! because Rust would otherwise look for them in two different folders, depending on who includes this file.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /notices` (`Idempotency-Key` optional) | 201, or what the contract does with a known key |
//! | `PUT /notices/{id}` | 201, or 412 with the notice that has this id |
//! | `GET /notices?reference=R&page=N` | pages of two, oldest first; the first page is 1; follow `next` until it is null |
//! | `GET /notices/{id}` | 200 or 404 |
//! | `POST /notices/{id}/cancel` | 200, however often; 404 |
//! | `GET /effects` | notices ever stored and cancelled per reference, the number of create requests, and how many effects no lookup sees yet |
//! | `PUT /behaviour`, `GET /behaviour` | sets all of it, reads what is left of it |
#![allow(unreachable_pub, reason = "included by several crate roots, each of which uses another part")]

#[path = "behaviour.rs"]
mod behaviour;
#[path = "create.rs"]
mod create;
#[path = "notices.rs"]
mod notices;

use std::error::Error;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

#[allow(unused_imports, reason = "for those who include this file and set the behaviour from Rust")]
pub use self::behaviour::{Behaviour, Contract};
use self::notices::Notices;

/// Serves the provider kept in the database file `db` until the future is dropped.
///
/// # Crash
///
/// Stored notices, keys and the count of requests survive the death of the provider. Its behaviour does not (it starts again
/// with the default), nor do requests which `apply_late_ms` is holding back.
pub async fn serve(db: &FilePath, listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let world =
        World { notices: Notices::open(db).await?, behaviour: Arc::default(), in_hand: Arc::default() };
    let router = Router::new()
        .route("/notices", post(create::post).get(list))
        .route("/notices/{id}", get(show).put(create::put))
        .route("/notices/{id}/cancel", post(cancel))
        .route("/effects", get(effects))
        .route("/behaviour", get(read_behaviour).put(set_behaviour))
        .with_state(world);
    axum::serve(listener, router).await?;
    Ok(())
}

/// What every handler shares.
#[derive(Clone)]
struct World {
    notices: Notices,
    behaviour: Arc<Mutex<Behaviour>>,
    /// Create requests that may still have their effect.
    in_hand: Arc<AtomicU64>,
}

impl World {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        // A panicking holder cannot leave it half written: it is only ever assigned as a whole.
        self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a lookup is answered with instead of the truth, if anything.
    fn lookup_refusal(&self) -> Option<Response> {
        let behaviour = self.behaviour();
        if !behaviour.contract.offers_lookup() {
            let body = json!({ "error": "lookup not offered" });
            return Some((StatusCode::NOT_FOUND, Json(body)).into_response());
        }
        behaviour.lookup_status.map(|status| create::fault(status, &behaviour))
    }
}

#[derive(Deserialize)]
struct Page {
    reference: String,
    #[serde(default)]
    page: u32,
}

async fn list(State(world): State<World>, Query(query): Query<Page>) -> Result<Response, Failed> {
    if let Some(refusal) = world.lookup_refusal() {
        return Ok(refusal);
    }
    // Whoever counts from zero gets the same first page, and goes on from its `next`.
    let page = query.page.max(1);
    let (items, more) = world.notices.page(&query.reference, page).await?;
    let next = more.then(|| page.saturating_add(1));
    Ok(Json(json!({ "items": items, "next": next })).into_response())
}

async fn show(State(world): State<World>, Path(id): Path<String>) -> Result<Response, Failed> {
    if let Some(refusal) = world.lookup_refusal() {
        return Ok(refusal);
    }
    Ok(world.notices.find(&id).await?.map_or_else(not_found, |notice| Json(notice).into_response()))
}

async fn cancel(State(world): State<World>, Path(id): Path<String>) -> Result<Response, Failed> {
    // Spawned for the same reason as creating: once here it happens, whether or not the client stays to hear of it.
    let cancelled = tokio::spawn(async move { world.notices.cancel(&id).await }).await??;
    Ok(cancelled.map_or_else(not_found, |notice| Json(notice).into_response()))
}

async fn effects(State(world): State<World>) -> Result<Response, Failed> {
    let in_hand = world.in_hand.load(Ordering::SeqCst); // before the notices: a request may be both, and never neither
    let mut effects = world.notices.effects().await?;
    effects.unseen += in_hand;
    Ok(Json(effects).into_response())
}

async fn read_behaviour(State(world): State<World>) -> Json<Behaviour> {
    Json(world.behaviour().clone())
}

async fn set_behaviour(State(world): State<World>, Json(new): Json<Behaviour>) -> Json<Behaviour> {
    *world.behaviour() = new.clone();
    Json(new)
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, Json(json!({ "error": "not found" }))).into_response()
}

/// The provider itself failed: not one of the faults it was told to have.
#[derive(Debug)]
struct Failed(Box<dyn Error + Send + Sync>);

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let body = json!({ "error": format!("the provider is broken: {}", self.0) });
        (StatusCode::INTERNAL_SERVER_ERROR, Json(body)).into_response()
    }
}
