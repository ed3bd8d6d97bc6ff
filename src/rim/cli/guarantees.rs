//! `counterfoil guarantees`: the guarantee reports of the workflows that this program knows.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, json};

use crate::sim::Suite;

/// The simulations to report, and the form of the output.
#[derive(Args)]
pub(super) struct Options {
    /// The names of the simulations; all, if none is named
    names: Vec<String>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(suite: &Suite, options: &Options) -> ExitCode {
    let reports = match suite.guarantees(&options.names) {
        Ok(reports) => reports,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if options.json {
        let by_name: Map<_, _> =
            reports.iter().map(|(name, report)| (name.clone(), json!(report.tools))).collect();
        println!("{}", json!(by_name));
        return ExitCode::SUCCESS;
    }
    for (name, report) in &reports {
        println!("{name}\n{report}");
    }
    ExitCode::SUCCESS
}
