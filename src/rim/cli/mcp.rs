//! `counterfoil mcp`: a gateway between an MCP client and its servers, on standard input and output.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::rim::mcp::{McpConfig, McpGateway};

/// The time for calls in flight when the client has left.
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
        let gateway = McpGateway::open(config).await.map_err(|error| error.to_string())?;
        let served = gateway.serve(tokio::io::stdin(), tokio::io::stdout()).await;
        gateway.shutdown(DRAIN).await;
        served.map_err(|error| error.to_string())
    });
    runtime.shutdown_background(); // a read of standard input cannot be cut off
    serving
}
