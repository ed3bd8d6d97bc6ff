//! The content of a command: its verb, its author and its reason. Pure.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::flow::failure::{Failure, FailureCode};
use crate::id::RunId;
use crate::payload::{Payload, PayloadError};
use crate::store::{CANCEL, COMMAND, Signal};

/// The prefix of the id of a checkpoint that holds a received command to cancel the run outside of the turn that received
/// it. The ids of the receipts themselves are numbers.
pub(in crate::flow) const TOLD: &str = "~told:";

/// The verb of a command to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) enum Verb {
    Cancel,
    Pause,
}

impl Verb {
    /// The name of the command's signal.
    pub(in crate::flow) fn signal(self) -> String {
        match self {
            Self::Cancel => CANCEL.to_owned(),
            Self::Pause => format!("{COMMAND}pause"),
        }
    }
}

/// A command to a run, with its author and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The name of the author: a person, a parent run, or the engine.
    pub by: String,
    /// The reason that the author gave.
    pub reason: String,
    /// The instant at which a cancelled run is ended by force, if it has not ended by itself (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Command {
    pub(in crate::flow) fn of(body: &Payload) -> Result<Self, PayloadError> {
        body.decode()
    }

    /// A command whose text is damaged. Its verb is known by its signal's name.
    pub(in crate::flow) fn unreadable() -> Self {
        Self { by: "somebody".into(), reason: "for a reason that cannot be read".into(), until: None }
    }

    /// The failure of a run that this command cancels.
    pub(in crate::flow) fn failure(&self) -> Failure {
        let Self { by, reason, .. } = self;
        Failure::coded(FailureCode::Cancelled, format!("{by} cancelled the run: {reason}"))
    }

    /// The question about a run that this command pauses.
    pub(in crate::flow) fn question(&self, run: RunId) -> String {
        let Self { by, reason, .. } = self;
        format!("{run}: {by} paused it: {reason}. Let it go on, or abandon it?")
    }
}

/// True if a signal is a command, which wakes its run whatever the run waits for.
pub(in crate::flow) fn is_command(signal: &Signal) -> bool {
    signal.name.starts_with(COMMAND)
}
