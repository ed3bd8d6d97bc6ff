//! Artifacts: documents that a run makes and keeps, such as a report about a case. One key has one content: a retry
//! gets the artifact that exists, and other content is refused, or becomes an explicit new version.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::{Ctx, Engine, Failure, guard::artifact::Artifact};
//!
//! async fn report(ctx: Ctx, text: String) -> Result<Artifact, Failure> {
//!     ctx.artifact("report", "case 17").source("mail 4").put(&text).await
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db")).workflow("report", 1, report).start().await?;
//! let acme = engine.tenant("acme")?;
//! let first = acme.run(report, "all is well".to_owned()).await?;
//! let again = acme.run(report, "all is well".to_owned()).await?;
//! assert_eq!(first, again);
//! let other = acme.run(report, "all is lost".to_owned()).await.unwrap_err();
//! assert!(other.to_string().contains("another content"));
//! assert_eq!(acme.artifact("report", "case 17", None).await?.unwrap().content, "all is well");
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;
use std::future::ready;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rows::{label, part};
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, FailureCode, Guarded, Guess, Guessed, Proposal, TenantClient, exec_in_run};
use crate::id::{Name, RunId, Tenant, checked};
use crate::ledger::Key;
use crate::payload::{Payload, PayloadDigest, hex, unhex};
#[cfg(feature = "api")]
use crate::store::whole;
use crate::store::{Change, Document, Store as _, StoreError};

/// The guard that artifacts belong to.
const KIND: &str = "artifact";
/// The maximum number of versions. One row holds all versions, and a larger row would be slow to write.
const MAX_VERSIONS: u32 = 1000;
/// The maximum number of sources that one version keeps.
const MAX_SOURCES: usize = 1000;

/// The key, the version and the digest of a stored artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The kind of artifact.
    pub kind: String,
    /// The id of the artifact within its kind.
    pub id: String,
    /// The version, from 1.
    pub version: u32,
    /// SHA-256 of the content's canonical JSON, in hexadecimal.
    pub digest: String,
}

/// An artifact with its content.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredArtifact {
    /// The key, the version and the digest.
    #[serde(flatten)]
    pub artifact: Artifact,
    /// The content of the artifact.
    pub content: Value,
    /// The sources that the artifact was made from.
    pub sources: BTreeSet<String>,
    /// The run that made the artifact.
    pub run: RunId,
    /// The time at which the version was put (UTC).
    pub at: Timestamp,
}

/// All versions of one key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Versions {
    versions: Vec<Version>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Version {
    digest: String,
    sources: BTreeSet<String>,
    run: RunId,
    at: Timestamp,
}

/// The result of putting an artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Put {
    /// The content has this version.
    Version(u32),
    /// The artifact exists with another content.
    Other { digest: String },
    /// The artifact has the maximum number of versions.
    Full,
}

impl Versions {
    /// The merge rule: the same content as the last version is that version, with more sources; other content is a
    /// new version if `as_new` is set, and refused otherwise.
    fn put(&mut self, new: Version, as_new: bool) -> Put {
        let number = u32::try_from(self.versions.len()).unwrap_or(u32::MAX);
        match self.versions.last_mut() {
            Some(last) if last.digest == new.digest => {
                last.sources.extend(new.sources);
                while last.sources.len() > MAX_SOURCES {
                    last.sources.pop_last();
                }
                Put::Version(number)
            }
            Some(last) if !as_new => Put::Other { digest: last.digest.clone() },
            _ if number >= MAX_VERSIONS => Put::Full,
            _ => {
                self.versions.push(new);
                Put::Version(number + 1)
            }
        }
    }
}

/// An artifact to be put.
#[derive(Clone)]
#[must_use = "nothing is put until it is given its content"]
pub struct PutArtifact {
    ctx: Ctx,
    kind: String,
    id: String,
    sources: BTreeSet<String>,
    as_new: bool,
}

impl Ctx {
    /// An artifact of this kind. The id distinguishes it from others of its kind in the tenant: a case, a document.
    pub fn artifact(&self, kind: impl Into<String>, id: impl Into<String>) -> PutArtifact {
        let (kind, id) = (kind.into(), id.into());
        PutArtifact { ctx: self.clone(), kind, id, sources: BTreeSet::new(), as_new: false }
    }
}

