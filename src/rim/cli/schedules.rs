//! `counterfoil schedules`: the schedules of a tenant, by name.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::ledger::Ledger;
use super::shown;
use crate::flow::ScheduleStatus;

/// The tenant whose schedules are listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
}

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let schedules = client.schedules().await?;
        if options.ledger.json {
            return Ok(schedules.iter().try_for_each(|schedule| {
                shown::json(&json!({
                    "name": schedule.name,
                    "workflow": schedule.workflow,
                    "when": schedule.when,
                    "paused": schedule.paused,
                    "next": schedule.next.map(|at| at.to_string()),
                    "last": schedule.last.map(|at| at.to_string()),
                    "last_run": schedule.last_run,
                    "missed": schedule.missed,
                }))
            })?);
        }
        let row = |schedule: ScheduleStatus| {
            let next = schedule.next.map(|at| at.to_string());
            let next = if schedule.paused { "paused".to_owned() } else { next.unwrap_or_default() };
            let last = schedule.last.map(|at| at.to_string()).unwrap_or_default();
            let missed = schedule.missed.to_string();
            [schedule.name, schedule.workflow, schedule.when, next, last, missed]
        };
        let heads = ["SCHEDULE", "WORKFLOW", "WHEN", "NEXT", "LAST", "MISSED"];
        Ok(shown::table(heads, schedules.into_iter().map(row).collect())?)
    })
}
