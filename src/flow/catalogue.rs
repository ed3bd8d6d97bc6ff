//! The catalogue: the workflows that engines have registered, published when an engine is started. A process without the workflows'
//! code, such as a server of the API, reads there what may be started, and what inputs look like.
//!
//! There is one row for each name. The engine that was started last has written it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workflow::Workflows;
use crate::clock::Timestamp;
use crate::exec::Core;
use crate::id::{Name, Tenant};
use crate::store::{Document, Refusal, Store as _, StoreError, Verdict, WORKFLOW_KIND};

/// The number of rows that are read at a time.
const PAGE: u32 = 200;

/// A workflow in the catalogue.
pub(crate) struct PublishedWorkflow {
    pub(crate) name: String,
    /// The registered versions, in their order.
    pub(crate) versions: Vec<u32>,
    /// The schema of the input, as the newest version declares it.
    pub(crate) input_schema: Option<Value>,
    /// The instant at which the row was last changed.
    pub(crate) published_at: Timestamp,
}

/// The body of a row.
#[derive(Default, Serialize, Deserialize)]
struct Entry {
    versions: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_schema: Option<Value>,
}

impl PublishedWorkflow {
    fn of(row: Document) -> Result<Self, StoreError> {
        let Entry { versions, input_schema } =
            serde_json::from_str(&row.body).map_err(|error| StoreError::Corrupt {
                row: format!("document {WORKFLOW_KIND} {}", row.id),
                detail: error.to_string(),
            })?;
        Ok(Self { name: row.id, versions, input_schema, published_at: row.updated_at })
    }
}

/// The catalogue by name, from behind `after` on: a page of at most `limit`.
pub(crate) async fn list(core: &Core, after: &str, limit: u32) -> Result<Vec<PublishedWorkflow>, StoreError> {
    let rows = core.group.document_list(&Tenant::ledger(), WORKFLOW_KIND, after, limit).await?;
    rows.into_iter().map(PublishedWorkflow::of).collect()
}

/// The workflow of a name, if an engine has published it.
pub(crate) async fn find(core: &Core, name: &Name) -> Result<Option<PublishedWorkflow>, StoreError> {
    let row = core.group.document_find(&Tenant::ledger(), WORKFLOW_KIND, name.as_str()).await?;
    row.map(PublishedWorkflow::of).transpose()
}

/// Publishes the workflows of an engine, in one change. A row that is up to date is not written.
///
/// # Crash
/// The rows are all there, or none of them. No run depends on them, and the next engine writes what is missing.
pub(super) async fn publish(core: &Core, workflows: &Workflows) -> Result<(), StoreError> {
    let entries = entries(workflows);
    if entries.is_empty() {
        return Ok(());
    }
    loop {
        let (mut change, now) = (core.change(None), core.now());
        let mut stored = stored(core).await?;
        change.documents = entries
            .iter()
            .filter_map(|(name, entry)| {
                let row = Document::first(&Tenant::ledger(), WORKFLOW_KIND, name.clone(), entry, now);
                match stored.remove(name) {
                    None => Some(row),
                    Some(before) if before.body == row.body => None,
                    Some(Document { revision, created_at, .. }) => {
                        Some(Document { revision: revision + 1, created_at, ..row })
                    }
                }
            })
            .collect();
        if change.documents.is_empty() {
            return Ok(());
        }
        match core.group.commit_one(change).await? {
            Verdict::Admitted => return Ok(()),
            Verdict::Refused(Refusal::Exists) => {} // another engine publishes at this moment
            Verdict::Refused(refusal) => return Err(StoreError::Io { detail: refusal.to_string() }),
        }
    }
}

/// The rows of the catalogue by their names.
async fn stored(core: &Core) -> Result<BTreeMap<String, Document>, StoreError> {
    let (mut rows, mut after) = (BTreeMap::new(), String::new());
    loop {
        let page = core.group.document_list(&Tenant::ledger(), WORKFLOW_KIND, &after, PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        if let Some(last) = page.last() {
            after.clone_from(&last.id);
        }
        rows.extend(page.into_iter().map(|row| (row.id.clone(), row)));
        if is_last {
            return Ok(rows);
        }
    }
}

/// What is published about each workflow. A run that is started by name belongs to the newest version, so that one's schema counts.
fn entries(workflows: &Workflows) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::<String, Entry>::new();
    for workflow in workflows.all() {
        let entry = entries.entry(workflow.name.to_string()).or_default();
        entry.versions.push(workflow.version);
        entry.input_schema = workflow.input_schema.as_deref().cloned();
    }
    entries
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Ctx, Failure, Workflow};
    use super::*;

    async fn first(_: Ctx, (): ()) -> Result<(), Failure> {
        Ok(())
    }

    async fn second(_: Ctx, (): ()) -> Result<(), Failure> {
        Ok(())
    }

    async fn other(_: Ctx, (): ()) -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn the_newest_version_says_what_an_input_looks_like() {
        let mut workflows = Workflows::default();
        workflows.add(Workflow::new("b", second).version(2).input_schema(json!({ "type": "null" }))).unwrap();
        workflows.add(Workflow::new("b", first).input_schema(json!(false))).unwrap();
        workflows.add(Workflow::new("a", other)).unwrap();
        let entries = entries(&workflows);
        assert_eq!(
            serde_json::to_value(&entries).unwrap(),
            json!({ "a": { "versions": [1] }, "b": { "versions": [1, 2], "input_schema": { "type": "null" } } })
        );
    }

    #[test]
    fn a_workflow_with_a_malformed_schema_is_refused() {
        let refused = Workflows::default().add(Workflow::new("a", first).input_schema(json!({ "type": 7 })));
        assert!(refused.unwrap_err().contains("the schema of its input is unusable"));
    }
}
