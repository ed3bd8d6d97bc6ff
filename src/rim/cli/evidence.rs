//! `counterfoil evidence`: everything that the ledger knows about a call, and if its rows are as they were written.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::ledger::{Done, Ledger, block_on};
use super::shown;
use crate::clock::{Clock as _, SystemClock};
use crate::exec::Evidence;
use crate::flow::TenantClient;
use crate::ledger::OperationKey;
use crate::store::chain::{Anchor, ChainReport, Scope, verify};

/// The call that the evidence is about.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    /// The key of the call, such as `charge:order-9`
    #[arg(required_unless_present = "verify")]
    key: Option<String>,
    /// Compare the rows with the chain of evidence: those of the call, or of the whole ledger if no key is given
    #[arg(long)]
    verify: bool,
    /// The JSON that an earlier verification printed: its links must still be there
    #[arg(long, value_name = "FILE", requires = "verify")]
    anchor: Option<PathBuf>,
    /// Write the evidence to this file, too, as one page of HTML
    #[cfg(feature = "html")]
    #[arg(long, value_name = "FILE", requires = "key")]
    html: Option<PathBuf>,
}

/// The evidence of a call, and the verification of its rows.
#[derive(Serialize)]
struct Verified<'v> {
    #[serde(flatten)]
    evidence: &'v Evidence,
    chain: &'v ChainReport,
}

/// The exit code is 1 if a row is not as it was written.
pub(super) fn run(options: &Options) -> ExitCode {
    let mut is_whole = true;
    let done = match &options.key {
        Some(key) => options.ledger.run(async |client| {
            is_whole = of_call(options, client, key).await?;
            Ok(())
        }),
        None => block_on(async {
            let report = verified(options, Scope::Ledger).await?;
            is_whole = report.is_whole();
            show(options, &report, &report.to_string())
        }),
    };
    if is_whole { done } else { ExitCode::FAILURE }
}

/// Shows the evidence of a call. Returns false if a row is not as it was written.
async fn of_call(
    options: &Options,
    client: TenantClient,
    key: &str,
) -> Result<bool, Box<dyn std::error::Error>> {
    let evidence = client.evidence(key).await?.ok_or_else(|| format!("this tenant has no call {key}"))?;
    #[cfg(feature = "html")]
    if let Some(file) = &options.html {
        let failed = |error| format!("the page {} cannot be written: {error}", file.display());
        std::fs::write(file, evidence.html()).map_err(failed)?;
    }
    if !options.verify {
        show(options, &evidence, &evidence.to_string())?;
        return Ok(true);
    }
    let report = verified(options, Scope::Call(&evidence.tenant, OperationKey::stored(key))).await?;
    let text = format!("{}\n{report}", evidence.to_string().trim_end());
    show(options, &Verified { evidence: &evidence, chain: &report }, &text)?;
    Ok(report.is_whole())
}

fn show(options: &Options, json: &impl Serialize, text: &str) -> Done {
    Ok(if options.ledger.json { shown::json(json) } else { shown::text(text.trim_end()) }?)
}

/// Verifies rows of the database, which is opened only for reading: without the secret, too.
async fn verified(options: &Options, scope: Scope<'_>) -> Result<ChainReport, Box<dyn std::error::Error>> {
    let anchor = options.anchor.as_ref().map(Anchor::read).transpose()?;
    let parts = options.ledger.database.executor()?.for_examination().open_store().await?;
    let (store, now) = (parts.group.store(), SystemClock.now());
    let report = verify(&**store, &parts.chain, anchor.as_ref(), scope, now).await?;
    Ok(report.ok_or("the ledger has no chain of evidence: see docs/evidence.md")?)
}
