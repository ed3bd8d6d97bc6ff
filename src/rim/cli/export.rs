//! `counterfoil export`: runs as lines of JSON, for an archive or another system.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Done, Ledger};
use super::runs::PAGE;
use super::shown;
use crate::flow::{RunStatus, TenantClient};
use crate::id::RunId;
use crate::rim::run_filter::RunConditions;

/// The schema of the lines.
const SCHEMA: &str = include_str!("../../../docs/export.schema.json");

/// The runs to be exported.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    /// The run; without it, all runs of the tenant that the conditions name
    #[arg(conflicts_with_all = ["state", "workflow", "key", "label", "since", "before", "newest_first"])]
    run: Option<RunId>,
    #[command(flatten)]
    conditions: RunConditions,
    /// Print the JSON Schema of the lines, and nothing else
    #[arg(long)]
    json_schema: bool,
}

/// Prints runs as lines of JSON: each run, its turns, and the evidence of each of its calls.
pub(super) fn run(options: &Options) -> ExitCode {
    if options.json_schema {
        return match shown::text(SCHEMA.trim_end()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE, // whoever reads it has left
        };
    }
    options.ledger.run(async |client| match options.run {
        Some(run) => one(&client, client.handle::<Value>(run).status().await?).await,
        None => all(options, &client).await,
    })
}

async fn all(options: &Options, client: &TenantClient) -> Done {
    let (filter, mut after) = (options.conditions.filter(), None);
    loop {
        let page = client.list_runs(&filter, after.as_ref(), PAGE).await?;
        for run in page.runs {
            one(client, run).await?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn one(client: &TenantClient, run: RunStatus) -> Done {
    let handle = client.handle::<Value>(run.id);
    shown::json(&json!({ "run": run }))?;
    for turn in handle.turns(None, usize::MAX).await? {
        shown::json(&json!({ "turn": turn }))?;
        for call in &turn.calls {
            let evidence = client.evidence(&call.key.to_string()).await?;
            evidence.map_or(Ok(()), |evidence| shown::json(&json!({ "evidence": evidence })))?;
        }
    }
    Ok(())
}
