//! Ingested documents: the snippets of a document's content, under ids that are the same in every retry. Other
//! content is another version with other ids.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::{Ctx, Engine, Failure, guard::ingest::Ingested};
//!
//! async fn ingest(ctx: Ctx, text: String) -> Result<Ingested, Failure> {
//!     let snippets = ctx.step("cut", &text, |text| text.split(". ").map(str::to_owned).collect::<Vec<_>>()).await?;
//!     let ingested = ctx.ingest("handbook", "chapter 3", &text, &snippets).await?;
//!     // … each snippet goes to the index under `ingested.ids()`: a second time it overwrites itself
//!     Ok(ingested)
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db")).workflow("ingest", 1, ingest).start().await?;
//! let acme = engine.tenant("acme")?;
//! let first = acme.run(ingest, "One. Two".to_owned()).await?;
//! let again = acme.run(ingest, "One. Two".to_owned()).await?;
//! assert_eq!((first.version, first.ids()), (1, again.ids()));
//! let other = acme.run(ingest, "One. Two. Three".to_owned()).await?;
//! assert_eq!((other.version, other.snippets), (2, 3));
//! assert_ne!(other.ids()[0], first.ids()[0]);
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`guard::index`](super::index) records the builds of an index from the snippets, and the build that is in use.

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::rows::{Row, label, part, read};
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, FailureCode, Guarded, Proposal, TenantClient, exec_in_run};
use crate::id::{RunId, Tenant, checked};
use crate::payload::{Payload, hex};
use crate::store::{Change, Store as _, StoreError};

/// The guard that ingested documents belong to.
const KIND: &str = "ingest";
/// The maximum length of the name of a collection and of a document, in bytes.
const NAME: usize = 256;
/// The maximum number of versions. One row holds all versions, and a larger row would be slow to write.
const MAX_VERSIONS: usize = 1000;

/// One version of a document, with its snippets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ingested {
    /// The name of the collection.
    pub collection: String,
    /// The name of the document in the collection.
    pub document: String,
    /// The version, from 1.
    pub version: u32,
    /// The last version of the document: if it differs from `version`, this content has been superseded.
    pub latest: u32,
    /// SHA-256 of the content's canonical JSON, in hexadecimal.
    pub digest: String,
    /// The number of snippets.
    pub snippets: u32,
    /// The run that ingested the version first.
    pub run: RunId,
    /// The time at which the version was ingested first (UTC).
    pub at: Timestamp,
    /// The digest from which the snippets' ids are made.
    seed: String,
}

impl Ingested {
    /// The ids of the snippets, in order, as UUIDs. They depend on the tenant, the document and the content alone.
    pub fn ids(&self) -> Vec<String> {
        (0..self.snippets).map(|place| self.id(place)).collect()
    }

    fn id(&self, place: u32) -> String {
        let digest = Sha256::new().chain_update(&self.seed).chain_update(place.to_be_bytes()).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }
}

/// All versions of a document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Versions {
    versions: Vec<Version>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Version {
    digest: String,
    /// SHA-256 of the snippets: the same content, divided in another way, has other snippets.
    cut: String,
    snippets: u32,
    run: RunId,
    at: Timestamp,
}

/// The result of ingesting a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Ingested(Ingested),
    /// The same content was ingested before with other snippets.
    Cut {
        version: u32,
        snippets: u32,
    },
    Full,
}

impl Ctx {
    /// Ingests a document with its snippets. The same content has the same version and ids, whichever run ingests it
    /// and however often; other content is the next version.
    ///
    /// # Errors
    /// [`FailureCode::Conflict`] if the same content was ingested before with other snippets: its ids belong to those
    /// snippets. To divide the content differently, make the method part of the content: ingest
    /// `(&text, "by heading")`.
    ///
    /// # Crash
    /// The version and the run's record of it are one transaction.
    pub async fn ingest<T: Serialize + ?Sized>(
        &self,
        collection: impl Into<String>,
        document: impl Into<String>,
        content: &T,
        snippets: &[impl AsRef<str> + Sync],
    ) -> Result<Ingested, Failure> {
        let (collection, document) = (collection.into(), document.into());
        let fits = || -> Result<_, Failure> {
            checked("collection", &collection, NAME)?;
            checked("document", &document, NAME)?;
            Ok(Payload::of(content)?)
        };
        let content = self.unless_mendable(fits()).await?;
        let many = |_| Failure::coded(FailureCode::Invalid, "more than 2^32 snippets");
        let count = u32::try_from(snippets.len()).map_err(many)?;
        let digest = hex(&content.digest().0);
        let row = place(&collection, &document);
        let (label, bound_to) = (label(KIND, &row), digest.clone());
        let wish =
            Wish { collection, document, digest, cut: cut(snippets), snippets: count, run: self.run_id() };
        match self.guarded(label, &bound_to, Some(row), wish).await? {
            Outcome::Ingested(ingested) => Ok(ingested),
            Outcome::Cut { version, snippets } => {
                let message = format!(
                    "this content is there as version {version}, cut into {snippets} other snippets: their ids stand; to \
                     cut it anew, let the content say how"
                );
                Err(Failure::coded(FailureCode::Conflict, message))
            }
            Outcome::Full => {
                let message =
                    format!("the document has {MAX_VERSIONS} versions already: nothing was ingested");
                Err(Failure::coded(FailureCode::Invalid, message))
            }
        }
    }
}

