//! A server behind the gateway: started when it is needed, and again when it has died.

#[cfg(feature = "mcp-http")]
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientCapabilities, ClientRequest, ServerResult};
#[cfg(feature = "mcp-http")]
use rmcp::service::ClientInitializeError;
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, RunningService, ServiceExt as _};
use rmcp::transport::TokioChildProcess;
use rmcp::{ErrorData, ServiceError};
use tokio::process::Command;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::catalogue::Catalogue;
use super::config::ServerConfig;
use super::file::ServerSection;
use super::open::{Open, Ready, Requests};
use super::progress::{Clients, Heard};
use super::remembered::Remembered;
#[cfg(feature = "mcp-http")]
use super::remote::goes_on;
use super::server::FromServer;
use crate::clock::{Boot, Clock as _, SystemClock};

/// The time for which a server that could not be started, or does not list its tools, is left alone, unless one of its tools is
/// called.
const REST: Duration = Duration::from_secs(5);

/// A server behind the gateway.
pub(super) struct Upstream {
    /// The position of the server in the configuration.
    pub(super) number: usize,
    pub(super) config: Arc<ServerConfig>,
    way: Way,
    clients: Arc<Clients>,
    catalogue: Arc<Catalogue>,
    /// The settings of the clients, which the server is told again when it is started anew.
    pub(super) remembered: Remembered,
    requests: Arc<Requests>,
    state: Mutex<State>,
}

/// The way to a server.
pub(super) enum Way {
    /// A program that is started.
    Program,
    /// A URL, and the headers of each request.
    #[cfg(feature = "mcp-http")]
    Url(String, HashMap<http::HeaderName, http::HeaderValue>),
}

impl Way {
    /// The way that a section names, with secrets from the environment.
    pub(super) fn of(section: &ServerSection) -> Result<Self, String> {
        match &section.url {
            None => Ok(Self::Program),
            #[cfg(feature = "mcp-http")]
            Some(url) => {
                let headers = super::remote::headers(section, |name| std::env::var(name).ok())?;
                Ok(Self::Url(url.clone(), headers))
            }
            #[cfg(not(feature = "mcp-http"))]
            Some(_) => Err("this program is built without the feature `mcp-http`".to_owned()),
        }
    }
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// The reading of the clock at which the server could not be started last, or did not list its tools, and the reason.
    failed: Option<(Boot, String)>,
}

/// True if the server takes requests after one that could not be sent to its end. A program that reads nothing more has ended.
#[cfg(not(feature = "mcp-http"))]
const fn goes_on(_: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    false
}

type Running = RunningService<RoleClient, FromServer>;

/// The reason why a request has no answer.
pub(super) enum Unanswered {
    /// The server could not be started. The request was not sent.
    NotReady(String),
    /// The request was, or may have been, sent.
    Service(ServiceError),
    /// The client has cancelled its request.
    Cancelled,
    /// The server has given no sign of progress for so long.
    Silent(Duration),
}

impl Unanswered {
    /// The error as the client is told of it.
    pub(super) fn into_error(self) -> ErrorData {
        match self {
            Self::Service(ServiceError::McpError(error)) => error,
            other => ErrorData::internal_error(other.to_string(), None),
        }
    }
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotReady(why) => f.write_str(why),
            Self::Service(error) => write!(f, "the server has not answered: {error}"),
            Self::Cancelled => f.write_str("the request was cancelled"),
            Self::Silent(limit) => {
                write!(f, "the server has not answered within {limit:?}, and the request was withdrawn")
            }
        }
    }
}

impl Upstream {
    /// The server at this position of the configuration.
    pub(super) fn new(
        (number, config): (usize, Arc<ServerConfig>),
        way: Way,
        clients: Arc<Clients>,
        catalogue: Arc<Catalogue>,
    ) -> Self {
        let (remembered, requests, state) = (Remembered::default(), Arc::default(), Mutex::default());
        Self { number, config, way, clients, catalogue, remembered, requests, state }
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// The server, ready. It is started if it is not running.
    async fn ready(&self) -> Result<Ready, Unanswered> {
        self.ready_in(&mut *self.state.lock().await).await
    }

    /// The server, ready. One that has failed a moment ago is left alone.
    pub(super) async fn peer_unless_down(&self) -> Option<Peer<RoleClient>> {
        let mut state = self.state.lock().await;
        let rests = |(at, _): &(Boot, String)| at.until(SystemClock.boot()) < REST;
        if state.failed.as_ref().is_some_and(rests) {
            return None;
        }
        self.ready_in(&mut state).await.ok().map(|ready| ready.peer)
    }

    async fn ready_in(&self, state: &mut State) -> Result<Ready, Unanswered> {
        let lives = |running: &&Running| !running.is_closed() && !running.is_transport_closed();
        if let Some(running) = state.running.as_ref().filter(lives) {
            return Ok(self.ready_of(running));
        }
        *state = State::default();
        let started = self.in_time(Box::pin(self.start())).await.map_err(|why| {
            tracing::warn!(server = self.name(), why, "MCP server not ready");
            let why = format!("the server {:?} is not ready: {why}", self.name());
            state.failed = Some((SystemClock.boot(), why.clone()));
            Unanswered::NotReady(why)
        })?;
        tracing::info!(server = self.name(), "MCP server ready");
        if self.catalogue.knows(self.number) {
            // It may be another version now: with its old schemas, calls that differ could count as one.
            self.catalogue.forget(self.number);
            self.clients.tell_of_changed_lists();
        }
        Box::pin(self.remind(started.peer())).await;
        Ok(self.ready_of(state.running.insert(started)))
    }

    fn ready_of(&self, running: &Running) -> Ready {
        let (peer, end) = (running.peer().clone(), running.cancellation_token());
        Ready { config: self.config.clone(), peer, end, requests: self.requests.clone() }
    }

    /// Tells a server that was started anew what the clients had set at it. One that does not take it is used all the same.
    async fn remind(&self, peer: &Peer<RoleClient>) {
        let logs = peer.peer_info().is_some_and(|info| info.capabilities.logging.is_some());
        let told = async {
            for request in self.remembered.requests(logs) {
                if let Err(error) = peer.send_request(request).await {
                    tracing::warn!(server = self.name(), why = %error, "MCP server did not take a setting again");
                }
            }
            Ok(())
        };
        if let Err(why) = self.in_time(told).await {
            tracing::warn!(server = self.name(), why, "MCP server did not take a setting again");
        }
    }

    /// What the server does within the time in which it must be ready.
    pub(super) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let limit = self.config.ready_within;
        tokio::select! {
            biased;
            done = work => done,
            () = SystemClock.sleep(limit) => Err(format!("it has not answered within {} s", limit.as_secs())),
        }
    }

