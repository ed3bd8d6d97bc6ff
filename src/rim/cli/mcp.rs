//! `counterfoil mcp`: a gateway between an MCP client and its servers, on standard input and output.

#[cfg(feature = "mcp-http")]
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
#[cfg(feature = "mcp-http")]
use std::time::Duration;

use clap::Args;
#[cfg(feature = "mcp-http")]
use tokio_util::sync::CancellationToken;

use crate::rim::mcp::{McpConfig, McpGateway};

/// The time for calls in flight when the program is told to end.
#[cfg(feature = "mcp-http")]
const DRAIN: Duration = Duration::from_secs(10);

/// The configuration of the gateway.
#[derive(Args)]
pub(super) struct Options {
    /// The configuration file, as YAML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Checks the configuration, and serves nobody
    #[arg(long)]
    check: bool,
    #[cfg(feature = "mcp-http")]
    #[command(flatten)]
    http: Http,
}

/// The address of a gateway that serves clients over streamable HTTP.
#[cfg(feature = "mcp-http")]
#[derive(Args)]
struct Http {
    /// Serves clients with bearer tokens at this address, in place of one on standard input
    #[arg(long, conflicts_with = "check")]
    listen: Option<SocketAddr>,
    /// A proxy in front of this server speaks TLS; without it, only a loopback address is listened at
    #[arg(long, requires = "listen")]
    behind_tls: bool,
    /// A name under which clients reach the gateway, besides those of the machine itself; may be repeated
    #[arg(long, requires = "listen", value_name = "NAME")]
    host: Vec<String>,
    #[command(flatten)]
    patience: super::listen::Patience,
}

pub(super) fn run(options: &Options) -> ExitCode {
    match served(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", options.config.display());
            ExitCode::FAILURE
        }
    }
}

fn served(options: &Options) -> Result<(), String> {
    let file = std::fs::read(&options.config).map_err(|error| error.to_string())?;
    let config = McpConfig::parse(file).map_err(|error| error.to_string())?;
    if options.check {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let serving = runtime.block_on(async {
        #[cfg(feature = "mcp-http")]
        if let Some(listen) = options.http.listen {
            return at_an_address(config, listen, &options.http).await;
        }
        let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
        McpGateway::serve_together(config, input, output).await.map_err(|error| error.to_string())
    });
    runtime.shutdown_background(); // a read of standard input cannot be cut off
    serving
}

#[cfg(feature = "mcp-http")]
async fn at_an_address(config: McpConfig, listen: SocketAddr, options: &Http) -> Result<(), String> {
    super::serve::not_in_the_clear(listen, options.behind_tls)?;
    let gateway = McpGateway::open(config).await.map_err(|error| error.to_string())?;
    let others = gateway.accept_others().map_err(|error| error.to_string())?;
    let hosts: Vec<&str> = options.host.iter().map(String::as_str).collect();
    let served = async {
        let bound = super::serve::Bound::at(listen).await?;
        let over = CancellationToken::new();
        super::serve::serve(bound, gateway.router(&hosts), options.patience, &over).await
    };
    let served = served.await;
    drop(others);
    gateway.shutdown(DRAIN).await;
    served.map_err(|error| error.to_string())
}
