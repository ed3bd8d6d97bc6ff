//! `counterfoil retention`: what is kept for a time, and what of it is over.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::ledger::Whole;
use super::shown;
use crate::store::{RetentionLoad, Store as _};

/// The database whose kept rows are counted.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    whole: Whole,
}

pub(super) fn show(options: &Options) -> ExitCode {
    options.whole.run(async |client| {
        let core = client.core().0;
        let loads = core.group.retention_load(core.now()).await?;
        if options.whole.json {
            return Ok(loads.into_iter().try_for_each(|load| {
                let RetentionLoad { kind, name, whole, digests, over, earliest } = load;
                let earliest = earliest.map(|at| at.to_string());
                shown::json(&json!({
                    "kind": kind.name(), "name": name, "whole": whole, "digests": digests, "over": over,
                    "earliest": earliest,
                }))
            })?);
        }
        let rows = loads.into_iter().map(|load| {
            let over = load.over.map(|over| over.to_string()).unwrap_or_default();
            let earliest = load.earliest.map(|at| at.to_string()).unwrap_or_default();
            let (whole, digests) = (load.whole.to_string(), load.digests.to_string());
            [load.kind.name().to_owned(), load.name, whole, digests, over, earliest]
        });
        let heads = ["KIND", "NAME", "WHOLE", "DIGESTS", "OVER", "EARLIEST"];
        Ok(shown::table(heads, rows.collect())?)
    })
}
