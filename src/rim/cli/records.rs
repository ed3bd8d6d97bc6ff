//! `counterfoil records`: the calls of a tenant by the beginning of their keys. `counterfoil record`: one of them.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::shown;
use crate::exec::view_record;
use crate::ledger::Record;
use crate::store::Store as _;

/// The greatest number of records that are read at once.
const PAGE: u32 = 1000;

/// The records to be listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    /// The beginning of the keys, such as `charge:`
    #[arg(default_value = "")]
    prefix: String,
    /// Only records in this state: started, committed, failed, compensated, abandoned or gone
    #[arg(long, value_parser = ["started", "committed", "failed", "compensated", "abandoned", "gone"])]
    state: Option<String>,
    /// Only records behind this key
    #[arg(long, default_value = "")]
    after: String,
    /// The greatest number of records
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// The record to be shown.
#[derive(Args)]
pub(super) struct One {
    #[command(flatten)]
    ledger: Ledger,
    /// The key of the call, such as `charge:order-9`
    key: String,
}

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let (core, tenant) = client.core();
        let is_wanted =
            |record: &Record| options.state.as_ref().is_none_or(|state| state == record.state.name());
        let (mut found, mut after) = (Vec::new(), options.after.clone());
        while found.len() < options.limit {
            let page = core.group.record_list(&tenant, &options.prefix, &after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.key.to_string();
            found.extend(page.into_iter().filter(is_wanted));
        }
        found.truncate(options.limit);
        if options.ledger.json {
            return Ok(found.iter().map(as_json).try_for_each(|record| shown::json(&record))?);
        }
        let row = |record: Record| {
            let run = record.owner.run.map(|run| run.to_string()).unwrap_or_default();
            let (state, attempts) = (record.state.name().to_owned(), record.attempts.to_string());
            [
                record.key.to_string(),
                record.operation.to_string(),
                state,
                attempts,
                record.created_at.to_string(),
                run,
            ]
        };
        let heads = ["KEY", "TOOL", "STATE", "ATTEMPTS", "ASKED", "RUN"];
        Ok(shown::table(heads, found.into_iter().map(row).collect())?)
    })
}

fn as_json(record: &Record) -> Value {
    json!({
        "key": record.key.to_string(),
        "tool": record.operation.to_string(),
        "effect": record.class.name(),
        "state": record.state.name(),
        "attempts": record.attempts,
        "run": record.owner.run.map(|run| run.to_string()),
        "external_ref": record.external_ref,
        "question": record.escalation.map(|question| question.to_string()),
        "created_at": record.created_at.to_string(),
        "updated_at": record.updated_at.to_string(),
        "kept_until": record.kept_until.map(|at| at.to_string()),
    })
}

pub(super) fn show(options: &One) -> ExitCode {
    options.ledger.run(async |client| {
        let (core, tenant) = client.core();
        let record = view_record(&core, &tenant, &options.key).await?;
        let record = record.ok_or_else(|| format!("this tenant has no call {}", options.key))?;
        if options.ledger.json {
            return Ok(shown::json(&record)?);
        }
        Ok(shown::text(record.to_string().trim_end())?)
    })
}
