//! The evidence of an operation: everything that the ledger knows about who asked for it, what went out and what came
//! back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::approval::review_of;
use super::core::Core;
use super::executor::Executor;
use super::history::{self, CallHistory};
use super::outcome::{ExecError, failed};
use super::plain::Plain;
use super::question_view::{QuestionAnswer, QuestionEvidence, labels, late_answers};
use crate::clock::Timestamp;
use crate::id::{QuestionId, RunId, Tenant, some_text, text};
use crate::ledger::{
    Approval, Basis, OperationKey, Owner, PolicyVersion, Record, RecordedFailure, State, Vote,
};
use crate::store::{Question, QuestionKind, Store as _};

/// The evidence of an operation: who asked for it, under which approval it went out, each attempt and each lookup, the
/// answers of people, and the outcome with what it rests on. It holds neither request nor response. It is written as
/// JSON with times in RFC 3339, or shown as a text of several lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Evidence {
    /// The tenant that owns the operation.
    pub tenant: Tenant,
    /// The key of the operation.
    pub key: String,
    /// The key as it went to the provider: the reference to search the provider by.
    pub wire_key: String,
    /// The name of the tool.
    pub tool: String,
    /// The effect class of the tool, in a word.
    pub effect: &'static str,
    /// The party that asked for the operation first.
    pub asked_by: AskedBy,
    /// The [labels](super::ToolRequest::label) of the operation, by their names.
    pub labels: BTreeMap<String, String>,
    /// The runs that were answered from the operation without owning it.
    #[serde(serialize_with = "texts")]
    pub used_by: Vec<RunId>,
    /// The approval under which the call went out. Absent if it needed none.
    pub approval: Option<ApprovalEvidence>,
    /// The attempts and lookups.
    #[serde(flatten)]
    pub history: CallHistory,
    /// The late answers of workers that had lost the call.
    pub late_answers: Vec<QuestionEvidence>,
    /// The questions about the operation, with the answers of people.
    pub questions: Vec<AskedAbout>,
    /// The outcome.
    pub outcome: OutcomeEvidence,
    /// The instant until which the whole record is kept (UTC). Absent: for ever, or the record is a tombstone.
    #[serde(serialize_with = "some_text")]
    pub kept_until: Option<Timestamp>,
    /// The instant at which the ledger was read (UTC): what happened later is not part of the evidence.
    #[serde(serialize_with = "text")]
    pub as_of: Timestamp,
}

/// The party that asked for an operation first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AskedBy {
    /// The run, if a workflow asked.
    #[serde(serialize_with = "some_text")]
    pub run: Option<RunId>,
    /// The step of the run, as name and id.
    pub step: Option<String>,
    /// The turn of the run; 0 before any loop.
    pub turn: u32,
    /// The caller's own id for the call.
    pub call_id: Option<String>,
    /// The instant at which the operation was recorded (UTC): no request of it left before.
    #[serde(serialize_with = "text")]
    pub at: Timestamp,
}

/// The approval under which a call went out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ApprovalEvidence {
    /// The name of the person who decided, or of the policy.
    pub by: String,
    /// The content hash of what was approved, in hexadecimal.
    pub package: String,
    /// The policy that decided, if a policy did.
    pub policy: Option<PolicyVersion>,
    /// The review that the approval comes from, and its version.
    pub review: Option<(String, u32)>,
    /// The votes of that version of the review, if it is still kept.
    pub votes: Vec<VoteEvidence>,
    /// The instant at which the approval ceased to be valid (UTC).
    #[serde(serialize_with = "some_text")]
    pub expires_at: Option<Timestamp>,
}

/// The vote of one person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VoteEvidence {
    /// The name of the person.
    pub by: String,
    /// True if the person was in favour.
    pub approves: bool,
    /// The reason, in that person's words.
    pub reason: String,
    /// The instant of the vote (UTC).
    #[serde(serialize_with = "text")]
    pub at: Timestamp,
}

/// A question about an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AskedAbout {
    /// The name of the question.
    #[serde(serialize_with = "text")]
    pub id: QuestionId,
    /// The kind of the question.
    pub kind: QuestionKind,
    /// The question in words.
    pub question: String,
    /// The instant at which the question was opened (UTC).
    #[serde(serialize_with = "text")]
    pub opened_at: Timestamp,
    /// The answer that takes effect later.
    pub waiting: Option<QuestionAnswer>,
    /// The answer. Absent while the question is open.
    pub answer: Option<QuestionAnswer>,
}