    /// The server, if it is ready and has resources.
    pub(super) async fn with_resources(&self) -> Option<Peer<RoleClient>> {
        let peer = self.peer_unless_down().await?;
        peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some()).then_some(peer)
    }

    /// Leaves the server alone for a while, unless one of its tools is called. If it hangs, it is ended.
    pub(super) async fn rest(&self, why: String) {
        let mut state = self.state.lock().await;
        state.failed = Some((SystemClock.boot(), why));
        if let Some(running) = &state.running {
            drop(tokio::spawn(self.ready_of(running).check(None)));
        }
    }

    /// The reason for which the server is left alone, if it is.
    pub(super) async fn failure(&self) -> Option<String> {
        self.state.lock().await.failed.as_ref().map(|(_, why)| why.clone())
    }

    async fn start(&self) -> Result<Running, String> {
        let handler = FromServer {
            server: self.name().to_owned(),
            number: self.number,
            clients: self.clients.clone(),
            catalogue: self.catalogue.clone(),
            capabilities: self.capabilities(),
            requests: self.requests.clone(),
        };
        let started = match &self.way {
            Way::Program => handler.serve(self.program()?).await,
            #[cfg(feature = "mcp-http")]
            Way::Url(url, headers) => {
                let transport = super::remote::transport(url, headers.clone());
                handler.serve(transport.map_err(|error| error.to_string())?).await
            }
        };
        started.map_err(|error| match &error {
            #[cfg(feature = "mcp-http")]
            ClientInitializeError::TransportError { error, .. } => super::remote::in_full(&*error.error),
            _ => crate::tool::in_full(&error),
        })
    }

    fn program(&self) -> Result<TokioChildProcess, String> {
        let section = &self.config.section;
        let program = section.command.as_deref().unwrap_or_default();
        let mut command = Command::new(program);
        command.args(section.args.iter().flatten()).envs(section.env.iter().flatten());
        TokioChildProcess::new(command).map_err(|error| format!("{program:?}: {error}"))
    }

    /// What the client behind the gateway can do for a server.
    fn capabilities(&self) -> ClientCapabilities {
        let client = self.clients.latest().and_then(|client| client.peer_info());
        client.map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// Sends one request, once. Where the future is dropped before the answer has come, the request is withdrawn.
    pub(super) async fn request(
        &self,
        request: ClientRequest,
        heard: Heard,
        cancelled: &CancellationToken,
    ) -> Result<ServerResult, Unanswered> {
        let ready = self.ready().await?;
        let sent = ready.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let handle = sent.map_err(Unanswered::Service)?;
        let mut open = Open::of(ready, handle.id.clone());
        let (limit, progress) = (heard.limit, heard.progress.clone());
        let _heard = self.clients.hear(self.name(), handle.progress_token.clone(), heard);
        let answer = tokio::select! {
            biased;
            answer = handle.await_response() => answer,
            () = cancelled.cancelled() => return Err(Unanswered::Cancelled),
            limit = silence(limit, &progress) => return Err(Unanswered::Silent(limit)),
        };
        let ready = open.answered();
        if let Err(ServiceError::TransportSend(error)) = &answer
            && !goes_on(&*error.error)
            && let Some(ready) = ready
        {
            ready.end.cancel(); // it takes no more requests: the next one starts it anew
        }
        answer.map_err(Unanswered::Service)
    }

    pub(super) async fn close(&self) {
        if let Some(mut running) = self.state.lock().await.running.take() {
            drop(running.close().await); // it ends in any case
        }
    }
}

/// Waits until there was no sign of progress for as long as the limit says: for ever without a limit. Returns the limit.
async fn silence(limit: Option<Duration>, progress: &Notify) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        tokio::select! {
            biased;
            () = progress.notified() => {}
            () = SystemClock.sleep(limit) => return limit,
        }
    }
}
