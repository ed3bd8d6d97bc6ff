//! The gateway: it opens the ledger, and serves clients.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rmcp::service::ServiceExt as _;
use tokio::io::{AsyncRead, AsyncWrite};

use super::call::operation;
use super::catalogue::Catalogue;
use super::config::{McpConfig, ServerConfig};
use super::error::McpError;
use super::inner::Inner;
use super::lines::Lines;
use super::progress::Clients;
use super::session::Session;
use super::upstream::{Upstream, Way};
use crate::exec::{Executor, ExecutorBuilder};
use crate::ledger::ContractClass;
use crate::store::chain::ChainKey;

/// A gateway between MCP clients and MCP servers.
#[derive(Clone)]
pub struct McpGateway {
    pub(super) inner: Arc<Inner>,
}

impl std::fmt::Debug for McpGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpGateway").field("ledger", &self.inner.config.ledger).finish_non_exhaustive()
    }
}

/// The error of a key file, whose message ends with a code of its own.
fn unusable(error: &impl ToString) -> McpError {
    McpError::Keys { reason: error.to_string().trim_end_matches(" [configuration]").to_owned() }
}

impl McpGateway {
    /// Opens the ledger that the configuration names. Servers are started when a client asks for them.
    ///
    /// # Errors
    /// [`McpError::Start`] if the ledger was refused, for example because another process has it open; [`McpError::Keys`] if the
    /// file with its keys, or with the secret of its chain of evidence, cannot be read; [`McpError::Server`] if the way
    /// to a server is not known, for example because an environment variable is not set.
    pub async fn open(config: McpConfig) -> Result<Self, McpError> {
        let mut executor = Executor::sqlite(&config.ledger);
        if let Some(chain) = &config.chain {
            executor = executor.evidence_chain(ChainKey::named(chain).map_err(|error| unusable(&error))?);
        }
        #[cfg(feature = "encryption")]
        if let Some(path) = &config.keys {
            let keys = crate::store::encryption::Keyring::read(path);
            executor = executor.encrypted(keys.map_err(|error| unusable(&error))?);
        }
        Self::open_on(config, executor).await
    }

    /// Opens the ledger of this executor instead: a PostgreSQL database, or one with a clock or a crash point of its own.
    ///
    /// # Errors
    /// [`McpError::Start`] if the ledger was refused; [`McpError::Server`] if the way to a server is not known.
    pub async fn open_on(config: McpConfig, executor: ExecutorBuilder) -> Result<Self, McpError> {
        let (clients, catalogue) = (Arc::<Clients>::default(), Arc::<Catalogue>::default());
        let server = |(number, of): (usize, &Arc<ServerConfig>)| -> Result<_, McpError> {
            let way =
                Way::of(&of.section).map_err(|reason| McpError::Server { name: of.name.clone(), reason })?;
            Ok(Arc::new(Upstream::new((number, of.clone()), way, clients.clone(), catalogue.clone())))
        };
        let servers = config.servers.iter().enumerate().map(server).collect::<Result<Vec<_>, McpError>>()?;
        let mut builder = executor;
        for server in &servers {
            let of = &server.config;
            for policy in of.tools.iter().filter(|policy| !policy.passes()) {
                builder = builder.dynamic_tool(operation(policy, server));
            }
        }
        let executor = builder.open().await?;
        meet_earlier(&executor, &servers);
        know_names(&executor, &servers, &catalogue);
        Ok(Self { inner: Arc::new(Inner { config, executor, servers, clients, catalogue }) })
    }

    /// Serves one client until it leaves.
    ///
    /// # Errors
    /// [`McpError::Client`] if the client does not begin as MCP says.
    pub async fn serve(
        &self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), McpError> {
        self.serve_client(&self.inner.config.client, input, output).await
    }

    /// Serves one client of this name until it leaves.
    pub(super) async fn serve_client(
        &self,
        name: &str,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), McpError> {
        let client = |reason: String| McpError::Client { reason };
        let session = Session { inner: self.inner.clone(), client: name.into() };
        let serving = Box::pin(session.serve(Lines::new(input, output))).await;
        let serving = serving.map_err(|error| client(error.to_string()))?;
        serving.waiting().await.map(drop).map_err(|error| client(error.to_string()))
    }

    pub(super) fn config(&self) -> &McpConfig {
        &self.inner.config
    }

    /// The executor of the gateway, for its questions and approvals.
    pub fn executor(&self) -> &Executor {
        &self.inner.executor
    }

    /// Stops the servers, waits at most `drain` for calls in flight, and closes the ledger.
    pub async fn shutdown(self, drain: Duration) {
        self.inner.executor.clone().shutdown(drain).await;
        join_all(self.inner.servers.iter().map(|server| server.close())).await;
    }
}

/// Makes the tools known that were called by an earlier process and have no section in the file: what became of their calls is found
/// out before a server has listed them.
fn meet_earlier(executor: &Executor, servers: &[Arc<Upstream>]) {
    for declared in executor.core().declared() {
        let Some((name, tool)) = declared.tool.split_once('/') else { continue };
        let Some(server) = servers.iter().find(|server| server.name() == name) else { continue };
        let policy = server.config.policy(tool, declared.class == ContractClass::Idempotent);
        if !policy.is_written
            && let Err(error) = executor.meet_dynamic(operation(&policy, server))
        {
            tracing::warn!(server = name, tool, %error, "MCP tool of an earlier process not known");
        }
    }
}

/// Makes the names of the tools known that have a section in the file, or were called by an earlier process: while their server is down,
/// such a name must not be that of another server's tool.
fn know_names(executor: &Executor, servers: &[Arc<Upstream>], catalogue: &Catalogue) {
    let declared = executor.core().declared();
    for server in servers {
        let called = declared
            .iter()
            .filter_map(|declared| declared.tool.split_once('/'))
            .filter(|(name, _)| *name == server.name())
            .map(|(_, tool)| tool.to_owned());
        let written = server.config.tools.iter().map(|policy| policy.tool.clone());
        catalogue.know(server.number, server.name(), written.chain(called));
    }
}
