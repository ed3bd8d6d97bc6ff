//! `counterfoil outbox`: the events that could not be published and are set aside, and what becomes of them.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::ledger::{Author, Done, Ledger};
use super::questions::answered;
use super::shown;
use crate::id::QuestionId;
use crate::rim::set_aside::{SetAside, set_aside};
use crate::store::{QuestionKind, Resolution};

/// The greatest number of aggregates that are read at once.
const PAGE: u32 = 1000;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Lists the events that are set aside, with the number of events that wait behind each
    List(List),
    /// Publishes an event once more
    Release(Decision),
    /// Leaves an event out; the next one of its aggregate is published
    Skip(Decision),
}

#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    ledger: Ledger,
}

/// The event that is released or left out.
#[derive(Args)]
pub(super) struct Decision {
    #[command(flatten)]
    ledger: Ledger,
    #[command(flatten)]
    author: Author,
    /// The question about the event, as `outbox list` shows it
    question: QuestionId,
}

pub(super) fn run(command: &Command) -> ExitCode {
    match command {
        Command::List(options) => list(options),
        Command::Release(options) => decide(options, &Resolution::Again),
        Command::Skip(options) => decide(options, &Resolution::Skip),
    }
}

fn list(options: &List) -> ExitCode {
    options.ledger.run(async |client| {
        let (core, tenant) = client.core();
        let (mut all, mut after) = (Vec::new(), QuestionId(i64::MIN));
        loop {
            let page = set_aside(&core, &tenant, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.question;
            all.extend(page);
        }
        let heads = ["QUESTION", "AGGREGATE", "EVENT", "KIND", "WRITTEN", "REFUSALS", "BEHIND"];
        Ok(shown::list(options.ledger.json, all, heads, |aside: SetAside| {
            let (event, kind) = (aside.event.unwrap_or_default(), aside.kind.unwrap_or_default());
            let at = aside.created_at.map(|at| at.to_string()).unwrap_or_default();
            let (refusals, behind) = (aside.refusals.to_string(), aside.behind.to_string());
            [aside.question.to_string(), aside.aggregate, event, kind, at, refusals, behind]
        })?)
    })
}

fn decide(options: &Decision, resolution: &Resolution) -> ExitCode {
    options.ledger.run(async |client| -> Done {
        let id = options.question;
        let asked = client.question(id).await?;
        if !asked.is_some_and(|asked| asked.kind == QuestionKind::Unpublished) {
            return Err(format!("{id} is no question of this tenant about an event of the outbox").into());
        }
        let answer = options.author.answers(&client, id, resolution.clone());
        answered(&client, &options.ledger, id, answer).await
    })
}
