//! What one writes who has no such engine, and what most engines do: a journal of finished steps, synced to disk
//! after each; a step without a result in the journal is run (again), and an error is retried.
//!
//! It is given every fair chance: where the provider takes a key, it sends the same key each time; where the
//! provider lets us choose an id, it uses the same id; and it takes "known already" for done.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use counterfoil::Tenant;
use counterfoil::ledger::ErrorKind;
use counterfoil::sim::{CrashPoint, Watch as _};
use counterfoil::tool::ToolError;
use counterfoil::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

use super::Failed;
use super::case_notice::classes::{Class, reference};
use super::case_notice::client::Http;
use super::case_notice::{Notice, draft};
use super::role::{Message, Order, TENANT, say};

const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// One finished step.
#[derive(Serialize, Deserialize)]
struct Line {
    step: String,
    result: String,
}

struct Journal {
    file: File,
    done: BTreeMap<String, String>,
}

impl Journal {
    fn open(path: &Path) -> Result<Self, Failed> {
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        // A last line that was cut off by a crash was not finished.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let done = lines.map(|line| (line.step, line.result)).collect();
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)?, done })
    }

    fn result(&self, step: &str) -> Option<String> {
        self.done.get(step).cloned()
    }

    fn write(&mut self, step: &str, result: &str) -> Result<(), Failed> {
        let line = Line { step: step.to_owned(), result: result.to_owned() };
        writeln!(self.file, "{}", serde_json::to_string(&line)?)?;
        Ok(self.file.sync_data()?)
    }
}

/// One life. It crosses the same points as the engine does, as far as it has them.
pub async fn live(order: &Order) -> Result<i32, Failed> {
    let kill = order.kill()?;
    let at = |point| {
        if let Some(kill) = &kill {
            kill.at(point);
        }
    };

    at(CrashPoint::BeforeEnrolment);
    let mut journal = Journal::open(&order.ledger)?;
    at(CrashPoint::AfterEnrolment);
    if journal.done.is_empty() {
        at(CrashPoint::BeforeRunStart);
        journal.write("start", &order.case)?;
        at(CrashPoint::AfterRunStart);
    } else {
        at(CrashPoint::BeforeTakeover);
        at(CrashPoint::AfterTakeover);
    }

    for step in ["draft", "approve"] {
        if journal.result(step).is_none() {
            at(CrashPoint::BeforeCheckpoint);
            journal.write(step, "done")?;
            at(CrashPoint::AfterCheckpoint);
        }
    }

    if journal.result("send").is_none() {
        // It writes nothing down before it sends: these three are one moment.
        at(CrashPoint::BeforeStarted);
        at(CrashPoint::AfterStarted);
        at(CrashPoint::BeforeCall);
        let sent = send(&Http::new(&order.provider)?, order, &draft(&order.case())).await;
        at(CrashPoint::AfterCall);
        let Some(receipt) = sent? else {
            say(&Message::Looped { succeeded: false })?;
            return Ok(0);
        };
        at(CrashPoint::BeforeSeal);
        journal.write("send", &receipt)?;
        at(CrashPoint::AfterSeal);
    }

    if journal.result("close").is_none() {
        at(CrashPoint::BeforeTransaction);
        journal.write("close", "done")?;
        at(CrashPoint::AfterTransaction);
    }
    if journal.result("end").is_none() {
        at(CrashPoint::BeforeRunEnd);
        journal.write("end", "done")?;
        at(CrashPoint::AfterRunEnd);
    }
    say(&Message::Looped { succeeded: true })?;
    at(CrashPoint::BeforeRetirement);
    at(CrashPoint::AfterRetirement);
    Ok(0)
}

/// Tries until it works, and gives up at last.
async fn send(provider: &Http, order: &Order, notice: &Notice) -> Result<Option<String>, Failed> {
    let reference = reference(&Tenant::new(TENANT)?, &order.case())?;
    for _ in 0..ATTEMPTS {
        let attempt = async {
            match order.class {
                Class::ReplaysKeyWithLookup | Class::ReplaysKey | Class::RejectsKey | Class::IgnoresKey => {
                    provider.create(&reference, notice, Some(&reference)).await
                }
                Class::NaturalKey => provider.create_as(&reference, notice).await,
                Class::Lookup | Class::Blind => provider.create(&reference, notice, None).await,
            }
        };
        let sent = tokio::select! {
            sent = attempt => sent,
            () = SystemClock.sleep(order.patience) => {
                Err(ToolError::new(ErrorKind::TimeoutDuringEffect, "no answer"))
            }
        };
        match sent {
            Ok(done) => return Ok(Some(done.output.id)),
            Err(error) if error.kind == ErrorKind::Duplicate => return Ok(Some("known already".to_owned())),
            Err(_) => SystemClock.sleep(PAUSE).await,
        }
    }
    Ok(None)
}
