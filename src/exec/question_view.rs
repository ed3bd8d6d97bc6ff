//! A question with everything that its answer takes: the run, the call, what the provider is searched by, and the possible answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::core::Core;
use super::executor::Executor;
use super::history::{self, CallHistory};
use super::outcome::{ExecError, failed};
use super::plain::Plain;
use crate::clock::Timestamp;
use crate::id::{Fence, QuestionId, RunId, Tenant, text};
#[cfg(any(feature = "api", feature = "cli"))]
use crate::ledger::OperationKey;
use crate::ledger::{LookupOffer, Record, RecordedFailure, State};
use crate::store::{
    Answer, Evidence, PossibleAnswer, Question, QuestionKind, Resolution, Store as _, StoreError,
};

/// The longest request that a view shows, in bytes. Of a longer one it shows the beginning, as a text.
const REQUEST: usize = 4 * 1024;

/// A question with everything that its answer takes. It is written as JSON with times in RFC 3339, or shown as a text of several lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QuestionView {
    /// The name of the question, as it is given to `answer`.
    #[serde(serialize_with = "text")]
    pub id: QuestionId,
    /// The tenant of the question.
    pub tenant: Tenant,
    /// The kind of the question.
    pub kind: QuestionKind,
    /// The question in words.
    pub question: String,
    /// The instant at which the question was opened (UTC).
    #[serde(serialize_with = "text")]
    pub opened_at: Timestamp,
    /// The answers that the question takes, each with its consequence. `look_now` is left out if the provider has no
    /// lookup.
    pub answers: Vec<PossibleAnswer>,
    /// An answer that takes effect later: see [`Question::waiting`].
    pub waiting: Option<QuestionAnswer>,
    /// The answer, if the question was answered.
    pub answer: Option<QuestionAnswer>,
    /// The run that waits for the answer, or that the question is about.
    pub run: Option<QuestionRun>,
    /// The call that the question is about.
    pub call: Option<QuestionCall>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QuestionAnswer {
    /// The name of the person who answered; `counterfoil` for the engine itself.
    pub by: String,
    /// The answer.
    pub resolution: Resolution,
    /// The reason in that person's words, if one was given.
    pub because: Option<String>,
    /// The reason why the answer does not count, if it does not: its result is not what the tool returns.
    pub misfit: Option<String>,
    /// The instant of the answer (UTC).
    #[serde(serialize_with = "text")]
    pub at: Timestamp,
}

impl From<Answer> for QuestionAnswer {
    fn from(Answer { by, resolution, because, misfit, at }: Answer) -> Self {
        Self { by, resolution, because, misfit, at }
    }
}

/// The run of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuestionRun {
    /// The run.
    #[serde(serialize_with = "text")]
    pub id: RunId,
    /// The name of its workflow.
    pub workflow: String,
    /// The version of its workflow.
    pub version: u32,
    /// The state of the run, in a word.
    pub state: &'static str,
    /// The key that the run was started under.
    pub key: Option<String>,
}

/// The call of a question.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QuestionCall {
    /// The name of the tool.
    pub tool: String,
    /// The effect class of the tool, in a word.
    pub effect: &'static str,
    /// The key of the operation.
    pub key: String,
    /// The key as it went to the provider: the reference to search the provider by.
    pub wire_key: String,
    /// The id that the provider gave to the effect, if one is known.
    pub external_ref: Option<String>,
    /// The approval under which the call goes out, in words: `by ann`, `by policy transactional-mail, version 1`. Absent if
    /// it needs none.
    pub approval: Option<String>,
    /// The [labels](super::ToolRequest::label) of the call, by their names. A call that was erased has none.
    pub labels: BTreeMap<String, String>,
    /// The state of the record, in a word.
    pub state: &'static str,
    /// The attempts and lookups: when each was made, by which worker, and its result or error.
    pub history: CallHistory,
    /// The number of attempts that were begun.
    pub attempts: u32,
    /// The instant at which the operation was recorded (UTC): no request of it left before.
    #[serde(serialize_with = "text")]
    pub created_at: Timestamp,
    /// The instant of the last change of the record (UTC).
    #[serde(serialize_with = "text")]
    pub updated_at: Timestamp,
    /// The failure that is recorded, if the call failed for certain.
    pub failure: Option<RecordedFailure>,
    /// The request, with digests in place of secrets; the first 4 KiB, as a text, of a longer one. Absent where it is not kept.
    pub request: Option<Value>,
    /// The late answers of workers that had lost the call.
    pub evidence: Vec<QuestionEvidence>,
}

