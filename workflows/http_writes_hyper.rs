//! HTTP writes under an `Idempotency-Key`, with hyper alone: the layer takes any tower service.
//!
//! ```text
//! cargo run --features http --example http_writes_hyper
//! ```

#![allow(missing_docs, reason = "an example")]

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use counterfoil::http::{Idempotency, RequestBody, RequestScope};
use counterfoil::{Executor, Tenant};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tower_layer::Layer as _;
use tower_service::Service;

/// Takes orders, and counts them.
#[derive(Clone, Default)]
struct Orders(Arc<AtomicU32>);

impl Service<Request<RequestBody<Incoming>>> for Orders {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody<Incoming>>) -> Self::Future {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ready(Ok(Response::new(Bytes::from(format!("order {number}")).into())))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let executor = Executor::sqlite(folder.path().join("ledger.db")).open().await?;
    let acme = Tenant::new("acme")?; // a service with one tenant
    let layer = Idempotency::new(&executor, move |request| {
        Some(RequestScope::new(acme.clone(), request.uri.path())) // and without variables in its paths
    })
    .layer()?;
    let orders = Orders::default();
    let service = TowerToHyperService::new(layer.layer(orders.clone()));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/orders", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service.clone());
            tokio::spawn(served);
        }
    });
    for key in ["a", "a", "b"] {
        let response = reqwest::Client::new().post(&url).header("idempotency-key", key).send().await?;
        println!("{key}: {} {}", response.status(), response.text().await?);
    }
    println!("{} orders", orders.0.load(Ordering::SeqCst));
    Ok(())
}
