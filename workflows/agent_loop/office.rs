//! The outside world of the agent: an office with three systems, here a text file. It knows nothing of keys, but an entry can
//! be found again by the reference that it was made with.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use serde_json::{Value, json};

#[derive(Clone)]
pub(crate) struct Office(pub(crate) PathBuf);

impl Office {
    /// The tools that a model is offered.
    pub(crate) fn tools() -> [(&'static str, &'static str); 3] {
        [
            ("open_ticket", "Opens a ticket about a case."),
            ("refund", "Refunds what was paid for a case."),
            ("order_part", "Orders a spare part for a case."),
        ]
    }

    /// Does what a tool is for.
    #[allow(clippy::unused_async, reason = "a real one is over a network")]
    pub(crate) async fn act(&self, tool: &str, reference: &str, input: &Value) -> Result<Value, String> {
        if Self::tools().iter().all(|(name, _)| *name != tool) {
            return Err(format!("there is no tool {tool}"));
        }
        let file = File::options().append(true).create(true).open(&self.0);
        let mut file = file.map_err(|error| error.to_string())?;
        writeln!(file, "{tool} {reference} {input}").map_err(|error| error.to_string())?;
        self.find(tool, reference).await?.ok_or_else(|| "it is not there".to_owned())
    }

    /// What was done under a reference.
    #[allow(clippy::unused_async, reason = "a real one is over a network")]
    pub(crate) async fn find(&self, tool: &str, reference: &str) -> Result<Option<Value>, String> {
        let begin = format!("{tool} {reference} ");
        let place = self.entries()?.iter().position(|entry| entry.starts_with(&begin));
        Ok(place.map(|place| json!({ "done as": format!("{tool}-{}", place + 1) })))
    }

    pub(crate) fn entries(&self) -> Result<Vec<String>, String> {
        match fs::read_to_string(&self.0) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }
}
