//! `counterfoil start`, `signal`, `pause`, `resume`, `cancel`, `retry` and `fork`: what is told to a run.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Author, Done, Ledger};
use super::shown;
use crate::flow::{RunHandle, Sent};
use crate::id::RunId;
use crate::rim::run_filter::Labelled;

/// The run to be started.
#[derive(Args)]
pub(super) struct Start {
    #[command(flatten)]
    ledger: Ledger,
    /// The name of the workflow
    workflow: String,
    /// The input, as JSON
    #[arg(default_value = "null", value_parser = super::json_value)]
    input: Value,
    /// The business key: a second start under it finds the first run
    #[arg(long)]
    key: Option<String>,
    /// A label of the run, by which it is listed and erased; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<Labelled>,
}

/// The signal to be sent.
#[derive(Args)]
pub(super) struct Signal {
    #[command(flatten)]
    ledger: Ledger,
    /// The run
    run: RunId,
    /// The name of the signal
    name: String,
    /// The body, as JSON
    #[arg(default_value = "null", value_parser = super::json_value)]
    body: Value,
    /// The id of the signal: a second one under it is the same signal
    #[arg(long)]
    key: Option<String>,
}

/// The command to a run.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
    #[command(flatten)]
    author: Author,
    /// The run
    run: RunId,
    /// The key of the command: a second one under it is the same command
    #[arg(long)]
    key: Option<String>,
}

pub(super) fn start(options: &Start) -> ExitCode {
    options.ledger.run(async |client| {
        let mut run = client.run_named(&options.workflow, options.input.clone());
        if let Some(key) = &options.key {
            run = run.key(key);
        }
        for Labelled(name, value) in &options.label {
            run = run.label(name, value);
        }
        show(&options.ledger, &run.start().await?).await
    })
}

pub(super) fn signal(options: &Signal) -> ExitCode {
    options.ledger.run(async |client| {
        let run = client.handle::<Value>(options.run);
        let mut signal = run.signal(options.name.clone(), options.body.clone());
        if let Some(key) = &options.key {
            signal = signal.id(key);
        }
        told(&options.ledger, signal.await?)
    })
}

/// The command of this name to a run.
macro_rules! command {
    ($($command:ident),+) => {
        $(pub(super) fn $command(options: &Options) -> ExitCode {
            options.ledger.run(async |client| {
                let Author { author, reason } = &options.author;
                let mut command = client.handle::<Value>(options.run).$command(author, reason);
                if let Some(key) = &options.key {
                    command = command.key(key);
                }
                told(&options.ledger, command.await?)
            })
        })+
    };
}

command!(pause, resume, cancel, retry);

/// Begins a new run with what the run has done, and shows it.
pub(super) fn fork(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let Author { author, reason } = &options.author;
        let mut fork = client.handle::<Value>(options.run).fork(author, reason);
        if let Some(key) = &options.key {
            fork = fork.key(key);
        }
        show(&options.ledger, &fork.await?).await
    })
}

async fn show(ledger: &Ledger, run: &RunHandle<Value>) -> Done {
    let status = run.status().await?;
    Ok(if ledger.json { shown::json(&status) } else { shown::text(&status.to_string()) }?)
}

fn told(ledger: &Ledger, sent: Sent) -> Done {
    let (word, text) = match sent {
        Sent::New => ("new", "sent"),
        Sent::Before => ("before", "the same was sent before"),
    };
    Ok(if ledger.json { shown::json(&json!({ "sent": word })) } else { shown::text(text) }?)
}