impl PutArtifact {
    /// Adds a source that the artifact is made from; may be called several times.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.sources.insert(source.into());
        self
    }

    /// Makes content that differs from the last version the next version, instead of refusing it.
    pub fn new_version(mut self) -> Self {
        self.as_new = true;
        self
    }

    /// Puts the artifact, once.
    ///
    /// # Errors
    /// [`FailureCode::Conflict`] if the artifact has another content and no new version was requested: the artifact
    /// is unchanged.
    ///
    /// # Crash
    /// The artifact and the run's record of it are one transaction.
    pub async fn put<T: Serialize + ?Sized>(self, content: &T) -> Result<Artifact, Failure> {
        let Self { ctx, kind, id, sources, as_new } = self;
        let fits = || -> Result<_, Failure> {
            let kind = Name::new(kind)?;
            checked("artifact's id", &id, Key::MAX_BYTES / 2)?;
            Ok((kind, Payload::of(content)?.within(&ctx.core().0.limits)?))
        };
        let (kind, content) = ctx.unless_mendable(fits()).await?;
        let (digest, row) = (hex(&content.digest().0), place(&kind, &id));
        let label = label(KIND, &row);
        let wish =
            Wish { kind: kind.clone(), digest: digest.clone(), sources, run: ctx.run_id(), as_new, content };
        match ctx.guarded(label, &digest, Some(row), wish).await? {
            Put::Version(version) => Ok(Artifact { kind: kind.to_string(), id, version, digest }),
            Put::Other { digest: there } => {
                let message = format!(
                    "the {kind} {id:?} is there with another content ({there}): it was left as it is; put this one as a \
                     new version, or under another id"
                );
                Err(Failure::coded(FailureCode::Conflict, message))
            }
            Put::Full => {
                let message =
                    format!("the {kind} {id:?} has {MAX_VERSIONS} versions already: nothing was put");
                Err(Failure::coded(FailureCode::Invalid, message))
            }
        }
    }
}

/// The id of the row that holds all versions of an artifact.
fn place(kind: &Name, id: &str) -> String {
    format!("{}/{id}", part(kind.as_str()))
}

/// A content to be put.
struct Wish {
    kind: Name,
    digest: String,
    sources: BTreeSet<String>,
    run: RunId,
    as_new: bool,
    content: Payload,
}

impl Wish {
    /// The change that puts the content, and the answer; no change if there is nothing to write.
    fn put(
        &self,
        core: &Core,
        tenant: &Tenant,
        id: &str,
        row: Option<Document>,
    ) -> Result<(Option<Box<Change>>, Put), StoreError> {
        let now = core.now();
        let mut versions = row.as_ref().map_or_else(|| Ok(Versions::default()), read)?;
        let before = versions.versions.clone();
        let (digest, sources) = (self.digest.clone(), self.sources.clone());
        let put = versions.put(Version { digest, sources, run: self.run, at: now }, self.as_new);
        if versions.versions == before {
            return Ok((None, put));
        }
        let (revision, created_at) = row.map_or((0, now), |row| (row.revision, row.created_at));
        let first = Document::first(tenant, KIND, id.to_owned(), &versions, now);
        let document = Document { revision: revision + 1, created_at, ..first };
        let mut change = Change { documents: vec![document], ..core.change(None) };
        change.payloads.push((tenant.clone(), self.content.clone()));
        Ok((Some(Box::new(change)), put))
    }
}

impl Guarded for Wish {
    type Answer = Put;
    type Error = ExecError;

    /// Guesses that this is the first version of an artifact. A request for a new version implies an earlier one.
    fn guess<'a>(&'a self, core: &'a Core, tenant: &'a Tenant, id: &'a str) -> Guessed<'a, Put, ExecError> {
        let about = format!("{KIND}/{}", self.kind);
        if self.as_new || !core.guesses.may(tenant, &about) {
            return Box::pin(ready(Ok(None)));
        }
        let first = self
            .put(core, tenant, id, None)
            .map_err(|source| ExecError::Store { key: id.to_owned(), source });
        Box::pin(ready(first.map(|(change, answer)| Some(Guess { about, change: change?, answer }))))
    }

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Put>, ExecError>> {
        Box::pin(async move {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let row = core.group.document_find(tenant, KIND, id).await.map_err(failed)?;
            Ok(match self.put(core, tenant, id, row).map_err(failed)? {
                (Some(change), put) => Proposal::Write(change, put),
                (None, put) => Proposal::Before(put),
            })
        })
    }

