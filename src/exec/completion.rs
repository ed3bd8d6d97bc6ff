//! Results of calls that their providers finish by themselves, handed over by callbacks. Each completion is kept in a
//! row of its own, under the provider's id, before anything follows from it.
//!
//! A callback may arrive before the provider's id is stored, twice, or after a lookup has settled its call. The call
//! writes which record the id belongs to and reads the completion afterwards; the callback writes the completion and
//! reads the record afterwards. So at least one of the two sees both rows.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::core::Core;
use super::outcome::{ExecError, failed};
use crate::id::{RecordId, Tenant};
use crate::ledger::{ContractClass, ErrorKind, LookupResult, Record};
use crate::payload::{Payload, Response};
use crate::store::{Document, Store as _, StoreError, part};

/// The document kind of completions.
pub(super) const KIND: &str = "completion";
/// The document kind of the rows that map a provider's id to its record.
const ACCEPTED: &str = "accepted";
/// The maximum length of a provider's id, in bytes. The id is part of a key.
pub(super) const LONGEST: usize = 1024;

/// The end of a call that its provider has [accepted](crate::tool::ToolError::accepted), as told by a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    pub(super) tool: String,
    pub(super) external_ref: String,
    pub(super) ended: Ended,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Done(Value),
    Failed {
        kind: ErrorKind,
        message: String,
    },
    /// The record holds the end of the call. The output is stored in one place only, so that it can be erased.
    Recorded,
}

/// The result of handing over a completion. It is durable in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Completed {
    /// The call is settled with the completion.
    Taken,
    /// No call waits under this id. The completion is kept, and settles a call that is accepted under this id later.
    Kept,
    /// A completion was handed over before under this id. The first completion counts.
    Known,
}

impl Completion {
    /// A completion of a call that succeeded with `output`. `tool` is the tool's name, and `external_ref` the
    /// provider's id for the call.
    pub fn done(tool: impl Into<String>, external_ref: impl Into<String>, output: Value) -> Self {
        Self { tool: tool.into(), external_ref: external_ref.into(), ended: Ended::Done(output) }
    }

    /// A completion of a call that failed and certainly had no effect. The message goes into the record: no secrets.
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

/// The record whose call was accepted under this id.
pub(super) async fn accepted(core: &Core, tenant: &Tenant, id: &str) -> Result<Option<Record>, StoreError> {
    let rows = core.group.document_list(tenant, ACCEPTED, &under(id), 1).await?;
    let Some(row) = rows.first().filter(|row| row.id.starts_with(&under(id))) else { return Ok(None) };
    let corrupt = |detail| StoreError::Corrupt { row: format!("document {ACCEPTED} {}", row.id), detail };
    let record = serde_json::from_str(&row.body).map_err(|error| corrupt(error.to_string()))?;
    core.group.record_at(tenant, RecordId(record)).await
}

/// The row that maps a provider's id to its record. `None` if the row is written already, or if no callback can name
/// the id.
pub(super) async fn naming(
    core: &Core,
    record: &Record,
    external_ref: Option<&str>,
) -> Result<Option<Document>, ExecError> {
    let Some(external_ref) = external_ref.filter(|id| is_nameable(id)) else { return Ok(None) };
    let id = format!("{}{}", under(&id(record.operation.as_str(), external_ref)), record.id.0);
    let there = core.group.document_find(&record.tenant, ACCEPTED, &id).await;
    let is_there = there.map_err(|source| failed(&record.key, source))?.is_some();
    Ok((!is_there).then(|| Document::first(&record.tenant, ACCEPTED, id, &record.id.0, core.now())))
}

/// A completion that settles a record.
pub(super) struct HandedOver {
    /// The completion in the form of a lookup result.
    pub(super) finding: LookupResult<Response>,
    /// The completion's row without the output, to be written with the record, which holds the output from then on.
    pub(super) recorded: Document,
}

/// The completion that settles a record, if one was handed over. If an earlier request is in doubt and the provider
/// does not reject the second of two requests, the failure of one accepted request says nothing of the earlier one.
pub(super) async fn of(
    core: &Core,
    record: &Record,
    contract: ContractClass,
) -> Result<Option<HandedOver>, ExecError> {
    let Some(external_ref) = record.external_ref.as_deref().filter(|id| is_nameable(id)) else {
        return Ok(None);
    };
    let id = id(record.operation.as_str(), external_ref);
    let kept = core.group.document_find(&record.tenant, KIND, &id).await;
    let Some(kept) = kept.map_err(|source| failed(&record.key, source))? else { return Ok(None) };
    let ended = serde_json::from_str(&kept.body).map_err(|error| {
        let source = StoreError::Corrupt { row: format!("document {KIND} {id}"), detail: error.to_string() };
        failed(&record.key, source)
    })?;
    let finding = match ended {
        Ended::Done(output) => {
            let output = Ok(Payload::of(&output)?); // its size was checked when it was handed over
            LookupResult::Committed { output, external_ref: Some(external_ref.to_owned()) }
        }
        Ended::Failed { .. } if record.in_doubt && !contract.collides() => return Ok(None),
        Ended::Failed { kind, message } => LookupResult::Failed { kind, message },
        Ended::Recorded => return Ok(None),
    };
    let first = Document::first(&record.tenant, KIND, id, &Ended::Recorded, core.now());
    let recorded = Document { revision: kept.revision + 1, created_at: kept.created_at, ..first };
    Ok(Some(HandedOver { finding, recorded }))
}

/// The id of a completion's row, unique for each tool and provider's id.
pub(super) fn id(tool: &str, external_ref: &str) -> String {
    format!("{}/{}", part(tool), part(external_ref))
}

/// The prefix of the row ids under an id. No provider's id is taken for the prefix of another one.
fn under(id: &str) -> String {
    format!("{id}/")
}

/// True if a callback can name this provider's id.
pub(super) fn is_nameable(external_ref: &str) -> bool {
    (1..=LONGEST).contains(&external_ref.len()) && !external_ref.chars().any(char::is_control)
}
