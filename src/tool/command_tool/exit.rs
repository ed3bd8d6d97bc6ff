//! The meaning of a process's end: by its exit code, and by fields of its output.

use serde_json::Value;

use super::process::Ended;
use crate::ledger::ErrorKind;
use crate::tool::declared::{Meaning, id_at};
use crate::tool::{Done, ToolError};

/// The rules for the end of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Exits {
    pub(super) codes: Vec<(i32, Meaning)>,
    /// The pointer to the provider's id in the output.
    pub(super) external_id: Option<String>,
    /// The pointer to the output of the call in the process's output.
    pub(super) output: String,
    /// True if the output is a text and not JSON.
    pub(super) is_text: bool,
}

impl Exits {
    /// The result of a process that has ended.
    pub(super) fn judge(&self, ended: &Ended) -> Result<Done<Value>, ToolError> {
        let meaning = match ended.status.code() {
            None => Meaning::Unknown, // ended by a signal
            Some(code) => {
                let declared = self.codes.iter().find(|(declared, _)| *declared == code);
                declared
                    .map_or(if code == 0 { Meaning::Done } else { Meaning::Unknown }, |(_, meaning)| *meaning)
            }
        };
        match meaning {
            Meaning::Done => self.done(ended),
            Meaning::Accepted => Err(ToolError::accepted(self.id(ended))),
            error => Err(ToolError::new(error.kind().unwrap_or(ErrorKind::Unknown), said(ended))),
        }
    }

    fn done(&self, ended: &Ended) -> Result<Done<Value>, ToolError> {
        let unclear =
            |what: String| ToolError::unknown(format!("the command ended with success, and {what}"));
        if !ended.whole {
            return Err(unclear(format!("its output has more than {} bytes", ended.output.len())));
        }
        let mut said =
            self.read(ended).map_err(|error| unclear(format!("its output is no JSON: {error}")))?;
        let external_ref = self.external_id.as_ref().and_then(|pointer| id_at(&said, pointer));
        let output = said.pointer_mut(&self.output).map(Value::take);
        let output = output.ok_or_else(|| unclear(format!("its output has no {:?}", self.output)))?;
        Ok(Done { external_ref, ..Done::new(output) })
    }

    fn id(&self, ended: &Ended) -> Option<String> {
        id_at(&self.read(ended).ok()?, self.external_id.as_ref()?)
    }

    fn read(&self, ended: &Ended) -> Result<Value, serde_json::Error> {
        if self.is_text { Ok(text(&ended.output).into()) } else { json(&ended.output) }
    }
}

/// The output as JSON. An empty one is null.
pub(super) fn json(output: &[u8]) -> Result<Value, serde_json::Error> {
    if output.trim_ascii().is_empty() { Ok(Value::Null) } else { serde_json::from_slice(output) }
}

fn text(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line)).to_owned()
}

/// The end of a process in words: its code, and what it said about it.
pub(super) fn said(ended: &Ended) -> String {
    let how = ended.status.to_string(); // "exit status: 3", "signal: 9 (SIGKILL)"
    if ended.told.is_empty() { how } else { format!("{how}: {}", ended.told) }
}
