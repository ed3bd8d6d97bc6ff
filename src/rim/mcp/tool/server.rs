//! An MCP server whose tools a workflow calls. It is spoken to as the gateway speaks to its servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{McpToolBuilder, McpToolError};
use crate::rim::mcp::config::ServerConfig;
use crate::rim::mcp::file::ServerSection;
use crate::rim::mcp::upstream::{Upstream, Way};

/// The time within which a server must be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// An MCP server: a program, or a URL. A clone is the same server.
///
/// The server is started at the first call that needs it, and again when it has died. It has no client that it could ask:
/// sampling, elicitation and roots are answered with an error.
#[derive(Clone)]
pub struct McpServer(pub(super) Arc<Upstream>);

/// The declaration of an [`McpServer`].
#[derive(Clone)]
#[must_use]
pub struct McpServerBuilder {
    name: Option<String>,
    section: ServerSection,
    ready_within: Duration,
    #[cfg(feature = "mcp-http")]
    secrets: Vec<(String, crate::payload::Secret<String>)>,
}

impl McpServer {
    /// A server that is a program, which speaks MCP on its standard input and output.
    pub fn program(command: impl Into<String>) -> McpServerBuilder {
        McpServerBuilder::of(ServerSection { command: Some(command.into()), ..ServerSection::default() })
    }

    /// A server at a URL, which speaks MCP over streamable HTTP. Each request goes out once: no redirect is followed.
    #[cfg(feature = "mcp-http")]
    pub fn url(url: impl Into<String>) -> McpServerBuilder {
        McpServerBuilder::of(ServerSection { url: Some(url.into()), ..ServerSection::default() })
    }

    /// The declaration of one of the server's tools.
    pub fn tool(&self, name: impl Into<String>) -> McpToolBuilder {
        McpToolBuilder::new(self.clone(), name.into())
    }

    /// Stops the server. A later call starts it again.
    pub async fn shutdown(&self) {
        self.0.close().await;
    }
}

impl McpServerBuilder {
    fn of(section: ServerSection) -> Self {
        Self {
            name: None,
            section,
            ready_within: READY_WITHIN,
            #[cfg(feature = "mcp-http")]
            secrets: Vec::new(),
        }
    }

    /// Sets the name of the server in the log and in errors. Default: its program or its URL.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds arguments of the program.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.section.args.get_or_insert_default().extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable of the program, besides those of the engine.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.section.env.get_or_insert_with(BTreeMap::new).insert(name.into(), value.into());
        self
    }

    /// Adds a header of each request to the URL, such as `authorization`. It is neither logged nor recorded.
    #[cfg(feature = "mcp-http")]
    pub fn secret_header(mut self, name: impl Into<String>, value: crate::payload::Secret<String>) -> Self {
        self.secrets.push((name.into(), value));
        self
    }

    /// Sets the time within which the server must be ready. Default: 30 s. A call to a server that is not ready was
    /// certainly not sent.
    pub fn ready_within(mut self, ready_within: Duration) -> Self {
        self.ready_within = ready_within;
        self
    }

    /// Checks the declaration. The server is not started before the first call.
    ///
    /// # Errors
    /// [`McpToolError`] if the program has no name, the URL is none of HTTP, or a header is malformed.
    pub fn build(self) -> Result<McpServer, McpToolError> {
        let place = self.section.command.as_ref().or(self.section.url.as_ref()).cloned().unwrap_or_default();
        if place.is_empty() {
            return Err(McpToolError::Name { part: "program" });
        }
        let way = self.way()?;
        let name = self.name.unwrap_or(place);
        let config = ServerConfig {
            name,
            section: self.section,
            ready_within: self.ready_within,
            tools: Vec::new(),
            window: Duration::ZERO,
        };
        let upstream = Upstream::new((0, Arc::new(config)), way, Arc::default(), Arc::default());
        Ok(McpServer(Arc::new(upstream)))
    }

    #[cfg(not(feature = "mcp-http"))]
    #[allow(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        reason = "a URL may be wrong, and there is none without the feature"
    )]
    const fn way(&self) -> Result<Way, McpToolError> {
        Ok(Way::Program)
    }

    #[cfg(feature = "mcp-http")]
    fn way(&self) -> Result<Way, McpToolError> {
        let Some(url) = &self.section.url else { return Ok(Way::Program) };
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(McpToolError::Header { detail: format!("{url:?} is no URL of HTTP") });
        }
        let headers = self.secrets.iter().map(|(name, secret)| {
            let wrong = || McpToolError::Header { detail: format!("{name:?} is no header that HTTP allows") };
            let value = secret.expose().and_then(|value| value.parse::<http::HeaderValue>().ok());
            let mut value = value.ok_or_else(wrong)?;
            value.set_sensitive(true);
            Ok((name.parse::<http::HeaderName>().map_err(|_| wrong())?, value))
        });
        Ok(Way::Url(url.clone(), headers.collect::<Result<_, _>>()?))
    }
}

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("McpServer").field(&self.0.name()).finish()
    }
}

impl std::fmt::Debug for McpServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServerBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
