//! Results of calls that their providers finish by themselves, handed over by callbacks. Each is kept in a row of its own, under the
//! provider's id, before anything follows from it.
//!
//! A callback may come before the provider's id is stored, twice, or after a lookup has settled its call. The call writes which record
//! the id is of and reads the completion afterwards; the callback writes the completion and reads the record afterwards. So one of the
//! two sees both.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::core::Core;
use super::outcome::{ExecError, failed};
use crate::id::{RecordId, Tenant};
use crate::ledger::{ContractClass, ErrorKind, LookupResult, Record};
use crate::payload::{Payload, Response};
use crate::store::{Document, Store as _, StoreError, part};

/// The kind of the rows that hold completions.
pub(super) const KIND: &str = "completion";
/// The kind of the rows that tell which record a provider's id is of.
const ACCEPTED: &str = "accepted";
/// The longest provider's id, in bytes: it is part of a key.
pub(super) const LONGEST: usize = 1024;

/// How a call ended that its provider has [accepted](crate::tool::ToolError::accepted): what a callback says.
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

/// The record whose call was accepted under this id.
pub(super) async fn accepted(core: &Core, tenant: &Tenant, id: &str) -> Result<Option<Record>, StoreError> {
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
    let Some(external_ref) = external_ref.filter(|id| is_nameable(id)) else { return Ok(None) };
    let id = format!("{}{}", under(&id(record.operation.as_str(), external_ref)), record.id.0);
    let there = core.group.document_find(&record.tenant, ACCEPTED, &id).await;
    let is_there = there.map_err(|source| failed(&record.key, source))?.is_some();
    Ok((!is_there).then(|| Document::first(&record.tenant, ACCEPTED, id, &record.id.0, core.now())))
}

/// What was handed over about a record.
pub(super) struct HandedOver {
    /// As a lookup would say it.
    pub(super) finding: LookupResult<Response>,
    /// The completion's row without the output: it is written with the record that holds the output from then on.
    pub(super) recorded: Document,
}

/// What was handed over about a record, and settles it. That one accepted request has failed says nothing of an earlier one that is in
/// doubt, where the two do not collide.
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
            let output = Ok(Payload::of(&output)?); // it was measured when it was handed over
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

/// The id of a completion's row: no other tool with another provider's id has the same.
pub(super) fn id(tool: &str, external_ref: &str) -> String {
    format!("{}/{}", part(tool), part(external_ref))
}

/// How the ids of the rows under an id begin. No provider's id is taken for the beginning of another one.
fn under(id: &str) -> String {
    format!("{id}/")
}

/// A callback can name this provider's id.
pub(super) fn is_nameable(external_ref: &str) -> bool {
    (1..=LONGEST).contains(&external_ref.len()) && !external_ref.chars().any(char::is_control)
}
