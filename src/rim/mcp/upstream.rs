//! A server behind the gateway: started when it is needed, and again when it has died.

use std::sync::Arc;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientNotification, ClientRequest,
    ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, RunningService, ServiceExt as _};
use rmcp::transport::TokioChildProcess;
use rmcp::{ErrorData, ServiceError};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::catalogue::Catalogue;
use super::config::ServerConfig;
use super::progress::{Clients, Heard};
use super::server::FromServer;
use crate::clock::{Clock as _, SystemClock};

/// A server behind the gateway.
pub(super) struct Upstream {
    pub(super) config: Arc<ServerConfig>,
    pub(super) clients: Arc<Clients>,
    pub(super) catalogue: Arc<Catalogue>,
    running: Mutex<Option<RunningService<RoleClient, FromServer>>>,
}

/// The reason why a request has no answer.
pub(super) enum Unanswered {
    /// The server could not be started. The request was not sent.
    NotReady(String),
    /// The request was, or may have been, sent.
    Service(ServiceError),
    /// The client has cancelled its request.
    Cancelled,
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
        }
    }
}

impl Upstream {
    pub(super) fn new(config: Arc<ServerConfig>, clients: Arc<Clients>, catalogue: Arc<Catalogue>) -> Self {
        Self { config, clients, catalogue, running: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// The server, ready. It is started if it is not running.
    pub(super) async fn peer(&self) -> Result<Peer<RoleClient>, Unanswered> {
        let mut running = self.running.lock().await;
        if let Some(running) = running.as_ref().filter(|running| !running.is_transport_closed()) {
            return Ok(running.peer().clone());
        }
        *running = None;
        let limit = self.config.ready_within;
        let started = tokio::select! {
            biased;
            started = self.start() => started,
            () = SystemClock.sleep(limit) => Err(format!("it was not ready within {} s", limit.as_secs())),
        };
        let started = started.map_err(|why| {
            tracing::warn!(server = self.name(), why, "MCP server not ready");
            Unanswered::NotReady(format!("the server {:?} is not ready: {why}", self.name()))
        })?;
        tracing::info!(server = self.name(), "MCP server ready");
        Ok(running.insert(started).peer().clone())
    }

    async fn start(&self) -> Result<RunningService<RoleClient, FromServer>, String> {
        let handler = FromServer {
            server: self.name().to_owned(),
            clients: self.clients.clone(),
            catalogue: self.catalogue.clone(),
            capabilities: self.capabilities(),
        };
        let section = &self.config.section;
        let program = section.command.as_deref().unwrap_or_default();
        let mut command = Command::new(program);
        command.args(section.args.iter().flatten()).envs(section.env.iter().flatten());
        let child = TokioChildProcess::new(command).map_err(|error| format!("{program:?}: {error}"))?;
        handler.serve(child).await.map_err(|error| error.to_string())
    }

    /// What the client behind the gateway can do for a server.
    fn capabilities(&self) -> ClientCapabilities {
        let client = self.clients.latest().and_then(|client| client.peer_info());
        client.map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// Sends one request, once.
    pub(super) async fn request(
        &self,
        request: ClientRequest,
        heard: Heard,
        cancelled: &CancellationToken,
    ) -> Result<ServerResult, Unanswered> {
        let peer = self.peer().await?;
        let sent = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await;
        let handle = sent.map_err(Unanswered::Service)?;
        let id = handle.id.clone();
        let _heard = self.clients.hear(self.name(), handle.progress_token.clone(), heard);
        tokio::select! {
            biased;
            answer = handle.await_response() => answer.map_err(Unanswered::Service),
            () = cancelled.cancelled() => {
                let params = CancelledNotificationParam::new(Some(id), None);
                let notification = ClientNotification::from(CancelledNotification::new(params));
                drop(peer.send_notification(notification).await); // the server may have ended meanwhile
                Err(Unanswered::Cancelled)
            }
        }
    }

    pub(super) async fn close(&self) {
        if let Some(mut running) = self.running.lock().await.take() {
            drop(running.close().await); // it ends in any case
        }
    }
}
