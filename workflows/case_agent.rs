//! An agent that settles a complaint: it reads the case, takes notes, refunds, and answers. Its model is a script, or
//! any OpenAI-compatible endpoint; its tools are guarded, whichever model proposes the calls.
//!
//! ```text
//! cargo run --features agent-http --example case_agent                                    # the script, in a temporary folder
//! cargo run --features agent-http --example case_agent -- folder                          # kill it anywhere and run it again
//! cargo run --features agent-http --example case_agent -- folder http://localhost:11434/v1 qwen3   # a real model
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

#[path = "case_agent/books.rs"]
pub mod books;
#[path = "case_agent/script.rs"]
pub mod script;
#[cfg(feature = "sim")]
#[path = "case_agent/simulated.rs"]
pub mod simulated;

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil::agent::{AgentAnswer, ChatCompletions, Message, Scripted, Usage};
use counterfoil::flow::EngineBuilder;
use counterfoil::ledger::LookupResult;
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use books::Books;

/// How the case was settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub answer: String,
    pub usage: Usage,
}

/// A plain `async fn`. Each reply and each call has a record: wherever the process dies, the conversation goes on
/// where it was, and no call is made twice.
pub async fn case_agent(ctx: Ctx, complaint: String) -> Result<Settled, Failure> {
    let clerk = ctx
        .agent("clerk")
        .prompt_version("v1")
        .reading_tool::<LookUp>()
        .tool::<AddNote>()
        .tool::<Refund>()
        .max_turns(12);
    let system =
        "You settle complaints. Look the case up, note what you find, refund what is due, then answer.";
    let AgentAnswer { text, usage, .. } =
        clerk.run([Message::system(system), Message::user(complaint)]).await?;
    Ok(Settled { answer: text, usage })
}

// The tools. What the model is told of each is its input's documentation and schema.

/// Looks a case up.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Its number, such as C-17.
    pub case: String,
}

/// Adds a note to a case file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// The case's number.
    pub case: String,
    /// What to note.
    pub text: String,
}

/// Refunds a customer. There is one refund for each case.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Money {
    /// The case's number.
    pub case: String,
    /// How much.
    pub cents: u32,
    /// What the customer reads on the statement.
    pub reason: String,
}

pub struct LookUp(pub Books);
pub struct AddNote(pub Books);
pub struct Refund(pub Books);

impl Tool for LookUp {
    const NAME: &'static str = "look_up_case";
    type Effect = effect::ReadOnly;
    type Contract = contract::Blind; // to look twice does no harm
    type Input = Case;
    type Output = String;

    async fn call(&self, _: &Call, Case { case }: &Case) -> Result<Done<String>, ToolError> {
        Ok(Done::new(format!("{case}: paid 2000 cents, the parcel never came")))
    }
}

impl Tool for AddNote {
    const NAME: &'static str = "add_note";
    type Effect = effect::InternalMutation;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = Note;
    type Output = String;

    // No key: the same note is one note, however often the agent proposes it.

    async fn call(&self, call: &Call, note: &Note) -> Result<Done<String>, ToolError> {
        self.0.write(call, "note", &note.text).await
    }
}

impl Reconcile for AddNote {
    async fn reconcile(&self, call: &Call, note: &Note) -> Result<LookupResult<String>, ToolError> {
        self.0.find(call, "note", &note.text).await
    }
}

impl Tool for Refund {
    const NAME: &'static str = "refund";
    type Effect = effect::Payment;
    type Contract = contract::WithLookup<contract::ReplaysKey>;
    type Input = Money;
    type Output = String;

    /// One refund for each case: a model that words it otherwise, or thinks of another sum, does not pay twice.
    fn key(&self, money: &Money) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&money.case))
    }

    async fn call(&self, call: &Call, money: &Money) -> Result<Done<String>, ToolError> {
        self.0.write(call, "refund", &money.case).await
    }
}

impl Reconcile for Refund {
    async fn reconcile(&self, call: &Call, money: &Money) -> Result<LookupResult<String>, ToolError> {
        self.0.find(call, "refund", &money.case).await
    }
}

// How it is put to work.

/// The tools; workflow and model are still to come.
pub fn equipped(engine: EngineBuilder, books: &Books) -> EngineBuilder {
    engine.tool(LookUp(books.clone())).tool(AddNote(books.clone())).tool(Refund(books.clone()))
}

pub const COMPLAINT: &str = "My parcel never came. The case is C-17.";

#[allow(dead_code, reason = "tests include this file for its workflow and start it themselves")]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let folder = arguments.next().map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let books = Books::file(folder.join("books.txt"));
    let engine = Engine::sqlite(folder.join("agent.db")).workflow("case_agent", 1, case_agent);
    let engine = equipped(engine, &books);
    let engine = match arguments.next() {
        Some(url) => {
            let model = arguments.next().ok_or("which model? Give its name behind the URL")?;
            let model = ChatCompletions::at(&url, model)?.key(std::env::var("MODEL_KEY").unwrap_or_default());
            engine.model("clerk", model)
        }
        None => engine.model("clerk", Scripted::new(script::reply)),
    };
    let engine = engine.start().await?;

    let acme = engine.tenant("acme")?;
    let run = acme.run(case_agent, COMPLAINT.to_owned()).key("C-17").start().await?;
    let settled = run.result().await?;
    println!("{}\n{:?}\nthe books say:", settled.answer, acme.usage(run.id()).await?);
    books.lines().iter().for_each(|line| println!("  {line}"));

    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
