//! Only the guarded call: an agent loop that you have already, with no workflow around it. A model decides at run time which
//! tool is called and with what; the executor sees to it that nothing happens twice.
//!
//! `agent_loop/bare.rs` is the loop as it was, `agent_loop/guarded.rs` the same loop with an executor.
//!
//! ```text
//! cargo run --example agent_loop              # in a temporary folder
//! cargo run --example agent_loop -- folder    # kill it anywhere and run it again: nothing happens twice
//! ```

#![allow(missing_docs, reason = "an example")]

#[path = "agent_loop/bare.rs"]
mod bare;
#[path = "agent_loop/guarded.rs"]
mod guarded;
#[path = "agent_loop/model.rs"]
mod model;
#[path = "agent_loop/office.rs"]
mod office;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use counterfoil::Executor;
use counterfoil::ledger::EffectClass;

use guarded::guarded;
use model::Model;
use office::Office;

/// What the model was told, and what there is in the office.
pub(crate) struct Shown {
    pub(crate) told: Vec<String>,
    pub(crate) entries: Vec<String>,
}

/// The loop as it was. It is restarted in the end, as after a crash, and the model begins from the front.
pub(crate) async fn bare(folder: &Path) -> Result<Shown, Box<dyn Error>> {
    let office = Office(folder.join("bare.txt"));
    bare::agent(&office, &Model).await?;
    let conversation = bare::agent(&office, &Model).await?;
    Ok(Shown { told: conversation.iter().map(ToString::to_string).collect(), entries: office.entries()? })
}

/// The guarded loop, which is restarted in the same way.
pub(crate) async fn guarded_and_restarted(folder: &Path) -> Result<Shown, Box<dyn Error>> {
    let office = Office(folder.join("guarded.txt"));
    let mut told = Vec::new();
    for _life in 0..2 {
        let executor = Executor::sqlite(folder.join("agent.db"))
            .dynamic_tool(guarded("open_ticket", EffectClass::InternalMutation, &office))
            .dynamic_tool(guarded("refund", EffectClass::Payment, &office))
            .dynamic_tool(guarded("order_part", EffectClass::InternalMutation, &office))
            .open()
            .await?;
        told.extend(guarded::agent(&executor, &Model).await?.iter().map(ToString::to_string));
        executor.shutdown(Duration::from_secs(5)).await;
    }
    Ok(Shown { told, entries: office.entries()? })
}

async fn show(folder: &Path) -> Result<(), Box<dyn Error>> {
    let shown = guarded_and_restarted(folder).await?;
    for told in &shown.told {
        println!("{told}");
    }
    println!("guarded: {} entries; bare: {} entries", shown.entries.len(), bare(folder).await?.entries.len());
    Ok(())
}

#[allow(dead_code, reason = "the tests include this file, too")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args_os().nth(1) {
        Some(folder) => {
            std::fs::create_dir_all(&folder)?;
            show(Path::new(&folder)).await
        }
        None => show(tempfile::tempdir()?.path()).await,
    }
}
