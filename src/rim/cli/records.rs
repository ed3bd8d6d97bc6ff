//! `counterfoil records`: the calls of a tenant by the beginning of their keys. `counterfoil record`: one of them.

use std::process::ExitCode;

use clap::Args;

use super::ledger::Ledger;
use super::shown;
use crate::exec::view_record;
use crate::rim::record_list::{Keys, ListedRecord, RecordConditions};

/// The records to be listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    /// The beginning of the keys, such as `charge:`
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    conditions: RecordConditions,
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

/// The greatest number of records that are read at once.
const PAGE: u32 = 1000;

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let (core, tenant) = client.core();
        let (mut found, mut after) = (Vec::new(), options.after.clone());
        while let Some(left) = options.limit.checked_sub(found.len()).filter(|left| *left > 0) {
            let limit = u32::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let keys = Keys { prefix: &options.prefix, after: &after, limit };
            let (page, next) = options.conditions.page(&core, &tenant, &keys).await?;
            found.extend(page);
            let Some(next) = next else { break };
            after = next;
        }
        let heads = ["KEY", "TOOL", "STATE", "ATTEMPTS", "ASKED", "RUN"];
        Ok(shown::list(options.ledger.json, found, heads, |record: ListedRecord| {
            let run = record.run.map(|run| run.to_string()).unwrap_or_default();
            let (state, attempts) = (record.state.to_owned(), record.attempts.to_string());
            [record.key, record.tool, state, attempts, record.created_at.to_string(), run]
        })?)
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
