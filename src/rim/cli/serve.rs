//! `counterfoil serve`: serves the HTTP API.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::ledger::{Database, block_on};
use super::probes;
use crate::clock::{Clock as _, SystemClock};
use crate::rim::api::Api;

/// The time for which requests under way are waited for when the server is stopped.
const DRAIN: Duration = Duration::from_secs(10);

/// The address, and the ledger that is served.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    database: Database,
    /// The address to listen at
    #[arg(long, default_value = "127.0.0.1:4180")]
    listen: SocketAddr,
    /// A proxy in front of this server speaks TLS; without it, only a loopback address is listened at
    #[arg(long)]
    behind_tls: bool,
    /// Serve the guard, too: programs in any language make their calls under it
    #[cfg(feature = "guard-service")]
    #[arg(long)]
    guard: bool,
}

pub(super) fn run(options: &Options) -> ExitCode {
    block_on(async {
        if !options.listen.ip().is_loopback() && !options.behind_tls {
            let at = options.listen;
            return Err(format!(
                "{at} can be reached from elsewhere, and this server speaks no TLS, so that tokens could be read on their way. \
                 Put a proxy in front of it that speaks TLS, and say --behind-tls."
            )
            .into());
        }
        #[cfg(feature = "guard-service")]
        if options.guard {
            return with_guard(options).await;
        }
        let client = options.database.client()?.open().await?;
        let probes = probes::router(client.default_tenant().core().0);
        let served = serve(options.listen, Api::new(&client).router().merge(probes)).await;
        client.shutdown(DRAIN).await;
        Ok(served?)
    })
}

/// Serves the API and the guard, whose calls are carried out by an engine of this process.
#[cfg(feature = "guard-service")]
async fn with_guard(options: &Options) -> super::ledger::Done {
    use crate::rim::guard_service::GuardService;

    let engine = options.database.engine()?.start().await?;
    let api = Api::of_engine(&engine).guard(&GuardService::new(&engine.executor()));
    let probes = probes::router(engine.default_tenant().core().0);
    let served = serve(options.listen, api.router().merge(probes)).await;
    // A call that a client has in hand cannot be sealed here any more: its permit counts at the next process.
    engine.shutdown(Duration::ZERO).await;
    Ok(served?)
}

/// Serves until the process is told to end.
async fn serve(listen: SocketAddr, app: Router) -> io::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let stop = CancellationToken::new();
    let mut stdout = io::stdout();
    writeln!(stdout, "listening at http://{}", listener.local_addr()?)?;
    stdout.flush()?;
    let serving = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let mut serving = tokio::spawn(serving.into_future());
    tokio::select! {
        biased;
        ended = &mut serving => return ended?,
        told = told_to_end() => told?,
    }
    stop.cancel();
    // A client that waits for its step does not keep the server.
    tokio::select! {
        biased;
        ended = &mut serving => return ended?,
        () = SystemClock.sleep(DRAIN) => serving.abort(),
    }
    Ok(())
}

#[cfg(unix)]
async fn told_to_end() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        biased;
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn told_to_end() -> io::Result<()> {
    tokio::signal::ctrl_c().await
}
