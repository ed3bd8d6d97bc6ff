//! Index builds: an index is built once from given sources, and an alias names the build that is in use. An alias
//! moves only to committed builds. If two runs move an alias at the same time, one of them gets a conflict.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! # let dir = tempfile::tempdir()?;
//! use counterfoil::guard::index::Alias;
//! use counterfoil::tool::{Call, Done, Tool, ToolError, contract, effect};
//! use counterfoil::{Ctx, Engine, Failure, Key};
//!
//! struct BuildIndex;
//!
//! impl Tool for BuildIndex {
//!     # const NAME: &'static str = "build_index";
//!     # type Effect = effect::InternalMutation;
//!     # type Contract = contract::NaturalKey;
//!     type Input = String; // the hash of what it is built of
//!     type Output = String; // where it is
//!
//!     fn key(&self, hash: &String) -> Option<Key> {
//!         Some(Key::of(Self::NAME).target("handbook").operation(hash))
//!     }
//!     # async fn call(&self, _: &Call, hash: &String) -> Result<Done<String>, ToolError> {
//!     #     Ok(Done::new(format!("idx-{}", &hash[..8])))
//!     # }
//!     // …
//! }
//!
//! async fn publish(ctx: Ctx, digests: Vec<String>) -> Result<Alias, Failure> {
//!     let index = ctx.index("handbook");
//!     let former = index.alias("live").await?.map(|alias| alias.hash);
//!     let built = index.build(&digests, |hash| ctx.call::<BuildIndex>(hash)).await?;
//!     index.swap("live", &built.hash, former.as_deref()).await
//! }
//!
//! let engine = Engine::sqlite(dir.path().join("agents.db")).tool(BuildIndex).workflow("publish", 1, publish);
//! let engine = engine.start().await?;
//! let acme = engine.tenant("acme")?;
//! let first = acme.run(publish, vec!["a".to_owned()]).await?;
//! let second = acme.run(publish, vec!["a".to_owned(), "b".to_owned()]).await?;
//! assert_eq!((second.former.as_ref(), second.swaps), (Some(&first.hash), 2));
//! assert_eq!(acme.index_alias("handbook", "live").await?, Some(second));
//! # engine.shutdown(std::time::Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::future::Future;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rows::{Row, label, part, read};
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError};
use crate::flow::{Ctx, Failure, FailureCode, Guarded, Proposal, TenantClient, exec_in_run};
use crate::id::{RunId, Tenant, checked};
use crate::payload::{Payload, hex};
use crate::store::{Change, Store as _, StoreError};

/// One row for each build, under index and hash; never changed after it is written.
const BUILD: &str = "index_build";
/// One row for each alias, under index and name.
const ALIAS: &str = "index_alias";
/// The maximum length of the name of an index and of an alias, in bytes.
const NAME: usize = 256;

/// A build that is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built<T = Value> {
    /// The name of the index.
    pub index: String,
    /// SHA-256 of the canonical JSON of the build's sources, in hexadecimal.
    pub hash: String,
    /// The result of the build, such as the location of the index.
    pub output: T,
    /// The run that built the index.
    pub run: RunId,
    /// The time at which the build was committed (UTC).
    pub at: Timestamp,
}

/// The build that an alias points to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// The name of the index.
    pub index: String,
    /// The name of the alias.
    pub alias: String,
    /// The hash of the build.
    pub hash: String,
    /// The result of the build, such as the location of the index.
    pub output: Value,
    /// The hash of the previous build.
    pub former: Option<String>,
    /// The number of times that the alias was moved.
    pub swaps: u32,
    /// The run that moved the alias last.
    pub run: RunId,
    /// The time of the last move (UTC).
    pub at: Timestamp,
}

/// An index as a run uses it.
#[derive(Clone, Debug)]
pub struct Index {
    ctx: Ctx,
    name: String,
}

impl Ctx {
    /// An index of the tenant.
    pub fn index(&self, name: impl Into<String>) -> Index {
        Index { ctx: self.clone(), name: name.into() }
    }
}

