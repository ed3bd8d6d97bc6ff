//! Results of calls that their providers finish by themselves, handed over by callbacks. Each is kept in a row of its own, under the
//! provider's id, before anything follows from it.
//!
//! A callback may come before the provider's id is stored, twice, or after a lookup has settled its call. The call writes which record
//! the id is of and reads the completion afterwards; the callback writes the completion and reads the record afterwards. So one of the
//! two sees both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::asked;
use super::core::Core;
use super::escalate;
use super::executor::Executor;
use super::outcome::{ExecError, failed};
use super::recorded::recorded;
use super::shield::to_the_end;
use crate::id::{RecordId, Tenant};
use crate::ledger::{ErrorKind, Finding, Record, State};
use crate::payload::Payload;
use crate::store::{Document, Escalation, Refusal, Store as _, StoreError, Verdict};

/// The kind of the rows that hold completions.
const KIND: &str = "completion";
/// The kind of the rows that tell which record a provider's id is of.
const ACCEPTED: &str = "accepted";
/// The longest provider's id, in bytes: it is part of a key.
const LONGEST: usize = 1024;

/// How a call ended that its provider has [accepted](crate::tool::ToolError::accepted): what a callback says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    tool: String,
    external_ref: String,
    ended: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    Done(Value),
    Failed {
        kind: ErrorKind,
        message: String,
    },
    /// The record says how. The output is in one place, so that it can be erased.
    Recorded,
}

/// What follows from a completion. It is durable in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completed {
    /// Its call is settled with it.
    Taken,
    /// No call waits under this id. It is kept, and settles a call that is accepted under this id later.
    Kept,
    /// A completion was handed over before under this id. The first one counts.
    Known,
}

impl Completion {
    /// The call succeeded with this output. `tool` is the tool's name, and `external_ref` the provider's id for the call.
    pub fn done(tool: impl Into<String>, external_ref: impl Into<String>, output: Value) -> Self {
        Self { tool: tool.into(), external_ref: external_ref.into(), ended: Ended::Done(output) }
    }

    /// The call failed, and for certain had no effect. The message goes into the record: no secrets.
    pub fn failed(
        tool: impl Into<String>,
        external_ref: impl Into<String>,
        kind: ErrorKind,
        message: impl Into<String>,
    ) -> Self {
        let ended = Ended::Failed { kind, message: message.into() };
        Self { tool: tool.into(), external_ref: external_ref.into(), ended }
    }
}

impl Executor {
    /// Hands over the result of a call that its provider has [accepted](crate::tool::ToolError::accepted) and finished by itself. The
    /// call is settled with it, and a run that waits for the call goes on. It is told apart by the tool's name and the provider's id: a
    /// second completion of the same call changes nothing, and one that comes before the call's own answer is kept for it.
    ///
    /// Acknowledge the callback when this returns.
    ///
    /// ```
    /// # use counterfoil::{Completed, Completion, Executor, Tenant};
    /// # async fn callback(executor: Executor, tenant: Tenant, job: &str, url: &str) -> Result<(), counterfoil::ExecError> {
    /// let rendered = Completion::done("render", job, serde_json::json!({ "url": url }));
    /// if executor.complete(&tenant, rendered).await? == Completed::Known {
    ///     println!("{job} was completed before");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ExecError::UnknownTool`] if no such tool is registered, and [`ExecError::Payload`] if the output is not what the tool returns,
    /// or too large. Nothing is kept then.
    ///
    /// # Crash
    /// The completion is durable before anything follows from it. If this process dies in between, the call is settled by the next
    /// lookup, by the callback's next delivery, or when its run is resumed.
    pub async fn complete(&self, tenant: &Tenant, completion: Completion) -> Result<Completed, ExecError> {
        let (core, tenant) = (self.core.clone(), tenant.clone());
        to_the_end(&self.core.tracker, async move { complete(&core, &tenant, completion).await }).await
    }
}

async fn complete(core: &Arc<Core>, tenant: &Tenant, completion: Completion) -> Result<Completed, ExecError> {
    let Completion { tool, external_ref, ended } = completion;
    check(core, &tool, &external_ref, &ended)?;
    let id = id(&tool, &external_ref);
    let read = |source| ExecError::Store { key: id.clone(), source };
    let named = accepted(core, tenant, &id).await.map_err(read)?;
    let is_settled = named.as_ref().is_some_and(|record| record.state != State::Started);
    let late = named.filter(|record| is_late(record, &external_ref) && matches!(ended, Ended::Done(_)));
    let late = late.map(|record| escalate::finished_late(core, &record, &external_ref));
    let ended = if is_settled { Ended::Recorded } else { ended };
    let is_kept = keep(core, tenant, &id, &ended, late).await.map_err(read)?;
    // Read once more: the id may have been stored since.
    let is_taken = match accepted(core, tenant, &id).await.map_err(read)? {
        Some(record) if !is_late(&record, &external_ref) => hand_over(core, &record).await?,
        _ => false,
    };
    Ok(match (is_kept, is_taken) {
        (false, _) => Completed::Known,
        (true, true) => Completed::Taken,
        (true, false) => Completed::Kept,
    })
}

