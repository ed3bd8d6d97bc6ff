//! `counterfoil evidence`: everything that the ledger knows about a call.

#[cfg(feature = "html")]
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::ledger::Ledger;
use super::shown;

/// The call that the evidence is about.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    /// The key of the call, such as `charge:order-9`
    key: String,
    /// Write the evidence to this file, too, as one page of HTML
    #[cfg(feature = "html")]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let evidence = client.evidence(&options.key).await?;
        let evidence = evidence.ok_or_else(|| format!("this tenant has no call {}", options.key))?;
        #[cfg(feature = "html")]
        if let Some(file) = &options.html {
            let failed = |error| format!("the page {} cannot be written: {error}", file.display());
            std::fs::write(file, evidence.html()).map_err(failed)?;
        }
        Ok(if options.ledger.json {
            shown::json(&evidence)
        } else {
            shown::text(evidence.to_string().trim_end())
        }?)
    })
}
