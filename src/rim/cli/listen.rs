//! The connections of a server. A client that does not send its request in time is cut off, so that slow clients cannot take up
//! all connections.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use clap::Args;
use futures_util::future::BoxFuture;
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::clock::{Clock as _, SystemClock};

/// The pause after the system has refused to accept a connection, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// The times within which a client must send its request.
#[derive(Args, Clone, Copy)]
pub(super) struct Patience {
    /// Seconds within which a client must send the head of its next request
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    head_timeout: u32,
    /// Seconds within which a client must send the body of its request
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    body_timeout: u32,
}

/// Serves connections until `stop` is cancelled; then waits for the requests under way.
pub(super) async fn listen(listener: TcpListener, app: Router, patience: Patience, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                drop(connections.spawn(connected(stream, app.clone(), patience, stop.clone())));
            }
            Err(_) => SystemClock.sleep(PAUSE).await,
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Serves one connection. Its errors are those of the client or of the network.
async fn connected(stream: TcpStream, app: Router, patience: Patience, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let within = Duration::from_secs(patience.body_timeout.into());
    let answer = service_fn(|request: Request<Incoming>| answer(app.clone(), request, within));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(patience.head_timeout.into()))
            .serve_connection(TokioIo::new(stream), answer)
    );
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

async fn answer(
    mut app: Router,
    request: Request<Incoming>,
    within: Duration,
) -> Result<Response, Infallible> {
    let timed = |body: Incoming| {
        if body.is_end_stream() {
            return Body::empty();
        }
        Body::new(Timed { body, late: SystemClock.sleep(within) })
    };
    app.call(request.map(timed)).await
}

/// A body that ends with an error if it has not come in time.
struct Timed {
    body: Incoming,
    late: BoxFuture<'static, ()>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.late.as_mut().poll(context));
        // The kind tells the routes that the client was slow, and not that its request was malformed.
        let late = io::Error::new(io::ErrorKind::TimedOut, "the body did not come in time");
        Poll::Ready(Some(Err(late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
