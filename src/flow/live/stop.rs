//! Why an activation ends before its body does.

use crate::exec::ExecError;
use crate::flow::failure::Failure;
use crate::id::RecordId;
use crate::payload::Payload;
use crate::store::{QuestionKind, Signal};

/// Why an activation ends without a result.
#[derive(Debug)]
pub(in crate::flow) enum Stop {
    /// A write failed or was refused: what is durable stands, and the run goes on from there.
    Failed(ExecError),
    /// The run waits for a decision.
    Block {
        kind: QuestionKind,
        question: String,
        record: Option<RecordId>,
        /// What is asked about beside: from now on it is kept, whatever the answer.
        kept: Vec<String>,
    },
    /// The code asks for what only a new build can give it: the run is blocked.
    Unmended(Box<Failure>),
    /// An answer has come, or the engine wants the run to start over from what is recorded.
    Bounce,
    /// The run goes on as new, with this input.
    Continue(Payload),
    /// Somebody paused the run.
    Paused(Box<Signal>),
    /// Somebody cancelled the run, and it did not end by itself.
    Cancelled,
}
