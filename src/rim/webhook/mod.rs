//! Webhooks: verify, then dedupe, then order. Feature `webhook`.
//!
//! A delivery is verified by its sender's signature over the raw body. Its event is known by the sender's id, for
//! ever, and its reaction is carried out once: a [`Reaction`](crate::door::Reaction) is a transaction, the start of a
//! workflow, a signal to a run, or a guarded call. The sender gets the same receipt for each delivery, and 503 if the
//! delivery must be repeated.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use bytes::Bytes;
//! use counterfoil::door::Reaction;
//! use counterfoil::webhook::{Scheme, Webhook, WebhookEvent};
//! use counterfoil::{Executor, Tenant};
//! use sqlx::SqliteConnection;
//!
//! let executor = Executor::sqlite(dir.path().join("shop.db")).open().await?;
//! let stripe = Webhook::source("stripe", Scheme::stripe(), ["whsec_of_the_endpoint"], Tenant::new("acme")?)?
//!     .on(&executor, |event: WebhookEvent| async move {
//!         let id = event.id().unwrap_or_default().to_owned();
//!         Ok::<_, std::convert::Infallible>(match event.kind() {
//!             Some("invoice.paid") => Reaction::transaction(move |db: &mut SqliteConnection| Box::pin(async move {
//!                 sqlx::query("INSERT INTO paid (event) VALUES (?)").bind(id).execute(db).await.map(drop)
//!             })),
//!             _ => Reaction::ignore(),
//!         })
//!     })?;
//!
//! // `axum::routing::post_service(stripe)`, or by hand:
//! let forged = http::Request::post("/stripe").body(http_body_util::Full::new(Bytes::from("{}")))?;
//! assert_eq!(stripe.receive(forged).await.status(), 400); // no signature
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod builder;
mod event;
mod receive;
mod scheme;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower_service::Service;

pub use answer::WebhookProblem;
pub use builder::{WebhookBuilder, WebhookConfigError};
pub use event::{EventIdentity, WebhookEvent};
pub use scheme::{HmacScheme, Scheme, SecretError, SignatureError};

pub use super::body::BoxError;

/// A source of webhooks that receives deliveries: by [`receive`](Self::receive), or as a tower service.
#[derive(Clone)]
pub struct Webhook(Arc<builder::Source>);

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("source", &self.0.name).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for Webhook
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let webhook = self.clone();
        Box::pin(async move { Ok(webhook.receive(request).await.map(Full::new)) })
    }
}