/// Refuses what could not settle any call.
fn check(core: &Core, tool: &str, external_ref: &str, ended: &Ended) -> Result<(), ExecError> {
    let known = core.registry.known(tool).ok_or_else(|| ExecError::UnknownTool { tool: tool.to_owned() })?;
    if external_ref.is_empty() || external_ref.len() > LONGEST {
        let reason = format!("a provider's id of {} bytes; 1 to {LONGEST} are taken", external_ref.len());
        return Err(ExecError::Incomplete { tool: tool.to_owned(), reason });
    }
    if let Ended::Done(output) = ended {
        known.check_output(&Payload::of(output)?.within(&core.limits)?)?;
    }
    Ok(())
}

/// Keeps the first completion under an id. `false` if there is one.
///
/// # Crash
/// The question about a late completion is one transaction with it.
async fn keep(
    core: &Core,
    tenant: &Tenant,
    id: &str,
    ended: &Ended,
    late: Option<Escalation>,
) -> Result<bool, StoreError> {
    let mut change = core.change(None);
    change.documents.push(Document::first(tenant, KIND, id.to_owned(), ended, core.now()));
    change.escalations.extend(late);
    match core.group.commit_one(change).await? {
        Verdict::Admitted => Ok(true),
        Verdict::Refused(Refusal::Exists) => Ok(false),
        Verdict::Refused(refusal) => Err(StoreError::Io { detail: refusal.to_string() }),
    }
}

/// The record whose call was accepted under this id.
async fn accepted(core: &Core, tenant: &Tenant, id: &str) -> Result<Option<Record>, StoreError> {
    let rows = core.group.document_list(tenant, ACCEPTED, &under(id), 1).await?;
    let Some(row) = rows.first().filter(|row| row.id.starts_with(&under(id))) else { return Ok(None) };
    let corrupt = |detail| StoreError::Corrupt { row: format!("document {ACCEPTED} {}", row.id), detail };
    let record = serde_json::from_str(&row.body).map_err(|error| corrupt(error.to_string()))?;
    core.group.record_at(tenant, RecordId(record)).await
}

/// The row that tells which record a provider's id is of; none if it is written already, or if no callback can name the id.
pub(super) async fn naming(
    core: &Core,
    record: &Record,
    external_ref: Option<&str>,
) -> Result<Option<Document>, ExecError> {
    let Some(external_ref) = external_ref.filter(|id| (1..=LONGEST).contains(&id.len())) else {
        return Ok(None);
    };
    let id = format!("{}{}", under(&id(record.operation.as_str(), external_ref)), record.id.0);
    let there = core.group.document_find(&record.tenant, ACCEPTED, &id).await;
    let is_there = there.map_err(|source| failed(&record.key, source))?.is_some();
    Ok((!is_there).then(|| Document::first(&record.tenant, ACCEPTED, id, &record.id.0, core.now())))
}

/// The call was settled as not done, or another request of it counts.
fn is_late(record: &Record, external_ref: &str) -> bool {
    matches!(record.state, State::Failed { .. } | State::Abandoned { .. })
        || record.external_ref.as_deref() != Some(external_ref)
}

/// The record no longer waits: whoever wants its call settles it with the completion. `false` if somebody has it in hand.
async fn hand_over(core: &Arc<Core>, record: &Record) -> Result<bool, ExecError> {
    let Some(question) = record.escalation else { return Ok(false) };
    let asked = core.group.escalation_find(&record.tenant, question).await;
    let asked = asked.map_err(|source| failed(&record.key, source))?;
    let Some(asked) = asked.filter(|asked| asked.answer.is_none() && asked.kind.is_about_call()) else {
        return Ok(false);
    };
    let Ok(op) = recorded(core, record).await? else { return Ok(false) };
    asked::withdraw(core, &op, record, asked).await.map(|()| true)
}

/// What was handed over about a record.
pub(super) struct HandedOver {
    /// As a lookup would say it.
    pub(super) finding: Finding<Payload>,
    /// The completion's row without the output: it is written with the record that holds the output from then on.
    pub(super) recorded: Document,
}

/// What was handed over about a record, and is not recorded yet.
pub(super) async fn of(core: &Core, record: &Record) -> Result<Option<HandedOver>, ExecError> {
    let Some(external_ref) = record.external_ref.as_deref() else { return Ok(None) };
    let id = id(record.operation.as_str(), external_ref);
    let kept = core.group.document_find(&record.tenant, KIND, &id).await;
    let Some(kept) = kept.map_err(|source| failed(&record.key, source))? else { return Ok(None) };
    let ended = serde_json::from_str(&kept.body).map_err(|error| {
        let source = StoreError::Corrupt { row: format!("document {KIND} {id}"), detail: error.to_string() };
        failed(&record.key, source)
    })?;
    let finding = match ended {
        Ended::Done(output) => {
            let output = Payload::of(&output)?;
            Finding::Committed { output, external_ref: Some(external_ref.to_owned()) }
        }
        Ended::Failed { kind, message } => Finding::Failed { kind, message },
        Ended::Recorded => return Ok(None),
    };
    let first = Document::first(&record.tenant, KIND, id, &Ended::Recorded, core.now());
    let recorded = Document { revision: kept.revision + 1, created_at: kept.created_at, ..first };
    Ok(Some(HandedOver { finding, recorded }))
}

fn id(tool: &str, external_ref: &str) -> String {
    format!("{tool}/{external_ref}")
}

/// How the ids of the rows under an id begin. No provider's id is taken for the beginning of another one.
fn under(id: &str) -> String {
    format!("{}/", id.replace('%', "%25").replace('/', "%2F"))
}
