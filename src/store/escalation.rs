//! Escalations: questions to people, and their answers.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{EscalationId, RecordId, RunId, Tenant};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use {
    super::StoreError,
    super::ask::{Queries, Reader},
    super::row::{Put, Readable, Row, Take},
    super::table::{Law, Table, number, text},
};

/// An open question, or one that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Escalation {
    /// Its name.
    pub id: EscalationId,
    /// Whose it is.
    pub tenant: Tenant,
    /// The operation in question.
    pub record: Option<RecordId>,
    /// The run that waits, or that it is about.
    pub run: Option<RunId>,
    /// What kind of question.
    pub kind: EscalationKind,
    /// The question as a person reads it: what happened, to which key, what can be answered.
    pub question: String,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// An answer that takes effect when a lookup has answered. The question is open until then.
    pub waiting: Option<Answer>,
    /// The answer.
    pub answer: Option<Answer>,
}

impl Escalation {
    /// As it is written when it is opened; otherwise as something that falls on an open question.
    pub(crate) const fn is_new(&self) -> bool {
        self.answer.is_none() && self.waiting.is_none()
    }
}

/// What kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EscalationKind {
    /// Nobody can tell whether an effect happened.
    Ambiguous,
    /// The world holds more than one effect.
    Duplicated,
    /// A committed effect belongs to a run that failed, ended or went another way.
    Orphaned,
    /// A resumed run went another way, or drew another key for the same call.
    Diverged,
    /// A run's rows cannot be read, or no longer fit the code.
    Damaged,
    /// A run killed its process too often.
    Quarantined,
    /// A run's workflow is not registered, or not in a version that carries this run on. Withdrawn by the engine when it
    /// is here again.
    UnknownWorkflow,
    /// Nobody can tell whether an effect happened, because its tool is not registered, or cannot read the
    /// request. Withdrawn by the engine when the tool is here again.
    UnknownTool,
    /// An effect is committed, and whether an earlier request for it arrived as well could not be found out.
    Unconfirmed,
    /// Somebody paused a run.
    Paused,
    /// An event could not be published: it is set aside, and what follows it in its aggregate waits.
    Unpublished,
    /// A message could not be processed by its consumer: it is set aside.
    Unprocessed,
    /// An effect is committed, and the provider's lookup does not show it.
    Missing,
    /// May an effect be undone? Its run, which did not end well, waits for the answer.
    Compensation,
    /// The ledger may be older than the world. Of [`Tenant::ledger`](crate::Tenant::ledger).
    Restored,
}

impl EscalationKind {
    /// A run waits for the answers to these, as a row.
    pub(crate) const PARKING: [Self; 3] = [Self::Ambiguous, Self::UnknownTool, Self::Compensation];

    /// It is about a run, which goes on or ends with its answer.
    pub(crate) const fn halts_its_run(self) -> bool {
        matches!(
            self,
            Self::Diverged | Self::Damaged | Self::Quarantined | Self::UnknownWorkflow | Self::Paused
        )
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
            Self::UnknownWorkflow => "unknown workflow",
            Self::UnknownTool => "unknown tool",
            Self::Unconfirmed => "unconfirmed",
            Self::Paused => "paused",
            Self::Unpublished => "unpublished",
            Self::Unprocessed => "unprocessed",
            Self::Compensation => "compensation",
            Self::Missing => "missing",
            Self::Restored => "restored",
        }
    }

    /// The number that rows hold. Never reuse one.
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Ambiguous => 1,
            Self::Duplicated => 2,
            Self::Orphaned => 3,
            Self::Diverged => 4,
            Self::Damaged => 5,
            Self::Quarantined => 6,
            Self::UnknownWorkflow => 7,
            Self::UnknownTool => 8,
            Self::Unconfirmed => 9,
            Self::Paused => 10,
            Self::Unpublished => 21,
            Self::Unprocessed => 22,
            Self::Compensation => 23,
            Self::Missing => 24,
            Self::Restored => 25,
        }
    }

    /// Reads the number back.
    pub(crate) fn from_code(code: i64) -> Option<Self> {
        [
            Self::Ambiguous,
            Self::Duplicated,
            Self::Orphaned,
            Self::Diverged,
            Self::Damaged,
            Self::Quarantined,
            Self::UnknownWorkflow,
            Self::UnknownTool,
            Self::Unconfirmed,
            Self::Paused,
            Self::Unpublished,
            Self::Unprocessed,
            Self::Compensation,
            Self::Missing,
            Self::Restored,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
    }
}

/// An answer to an escalation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Who answered.
    pub by: String,
    /// What.
    pub resolution: Resolution,
    /// Why, in the words of whoever answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl Answer {
    /// Why, if whoever answered said so.
    pub fn reason(&self) -> Option<&str> {
        match &self.resolution {
            Resolution::SendWithoutLooking { reason } => Some(reason),
            _ => self.because.as_deref(),
        }
    }
}