    fn in_run(error: ExecError) -> Result<Failure, ExecError> {
        exec_in_run(error)
    }
}

fn read(row: &Document) -> Result<Versions, StoreError> {
    let damaged =
        |detail: String| StoreError::Corrupt { row: format!("document ({KIND} {})", row.id), detail };
    serde_json::from_str(&row.body).map_err(|error| damaged(error.to_string()))
}

/// An artifact in a list: its last version, without the content.
#[cfg(feature = "api")]
#[derive(Serialize)]
pub(crate) struct ListedArtifact {
    #[serde(skip)]
    pub(crate) row: String,
    /// The last version.
    #[serde(flatten)]
    pub(crate) artifact: Artifact,
    /// The run that made the last version.
    pub(crate) run: RunId,
    #[serde(serialize_with = "crate::id::text")]
    at: Timestamp,
}

#[cfg(feature = "api")]
impl TenantClient {
    /// The artifacts of a kind, or of all kinds, from behind a row on, in the order of kinds and ids.
    pub(crate) async fn artifacts(
        &self,
        kind: Option<&str>,
        after: &str,
        limit: u32,
    ) -> Result<Vec<ListedArtifact>, StoreError> {
        let (core, tenant) = self.core();
        let beginning = kind.map_or_else(String::new, |kind| format!("{}/", part(kind)));
        let page = core.group.document_list(&tenant, KIND, after.max(&beginning), limit).await?;
        page.iter().take_while(|row| row.id.starts_with(&beginning)).map(listed).collect()
    }
}

#[cfg(feature = "api")]
fn listed(row: &Document) -> Result<ListedArtifact, StoreError> {
    let damaged = |detail: &str| StoreError::Corrupt {
        row: format!("document ({KIND} {})", row.id),
        detail: detail.to_owned(),
    };
    let mut versions = read(row)?.versions;
    let version = u32::try_from(versions.len()).unwrap_or(u32::MAX);
    let Version { digest, run, at, .. } = versions.pop().ok_or_else(|| damaged("it has no version"))?;
    let (kind, id) = row.id.split_once('/').ok_or_else(|| damaged("its id has no kind"))?;
    let artifact = Artifact { kind: whole(kind), id: id.to_owned(), version, digest };
    Ok(ListedArtifact { row: row.id.clone(), artifact, run, at })
}

impl TenantClient {
    /// An artifact with its content: the given version, or the last one.
    pub async fn artifact(
        &self,
        kind: &str,
        id: &str,
        version: Option<u32>,
    ) -> Result<Option<StoredArtifact>, StoreError> {
        let (core, tenant) = self.core();
        let Ok(kind) = Name::new(kind) else { return Ok(None) };
        let Some(row) = core.group.document_find(&tenant, KIND, &place(&kind, id)).await? else {
            return Ok(None);
        };
        let versions = read(&row)?.versions;
        let number = version.unwrap_or_else(|| u32::try_from(versions.len()).unwrap_or(u32::MAX));
        let at = (number as usize).checked_sub(1);
        let Some(Version { digest, sources, run, at }) = at.and_then(|at| versions.into_iter().nth(at))
        else {
            return Ok(None);
        };
        let damaged = |detail: &str| StoreError::Corrupt {
            row: format!("document ({KIND} {})", row.id),
            detail: detail.to_owned(),
        };
        let bytes = unhex(&digest).ok_or_else(|| damaged("a digest is none"))?;
        let found = core.group.payload_find(&tenant, PayloadDigest(bytes)).await?;
        let content = found.ok_or_else(|| damaged("its content is missing"))?;
        let content = content.value().map_err(|error| damaged(&error.to_string()))?;
        let artifact = Artifact { kind: kind.to_string(), id: id.to_owned(), version: number, digest };
        Ok(Some(StoredArtifact { artifact, content, sources, run, at }))
    }
}
