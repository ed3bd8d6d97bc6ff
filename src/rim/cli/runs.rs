//! `counterfoil runs`: the runs of a tenant, the oldest first. `counterfoil run`: one of them.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::shown;
use crate::flow::{PastTurn, RunStatus, TenantClient};
use crate::id::RunId;

/// The runs to be listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    /// Only runs in this state: queued, active, waiting, succeeded, failed, expired or blocked
    #[arg(long)]
    state: Option<String>,
    /// Only runs of this workflow
    #[arg(long)]
    workflow: Option<String>,
    /// Only runs whose key begins so
    #[arg(long)]
    key_prefix: Option<String>,
    /// Only runs behind this one
    #[arg(long)]
    after: Option<RunId>,
    /// The greatest number of runs
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// The run to be shown.
#[derive(Args)]
pub(super) struct One {
    #[command(flatten)]
    ledger: Ledger,
    /// The run
    run: RunId,
}

impl Options {
    fn shows(&self, run: &RunStatus) -> bool {
        let key = run.key.as_deref().unwrap_or_default();
        self.state.as_deref().is_none_or(|state| run.state.name() == state)
            && self.workflow.as_deref().is_none_or(|workflow| run.workflow == workflow)
            && self.key_prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
    }

    async fn find(&self, client: &TenantClient) -> Result<Vec<RunStatus>, crate::flow::RunError> {
        let (mut found, mut after) = (Vec::new(), self.after);
        while found.len() < self.limit {
            let page = client.runs(after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            found.extend(page.into_iter().filter(|run| self.shows(run)));
        }
        found.truncate(self.limit);
        Ok(found)
    }
}

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let runs = options.find(&client).await?;
        if options.ledger.json {
            for run in &runs {
                shown::json(run)?;
            }
            return Ok(());
        }
        let rows = runs.into_iter().map(|run| {
            let key = run.key.unwrap_or_default();
            [run.id.to_string(), run.workflow, key, run.started_at.to_string(), run.state.to_string()]
        });
        Ok(shown::table(["RUN", "WORKFLOW", "KEY", "STARTED", "STATE"], rows.collect())?)
    })
}

pub(super) fn show(options: &One) -> ExitCode {
    options.ledger.run(async |client| {
        let run = client.handle::<Value>(options.run);
        let (status, mut turns, mut after) = (run.status().await?, Vec::new(), None);
        loop {
            let page = run.history(after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.turn);
            turns.extend(page);
        }
        if options.ledger.json {
            return Ok(shown::json(&json!({ "run": status, "turns": turns }))?);
        }
        shown::text(&status.to_string())?;
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
