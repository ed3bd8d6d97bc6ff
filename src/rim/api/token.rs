//! Bearer tokens. The ledger holds the SHA-256 of a token: its secret has 256 random bits, which nobody can guess from the digest,
//! so the slow hashes that protect passwords would protect nothing here. Each request reads the token's row, so a revoked token
//! is refused from the next request on, in every process.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::authenticate::Authenticate;
use super::caller::Caller;
use super::rates::TokenDigest;
use crate::clock::Timestamp;
use crate::exec::{Core, ExecError};
use crate::flow::TenantClient;
use crate::id::Tenant;
use crate::payload::hex;
use crate::store::{Document, Refusal, Store as _, StoreError, Verdict};

/// The kind of the ledger's documents that hold tokens, owned by [`Tenant::ledger`].
const KIND: &str = "api_token";
/// The beginning of each token, by which scanners for secrets find one.
const PREFIX: &str = "cft_";
/// The length of a token's id, in hexadecimal digits.
const ID: usize = 16;

/// The bearer tokens of a ledger.
#[derive(Clone)]
pub struct Tokens {
    core: Arc<Core>,
}

/// A token that was made just now. Its secret is shown once.
pub struct NewToken {
    id: String,
    secret: String,
}

impl NewToken {
    /// The id of the token, by which it is revoked.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The token as it goes into the header `Authorization: Bearer`.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A token as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IssuedToken {
    /// The id of the token.
    pub id: String,
    /// The caller that the token stands for.
    #[serde(flatten)]
    pub caller: Caller,
    /// The instant at which the token was made (UTC).
    #[serde(serialize_with = "crate::id::text")]
    pub created_at: Timestamp,
    /// The name of the caller who has revoked the token.
    pub revoked_by: Option<String>,
}

/// The row of a token.
#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(flatten)]
    caller: Caller,
    /// The SHA-256 of the token, in hexadecimal.
    digest: String,
    revoked_by: Option<String>,
}

impl Body {
    fn of(row: &Document) -> Result<Self, ExecError> {
        let damaged = |error: serde_json::Error| StoreError::Corrupt {
            row: format!("document ({KIND} {})", row.id),
            detail: error.to_string(),
        };
        serde_json::from_str(&row.body).map_err(|error| failed(damaged(error)))
    }
}

fn failed(source: StoreError) -> ExecError {
    ExecError::Store { key: KIND.to_owned(), source }
}

fn digest(token: &str) -> String {
    hex(&Sha256::digest(token))
}

/// The bearer token that a request has in its header.
fn sent(request: &Parts) -> Option<&str> {
    let header = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The id of a token, if it has the form of one.
fn id_of(token: &str) -> Option<&str> {
    let id = token.strip_prefix(PREFIX)?.get(..ID)?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(id)
}

/// The digest of the token of a request, if the token has the form of one: the ledger is read for no other.
pub(super) fn presented(request: &Parts) -> Option<TokenDigest> {
    let token = sent(request).filter(|token| id_of(token).is_some())?;
    Some(Sha256::digest(token).into())
}

impl Tokens {
    pub(in crate::rim) fn of(client: &TenantClient) -> Self {
        Self { core: client.core().0 }
    }

    #[cfg(all(feature = "mcp-http", feature = "sqlite"))]
    pub(in crate::rim) fn of_core(core: &Arc<Core>) -> Self {
        Self { core: core.clone() }
    }

    /// Makes a token for a caller.
    ///
    /// # Crash
    /// The token is durable when this returns. One whose secret was never shown is of use to nobody; revoke it.
    pub async fn create(&self, caller: Caller) -> Result<NewToken, ExecError> {
        let entropy = &self.core.entropy;
        let id = format!("{:0ID$x}", entropy.bits());
        let secret = format!("{PREFIX}{id}_{:032x}{:032x}", entropy.wide_bits(), entropy.wide_bits());
        let body = Body { caller, digest: digest(&secret), revoked_by: None };
        let row = Document::first(&Tenant::ledger(), KIND, id.clone(), &body, self.core.now());
        self.write(row).await?.map_err(|refusal| ExecError::Refused { key: KIND.to_owned(), refusal })?;
        Ok(NewToken { id, secret })
    }

    /// The tokens by their ids, from behind `after` on: a page of at most `limit`.
    pub async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<IssuedToken>, ExecError> {
        let after = after.unwrap_or_default();
        let rows = self.core.group.document_list(&Tenant::ledger(), KIND, after, limit).await;
        let issued = |row: &Document| {
            let Body { caller, revoked_by, .. } = Body::of(row)?;
            Ok(IssuedToken { id: row.id.clone(), caller, created_at: row.created_at, revoked_by })
        };
        rows.map_err(failed)?.iter().map(issued).collect()
    }

    /// True if there is a token that was not revoked. A row that cannot be read is none.
    #[cfg(feature = "cli")]
    pub(in crate::rim) async fn is_any_valid(&self) -> Result<bool, ExecError> {
        let is_valid = |row: &Document| Body::of(row).is_ok_and(|body| body.revoked_by.is_none());
        let mut after = String::new();
        loop {
            let rows = self.core.group.document_list(&Tenant::ledger(), KIND, &after, 200).await;
            let rows = rows.map_err(failed)?;
            let Some(last) = rows.last() else { return Ok(false) };
            if rows.iter().any(is_valid) {
                return Ok(true);
            }
            after.clone_from(&last.id);
        }
    }

    /// Revokes a token: it is refused from the next request on. Returns false if there is no such token.
    pub async fn revoke(&self, id: &str, by: &str) -> Result<bool, ExecError> {
        loop {
            let Some(row) = self.find(id).await? else { return Ok(false) };
            let body = Body::of(&row)?;
            if body.revoked_by.is_some() {
                return Ok(true);
            }
            let (at, first) = (self.core.now(), row.created_at);
            let body = Body { revoked_by: Some(by.to_owned()), ..body };
            let next = Document::first(&Tenant::ledger(), KIND, row.id, &body, at);
            match self.write(Document { revision: row.revision + 1, created_at: first, ..next }).await? {
                Ok(()) => return Ok(true),
                Err(Refusal::Exists) => {} // somebody else revokes it at this moment
                Err(refusal) => return Err(ExecError::Refused { key: KIND.to_owned(), refusal }),
            }
        }
    }

    async fn find(&self, id: &str) -> Result<Option<Document>, ExecError> {
        if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        self.core.group.document_find(&Tenant::ledger(), KIND, id).await.map_err(failed)
    }

    async fn write(&self, row: Document) -> Result<Result<(), Refusal>, ExecError> {
        let mut change = self.core.change(None);
        change.documents.push(row);
        Ok(match self.core.group.commit_one(change).await.map_err(failed)? {
            Verdict::Admitted => Ok(()),
            Verdict::Refused(refusal) => Err(refusal),
        })
    }

    async fn bearer(&self, token: &str) -> Result<Option<Caller>, ExecError> {
        let Some(id) = id_of(token) else { return Ok(None) };
        let Some(row) = self.find(id).await? else { return Ok(None) };
        let body = Body::of(&row)?;
        let is_it = bool::from(digest(token).as_bytes().ct_eq(body.digest.as_bytes()));
        Ok((is_it && body.revoked_by.is_none()).then_some(body.caller))
    }
}

impl Authenticate for Tokens {
    fn caller<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Caller>, ExecError>> {
        let token = sent(request);
        Box::pin(async move {
            match token {
                Some(token) => self.bearer(token).await,
                None => Ok(None),
            }
        })
    }
}
