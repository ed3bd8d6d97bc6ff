//! The configuration of a gateway: the file, read and checked, with its defaults filled in.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::check::{Check, checked_window};
use super::error::McpError;
use super::file::{GatewayFile, Hint, ServerSection};
use super::policy::{ToolPolicy, Usual, trusts};
use crate::id::Tenant;
use crate::ledger::ContractClass;
use crate::payload::hex;
use crate::rim::policy::read::read;
use crate::rim::policy::span::Span;

/// The configuration of a gateway, read from its file.
#[derive(Clone, Debug)]
pub struct McpConfig {
    pub(super) ledger: PathBuf,
    /// The file with the keys of an encrypted ledger.
    pub(super) keys: Option<PathBuf>,
    /// The file with the secret of a chain of evidence, or `none`.
    pub(super) chain: Option<String>,
    pub(super) client: String,
    pub(super) tenant: Tenant,
    pub(super) servers: Vec<Arc<ServerConfig>>,
    /// The SHA-256 of all that is said but the client's name: two processes with the same one may be one gateway.
    pub(super) digest: String,
}

/// A server, with the policies of its tools.
#[derive(Clone, Debug)]
pub(super) struct ServerConfig {
    pub(super) name: String,
    pub(super) section: ServerSection,
    pub(super) ready_within: Duration,
    pub(super) tools: Vec<Arc<ToolPolicy>>,
    /// The time within which the same call is one operation, for tools that have no section.
    pub(super) window: Duration,
}

impl ServerConfig {
    /// The policy of a tool. A call of one without a section is recorded. When its outcome is unknown a person is asked, unless the
    /// server claims that the tool is idempotent, and is believed.
    pub(super) fn policy(&self, tool: &str, claims_idempotent: bool) -> Arc<ToolPolicy> {
        if let Some(written) = self.tools.iter().find(|policy| policy.tool == tool) {
            return written.clone();
        }
        let is_idempotent = claims_idempotent && trusts(self.section.trust.as_ref(), Hint::Idempotent);
        let class = if is_idempotent { ContractClass::Idempotent } else { ContractClass::Blind };
        Arc::new(ToolPolicy::usual((&self.name, tool), class, self.window))
    }
}

impl McpConfig {
    /// Reads a configuration from the bytes of its file: UTF-8, YAML, at most 256 KiB.
    ///
    /// # Errors
    /// [`McpError::Config`] if a field is unknown, missing or unsafe, with the line, the column and what to write instead.
    ///
    /// ```
    /// use counterfoil::mcp::{McpConfig, McpError};
    /// let file = "ledger: calls.db\nservers:\n  notes:\n    comand: notes-server\n";
    /// let Err(McpError::Config(findings)) = McpConfig::parse(file) else { panic!() };
    /// assert_eq!((findings[0].line, findings[0].instead.as_str()), (4, "`command`"));
    /// ```
    pub fn parse(file: impl AsRef<[u8]>) -> Result<Self, McpError> {
        let (file, places): (GatewayFile, _) =
            read(file.as_ref()).map_err(|finding| McpError::Config(vec![finding]))?;
        let mut check = Check::new(places);
        let config = config(&mut check, &file);
        let findings = check.into_findings();
        if findings.is_empty() { Ok(config) } else { Err(McpError::Config(findings)) }
    }

    /// The file of the ledger.
    pub fn ledger(&self) -> &std::path::Path {
        &self.ledger
    }

    /// The tenant that owns the operations.
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

/// The time within which the same call is one operation.
const WINDOW: Duration = Duration::from_mins(10);
const READY_WITHIN: Duration = Duration::from_secs(30);

fn config(check: &mut Check, file: &GatewayFile) -> McpConfig {
    let ledger = file.ledger.clone().unwrap_or_default();
    if ledger.is_empty() {
        check.finding("ledger", "there is no ledger to record calls in", "`ledger: calls.db`");
    }
    let client = file.client.clone().unwrap_or_else(|| "client".to_owned());
    if client.is_empty() || client.len() > 64 || client.chars().any(char::is_control) {
        check.finding(
            "client",
            "the name of the client is empty, too long or unprintable",
            "`client: claude`",
        );
    }
    let tenant = file.tenant.as_ref().map_or_else(|| Ok(Tenant::default()), Tenant::new);
    let tenant = tenant.unwrap_or_else(|error| {
        check.finding("tenant", &error.to_string(), "`tenant: acme`");
        Tenant::default()
    });
    let window = checked_window(check, "window", file.window.map_or(WINDOW, Span::duration));
    let sections = file.servers.iter().flatten();
    let servers: Vec<_> = sections
        .map(|(name, section)| {
            Arc::new(server(check, name.as_str(), section, Usual { client: &client, window }))
        })
        .collect();
    if servers.is_empty() {
        check.finding("servers", "there is no server", "`servers: { notes: { command: notes-server } }`");
    }
    let keys = file.keys.as_ref().map(PathBuf::from);
    #[cfg(not(feature = "encryption"))]
    if keys.is_some() {
        check.finding("keys", "this build knows no encryption", "a build with the feature `encryption`");
    }
    McpConfig {
        ledger: ledger.into(),
        keys,
        chain: file.chain.clone(),
        client,
        tenant,
        servers,
        digest: digest(file),
    }
}

fn server(check: &mut Check, name: &str, section: &ServerSection, usual: Usual<'_>) -> ServerConfig {
    let path = format!("servers.{name}");
    way(check, &path, section);
    let window = section.window.map_or(usual.window, Span::duration);
    let window = checked_window(check, &format!("{path}.window"), window);
    let usual = Usual { window, ..usual };
    let sections = section.tools.iter().flatten();
    let tools = sections
        .map(|(tool, section)| Arc::new(ToolPolicy::of(check, (name, tool), section, usual)))
        .collect();
    ServerConfig {
        name: name.to_owned(),
        section: section.clone(),
        ready_within: section.ready_within.map_or(READY_WITHIN, Span::duration),
        tools,
        window,
    }
}

/// Checks that a server is a program or a URL.
fn way(check: &mut Check, path: &str, section: &ServerSection) {
    match (&section.command, &section.url) {
        (Some(command), None) if !command.is_empty() => {
            if section.headers.is_some() {
                let why = "headers belong to requests to a URL, and this server is a program";
                check.finding(&format!("{path}.headers"), why, "`env`");
            }
        }
        (None, Some(url)) => {
            let is_http = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
            if !is_http {
                check.finding(
                    &format!("{path}.url"),
                    "this is no URL of HTTP",
                    "`url: http://localhost:8080/mcp`",
                );
            }
            if section.args.is_some() || section.env.is_some() {
                check.finding(path, "a URL has no arguments and no environment", "`headers`");
            }
        }
        (Some(_), Some(_)) => {
            check.finding(path, "a server is a program or a URL, and not both", "`command` or `url`");
        }
        _ => {
            let instead = "`command: notes-server`, or `url: http://localhost:8080/mcp`";
            check.finding(path, "a server is a program or a URL, and this one names neither", instead);
        }
    }
    #[cfg(feature = "mcp-http")]
    if let Err(why) = super::remote::headers(section, |_| Some("x".to_owned())) {
        check.finding(&format!("{path}.headers"), &why, "`Authorization: Bearer ${NOTES_TOKEN}`");
    }
}

fn digest(file: &GatewayFile) -> String {
    // Its paths may be spelled in several ways, and the socket is the file's in any case.
    let said = GatewayFile { client: None, ledger: None, keys: None, chain: None, ..file.clone() };
    hex(&Sha256::digest(serde_json::to_vec(&said).unwrap_or_default()))
}