impl Index {
    /// The build from these sources: the documents' digests, the model, the settings. A committed build is returned;
    /// otherwise `build` gets the hash and builds the index. Let `build` call a tool whose key contains the hash:
    /// then two runs that build at the same time make one call.
    ///
    /// # Errors
    /// The failure of `build`.
    ///
    /// # Crash
    /// A build that finished and was not committed is found by the tool's record. The commit and the run's record are
    /// one transaction.
    pub async fn build<M, T, B>(&self, of: &M, build: impl FnOnce(String) -> B) -> Result<Built<T>, Failure>
    where
        M: Serialize + ?Sized,
        T: Serialize + DeserializeOwned,
        B: Future<Output = Result<T, Failure>>,
    {
        self.fits("index", &self.name).await?;
        let hash = hex(&Payload::of(of)?.digest().0);
        let id = place(&self.name, &hash);
        // The lookup is recorded: a resumed run takes the same branch, even if another run has committed the build
        // since.
        let found: Option<Built> = self.read("index/built", BUILD, &id).await?;
        if let Some(found) = found {
            return typed(found);
        }
        let output = serde_json::to_value(build(hash.clone()).await?).map_err(|e| unread(&e))?;
        let wish = Commit { index: self.name.clone(), hash: hash.clone(), output, run: self.ctx.run_id() };
        let label = label("index/build", &id);
        typed(self.ctx.guarded(label, &(&self.name, &hash), Some(id), wish).await?)
    }

    /// The present target of an alias; recorded in the run.
    ///
    /// # Errors
    /// If the alias cannot be read.
    pub async fn alias(&self, alias: &str) -> Result<Option<Alias>, Failure> {
        self.fits("alias", alias).await?;
        self.read("index/alias", ALIAS, &place(&self.name, alias)).await
    }

    /// Moves an alias to the build of this hash, if the alias still points to `former` (`None`: to no build). An
    /// alias that points to the build already is returned as it is.
    ///
    /// # Errors
    /// [`FailureCode::Conflict`] if the alias points to another build: read the alias again, and decide again.
    /// [`FailureCode::Invalid`] if there is no committed build of this hash.
    ///
    /// # Crash
    /// The alias and the run's record of it are one transaction.
    pub async fn swap(&self, alias: &str, hash: &str, former: Option<&str>) -> Result<Alias, Failure> {
        self.fits("alias", alias).await?;
        let wish = Swap {
            index: self.name.clone(),
            alias: alias.to_owned(),
            hash: hash.to_owned(),
            former: former.map(str::to_owned),
            run: self.ctx.run_id(),
        };
        let id = place(&self.name, alias);
        let label = label("index/swap", &id);
        match self.ctx.guarded(label, &(&self.name, alias, hash, former), Some(id), wish).await? {
            Swapped::To(alias) => Ok(alias),
            Swapped::Elsewhere(now) => {
                let now = now.map_or_else(|| "nowhere".to_owned(), |now| now.hash);
                let message =
                    format!("the alias {alias:?} points to {now}, and not to {former:?}: it was left there");
                Err(Failure::coded(FailureCode::Conflict, message))
            }
            Swapped::Unbuilt => {
                let message = format!(
                    "there is no committed build {hash} of {:?}: the alias was left alone",
                    self.name
                );
                Err(Failure::coded(FailureCode::Invalid, message))
            }
        }
    }

    async fn fits(&self, what: &'static str, name: &str) -> Result<(), Failure> {
        let fits = checked("index", &self.name, NAME).and_then(|_| checked(what, name, NAME));
        self.ctx.unless_mendable(fits.map(drop).map_err(Failure::from)).await
    }

    async fn read<T>(&self, action: &str, kind: &'static str, id: &str) -> Result<Option<T>, Failure>
    where
        T: Serialize + DeserializeOwned,
    {
        let (core, tenant) = self.ctx.core();
        let find = async {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let row = core.group.document_find(&tenant, kind, id).await.map_err(failed)?;
            row.as_ref().map(read).transpose().map_err(failed)
        };
        self.ctx.guarded_read(label(action, id), &id, find, exec_in_run).await
    }
}

impl TenantClient {
    /// The present target of an alias.
    ///
    /// # Errors
    /// If the alias cannot be read.
    pub async fn index_alias(&self, index: &str, alias: &str) -> Result<Option<Alias>, StoreError> {
        let (core, tenant) = self.core();
        let row = core.group.document_find(&tenant, ALIAS, &place(index, alias)).await?;
        row.as_ref().map(read).transpose()
    }

