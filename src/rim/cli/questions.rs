//! `counterfoil questions`, `question` and `answer`: what the engines ask of a person.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::ledger::{Author, Done, Ledger};
use super::shown;
use crate::exec::GiveAnswer;
use crate::flow::{RunError, TenantClient};
use crate::id::QuestionId;
use crate::store::{Question, Resolution};

/// The number of questions that are read and printed at once.
const PAGE: u32 = 200;

/// The tenant whose open questions are listed.
#[derive(Args)]
pub(super) struct Options {
    #[command(flatten)]
    ledger: Ledger,
}

/// The question to be shown.
#[derive(Args)]
pub(super) struct One {
    #[command(flatten)]
    ledger: Ledger,
    /// The question
    question: QuestionId,
}

/// The answer to a question.
#[derive(Args)]
pub(super) struct Answer {
    #[command(flatten)]
    ledger: Ledger,
    #[command(flatten)]
    author: Author,
    /// The question
    question: QuestionId,
    /// The name of one of the answers that `question` lists
    #[arg(value_name = "ANSWER")]
    name: String,
    /// The value that is given with the answer, as JSON: the result of a call that happened
    #[arg(long, value_parser = super::json_value)]
    with: Option<Value>,
}

impl Answer {
    fn resolution(&self) -> serde_json::Result<Resolution> {
        let name = &self.name;
        serde_json::from_value(match &self.with {
            Some(value) => json!({ name: value }),
            None if name == "send_without_looking" => json!({ name: { "reason": self.author.reason } }),
            None => json!(name),
        })
    }
}

pub(super) fn list(options: &Options) -> ExitCode {
    options.ledger.run(async |client| {
        let mut after = None;
        loop {
            let page = client.questions().after(after.unwrap_or(QuestionId(i64::MIN))).limit(PAGE).await?;
            if page.is_empty() && after.is_some() {
                return Ok(()); // the page before was full, and the last one
            }
            let is_last = page.len() < PAGE as usize;
            after = page.last().map(|asked| asked.id);
            print(&client, options.ledger.json, page).await?;
            if is_last {
                return Ok(());
            }
        }
    })
}

/// Prints a page of questions; as JSON, each with everything that its answer takes.
async fn print(client: &TenantClient, as_json: bool, page: Vec<Question>) -> Done {
    if !as_json {
        let rows = page.into_iter().map(|asked| {
            let run = asked.run.map(|run| run.to_string()).unwrap_or_default();
            [asked.id.to_string(), asked.opened_at.to_string(), run, asked.question]
        });
        return Ok(shown::table(["QUESTION", "OPENED", "RUN", "TEXT"], rows.collect())?);
    }
    for asked in page {
        if let Some(view) = client.question(asked.id).await? {
            shown::json(&view)?;
        }
    }
    Ok(())
}

pub(super) fn show(options: &One) -> ExitCode {
    options.ledger.run(async |client| {
        let view = client.question(options.question).await?;
        let view = view.ok_or_else(|| format!("there is no {} of this tenant", options.question))?;
        Ok(if options.ledger.json { shown::json(&view) } else { shown::text(&view.to_string()) }?)
    })
}

pub(super) fn answer(options: &Answer) -> ExitCode {
    options.ledger.run(async |client| {
        let answer = options.author.answers(&client, options.question, options.resolution()?);
        answered(&client, &options.ledger, options.question, answer).await
    })
}

impl Author {
    /// The person's answer to a question.
    pub(super) fn answers(
        &self,
        client: &TenantClient,
        question: QuestionId,
        resolution: Resolution,
    ) -> GiveAnswer<RunError> {
        let Self { author, reason } = self;
        let answer = client.answer(question, resolution, author);
        if reason.is_empty() { answer } else { answer.because(reason) }
    }
}

/// Gives an answer to a question, and shows the question as the answer has left it: answered, or with an answer that
/// waits.
pub(super) async fn answered(
    client: &TenantClient,
    ledger: &Ledger,
    question: QuestionId,
    answer: GiveAnswer<RunError>,
) -> Done {
    answer.await?;
    let view = client.question(question).await?;
    let Some(view) = view else { return Ok(()) };
    if ledger.json {
        return Ok(shown::json(&view)?);
    }
    let state = if view.answer.is_some() { "answered" } else { "the answer waits for a worker" };
    Ok(shown::text(&format!("{}: {state}", view.id))?)
}
