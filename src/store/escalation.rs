//! Escalations: questions to people, and their answers.

use serde::{Deserialize, Serialize};

use super::cell::{coded, table};
use super::resolution::{PossibleAnswer, Resolution};
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{QuestionId, RecordId, RunId, Tenant};

/// A question, open or answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The id of the question.
    pub id: QuestionId,
    /// The tenant that owns the question.
    pub tenant: Tenant,
    /// The record of the operation in question.
    pub record: Option<RecordId>,
    /// The run that waits, or that the question is about.
    pub run: Option<RunId>,
    /// The kind of the question.
    pub kind: QuestionKind,
    /// The question in words for a person: the event, the key, and the possible answers.
    pub question: String,
    /// The instant at which the question was opened.
    pub opened_at: Timestamp,
    /// An answer that takes effect when a lookup has answered, or when a worker that knows the tool has read its
    /// result. The question is open until then, and stays open if the result is a [`misfit`](Answer::misfit).
    pub waiting: Option<Answer>,
    /// The answer, if the question is closed.
    pub answer: Option<Answer>,
}

impl Question {
    /// True if the row opens the question; false if it changes an open one.
    pub(crate) const fn is_new(&self) -> bool {
        self.answer.is_none() && self.waiting.is_none()
    }

    /// The answers that the question takes, each with its consequence.
    pub const fn answers(&self) -> &'static [PossibleAnswer] {
        self.kind.answers()
    }

    /// The answer that waits, unless it does not count.
    pub(crate) fn waits(&self) -> Option<&Answer> {
        self.waiting.as_ref().filter(|answer| answer.misfit.is_none())
    }

    /// The answer that waits for a worker that can read its result: no lookup is made meanwhile.
    pub(crate) fn to_be_read(&self) -> Option<&Answer> {
        self.waits().filter(|answer| answer.resolution.result().is_some())
    }
}

coded! {
    /// The kind of a question.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum QuestionKind {
        /// The outcome of an effect is unknown.
        Ambiguous = 1,
        /// The world holds more than one effect.
        Duplicated = 2,
        /// A committed effect belongs to a run that failed, ended or took another path.
        Orphaned = 3,
        /// A resumed run took another path, or drew another key for the same call.
        Diverged = 4,
        /// The rows of a run cannot be read, or no longer fit the code.
        Damaged = 5,
        /// A run killed its process too often.
        Quarantined = 6,
        /// The workflow of a run, a tool that it calls or the workflow of its child is not registered. An engine that
        /// has registered it withdraws the question.
        Unregistered = 7,
        /// The outcome of an effect is unknown, because its tool is not registered, or cannot read the request. The
        /// engine withdraws the question when the tool is registered again.
        UnknownTool = 8,
        /// An effect is committed, and it could not be found out if an earlier request for it arrived as well.
        Unconfirmed = 9,
        /// A person paused a run.
        Paused = 10,
        /// An event could not be published: it is set aside, and later events of its aggregate wait.
        Unpublished = 21,
        /// A message could not be processed by its consumer: it is set aside.
        Unprocessed = 22,
        /// An effect is committed, and the provider's lookup does not show it.
        Missing = 24,
        /// A compensation needs a decision. The run, which did not end well, waits for the answer.
        Compensation = 23,
        /// The ledger may be older than the world. The question belongs to [`Tenant::ledger`](crate::Tenant::ledger).
        Restored = 25,
        /// A signal cannot be read by the run that waits for it: it is set aside, and the run goes on waiting.
        Unread = 26,
        /// The provider has accepted a call and finishes it by itself. Nobody is asked: the row is no question until
        /// the longest time of the call is over.
        Pending = 27,
    }
}

impl QuestionKind {
    /// The kinds whose answers a run waits for as a row.
    pub(crate) const PARKING: [Self; 4] =
        [Self::Ambiguous, Self::UnknownTool, Self::Compensation, Self::Pending];

    /// True if the outcome of a call is unknown or not decided yet.
    pub(crate) const fn is_about_call(self) -> bool {
        matches!(self, Self::Ambiguous | Self::UnknownTool | Self::Pending)
    }

    /// True if the question is about a run, which goes on or ends with the answer.
    pub(crate) const fn blocks_its_run(self) -> bool {
        matches!(self, Self::Diverged | Self::Damaged | Self::Quarantined | Self::Unregistered | Self::Paused)
    }

    /// The name used in tables and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ambiguous => "ambiguous",
            Self::Duplicated => "duplicated",
            Self::Orphaned => "orphaned",
            Self::Diverged => "diverged",
            Self::Damaged => "damaged",
            Self::Quarantined => "quarantined",
            Self::Unregistered => "unregistered",
            Self::UnknownTool => "unknown tool",
            Self::Unconfirmed => "unconfirmed",
            Self::Paused => "paused",
            Self::Unpublished => "unpublished",
            Self::Unprocessed => "unprocessed",
            Self::Compensation => "compensation",
            Self::Missing => "missing",
            Self::Restored => "restored",
            Self::Unread => "unread",
            Self::Pending => "pending",
        }
    }
}

/// The number of questions of one kind that a tenant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionCount {
    /// The kind of the questions.
    pub kind: QuestionKind,
    /// The number of questions that wait for an answer.
    pub open: u64,
    /// The number of questions that were answered, by people or by the engine. Questions of a
    /// [retired](crate::ledger::Retention) record are no longer counted.
    pub answered: u64,
}

/// The open questions of one kind, of all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionLoad {
    /// The kind of the questions.
    pub kind: QuestionKind,
    /// The number of questions that wait for an answer.
    pub open: u64,
    /// The instant at which the oldest of them was opened.
    pub oldest: Timestamp,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The name of the person who answered.
    pub by: String,
    /// The content of the answer.
    pub resolution: Resolution,
    /// The reason, in the words of the person who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The reason why the answer does not count: its result is not an output of the tool. The question waits for
    /// another answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfit: Option<String>,
    /// The instant of the answer.
    pub at: Timestamp,
}

impl Answer {
    /// The name that is recorded when the engine answers.
    pub(crate) const ENGINE: &str = "counterfoil";

    /// True if the engine answered by itself: it has undone a surplus effect, or found the outcome out.
    pub fn is_by_engine(&self) -> bool {
        self.by == Self::ENGINE
    }

    /// The reason, if the person gave one.
    pub fn reason(&self) -> Option<&str> {
        match &self.resolution {
            Resolution::SendWithoutLooking { reason } => Some(reason),
            _ => self.because.as_deref(),
        }
    }
}

table! { Question in "escalation", Own by (tenant, id) {
    id, tenant, record, run, kind, question, opened_at, answer, waiting
} }

impl Row for Question {}
