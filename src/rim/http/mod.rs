//! HTTP writes under an `Idempotency-Key`: a [`tower::Layer`](https://docs.rs/tower) that lets each request take effect once.
//! Feature `http`.
//!
//! The first request under a key is recorded before the handler is called, and the handler's answer is kept before
//! the client gets it. A repeated request (a double click, a proxy's retry, a client that timed out) gets the first
//! answer byte for byte, marked `Idempotent-Replayed: true`. The layer has no memory of its own: the ledger decides,
//! and the layer translates.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use axum::{Router, extract::MatchedPath, routing::post};
//! use counterfoil::http::{Idempotency, RequestScope};
//! use counterfoil::{Executor, Tenant};
//!
//! #[derive(Clone)]
//! struct User(Tenant); // what the host's authentication has found out
//!
//! let executor = Executor::sqlite(dir.path().join("orders.db")).open().await?;
//! let layer = Idempotency::new(&executor, |request| {
//!     let User(tenant) = request.extensions.get::<User>()?;
//!     let route = request.extensions.get::<MatchedPath>()?;
//!     Some(RequestScope::new(tenant.clone(), route.as_str()))
//! })
//! .layer()?;
//! let app: Router = Router::new().route("/orders", post(|| async { "order 17" })).layer(layer);
//! # let _ = app;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod config;
mod fingerprint;
mod guard;
mod handling;
mod key;
mod layer;
mod problem;
mod route;
mod status;
mod stored;
mod transaction;

pub use super::body::BoxError;
#[cfg(feature = "policy")]
pub(in crate::rim) use config::SettledBy;
pub use config::{ConfigError, Idempotency, KeyFate, RequestScope};
pub use handling::{NothingHappened, TookEffect};
#[cfg(feature = "openapi")]
pub(in crate::rim) use key::LONGEST as LONGEST_KEY;
pub use key::{KeyHeaderError, idempotency_key};
pub use layer::{Handler, IdempotencyLayer, IdempotencyService, RequestBody, ResponseBody};
pub use problem::Problem;
pub use route::HandlerCall;
pub use transaction::{LedgerTransaction, LedgerTransactionError};