/// The outcome of an operation, and what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutcomeEvidence {
    /// The state of the record, in a word.
    pub state: &'static str,
    /// The ground of a committed state, in words. Absent of other states.
    pub basis: Option<&'static str>,
    /// The id that the provider gave to the effect, if one is known.
    pub external_ref: Option<String>,
    /// The recorded failure, if the call failed for certain.
    pub failure: Option<RecordedFailure>,
    /// The name of the person who left the outcome open, and the reason.
    pub abandoned: Option<String>,
    /// True if the whole effect was undone, false if a part of it was. Absent if nothing was undone.
    pub undone: Option<bool>,
    /// The number of attempts in all.
    pub attempts: u32,
    /// The instant at which the operation was settled (UTC).
    #[serde(serialize_with = "some_text")]
    pub settled_at: Option<Timestamp>,
    /// The instant of the last change of the record (UTC).
    #[serde(serialize_with = "text")]
    pub updated_at: Timestamp,
}

fn texts<S: serde::Serializer>(runs: &[RunId], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(runs.iter().map(ToString::to_string))
}

impl Executor {
    /// The evidence of the operation under this key. `None` if there is no such operation.
    ///
    /// ```no_run
    /// # async fn page(executor: counterfoil::Executor) -> Result<(), Box<dyn std::error::Error>> {
    /// let acme = counterfoil::Tenant::new("acme")?;
    /// if let Some(evidence) = executor.evidence(&acme, "payment.charge:order-7").await? {
    ///     println!("{evidence}");
    ///     println!("{}", serde_json::to_string(&evidence)?);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn evidence(&self, tenant: &Tenant, key: &str) -> Result<Option<Evidence>, ExecError> {
        of(&self.core, tenant, key).await
    }
}

/// The evidence of the operation under this key.
pub(crate) async fn of(core: &Arc<Core>, tenant: &Tenant, key: &str) -> Result<Option<Evidence>, ExecError> {
    let as_of = core.now(); // before the first read, so that nothing is missing that had happened by then
    let Some(record) = core.find(tenant, &OperationKey::stored(key)).await? else { return Ok(None) };
    let store_failed = |source| failed(&record.key, source);
    let declaration = core.declaration(&record).await.map_err(store_failed)?;
    let questions = core.group.escalation_of(tenant, record.id).await.map_err(store_failed)?;
    let uses = core.group.record_uses(tenant, record.id).await.map_err(store_failed)?;
    let approval = match &record.approval {
        Some(approval) => Some(approved(core, tenant, approval).await.map_err(store_failed)?),
        None => None,
    };
    Ok(Some(Evidence {
        wire_key: declaration.wire_key(&record.key, tenant),
        asked_by: asked_by(&record),
        labels: labels(core, &record).await?,
        used_by: uses.into_iter().map(|used| used.run).collect(),
        approval,
        history: history::of(core, &record).await.map_err(store_failed)?,
        late_answers: late_answers(core, &record).await?,
        questions: questions.into_iter().map(AskedAbout::from).collect(),
        outcome: outcome(&record),
        kept_until: record.kept_until,
        as_of,
        tenant: record.tenant,
        key: record.key.to_string(),
        tool: record.operation.to_string(),
        effect: record.class.name(),
    }))
}

async fn approved(
    core: &Core,
    tenant: &Tenant,
    approval: &Approval,
) -> Result<ApprovalEvidence, crate::store::StoreError> {
    let Approval { by, package, expires_at, review, policy } = approval.clone();
    let kept = match &review {
        Some((id, version)) => {
            review_of(core, tenant, id).await?.filter(|(_, review)| review.version == *version)
        }
        None => None,
    };
    let vote = |Vote { by, approves, reason, at }| VoteEvidence { by, approves, reason, at };
    let votes = kept.into_iter().flat_map(|(_, review)| review.votes).map(vote).collect();
    Ok(ApprovalEvidence { by, package, policy, review, votes, expires_at })
}

fn asked_by(record: &Record) -> AskedBy {
    let Owner { run, step, turn, call_id } = record.owner.clone();
    AskedBy { run, step: step.map(|step| step.to_string()), turn, call_id, at: record.created_at }
}

impl From<Question> for AskedAbout {
    fn from(Question { id, kind, question, opened_at, waiting, answer, .. }: Question) -> Self {
        Self {
            id,
            kind,
            question,
            opened_at,
            waiting: waiting.map(Into::into),
            answer: answer.map(Into::into),
        }
    }
}