/// The late answer of a worker that had lost the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuestionEvidence {
    /// The attempt that was answered.
    pub attempt: u32,
    /// The worker that made the attempt.
    pub worker: Fence,
    /// The id that the provider gave to the effect.
    pub external_ref: Option<String>,
    /// The instant at which the answer came (UTC).
    #[serde(serialize_with = "text")]
    pub at: Timestamp,
}

impl Executor {
    /// A question with everything that its answer takes: the run, the call, the keys and ids to search the provider by, the request and the
    /// possible answers. `None` if there is no such question.
    ///
    /// ```no_run
    /// # async fn page(executor: counterfoil::Executor, id: counterfoil::QuestionId) -> Result<(), Box<dyn std::error::Error>> {
    /// # let acme = counterfoil::Tenant::new("acme")?;
    /// if let Some(question) = executor.question(&acme, id).await? {
    ///     println!("{question}");
    ///     println!("{}", serde_json::to_string(&question)?);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn question(
        &self,
        tenant: &Tenant,
        question: QuestionId,
    ) -> Result<Option<QuestionView>, ExecError> {
        view(&self.core, tenant, question).await
    }
}

/// The view of a question.
pub(crate) async fn view(
    core: &Arc<Core>,
    tenant: &Tenant,
    id: QuestionId,
) -> Result<Option<QuestionView>, ExecError> {
    let store_failed = |source: StoreError| ExecError::Store { key: id.to_string(), source };
    let found = core.group.escalation_find(tenant, id).await.map_err(store_failed)?;
    let Some(asked) = found else { return Ok(None) };
    let run = match asked.run {
        Some(run) => core.group.run_find(tenant, run).await.map_err(store_failed)?,
        None => None,
    };
    let record = match asked.record {
        Some(record) => core.group.record_at(tenant, record).await.map_err(store_failed)?,
        None => None,
    };
    let run = run.map(|run| QuestionRun {
        id: run.id,
        workflow: run.workflow.to_string(),
        version: run.version,
        state: run.state.name(),
        key: run.key,
    });
    let mut answers = asked.answers().to_vec();
    let call = match record {
        Some(record) => {
            let contract = core.contract_of(&record).await.map_err(store_failed)?;
            let can_look = contract.lookup != LookupOffer::None;
            answers.retain(|answer| can_look || answer.name != Resolution::LookNow.name());
            Some(call(core, &record).await?)
        }
        None => None,
    };
    let Question { id, tenant, kind, question, opened_at, waiting, answer, .. } = asked;
    let (waiting, answer) = (waiting.map(QuestionAnswer::from), answer.map(QuestionAnswer::from));
    Ok(Some(QuestionView { id, tenant, kind, question, opened_at, answers, waiting, answer, run, call }))
}

