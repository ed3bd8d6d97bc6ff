//! A conversation that goes on for months: a loop of durable turns. Each turn answers one message; what the chat
//! remembers is its state, so a resume begins with the message that is being answered, however long the chat is. From
//! time to time the run goes on as new, so that not even its history grows.
//!
//! ```text
//! cargo run --example chat              # in a temporary folder
//! cargo run --example chat -- folder    # kill it anywhere and run it again: no reply is missing, none comes twice
//! ```

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "an example, which tests and `counterfoil simulate` include as a module"
)]

#[cfg(feature = "sim")]
#[path = "chat/simulated.rs"]
pub mod simulated;

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil::ledger::{ErrorKind, LookupResult};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};
use counterfoil::{Ctx, Engine, Failure, Key, Turn};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// After so many turns the run goes on as new.
const TURNS: usize = 4;

/// What a chat has before it, and remembers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Chat {
    pub id: String,
    /// What the other side says.
    pub messages: Vec<String>,
    /// So many of it are answered.
    pub answered: usize,
    /// What was talked about: bounded, unlike a transcript.
    pub memory: String,
}

impl Chat {
    pub fn of(id: &str, messages: &[&str]) -> Self {
        let messages = messages.iter().map(|text| (*text).to_owned()).collect();
        Self { id: id.to_owned(), messages, answered: 0, memory: String::new() }
    }
}

/// A reply on its way out.
#[derive(Clone, Serialize, Deserialize)]
pub struct Reply {
    pub chat: String,
    pub number: usize,
    pub text: String,
}

/// Answers all messages, one a turn, through whatever tool delivers replies.
pub async fn chat<Deliver>(ctx: Ctx, chat: Chat) -> Result<String, Failure>
where
    Deliver: Tool<Input = Reply, Output = Value, Effect = effect::InternalMutation>,
{
    let until = chat.answered + TURNS;
    let talk = ctx.turns("talk", chat, |chat, ctx: Ctx| async move {
        let Some(message) = chat.messages.get(chat.answered).filter(|_| chat.answered < until) else {
            return Ok(Turn::Done(chat));
        };
        let text =
            ctx.step("think", &(message, &chat.memory), |(message, memory)| think(message, memory)).await?;
        let reply = Reply { chat: chat.id.clone(), number: chat.answered, text };
        ctx.call::<Deliver>(reply).await?;
        ctx.sleep(Duration::from_millis(250)).await?; // nobody likes an answer that comes at once
        let memory = message.split(' ').next_back().unwrap_or_default().to_owned();
        Ok(Turn::Next(Chat { answered: chat.answered + 1, memory, ..chat }))
    });
    let chat = talk.keep_turns(2).await?;
    if chat.answered < chat.messages.len() {
        return ctx.continue_as_new(&chat).await;
    }
    Ok(chat.memory)
}

/// The model, in this process.
fn think(message: &str, memory: &str) -> String {
    if memory.is_empty() {
        return format!("You say: {message}");
    }
    format!("You say: {message} And before that we spoke of {memory}")
}

/// Replies go to a text file, where one can be found again by the reference that it was written with.
struct Deliver(PathBuf);

impl Deliver {
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Tool for Deliver {
    const NAME: &'static str = "deliver";
    type Effect = effect::InternalMutation;
    type Contract = contract::Lookup;
    type Input = Reply;
    type Output = Value;

    fn key(&self, reply: &Reply) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&reply.chat).operation(reply.number))
    }

    async fn call(&self, call: &Call, reply: &Reply) -> Result<Done<Value>, ToolError> {
        let written = || {
            let mut file = std::fs::File::options().append(true).create(true).open(&self.0)?;
            writeln!(file, "{} {}", call.key(), reply.text)
        };
        written().map_err(|e| ToolError::new(ErrorKind::Unknown, e.to_string()))?;
        Ok(Done::new(json!(null)))
    }
}

impl Reconcile for Deliver {
    async fn reconcile(&self, call: &Call, _: &Reply) -> Result<LookupResult<Value>, ToolError> {
        let is_there = self.lines().iter().any(|line| line.starts_with(call.key()));
        Ok(if is_there {
            LookupResult::Committed { output: json!(null), external_ref: None }
        } else {
            LookupResult::NotFound
        })
    }
}

const SCRIPT: [&str; 9] = [
    "Good morning.",
    "I ordered a lamp.",
    "It came without a bulb.",
    "Do you have one?",
    "A warm one, please.",
    "What does it cost?",
    "That is fine.",
    "Send it to the office.",
    "Thank you.",
];

async fn talk(folder: &Path) -> Result<(), Box<dyn Error>> {
    let replies = folder.join("replies.txt");
    let engine = Engine::sqlite(folder.join("chat.db"))
        .workflow("chat", 1, chat::<Deliver>)
        .tool(Deliver(replies.clone()))
        .start()
        .await?;
    let run = engine.tenant("acme")?.run(chat::<Deliver>, Chat::of("c1", &SCRIPT)).key("c1").start().await?;
    let last = run.result().await?;
    for (message, line) in SCRIPT.iter().zip(Deliver(replies).lines()) {
        println!("> {message}\n  {}", line.split_once(' ').map_or("", |(_, reply)| reply));
    }
    println!("The last thing spoken of: {last}");
    let turns = run.history(None).await?;
    let kept = turns.iter().filter(|turn| !turn.steps.is_empty()).count();
    println!("Of its turns {} are in the ledger, {kept} with their steps.", turns.len());
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(folder) = std::env::args().nth(1) {
        std::fs::create_dir_all(&folder)?;
        return talk(Path::new(&folder)).await;
    }
    let folder = std::env::temp_dir().join(format!("counterfoil-chat-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let talked = talk(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    talked
}