impl TenantClient {
    /// An ingested document: the given version, or the last one.
    ///
    /// # Errors
    /// If the document cannot be read.
    pub async fn ingested(
        &self,
        collection: &str,
        document: &str,
        version: Option<u32>,
    ) -> Result<Option<Ingested>, StoreError> {
        let (core, tenant) = self.core();
        let Some(row) = core.group.document_find(&tenant, KIND, &place(collection, document)).await? else {
            return Ok(None);
        };
        let all: Versions = read(&row)?;
        let number = version.map_or(all.versions.len(), |version| version as usize);
        let at = number.checked_sub(1).filter(|at| *at < all.versions.len());
        Ok(at.map(|at| all.ingested(at, &tenant, collection, document)))
    }
}

/// The id of the row that holds all versions of a document.
fn place(collection: &str, document: &str) -> String {
    format!("{}/{document}", part(collection))
}

/// The digest of the snippets. Each length is part of the digest: "ab", "c" differs from "a", "bc".
fn cut(snippets: &[impl AsRef<str>]) -> String {
    let hasher = snippets.iter().fold(Sha256::new(), |hasher, snippet| {
        let snippet = snippet.as_ref();
        hasher.chain_update((snippet.len() as u64).to_be_bytes()).chain_update(snippet)
    });
    hex(&hasher.finalize())
}

impl Versions {
    /// The version at this index in the list of the document's versions.
    fn ingested(&self, at: usize, tenant: &Tenant, collection: &str, document: &str) -> Ingested {
        let of_row = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let found = &self.versions[at];
        // The tenant is part of the ids: in an index that tenants share, the same document of two tenants has two
        // ids.
        let seed = format!("{}/{}/{}", part(tenant.as_str()), place(collection, document), found.digest);
        Ingested {
            collection: collection.to_owned(),
            document: document.to_owned(),
            version: of_row(at + 1),
            latest: of_row(self.versions.len()),
            digest: found.digest.clone(),
            snippets: found.snippets,
            run: found.run,
            at: found.at,
            seed: hex(&Sha256::digest(seed)),
        }
    }
}

/// A document to be ingested.
struct Wish {
    collection: String,
    document: String,
    digest: String,
    cut: String,
    snippets: u32,
    run: RunId,
}

impl Guarded for Wish {
    type Answer = Outcome;
    type Error = ExecError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Outcome>, ExecError>> {
        Box::pin(async move {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let found = core.group.document_find(tenant, KIND, id).await.map_err(failed)?;
            let mut all: Versions =
                found.as_ref().map_or_else(|| Ok(Versions::default()), read).map_err(failed)?;
            let told = |all: &Versions, at: usize| {
                Outcome::Ingested(all.ingested(at, tenant, &self.collection, &self.document))
            };
            // All versions are compared, not only the last one: a late retry finds its own version.
            if let Some(at) = all.versions.iter().position(|version| version.digest == self.digest) {
                let known = &all.versions[at];
                let same = known.cut == self.cut;
                let version = u32::try_from(at + 1).unwrap_or(u32::MAX);
                let other = Outcome::Cut { version, snippets: known.snippets };
                return Ok(Proposal::Before(if same { told(&all, at) } else { other }));
            }
            if all.versions.len() >= MAX_VERSIONS {
                return Ok(Proposal::Before(Outcome::Full));
            }
            let now = core.now();
            let (digest, cut) = (self.digest.clone(), self.cut.clone());
            all.versions.push(Version { digest, cut, snippets: self.snippets, run: self.run, at: now });
            let (revision, since) = found.map_or((0, now), |row| (row.revision, row.created_at));
            let (id, revision) = (id.to_owned(), revision + 1);
            let document = Row { tenant, kind: KIND, id, revision, since, at: now }.holding(&all);
            let change = Change { documents: vec![document], ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), told(&all, all.versions.len() - 1)))
        })
    }

    fn in_run(error: ExecError) -> Result<Failure, ExecError> {
        exec_in_run(error)
    }
}