/// The view of the operation with a key.
#[cfg(any(feature = "api", feature = "cli"))]
pub(crate) async fn view_record(
    core: &Arc<Core>,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<QuestionCall>, ExecError> {
    match core.find(tenant, &OperationKey::stored(key)).await? {
        Some(record) => Ok(Some(call(core, &record).await?)),
        None => Ok(None),
    }
}

async fn call(core: &Arc<Core>, record: &Record) -> Result<QuestionCall, ExecError> {
    let store_failed = |source| failed(&record.key, source);
    let declaration = core.declaration(record).await.map_err(store_failed)?;
    Ok(QuestionCall {
        tool: record.operation.to_string(),
        effect: record.class.name(),
        key: record.key.to_string(),
        wire_key: declaration.wire_key(&record.key, &record.tenant),
        external_ref: record.external_ref.clone(),
        approval: record.approval.as_ref().map(ToString::to_string),
        labels: labels(core, record).await?,
        state: record.state.name(),
        history: history::of(core, record).await.map_err(store_failed)?,
        attempts: record.attempts,
        created_at: record.created_at,
        updated_at: record.updated_at,
        failure: match &record.state {
            State::Failed { failure } => Some(failure.clone()),
            _ => None,
        },
        request: request(core, record).await?,
        evidence: late_answers(core, record).await?,
    })
}

/// The labels of a record, by their names.
pub(super) async fn labels(core: &Core, record: &Record) -> Result<BTreeMap<String, String>, ExecError> {
    let labels = core.group.record_labels(&record.tenant, record.id).await;
    let labels = labels.map_err(|source| failed(&record.key, source))?;
    Ok(labels.into_iter().map(|label| (label.name, label.value)).collect())
}

/// The late answers about a record.
pub(super) async fn late_answers(core: &Core, record: &Record) -> Result<Vec<QuestionEvidence>, ExecError> {
    let late = core.group.record_evidence(&record.tenant, record.id).await;
    let late = late.map_err(|source| failed(&record.key, source))?;
    let shown = |late: Evidence| QuestionEvidence {
        attempt: late.attempt,
        worker: late.fence,
        external_ref: late.external_ref,
        at: late.at,
    };
    Ok(late.into_iter().map(shown).collect())
}

async fn request(core: &Core, record: &Record) -> Result<Option<Value>, ExecError> {
    if matches!(record.state, State::Gone { .. }) {
        return Ok(None);
    }
    let payload = core.load(&record.tenant, &record.request).await?;
    if payload.as_str().len() <= REQUEST {
        return Ok(Some(payload.value()?));
    }
    let shown = payload.as_str().floor_char_boundary(REQUEST);
    Ok(Some(Value::String(format!("{}…", &payload.as_str()[..shown]))))
}

impl fmt::Display for QuestionEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.external_ref.as_deref().unwrap_or("without an id");
        write!(f, "{}, attempt {} by worker {}, {}", self.at, self.attempt, self.worker, Plain(id))
    }
}

impl fmt::Display for QuestionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "call          {} ({}), {}", self.key, self.effect, self.state)?;
        writeln!(f, "wire key      {}", self.wire_key)?;
        writeln!(f, "provider's id {}", self.external_ref.as_deref().unwrap_or("unknown"))?;
        writeln!(
            f,
            "attempts      {}, recorded {}, last change {}",
            self.attempts, self.created_at, self.updated_at
        )?;
        if let Some(approval) = &self.approval {
            writeln!(f, "approved      {approval}")?;
        }
        for (name, value) in &self.labels {
            writeln!(f, "label         {}={}", Plain(name), Plain(value))?;
        }
        if let Some(failure) = &self.failure {
            writeln!(f, "failure       {}: {}", failure.kind.name(), failure.message)?;
        }
        if let Some(request) = &self.request {
            writeln!(f, "request       {request}")?;
        }
        write!(f, "{}", self.history)?;
        self.evidence.iter().try_for_each(|late| writeln!(f, "late answer   {late}"))
    }
}

impl fmt::Display for QuestionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}), opened {}", self.id, self.kind.name(), self.opened_at)?;
        writeln!(f, "  {}", self.question)?;
        if let Some(QuestionRun { id, workflow, version, state, .. }) = &self.run {
            writeln!(f, "run           {id} of {workflow} version {version}, {state}")?;
        }
        if let Some(call) = &self.call {
            write!(f, "{call}")?;
        }
        match &self.answer {
            Some(answer) => writeln!(f, "answered      {} by {}", answer.resolution.name(), answer.by),
            None => self.answers.iter().try_for_each(|answer| writeln!(f, "answer        {answer}")),
        }
    }
}