    /// A committed build of an index.
    ///
    /// # Errors
    /// If the build cannot be read.
    pub async fn index_build(&self, index: &str, hash: &str) -> Result<Option<Built>, StoreError> {
        let (core, tenant) = self.core();
        let row = core.group.document_find(&tenant, BUILD, &place(index, hash)).await?;
        row.as_ref().map(read).transpose()
    }
}

fn place(index: &str, name: &str) -> String {
    format!("{}/{name}", part(index))
}

fn typed<T: DeserializeOwned>(built: Built) -> Result<Built<T>, Failure> {
    let Built { index, hash, output, run, at } = built;
    let output = serde_json::from_value(output).map_err(|e| unread(&e))?;
    Ok(Built { index, hash, output, run, at })
}

fn unread(error: &serde_json::Error) -> Failure {
    Failure::coded(FailureCode::Invalid, format!("what a build gave back is of another form: {error}"))
}

/// A build to be committed. If a build of the hash exists, that one is kept.
struct Commit {
    index: String,
    hash: String,
    output: Value,
    run: RunId,
}

impl Guarded for Commit {
    type Answer = Built;
    type Error = ExecError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Built>, ExecError>> {
        Box::pin(async move {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let found = core.group.document_find(tenant, BUILD, id).await.map_err(failed)?;
            if let Some(found) = found {
                return Ok(Proposal::Before(read(&found).map_err(failed)?));
            }
            let Self { index, hash, output, run } = self;
            let (index, hash, output, at) = (index.clone(), hash.clone(), output.clone(), core.now());
            let built = Built { index, hash, output, run: *run, at };
            let row = Row { tenant, kind: BUILD, id: id.to_owned(), revision: 1, since: at, at };
            let document = row.holding(&built);
            let change = Change { documents: vec![document], ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), built))
        })
    }

    fn in_run(error: ExecError) -> Result<Failure, ExecError> {
        exec_in_run(error)
    }
}

/// An alias to be moved.
struct Swap {
    index: String,
    alias: String,
    hash: String,
    former: Option<String>,
    run: RunId,
}

/// The result of moving an alias.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Swapped {
    To(Alias),
    Elsewhere(Option<Alias>),
    Unbuilt,
}

impl Guarded for Swap {
    type Answer = Swapped;
    type Error = ExecError;

    fn propose<'a>(
        &'a self,
        core: &'a Core,
        tenant: &'a Tenant,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Proposal<Swapped>, ExecError>> {
        Box::pin(async move {
            let failed = |source| ExecError::Store { key: id.to_owned(), source };
            let found = core.group.document_find(tenant, ALIAS, id).await.map_err(failed)?;
            let now: Option<Alias> = found.as_ref().map(read).transpose().map_err(failed)?;
            let at = now.as_ref().map(|now| now.hash.as_str());
            if at == Some(self.hash.as_str()) {
                return Ok(Proposal::Before(now.map_or(Swapped::Unbuilt, Swapped::To)));
            }
            if at != self.former.as_deref() {
                return Ok(Proposal::Before(Swapped::Elsewhere(now)));
            }
            // A build is never removed, so this check stays valid.
            let build = place(&self.index, &self.hash);
            let build = core.group.document_find(tenant, BUILD, &build).await.map_err(failed)?;
            let Some(build) = build else { return Ok(Proposal::Before(Swapped::Unbuilt)) };
            let Built { output, .. } = read::<Built>(&build).map_err(failed)?;
            let moved = Alias {
                index: self.index.clone(),
                alias: self.alias.clone(),
                hash: self.hash.clone(),
                output,
                former: self.former.clone(),
                swaps: found.as_ref().map_or(0, |row| row.revision) + 1,
                run: self.run,
                at: core.now(),
            };
            let since = found.map_or(moved.at, |row| row.created_at);
            let (revision, at) = (moved.swaps, moved.at);
            let document =
                Row { tenant, kind: ALIAS, id: id.to_owned(), revision, since, at }.holding(&moved);
            let change = Change { documents: vec![document], ..core.change(None) };
            Ok(Proposal::Write(Box::new(change), Swapped::To(moved)))
        })
    }

    fn in_run(error: ExecError) -> Result<Failure, ExecError> {
        exec_in_run(error)
    }
}
