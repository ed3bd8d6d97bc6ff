//! A list of records with the filters that an operator gives: the same words in every place where they are listed.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::exec::Core;
use crate::id::{QuestionId, RunId, Tenant, some_text, text};
use crate::ledger::Record;
use crate::rim::run_filter::{Labelled, Start};
use crate::store::{Store as _, StoreError};

/// The number of records that one page looks at, if not each of them is listed.
const LOOKED_AT: u32 = 1000;

/// The records to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct RecordConditions {
    /// Only records in this state: started, committed, failed, compensated, abandoned or gone
    #[cfg_attr(feature = "cli", arg(long))]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    state: Option<RecordStateName>,
    /// Only records of this tool
    #[cfg_attr(feature = "cli", arg(long))]
    tool: Option<String>,
    /// Only records with this label, such as `customer=c-7`
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME=VALUE"))]
    label: Option<Labelled>,
    /// Only records that this run asked for first
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long))]
    run: Option<RunId>,
    /// Only records that were made at this time (UTC) or later: `2026-11-26T09:30` or a beginning of it
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long))]
    since: Option<Start>,
    /// Only records that were made before this time (UTC)
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long))]
    before: Option<Start>,
}

/// The state of a record without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
enum RecordStateName {
    Started,
    Committed,
    Failed,
    Compensated,
    Abandoned,
    Gone,
}

impl RecordStateName {
    const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Committed => "committed",
            Self::Failed => "failed",
            Self::Compensated => "compensated",
            Self::Abandoned => "abandoned",
            Self::Gone => "gone",
        }
    }
}

/// The names of the states.
#[cfg(feature = "openapi")]
pub(super) const STATES: [&str; 6] = [
    RecordStateName::Started.name(),
    RecordStateName::Committed.name(),
    RecordStateName::Failed.name(),
    RecordStateName::Compensated.name(),
    RecordStateName::Abandoned.name(),
    RecordStateName::Gone.name(),
];

/// A record in a list: without its request and its result.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedRecord {
    /// The key of the operation.
    pub(super) key: String,
    pub(super) tool: String,
    /// The effect class of the tool, in a word.
    effect: &'static str,
    pub(super) state: &'static str,
    pub(super) attempts: u32,
    /// The run that asked for the operation first.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub(super) run: Option<RunId>,
    /// The id that the provider gave to the effect.
    external_ref: Option<String>,
    /// The question that the operation waits for.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    question: Option<QuestionId>,
    #[serde(serialize_with = "text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub(super) created_at: Timestamp,
    #[serde(serialize_with = "text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    updated_at: Timestamp,
    #[serde(serialize_with = "some_text")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    kept_until: Option<Timestamp>,
}

impl From<Record> for ListedRecord {
    fn from(record: Record) -> Self {
        Self {
            key: record.key.to_string(),
            tool: record.operation.to_string(),
            effect: record.class.name(),
            state: record.state.name(),
            attempts: record.attempts,
            run: record.owner.run,
            external_ref: record.external_ref,
            question: record.escalation,
            created_at: record.created_at,
            updated_at: record.updated_at,
            kept_until: record.kept_until,
        }
    }
}

/// A part of the keys of a tenant.
pub(super) struct Keys<'a> {
    /// The beginning of the keys.
    pub(super) prefix: &'a str,
    /// The key behind which the page begins.
    pub(super) after: &'a str,
    /// The maximum number of records.
    pub(super) limit: u32,
}

impl RecordConditions {
    const fn is_narrow(&self) -> bool {
        self.state.is_some()
            || self.tool.is_some()
            || self.run.is_some()
            || self.since.is_some()
            || self.before.is_some()
    }

    fn takes(&self, record: &Record) -> bool {
        self.state.is_none_or(|state| state.name() == record.state.name())
            && self.tool.as_ref().is_none_or(|tool| record.operation.as_str() == tool)
            && self.run.is_none_or(|run| record.owner.run == Some(run))
            && self.since.is_none_or(|since| record.created_at >= since.0)
            && self.before.is_none_or(|before| record.created_at < before.0)
    }

    /// A page in the order of the keys, and the key behind which the next one begins. A page of a list with a condition looks at
    /// a bounded number of records, so it may be short and have a next page.
    pub(super) async fn page(
        &self,
        core: &Core,
        tenant: &Tenant,
        keys: &Keys<'_>,
    ) -> Result<(Vec<ListedRecord>, Option<String>), StoreError> {
        let looked_at = if self.is_narrow() { LOOKED_AT.max(keys.limit) } else { keys.limit };
        let Keys { prefix, after, .. } = *keys;
        let seen = match &self.label {
            Some(Labelled(name, value)) => {
                core.group.record_labelled(tenant, (name, value), prefix, after, looked_at).await?
            }
            None => core.group.record_list(tenant, prefix, after, looked_at).await?,
        };
        let is_end = seen.len() < looked_at as usize;
        let end = seen.last().map(|record| record.key.to_string());
        let mut found: Vec<_> = seen.into_iter().filter(|record| self.takes(record)).collect();
        let is_cut = found.len() > keys.limit as usize;
        found.truncate(keys.limit as usize);
        let next = match found.last() {
            Some(last) if is_cut => Some(last.key.to_string()),
            _ => end.filter(|_| !is_end),
        };
        Ok((found.into_iter().map(ListedRecord::from).collect(), next))
    }
}
