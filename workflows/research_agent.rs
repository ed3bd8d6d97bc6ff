//! Research: one agent plans, several read at once, each with parallel tools, and one writes it up. Its models are
//! scripts; put a `ChatCompletions` in their place and it is real.
//!
//! ```text
//! cargo run --features agent --example research_agent
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

use std::error::Error;
use std::time::Duration;

use counterfoil::agent::{Message, Prompt, Proposal, Reply, Scripted, Usage};
use counterfoil::flow::EngineBuilder;
use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure};
use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub text: String,
    pub usage: Usage,
}

/// The planner finds what is to be read; a reader for each of them reads, all at the same time; the writer sums up.
pub async fn research(ctx: Ctx, question: String) -> Result<Report, Failure> {
    let planner = ctx.agent("planner").tool::<Search>();
    let plan = planner.run([Message::user(question.clone())]).await?;

    let sources: Vec<_> = plan.text.lines().map(str::to_owned).collect();
    let readers = sources.iter().map(|source| {
        // They are open at once, so each has an id.
        let reader = ctx.agent("reader").named(("reader", source)).tool::<Search>().tool::<Fetch>();
        reader.run([Message::user(source.clone())])
    });
    let notes = try_join_all(readers).await?;

    let found: Vec<_> = notes.iter().map(|note| note.text.as_str()).collect();
    let writer = ctx.agent("writer");
    let report = writer.run([Message::user(question), Message::user(found.join("\n"))]).await?;

    let usage = notes.iter().map(|note| note.usage).sum::<Usage>() + plan.usage + report.usage;
    Ok(Report { text: report.text, usage })
}

/// Searches the library.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Words {
    /// What to look for.
    pub words: String,
}

/// Reads a text of the library.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Title {
    pub title: String,
}

pub struct Search;
pub struct Fetch;

impl Tool for Search {
    const NAME: &'static str = "search";
    type Effect = effect::ReadOnly;
    type Contract = contract::Blind;
    type Input = Words;
    type Output = Vec<String>;

    async fn call(&self, _: &Call, Words { words }: &Words) -> Result<Done<Vec<String>>, ToolError> {
        Ok(Done::new(vec![format!("{words}, a history")]))
    }
}

impl Tool for Fetch {
    const NAME: &'static str = "fetch";
    type Effect = effect::ReadOnly;
    type Contract = contract::Blind;
    type Input = Title;
    type Output = String;

    async fn call(&self, _: &Call, Title { title }: &Title) -> Result<Done<String>, ToolError> {
        Ok(Done::new(format!("In {title:?} it says that the counterfoil is kept.")))
    }
}

// The scripts.

fn results(prompt: &Prompt) -> Vec<&str> {
    let results = prompt.messages.iter().filter_map(|message| match message {
        Message::Tool { text, .. } => Some(text.as_str()),
        _ => None,
    });
    results.collect()
}

fn asked(prompt: &Prompt) -> String {
    match prompt.messages.first() {
        Some(Message::User { text }) => text.clone(),
        _ => String::new(),
    }
}

fn titles(prompt: &Prompt) -> Vec<String> {
    let lists = results(prompt).into_iter().filter_map(|text| serde_json::from_str::<Vec<String>>(text).ok());
    lists.flatten().collect()
}

/// Searches for two things at once, and names what was found.
fn plan(prompt: &Prompt) -> Reply {
    let found = titles(prompt);
    let search = |words: &str| Proposal::new("search", json!({ "words": words }));
    let reply = if found.is_empty() {
        Reply::calls([search("cheques"), search(&asked(prompt))])
    } else {
        Reply::text(found.join("\n"))
    };
    reply.usage(Usage::tokens(50, 20))
}

/// Fetches a text and what stands beside it, all at once.
fn read(prompt: &Prompt) -> Reply {
    let title = asked(prompt);
    let fetch = |title: String| Proposal::new("fetch", json!({ "title": title }));
    let reply = match results(prompt).as_slice() {
        [] => Reply::calls([
            fetch(title.clone()),
            fetch(format!("{title} (notes)")),
            Proposal::new("search", json!({ "words": title })),
        ]),
        [first, ..] => Reply::text(*first),
    };
    reply.usage(Usage::tokens(200, 30))
}

fn write(prompt: &Prompt) -> Reply {
    let Some(Message::User { text }) = prompt.messages.last() else { return Reply::default() };
    Reply::text(format!("{}\n{text}", asked(prompt))).usage(Usage::tokens(400, 100))
}

pub const QUESTION: &str = "counterfoils";

/// All that the workflow needs.
pub fn equipped(engine: EngineBuilder) -> EngineBuilder {
    engine
        .tool(Search)
        .tool(Fetch)
        .model("planner", Scripted::new(plan))
        .model("reader", Scripted::new(read))
        .model("writer", Scripted::new(write))
}

#[cfg(feature = "sim")]
pub fn simulation() -> counterfoil::sim::Simulation {
    counterfoil::sim::Simulation::of(research, QUESTION.to_owned())
        .engine(|engine, _| equipped(engine))
        .check("seven model calls, eight tool calls", |end| {
            let calls = end.calls();
            let (asked, called): (Vec<_>, Vec<_>) =
                calls.iter().partition(|call| call.tool.starts_with("model/"));
            match (asked.len(), called.len()) {
                (7, 8) => Ok(()),
                _ if !end.succeeded() => Ok(()),
                (asked, called) => Err(format!("{asked} model calls and {called} tool calls are recorded")),
            }
        })
        .single_crashes()
}

#[allow(dead_code, reason = "tests include this file for its workflow and start it themselves")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::sqlite(folder.path().join("research.db")).workflow("research", 1, research);
    let engine = equipped(engine).start().await?;
    let report = engine.tenant("acme")?.run(research, QUESTION.to_owned()).await?;
    println!("{}\n{:?}", report.text, report.usage);
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
