//! Only the guarded call: an agent loop that you have already, with no workflow around it. A model decides at run
//! time which tool is called and with what; the executor sees to it that nothing happens twice.
//!
//! ```text
//! cargo run --example agent_loop              # in a temporary folder
//! cargo run --example agent_loop -- folder    # kill it anywhere and run it again: no ticket is opened twice
//! ```

#![allow(missing_docs, reason = "an example")]

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use counterfoil::exec::Wait;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, LookupResult};
use counterfoil::tool::{Done, DynamicTool, ToolError};
use counterfoil::{Executor, Key, Outcome, Tenant, ToolRequest};
use serde_json::{Value, json};

/// The outside world: a ticket system, here a text file. It knows nothing of keys, but a ticket can be found again
/// by the reference that it was opened with.
#[derive(Clone)]
struct Tickets(PathBuf);

impl Tickets {
    fn open(&self, reference: &str, title: &str) -> std::io::Result<String> {
        let mut file = std::fs::File::options().append(true).create(true).open(&self.0)?;
        writeln!(file, "{reference} {title}")?;
        Ok(format!("T-{}", self.lines().len()))
    }

    fn find(&self, reference: &str) -> Option<String> {
        let found = self.lines().iter().position(|line| line.starts_with(reference))?;
        Some(format!("T-{}", found + 1))
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The tool as an agent's registry has it. The key comes from what is asked for and never from the model's call id,
/// which is another one each time.
fn open_ticket(tickets: &Tickets) -> DynamicTool {
    let (opening, asked) = (tickets.clone(), tickets.clone());
    DynamicTool::new("open_ticket", EffectClass::InternalMutation, Contract::new(ContractClass::Lookup))
        .key(|input| Some(Key::of("open_ticket").target(input["case"].as_str()?)))
        .call(move |call, input| {
            let tickets = opening.clone();
            async move {
                let title = input["title"].as_str().unwrap_or("untitled");
                let id = tickets.open(call.key(), title).map_err(|e| ToolError::unknown(e.to_string()))?;
                Ok(Done::new(json!({ "ticket": id })).external_ref(id))
            }
        })
        .reconcile(move |call, _| {
            let found = asked.find(call.key());
            async move {
                Ok(match found {
                    Some(id) => {
                        LookupResult::Committed { output: json!({ "ticket": id }), external_ref: Some(id) }
                    }
                    None => LookupResult::NotFound,
                })
            }
        })
}

/// What a model might ask for in one conversation: it repeats itself, and it changes its mind.
fn tool_calls() -> [(&'static str, Value); 4] {
    [
        ("call_1", json!({ "case": "C-17", "title": "Printer on fire" })),
        ("call_2", json!({ "case": "C-18", "title": "Cannot log in" })),
        ("call_3", json!({ "case": "C-17", "title": "Printer on fire" })),
        ("call_4", json!({ "case": "C-17", "title": "Printer still on fire" })),
    ]
}

async fn agent(folder: &Path) -> Result<(), Box<dyn Error>> {
    let tickets = Tickets(folder.join("tickets.txt"));
    let executor =
        Executor::sqlite(folder.join("agent.db")).dynamic_tool(open_ticket(&tickets)).open().await?;
    let tenant = Tenant::new("acme")?;
    for (call_id, input) in tool_calls() {
        let request =
            ToolRequest::new(tenant.clone(), "open_ticket", input).call_id(call_id).wait(Wait::ForOutcome);
        let answer = match executor.execute(request).await? {
            Outcome::Done(answer) if answer.first => format!("done: {}", answer.response.as_str()),
            Outcome::Done(answer) => format!("was done before: {}", answer.response.as_str()),
            Outcome::Conflict(diff) => format!("refused, C-17 has a ticket already: {diff}"),
            Outcome::NeedsDecision { question } => format!("nobody can tell; {question} is open"),
            other => format!("{other:?}"),
        };
        println!("{call_id}  {answer}"); // what the model is told
    }
    println!("{} tickets are open", tickets.lines().len());
    executor.shutdown(std::time::Duration::from_secs(5)).await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(folder) => {
            std::fs::create_dir_all(&folder)?;
            agent(Path::new(&folder)).await
        }
        None => agent(tempfile::tempdir()?.path()).await,
    }
}
