//! `counterfoil serve`: serves the HTTP API, and the dashboard.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::ledger::{Database, Done, block_on};
use super::listen::{Patience, listen};
use super::probes;
#[cfg(feature = "prometheus")]
use super::scrape;
use crate::clock::{Clock as _, SystemClock};
#[cfg(feature = "prometheus")]
use crate::metrics::Prometheus;
#[cfg(feature = "prometheus")]
use crate::rim::api::Role;
use crate::rim::api::{Api, Tokens};

/// The time for which requests under way are waited for when the server is stopped.
const DRAIN: Duration = Duration::from_secs(10);

/// The address, and the ledger that is served.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    database: Database,
    /// The address to listen at; one that others can reach needs a token first
    #[arg(long, default_value = "127.0.0.1:4180")]
    listen: SocketAddr,
    /// A proxy in front of this server speaks TLS: cookies of the dashboard are sent over TLS only; without it, only a loopback address
    /// is listened at
    #[arg(long)]
    behind_tls: bool,
    /// Serve the guard, too: programs in any language make their calls under it
    #[cfg(feature = "guard-service")]
    #[arg(long)]
    guard: bool,
    #[command(flatten)]
    patience: Patience,
}

pub(super) fn run(options: &Options) -> ExitCode {
    block_on(async {
        not_in_the_clear(options.listen, options.behind_tls)?;
        #[cfg(feature = "guard-service")]
        if options.guard {
            return with_guard(options).await;
        }
        let client = options.database.client()?;
        #[cfg(feature = "prometheus")]
        let prometheus = Prometheus::default();
        #[cfg(feature = "prometheus")]
        let client = client.metrics(prometheus.metrics());
        let client = client.open().await?;
        let (api, core) = (Api::new(&client), client.default_tenant().core().0);
        let beside = probes::router(core);
        #[cfg(feature = "prometheus")]
        let beside = beside.merge(scrape::router(prometheus, api.gate(Role::Read)));
        let served = serve_api(options, api, beside).await;
        client.shutdown(DRAIN).await;
        served
    })
}

/// Serves the API and the guard, whose calls are carried out by an engine of this process.
#[cfg(feature = "guard-service")]
async fn with_guard(options: &Options) -> Done {
    use crate::rim::guard_service::GuardService;

    let engine = options.database.engine()?;
    #[cfg(feature = "prometheus")]
    let prometheus = Prometheus::default();
    #[cfg(feature = "prometheus")]
    let engine = engine.metrics(prometheus.metrics());
    let engine = engine.start().await?;
    let api = Api::of_engine(&engine).guard(&GuardService::new(&engine.executor()));
    let beside = probes::router(engine.default_tenant().core().0);
    #[cfg(feature = "prometheus")]
    let beside = beside.merge(scrape::router(prometheus, api.gate(Role::Read)));
    let served = serve_api(options, api, beside).await;
    // A call that a client has in hand cannot be sealed here any more: its permit counts at the next process.
    engine.shutdown(Duration::ZERO).await;
    served
}

/// Refuses an address at which tokens could be read on their way.
pub(super) fn not_in_the_clear(at: SocketAddr, behind_tls: bool) -> Result<(), String> {
    if at.ip().is_loopback() || behind_tls {
        return Ok(());
    }
    Err(format!(
        "{at} can be reached from elsewhere, and this server speaks no TLS, so that tokens could be read on their way. \
         Put a proxy in front of it that speaks TLS, and say --behind-tls."
    ))
}

/// Refuses an address that others can reach while nobody has a token. A server that is shown to others before anybody can use it
/// is one that somebody has opened by mistake.
async fn not_before_a_token(at: SocketAddr, tokens: &Tokens) -> Done {
    if at.ip().is_loopback() || tokens.is_any_valid().await? {
        return Ok(());
    }
    let words = format!(
        "{at} can be reached from elsewhere, and the ledger has no valid token, so that nobody could use this server. Make a token \
         first, by `counterfoil token create NAME --role ROLE` on the same database."
    );
    Err(words.into())
}

/// Serves the API, and the dashboard and other routes beside it.
async fn serve_api(options: &Options, api: Api, beside: Router) -> Done {
    not_before_a_token(options.listen, &api.tokens()).await?;
    let bound = Bound::at(options.listen).await?;
    let over = api.streams().over.clone();
    let router = Router::new();
    #[cfg(feature = "dashboard")]
    let router = {
        writeln!(io::stdout(), "the dashboard is at http://{}/ui", bound.listener.local_addr()?)?;
        router.nest_service("/ui", api.dashboard().behind_tls(options.behind_tls).router())
    };
    Ok(serve(bound, router.merge(api.router()).merge(beside), options.patience, &over).await?)
}

/// A server that listens at an address, and can be told to end.
pub(super) struct Bound {
    listener: TcpListener,
    end: EndSignals,
}

impl Bound {
    /// Listens at an address, and prints which one it is.
    pub(super) async fn at(listen: SocketAddr) -> io::Result<Self> {
        // The signals come first: whoever reads the address may send one at once, and without a handler it would end the
        // process in the middle of its requests.
        let end = EndSignals::handled()?;
        let listener = TcpListener::bind(listen).await?;
        let mut stdout = io::stdout();
        writeln!(stdout, "listening at http://{}", listener.local_addr()?)?;
        stdout.flush()?;
        Ok(Self { listener, end })
    }
}

/// Serves until the process is told to end. Then `over` ends the streams that would keep the server.
pub(super) async fn serve(
    bound: Bound,
    app: Router,
    patience: Patience,
    over: &CancellationToken,
) -> io::Result<()> {
    let Bound { listener, mut end } = bound;
    let stop = CancellationToken::new();
    let mut serving = tokio::spawn(listen(listener, app, patience, stop.clone()));
    tokio::select! {
        biased;
        ended = &mut serving => return Ok(ended?),
        told = end.received() => told?,
    }
    stop.cancel();
    over.cancel(); // a page that is open somewhere does not keep the server
    // A client that waits for its step does not keep the server.
    tokio::select! {
        biased;
        ended = &mut serving => ended?,
        () = SystemClock.sleep(DRAIN) => serving.abort(),
    }
    Ok(())
}

/// The signals that tell the process to end. From now on they end the process only through `received`.
#[cfg(unix)]
struct EndSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl EndSignals {
    fn handled() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) -> io::Result<()> {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        Ok(())
    }
}

/// The interruption from the keyboard.
#[cfg(not(unix))]
struct EndSignals;

#[cfg(not(unix))]
impl EndSignals {
    #[allow(clippy::unnecessary_wraps, reason = "signals of Unix may fail to be handled")]
    fn handled() -> io::Result<Self> {
        Ok(Self)
    }

    async fn received(&mut self) -> io::Result<()> {
        tokio::signal::ctrl_c().await
    }
}
