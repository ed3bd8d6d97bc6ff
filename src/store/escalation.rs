//! Escalations: questions to people, and their answers.

use serde::{Deserialize, Serialize};

use super::cell::{coded, table};
use super::resolution::{PossibleAnswer, Resolution};
use super::row::Row;
use crate::clock::Timestamp;
use crate::id::{QuestionId, RecordId, RunId, Tenant};

/// An open question, or one that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its name.
    pub id: QuestionId,
    /// Whose it is.
    pub tenant: Tenant,
    /// The operation in question.
    pub record: Option<RecordId>,
    /// The run that waits, or that it is about.
    pub run: Option<RunId>,
    /// What kind of question.
    pub kind: QuestionKind,
    /// The question as a person reads it: what happened, to which key, what can be answered.
    pub question: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// An answer that takes effect when a lookup has answered, or when a worker that knows the tool has read its result. The question is
    /// open until then, and stays open if the result is a [`misfit`](Answer::misfit).
    pub waiting: Option<Answer>,
    /// The answer.
    pub answer: Option<Answer>,
}

impl Question {
    /// As it is written when it is opened; otherwise as something that falls on an open question.
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

    /// The answer that waits for a worker that can read its result: there is nothing to be looked up meanwhile.
    pub(crate) fn to_be_read(&self) -> Option<&Answer> {
        self.waits().filter(|answer| answer.resolution.result().is_some())
    }
}

coded! {
    /// What kind of question.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum QuestionKind {
        /// Nobody can tell whether an effect happened.
        Ambiguous = 1,
        /// The world holds more than one effect.
        Duplicated = 2,
        /// A committed effect belongs to a run that failed, ended or went another way.
        Orphaned = 3,
        /// A resumed run went another way, or drew another key for the same call.
        Diverged = 4,
        /// A run's rows cannot be read, or no longer fit the code.
        Damaged = 5,
        /// A run killed its process too often.
        Quarantined = 6,
        /// A run's workflow, a tool that it calls or the workflow of its child is not registered. Withdrawn by the engine that
        /// has registered it.
        Unregistered = 7,
        /// Nobody can tell whether an effect happened, because its tool is not registered, or cannot read the
        /// request. Withdrawn by the engine when the tool is here again.
        UnknownTool = 8,
        /// An effect is committed, and whether an earlier request for it arrived as well could not be found out.
        Unconfirmed = 9,
        /// Somebody paused a run.
        Paused = 10,
        /// An event could not be published: it is set aside, and what follows it in its aggregate waits.
        Unpublished = 21,
        /// A message could not be processed by its consumer: it is set aside.
        Unprocessed = 22,
        /// An effect is committed, and the provider's lookup does not show it.
        Missing = 24,
        /// May an effect be undone? Its run, which did not end well, waits for the answer.
        Compensation = 23,
        /// The ledger may be older than the world. Of [`Tenant::ledger`](crate::Tenant::ledger).
        Restored = 25,
        /// A signal cannot be read by the run that waits for it: it is set aside, and the run waits on.
        Unread = 26,
        /// The provider has accepted a call and finishes it by itself. Nobody is asked: it is no question until the call's longest
        /// time is over.
        Pending = 27,
    }
}

impl QuestionKind {
    /// A run waits for the answers to these, as a row.
    pub(crate) const PARKING: [Self; 4] =
        [Self::Ambiguous, Self::UnknownTool, Self::Compensation, Self::Pending];

    /// What became of a call is not known, or not decided yet.
    pub(crate) const fn is_about_call(self) -> bool {
        matches!(self, Self::Ambiguous | Self::UnknownTool | Self::Pending)
    }

    /// It is about a run, which goes on or ends with its answer.
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

/// How many questions of one kind a tenant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionCount {
    /// Their kind.
    pub kind: QuestionKind,
    /// Questions that wait for an answer.
    pub open: u64,
    /// Questions that were answered, by people or by the engine. What belonged to a [retired](crate::ledger::Retention) record is not
    /// counted any more.
    pub answered: u64,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Who answered.
    pub by: String,
    /// What.
    pub resolution: Resolution,
    /// Why, in the words of whoever answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Why it does not count: its result is not what the tool returns. The question waits for another answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfit: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl Answer {
    /// Who answers where no person does.
    pub(crate) const ENGINE: &str = "counterfoil";

    /// The engine answered by itself: it has undone a surplus effect, or found out what was asked.
    pub fn is_by_engine(&self) -> bool {
        self.by == Self::ENGINE
    }

    /// Why, if whoever answered said so.
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
