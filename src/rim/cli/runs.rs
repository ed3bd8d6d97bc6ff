//! `counterfoil runs`: the runs of a tenant. `counterfoil run`: one of them.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Done, Ledger};
use super::shown;
use crate::clock::{Clock as _, SystemClock};
use crate::flow::{PastTurn, RunCursor, RunError, RunStatus, TenantClient};
use crate::id::RunId;
use crate::rim::run_filter::RunConditions;

/// The runs to be listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    #[command(flatten)]
    conditions: RunConditions,
    /// Only runs behind this one
    #[arg(long)]
    after: Option<RunId>,
    /// The greatest number of runs
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// Show the list again whenever it changes, until Ctrl-C; with --json, a line for each run that has changed
    #[arg(long)]
    watch: bool,
}

/// The run to be shown.
#[derive(Args)]
pub(super) struct One {
    #[command(flatten)]
    ledger: Ledger,
    /// The run
    run: RunId,
}

/// The maximum number of runs that one statement reads.
pub(super) const PAGE: u32 = 1000;

impl Options {
    async fn find(&self, client: &TenantClient) -> Result<Vec<RunStatus>, RunError> {
        let filter = self.conditions.filter();
        let mut after = match self.after {
            Some(id) => {
                let run = client.handle::<Value>(id).status().await?;
                Some(RunCursor::of(&filter, id, run.started_at, run.key.as_deref()))
            }
            None => None,
        };
        let mut found = Vec::new();
        while let Some(left) = self.limit.checked_sub(found.len()).filter(|left| *left > 0) {
            let limit = u32::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let page = client.list_runs(&filter, after.as_ref(), limit).await?;
            found.extend(page.runs);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(found)
    }
}

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        if options.watch {
            return watch(options, &client).await;
        }
        Ok(print(options.ledger.json, options.find(&client).await?)?)
    })
}

fn print(as_json: bool, runs: Vec<RunStatus>) -> std::io::Result<()> {
    shown::list(as_json, runs, ["RUN", "WORKFLOW", "KEY", "STARTED", "STATE"], |run| {
        let key = run.key.unwrap_or_default();
        [run.id.to_string(), run.workflow, key, run.started_at.to_string(), run.state.to_string()]
    })
}

/// The longest pause between two looks, unless another process says that it has written.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the list whenever it has changed; as JSON, the runs that have changed. It does not end by itself.
async fn watch(options: &Options, client: &TenantClient) -> Done {
    let store = client.core().0.group.store().clone();
    let mut before = BTreeMap::new();
    loop {
        let runs = options.find(client).await?;
        let now: BTreeMap<_, _> = runs.iter().map(|run| (run.id, run.clone())).collect();
        if options.ledger.json {
            let changed = runs.iter().filter(|run| before.get(&run.id) != Some(*run));
            changed.into_iter().try_for_each(shown::json)?;
        } else if now != before || before.is_empty() {
            shown::clear()?;
            print(false, runs)?;
        }
        before = now;
        tokio::select! {
            biased;
            _ = store.woken() => {}
            () = SystemClock.sleep(PAUSE) => {}
        }
    }
}

pub(super) fn show(options: &One) -> ExitCode {
    options.ledger.run(async |client| {
        let run = client.handle::<Value>(options.run);
        let (status, labels, turns) =
            (run.status().await?, run.labels().await?, run.turns(None, usize::MAX).await?);
        if options.ledger.json {
            return Ok(shown::json(&json!({ "run": status, "labels": labels, "turns": turns }))?);
        }
        shown::text(&status.to_string())?;
        for (name, value) in labels {
            shown::text(&format!("  label {name}={value}"))?;
        }
        for turn in &turns {
            tell(turn)?;
        }
        Ok(())
    })
}

/// Prints what a run did in a turn.
fn tell(turn: &PastTurn) -> std::io::Result<()> {
    for step in &turn.steps {
        let kind = json!(step.kind);
        let kind = kind.as_str().unwrap_or_default();
        shown::text(&format!("  {} {kind} {} {}", step.at, step.name, step.id))?;
    }
    for call in &turn.calls {
        let state = if call.response.is_some() { "committed" } else { "not committed" };
        let line = format!("  call {} {}, attempts: {}, {state}", call.tool, call.key, call.attempts);
        shown::text(&line)?;
    }
    Ok(())
}
