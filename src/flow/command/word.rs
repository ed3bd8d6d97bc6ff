//! What a command says: what to do, who gave it, and why. Pure.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::flow::failure::{Failure, FailureCode};
use crate::id::RunId;
use crate::payload::{Payload, PayloadError};
use crate::store::{CANCEL, COMMAND, Signal};

/// What a run is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) enum Verb {
    Cancel,
    Pause,
}

impl Verb {
    /// The name of its signal.
    pub(in crate::flow) fn signal(self) -> String {
        match self {
            Self::Cancel => CANCEL.to_owned(),
            Self::Pause => format!("{COMMAND}pause"),
        }
    }
}

/// Who told a run to do something, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When a run that is cancelled is ended by force, if it has not ended by itself (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Command {
    pub(in crate::flow) fn of(body: &Payload) -> Result<Self, PayloadError> {
        body.decode()
    }

    /// One whose text is damaged. It still says what to do.
    pub(in crate::flow) fn unreadable() -> Self {
        Self { by: "somebody".into(), reason: "for a reason that cannot be read".into(), until: None }
    }

    /// How a run fails that was cancelled.
    pub(in crate::flow) fn failure(&self) -> Failure {
        let Self { by, reason, .. } = self;
        Failure::coded(FailureCode::Cancelled, format!("{by} cancelled the run: {reason}"))
    }

    /// What is asked about a run that was paused.
    pub(in crate::flow) fn question(&self, run: RunId) -> String {
        let Self { by, reason, .. } = self;
        format!("{run}: {by} paused it: {reason}. Let it go on, or abandon it?")
    }
}

/// A signal is a command, which wakes its run whatever that waits for.
pub(in crate::flow) fn is_command(signal: &Signal) -> bool {
    signal.name.starts_with(COMMAND)
}