fn outcome(record: &Record) -> OutcomeEvidence {
    let happened = matches!(record.state, State::Committed { .. } | State::Compensated { .. });
    OutcomeEvidence {
        state: record.state.name(),
        basis: happened.then(|| ground(record.basis)),
        external_ref: record.external_ref.clone(),
        failure: match &record.state {
            State::Failed { failure } => Some(failure.clone()),
            _ => None,
        },
        abandoned: match &record.state {
            State::Abandoned { reason } => Some(reason.clone()),
            _ => None,
        },
        undone: match record.state {
            State::Compensated { whole, .. } => Some(whole),
            _ => None,
        },
        attempts: record.attempts,
        settled_at: record.sealed_at,
        updated_at: record.updated_at,
    }
}

/// The ground of a committed state, in words.
const fn ground(basis: Basis) -> &'static str {
    match basis {
        Basis::Answer => "the provider's answer",
        Basis::Lookup => "a lookup, or a late answer of a worker that had lost the call",
        Basis::Declaration => {
            "the answer to a second send under the same key, which the provider says that it honours"
        }
        Basis::Repeat => "the answer to a repeat, which its tool allows",
        Basis::Decision => "the answer of a person",
        Basis::Denial => "the provider's answer to a send that a person had ordered",
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), {}", self.key, self.effect, self.outcome.state)?;
        writeln!(f, "tool          {}", self.tool)?;
        writeln!(f, "wire key      {}", self.wire_key)?;
        writeln!(f, "asked         {}", self.asked_by)?;
        for (name, value) in &self.labels {
            writeln!(f, "label         {}={}", Plain(name), Plain(value))?;
        }
        for run in &self.used_by {
            writeln!(f, "used          by {run}")?;
        }
        if let Some(approval) = &self.approval {
            write!(f, "{approval}")?;
        }
        write!(f, "{}", self.history)?;
        for late in &self.late_answers {
            writeln!(f, "late answer   {late}")?;
        }
        for asked in &self.questions {
            write!(f, "{asked}")?;
        }
        write!(f, "{}", self.outcome)?;
        match self.kept_until {
            Some(until) => writeln!(f, "kept          until {until}")?,
            None if self.outcome.state == "gone" => writeln!(f, "kept          a tombstone, for ever")?,
            None => writeln!(f, "kept          for ever")?,
        }
        writeln!(f, "as of         {}", self.as_of)
    }
}

impl fmt::Display for AskedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        match self.run {
            Some(run) => write!(f, ", by {run}")?,
            None => f.write_str(", without a run")?,
        }
        self.step.as_ref().map_or(Ok(()), |step| write!(f, ", step {}", Plain(step)))?;
        if self.turn > 0 {
            write!(f, ", turn {}", self.turn)?;
        }
        self.call_id.as_ref().map_or(Ok(()), |id| write!(f, ", call {}", Plain(id)))
    }
}

impl fmt::Display for ApprovalEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.policy {
            Some(policy) => {
                write!(f, "approved      by policy {}, version {}", Plain(&policy.name), policy.version)?;
            }
            None => write!(f, "approved      by {}", Plain(&self.by))?,
        }
        if let Some((review, version)) = &self.review {
            write!(f, ", review {}, version {version}", Plain(review))?;
        }
        self.expires_at.map_or(Ok(()), |at| write!(f, ", valid until {at}"))?;
        writeln!(f)?;
        for VoteEvidence { by, approves, reason, at } in &self.votes {
            let verdict = if *approves { "for" } else { "against" };
            let because = if reason.is_empty() { String::new() } else { format!(": {}", Plain(reason)) };
            writeln!(f, "vote          {at}, {} {verdict}{because}", Plain(by))?;
        }
        Ok(())
    }
}

impl fmt::Display for AskedAbout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "question      {}, {} ({})", self.opened_at, self.id, self.kind.name())?;
        for (word, answer) in [("answered", &self.answer), ("waits", &self.waiting)] {
            let Some(answer) = answer else { continue };
            write!(f, "{word:<13} {}, {} by {}", answer.at, answer.resolution.name(), Plain(&answer.by))?;
            answer.because.as_ref().map_or(Ok(()), |because| write!(f, ": {}", Plain(because)))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for OutcomeEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outcome       {}, {}", self.settled_at.unwrap_or(self.updated_at), self.state)?;
        self.basis.map_or(Ok(()), |basis| write!(f, ", by {basis}"))?;
        self.external_ref.as_ref().map_or(Ok(()), |id| write!(f, ", provider's id {}", Plain(id)))?;
        let failure = self.failure.as_ref();
        failure
            .map_or(Ok(()), |failure| write!(f, ", {}: {}", failure.kind.name(), Plain(&failure.message)))?;
        self.abandoned.as_ref().map_or(Ok(()), |reason| write!(f, ", {}", Plain(reason)))?;
        match self.undone {
            Some(true) => writeln!(f, ", undone"),
            Some(false) => writeln!(f, ", undone in part"),
            None => writeln!(f),
        }
    }
}
