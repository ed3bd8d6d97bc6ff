//! `counterfoil evidence`: everything that the ledger knows about a call.

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
}

pub(super) fn run(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let evidence = client.evidence(&options.key).await?;
        let evidence = evidence.ok_or_else(|| format!("this tenant has no call {}", options.key))?;
        Ok(if options.ledger.json {
            shown::json(&evidence)
        } else {
            shown::text(evidence.to_string().trim_end())
        }?)
    })
}
