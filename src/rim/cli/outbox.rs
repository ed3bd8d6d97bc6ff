//! `counterfoil outbox`: the events that could not be published and are set aside, and what becomes of them.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::ledger::{Author, Done, Ledger};
use super::questions::answered;
use super::shown;
use crate::id::QuestionId;
use crate::store::{QuestionKind, Resolution, Store as _};

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
        let (mut rows, mut after) = (Vec::new(), QuestionId(i64::MIN));
        loop {
            let page = core.group.outbox_all_set_aside(&tenant, after, PAGE).await?;
            let Some(last) = page.last().and_then(|aggregate| aggregate.escalation) else { break };
            after = last;
            for aside in page {
                let Some(question) = aside.escalation else { continue };
                let event = core.group.outbox_at(&tenant, &aside.name, aside.published + 1).await?;
                rows.push((question, aside, event));
            }
        }
        if options.ledger.json {
            return Ok(rows.into_iter().try_for_each(|(question, aside, event)| {
                shown::json(&json!({
                    "question": question.to_string(),
                    "aggregate": aside.name,
                    "event": event.as_ref().map(|event| &event.id),
                    "kind": event.as_ref().map(|event| &event.kind),
                    "created_at": event.as_ref().map(|event| event.created_at.to_string()),
                    "refusals": aside.refusals,
                    "behind": aside.last - aside.published - 1,
                }))
            })?);
        }
        let rows = rows.into_iter().map(|(question, aside, event)| {
            let (id, kind, at) = event
                .map_or_else(Default::default, |event| (event.id, event.kind, event.created_at.to_string()));
            let behind = (aside.last - aside.published - 1).to_string();
            [question.to_string(), aside.name, id, kind, at, aside.refusals.to_string(), behind]
        });
        let heads = ["QUESTION", "AGGREGATE", "EVENT", "KIND", "WRITTEN", "REFUSALS", "BEHIND"];
        Ok(shown::table(heads, rows.collect())?)
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
