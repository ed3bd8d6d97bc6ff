//! What runs have made and keep: artifacts and memories.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::page::{Asked, At, Page, Paged, Window};
use super::problem::{Failed, Problem};
use crate::clock::Timestamp;
use crate::flow::TenantClient;
use crate::guard::artifact::ListedArtifact;
#[cfg(feature = "memory")]
use crate::guard::memory::Known;
use crate::id::{RunId, checked};
use crate::ledger::Key;

/// The artifacts to be listed.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct OfKind {
    /// Only artifacts of this kind
    kind: Option<String>,
    /// Only artifacts whose ids begin so
    id: Option<String>,
    /// Only artifacts whose last version this run has made
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    run: Option<RunId>,
}

/// The artifact that a path names.
#[derive(Deserialize)]
pub(super) struct OfArtifact {
    kind: String,
    id: String,
}

/// The version of the artifact: the last one, unless another one is asked for.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct OfVersion {
    /// The version, from 1
    version: Option<u32>,
}

/// An artifact with its content.
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ShownArtifact {
    kind: String,
    id: String,
    version: u32,
    digest: String,
    content: serde_json::Value,
    sources: Vec<String>,
    /// The run that made the version.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    run: RunId,
    #[serde(serialize_with = "crate::id::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    at: Timestamp,
}

/// The artifacts, in the order of their kinds and ids, each with its last version. A page with a condition beside the kind may be short
/// and have a next page.
pub(super) async fn artifacts(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(of): Asked<OfKind>,
) -> Paged<ListedArtifact> {
    if let Some(kind) = &of.kind {
        checked("kind", kind, Key::MAX_BYTES)?;
    }
    let after = window.after()?.unwrap_or_default();
    let looked_at = window.looked_at(of.id.is_some() || of.run.is_some());
    let rows = client.artifacts(of.kind.as_deref(), after, looked_at).await?;
    let takes = |listed: &ListedArtifact| {
        of.id.as_ref().is_none_or(|beginning| listed.artifact.id.starts_with(beginning))
            && of.run.is_none_or(|run| listed.run == run)
    };
    Ok(Json(Page::sifted(rows, (looked_at, window.limit()), |listed| listed.row.clone(), takes)))
}

pub(super) async fn artifact(
    Extension(client): Extension<TenantClient>,
    At(of): At<OfArtifact>,
    Asked(asked): Asked<OfVersion>,
) -> Result<Json<ShownArtifact>, Failed> {
    checked("artifact's id", &of.id, Key::MAX_BYTES)?;
    let unknown =
        || Failed::of(Problem::NotFound, "This tenant has no such artifact, or no such version of it.");
    let stored = client.artifact(&of.kind, &of.id, asked.version).await?.ok_or_else(unknown)?;
    let crate::guard::artifact::StoredArtifact { artifact, content, sources, run, at } = stored;
    let crate::guard::artifact::Artifact { kind, id, version, digest } = artifact;
    let sources = sources.into_iter().collect();
    Ok(Json(ShownArtifact { kind, id, version, digest, content, sources, run, at }))
}

/// The memories to be listed: those of one kind about one subject.
#[cfg(feature = "memory")]
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(super) struct About {
    /// The subject of the memories
    subject: String,
    /// The kind of the memories
    kind: String,
}

/// A memory in a list.
#[cfg(feature = "memory")]
#[derive(Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(super) struct ListedMemory {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    memory: crate::id::MemoryId,
    content: String,
    /// The confidence, from 0 to 1.
    confidence: f64,
    /// The number of statements of the memory.
    sources: u32,
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    contradicts: Vec<crate::guard::memory::Contradicts>,
    #[serde(serialize_with = "crate::id::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    created_at: Timestamp,
    #[serde(serialize_with = "crate::id::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    updated_at: Timestamp,
}

#[cfg(feature = "memory")]
impl From<Known> for ListedMemory {
    fn from(known: Known) -> Self {
        let Known { memory, content, confidence, sources, contradicts, created_at, updated_at } = known;
        Self { memory, content, confidence, sources, contradicts, created_at, updated_at }
    }
}

/// The memories of one kind about one subject, the newest first.
#[cfg(feature = "memory")]
pub(super) async fn memories(
    Extension(client): Extension<TenantClient>,
    Asked(window): Asked<Window>,
    Asked(about): Asked<About>,
) -> Paged<ListedMemory> {
    let recall = client.memory(about.subject).recall(about.kind).limit(window.limit());
    let page = match window.after_id()? {
        Some(place) => recall.from(place).await?,
        None => recall.await?,
    };
    let items = page.memories.into_iter().map(ListedMemory::from).collect();
    Ok(Json(Page { items, next: page.next.map(|place| place.to_string()) }))
}
