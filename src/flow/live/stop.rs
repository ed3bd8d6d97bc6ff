//! The reasons why an activation ends before its body does.

use serde_json::Value;

use crate::exec::ExecError;
use crate::flow::failure::Failure;
use crate::id::RecordId;
use crate::payload::Payload;
use crate::store::{QuestionKind, Signal};

/// The reason why an activation ends without a result.
#[derive(Debug)]
pub(in crate::flow) enum Stop {
    /// A write failed or was refused: the run goes on from its durable records.
    Failed(ExecError),
    /// The run waits for a decision.
    Block {
        kind: QuestionKind,
        question: String,
        record: Option<RecordId>,
        /// The ids of children, signals and events that the question is about. They are kept from now on, whatever the
        /// answer.
        kept: Vec<String>,
        /// Further facts for the row of the run, as JSON.
        detail: Value,
    },
    /// The code asks for something that only a new build can give: the run is blocked.
    Unmended(Box<Failure>),
    /// An answer has come, or the engine wants the run to start over from its records.
    Bounce,
    /// The run goes on as new, with this input.
    Continue(Payload),
    /// A command paused the run.
    Paused(Box<Signal>),
    /// A command cancelled the run, and the run did not end by itself.
    Cancelled,
}

impl Stop {
    /// The stop of a run that waits for a decision about nothing but itself.
    pub(in crate::flow) const fn block(kind: QuestionKind, question: String) -> Self {
        Self::Block { kind, question, record: None, kept: Vec::new(), detail: Value::Null }
    }
}
