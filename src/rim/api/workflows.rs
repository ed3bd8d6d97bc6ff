//! The workflows that engines have published, and the check of an input against the schema of its workflow.

use axum::{Extension, Json};
use serde::Serialize;
use serde_json::Value;

use super::page::{Asked, Page, Paged, Prefix, Window};
use super::problem::{Failed, Problem};
use crate::clock::Timestamp;
use crate::errors::ErrorCode;
use crate::flow::{InputSchema, PublishedWorkflow, TenantClient, find_workflow, list_workflows};
use crate::id::Name;

/// A workflow in a list.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedWorkflow {
    name: String,
    /// The registered versions; a run that is started by name belongs to the newest
    versions: Vec<u32>,
    /// The JSON Schema of the input; null if every input is taken
    input_schema: Option<Value>,
    #[serde(serialize_with = "crate::id::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    published_at: Timestamp,
}

impl From<PublishedWorkflow> for ListedWorkflow {
    fn from(published: PublishedWorkflow) -> Self {
        let PublishedWorkflow { name, versions, input_schema, published_at } = published;
        Self { name, versions, input_schema, published_at }
    }
}

/// The workflows by name. They are those of the engines, and the same for every tenant.
pub(super) async fn list(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(beginning): Asked<Prefix>,
) -> Paged<ListedWorkflow> {
    let (core, after) = (client.core().0, window.after()?.unwrap_or_default());
    let looked_at = window.looked_at(beginning.is_narrow());
    let rows = list_workflows(&core, after, looked_at).await?;
    let takes = |published: &PublishedWorkflow| beginning.takes(&published.name);
    let page = Page::sifted(rows, (looked_at, window.limit()), |published| published.name.clone(), takes);
    Ok(Json(page.map(ListedWorkflow::from)))
}

/// Refuses an input that does not fit the schema of its workflow, before a run is started. A start that is repeated is no new one: its
/// input was taken under the schema of its time.
pub(super) async fn check_input(
    client: &TenantClient,
    workflow: &str,
    key: &str,
    input: &Value,
) -> Result<(), Failed> {
    let name = Name::new(workflow)?;
    let published = find_workflow(&client.core().0, &name).await?;
    let Some(schema) = published.and_then(|published| published.input_schema) else { return Ok(()) };
    let Err(misfit) = fits(&schema, input) else { return Ok(()) };
    if client.run_of_named(workflow, key).find().await?.is_some() {
        return Ok(());
    }
    let detail =
        format!("nothing was started: the input does not fit the schema of {workflow:?}: {misfit} [input]");
    Err(Failed::of(Problem::Code(ErrorCode::Input), detail))
}

/// An unreadable schema, such as one that a later version of this program has published, refuses nothing: the worker decodes the input.
fn fits(schema: &Value, input: &Value) -> Result<(), String> {
    InputSchema::of(schema).map_or(Ok(()), |schema| schema.check(input))
}