/// What can be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It happened, and this is its result.
    Committed(serde_json::Value),
    /// It did not happen: go on, and try again. About a call that can be looked up, the lookup is made first. While that does not
    /// answer, the question stays open and the answer [waits](Escalation::waiting); where it shows the effect, the question is
    /// withdrawn.
    NotCommitted,
    /// Send it without a look, whatever became of it: it may happen a second time.
    SendWithoutLooking {
        /// Why. It is recorded.
        reason: String,
    },
    /// Look it up now. The question stays open unless the lookup answers it.
    LookNow,
    /// Leave it: the call fails, whatever became of it. For a committed effect: it is kept on purpose.
    Abandon,
    /// The question is void: the engine can find out by itself again. Only the engine answers so.
    Withdrawn,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Readable for Escalation {
    const TABLE: &'static Table = &Table {
        name: "escalation",
        key: &["tenant", "id"],
        with: &[],
        law: Law::Own,
        columns: &[
            number("id"),
            text("tenant"),
            number("record"),
            number("run"),
            number("kind"),
            text("question"),
            number("opened_at"),
            text("answer"),
            text("waiting"),
        ],
    };

    fn take(values: &mut impl Take) -> Result<Self, StoreError> {
        Ok(Self {
            id: EscalationId(values.number()?),
            tenant: values.tenant()?,
            record: values.some_number()?.map(RecordId),
            run: values.some_number()?.map(RunId),
            kind: values.parsed(EscalationKind::from_code)?,
            question: values.text()?,
            opened_at: values.time()?,
            answer: values.some_parsed_text(|text| serde_json::from_str(text).ok())?,
            waiting: values.some_parsed_text(|text| serde_json::from_str(text).ok())?,
        })
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Row for Escalation {
    fn key(&self) -> impl Ord + std::hash::Hash {
        (&self.tenant, self.id)
    }

    fn put(&self, values: &mut impl Put) {
        values
            .number(self.id.0)
            .shared(self.tenant.text())
            .some_number(self.record.map(|id| id.0))
            .some_number(self.run.map(|id| id.0))
            .number(self.kind.code())
            .text(&self.question)
            .number(self.opened_at.0)
            .some_text(self.answer.as_ref().map(Answer::column).as_deref())
            .some_text(self.waiting.as_ref().map(Answer::column).as_deref());
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Answer {
    /// As JSON. Every answer has it; should one not, what is written here is read back as damage, and not as no answer.
    pub(super) fn column(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Escalation {
    pub(super) async fn find<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        id: EscalationId,
    ) -> Result<Option<Self>, StoreError> {
        on.row("WHERE tenant = $1 AND id = $2", &[tenant.into(), id.0.into()]).await
    }

    /// SQLite takes the primary key otherwise, and reads every question that was ever answered.
    pub(super) async fn open<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        after: EscalationId,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let index = D::either("INDEXED BY escalation_open ", "");
        let behind = format!("{index}WHERE id > $1 AND tenant = $2 AND answer IS NULL ORDER BY id LIMIT $3");
        on.page(&behind, after.0, &[tenant.into(), limit.into()]).await
    }

    pub(super) async fn about<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        run: RunId,
    ) -> Result<Vec<Self>, StoreError> {
        let index = D::either("INDEXED BY escalation_run ", "");
        let behind = format!("{index}WHERE tenant = $1 AND run = $2 AND answer IS NULL ORDER BY id");
        on.rows(&behind, &[tenant.into(), run.0.into()]).await
    }

    /// What was ever asked about a record.
    pub(super) async fn of<D: Reader>(
        on: &Queries<D>,
        tenant: &Tenant,
        record: RecordId,
    ) -> Result<Vec<Self>, StoreError> {
        let index = D::either("INDEXED BY escalation_record ", "");
        let behind = format!("{index}WHERE tenant = $1 AND record = $2");
        let mut all: Vec<Self> = on.rows(&behind, &[tenant.into(), record.0.into()]).await?;
        all.sort_by_key(|question| question.id); // they are few, and a database would sort them, too
        Ok(all)
    }

    pub(super) async fn unknown_workflow<D: Reader>(
        on: &Queries<D>,
        after: EscalationId,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        // The kind stands in the statement, as it stands in the kind's partial index.
        let behind = "WHERE kind = 7 AND answer IS NULL AND id > $1 ORDER BY id LIMIT $2";
        on.page(behind, after.0, &[limit.into()]).await
    }

    pub(super) async fn duplicated<D: Reader>(
        on: &Queries<D>,
        after: EscalationId,
        limit: u32,
    ) -> Result<Vec<Self>, StoreError> {
        let behind = "WHERE kind = 2 AND answer IS NULL AND id > $1 ORDER BY id LIMIT $2";
        on.page(behind, after.0, &[limit.into()]).await
    }
}
