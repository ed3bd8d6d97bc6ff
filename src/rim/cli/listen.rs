//! The connections of a server. A client that does not send its request in time, or does not read its answer, is cut off, so
//! that slow clients cannot take up all connections.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::clock::{Clock as _, SystemClock};

/// The pause after the system has refused to accept a connection, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);

/// The number of connections, and the times within which a client must send its request and read its answer.
#[derive(Args, Clone, Copy)]
pub(super) struct Patience {
    /// Seconds within which a client must send the head of its next request
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    head_timeout: u32,
    /// Seconds within which a client must send the body of its request
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    body_timeout: u32,
    /// Seconds within which a client must read on in its answer
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    write_timeout: u32,
    /// The greatest number of connections; others wait until one is closed
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,
}

/// Serves connections until `stop` is cancelled; then waits for the requests under way.
pub(super) async fn listen(listener: TcpListener, app: Router, patience: Patience, stop: CancellationToken) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(patience.max_connections.into()));
    loop {
        // The place comes first: a connection that is not accepted yet costs this process nothing.
        let place = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            place = places.clone().acquire_owned() => place,
        };
        let Ok(place) = place else { break }; // nothing closes the semaphore
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connected = connected(stream, app.clone(), patience, stop.clone());
                drop(connections.spawn(async move {
                    connected.await;
                    drop(place);
                }));
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
    let stream =
        TimedWrites { stream, within: Duration::from_secs(patience.write_timeout.into()), late: None };
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

/// A connection that ends with an error if the client reads nothing for too long. The buffers of the system take a short
/// answer from the server; a client that asks on and does not read would otherwise keep its connection for ever.
struct TimedWrites {
    stream: TcpStream,
    within: Duration,
    /// The end of the time, while a write waits for the client.
    late: Option<BoxFuture<'static, ()>>,
}

impl TimedWrites {
    fn in_time(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let within = self.within;
        let late = self.late.get_or_insert_with(|| SystemClock.sleep(within));
        ready!(late.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client did not read in time")))
    }
}

impl AsyncRead for TimedWrites {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, into)
    }
}

impl AsyncWrite for TimedWrites {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.in_time(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
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
