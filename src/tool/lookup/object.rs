//! Lookup of an object, by key and digest.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use reqwest::{Client, Method, Request, Response, StatusCode, Url};
use sha2::Digest as _;

use super::digest::Sha256;
use super::seen::unclear;
use super::web::{Web, pieces, refused};
use crate::ledger::{ErrorKind, LookupOffer, LookupResult, Sight};
use crate::tool::{Done, ToolError};

/// An object in a store that speaks HTTP as S3 does, under a key that is known before it is written.
///
/// An object with the expected SHA-256 is committed; a 404 is not found; another content is foreign; all other cases
/// are errors. The digest is the store's own checksum of the whole object if it has one, else that of the bytes, which
/// are then read. An `ETag` is never taken for a digest, because it is one for some objects only.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use counterfoil::tool::lookup::{HttpObject, Sha256};
///
/// let bucket = HttpObject::new("http://store.internal/reports", Duration::from_secs(30))?
///     .authorize(|request| { /* sign it */ });
/// let content = "id,amount\n1,4900\n";
/// bucket.create("2026/07.csv", content).await?; // in `call`
/// let found = bucket.find("2026/07.csv", Sha256::of(content), |stored| stored.len).await?; // in `reconcile`
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HttpObject {
    web: Web,
    bucket: String,
}

/// An object that is there, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The length of the object, in bytes. `None` if the store does not tell.
    pub len: Option<u64>,
    /// The store's `ETag`, as the store wrote it.
    pub etag: Option<String>,
    /// The version, in a store that keeps versions.
    pub version: Option<String>,
}

impl HttpObject {
    /// The sight of this lookup. [`ContractClass::NaturalKey`](crate::ledger::ContractClass::NaturalKey) fits it if the
    /// store honours `If-None-Match: *`.
    pub const SIGHT: Sight = Sight {
        by: "an object by key and digest",
        offer: LookupOffer::Strong,
        settle: Duration::from_mins(1),
        outlives_sender: true,
        knows: &["whether an object with exactly this content stands under this key now"],
        blind_spots: &[
            "who wrote it: another writer's equal content counts as ours",
            "that it was there and has been deleted or replaced since",
            "how many versions of it were written, in a store that keeps versions",
            "a credential that may not list: S3 answers it 403 for what is not there, which leaves the call ambiguous",
            "a store or a replica that is not strongly consistent: declare LookupOffer::Eventual after the sight",
            "an upload in parts that is not completed yet",
        ],
    };

    /// A lookup of objects under this URL. A request that is not answered within `timeout` fails.
    ///
    /// # Errors
    /// [`reqwest::Error`] if the HTTP client cannot be built.
    pub fn new(bucket: impl Into<String>, timeout: Duration) -> Result<Self, reqwest::Error> {
        Ok(Self { web: Web::new(timeout)?, bucket: bucket.into() })
    }

    /// Sets a client of your own, with its proxies, certificates, headers and timeouts.
    #[must_use]
    pub fn client(mut self, client: Client) -> Self {
        self.web.client = client;
        self
    }

    /// Sets a function that adds to each request what it needs when it goes out: a token that expires, a signature.
    #[must_use]
    pub fn authorize(mut self, authorize: impl Fn(&mut Request) + Send + Sync + 'static) -> Self {
        self.web.authorize = Some(Arc::new(authorize));
        self
    }

    /// Looks for the object with this content.
    ///
    /// # Errors
    /// [`ToolError`] if the object is neither clearly there nor clearly missing.
    pub async fn find<T>(
        &self,
        key: &str,
        digest: Sha256,
        output: impl FnOnce(Stored) -> T + Send,
    ) -> Result<LookupResult<T>, ToolError> {
        let url = self.url(key)?;
        // Asks S3 to send the checksum; other stores ignore the header.
        let head = self.web.get(Method::HEAD, url.clone(), &[("x-amz-checksum-mode", "ENABLED")]).await?;
        match head.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND if head.headers().contains_key("x-amz-delete-marker") => {
                return Err(unclear(format!("{key:?} was there, and has been deleted")));
            }
            StatusCode::NOT_FOUND => return Ok(LookupResult::NotFound),
            _ => return Err(refused(&head)),
        }
        let stored = stored(head.headers());
        let found = match said(head.headers()) {
            Some(found) => found,
            None => self.read(url, &stored).await?,
        };
        if found != digest {
            let what = format!("{key:?} has the SHA-256 {found}, and {digest} was sent");
            return Ok(LookupResult::Foreign { what });
        }
        let external_ref = stored.version.clone().or_else(|| stored.etag.clone());
        Ok(LookupResult::Committed { output: output(stored), external_ref })
    }

    /// Writes the object if its key is free: `PUT` with `If-None-Match: *` and the checksum. For objects of one
    /// request.
    ///
    /// # Errors
    /// [`ErrorKind::Duplicate`] if the key is taken, or is being written: look it up. After any other error the object
    /// may be there.
    pub async fn create(&self, key: &str, content: impl Into<Vec<u8>>) -> Result<Done<Stored>, ToolError> {
        let content = content.into();
        let (len, digest) = (content.len() as u64, Sha256::of(&content));
        let mut request = Web::request(Method::PUT, self.url(key)?);
        let headers = request.headers_mut();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        let checksum = HeaderValue::from_str(&digest.base64());
        headers.insert(CHECKSUM, checksum.map_err(|e| unclear(e.to_string()))?);
        *request.body_mut() = Some(content.into());
        let answer = self.web.send(request).await?;
        match answer.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => {
                let stored = Stored { len: Some(len), ..stored(answer.headers()) };
                let external_ref = stored.version.clone().or_else(|| stored.etag.clone());
                Ok(Done { external_ref, ..Done::new(stored) })
            }
            StatusCode::PRECONDITION_FAILED | StatusCode::CONFLICT => {
                Err(ToolError::new(ErrorKind::Duplicate, format!("{key:?} is there already")))
            }
            _ => Err(refused(&answer)),
        }
    }

    /// The digest of the object's bytes, whose number must be the announced one.
    async fn read(&self, url: Url, stored: &Stored) -> Result<Sha256, ToolError> {
        let body = self.web.get(Method::GET, url, &[]).await?;
        if body.status() != StatusCode::OK {
            return Err(refused(&body));
        }
        if etag(&body) != stored.etag {
            return Err(unclear("it changed while it was read"));
        }
        let (mut hasher, mut len) = (sha2::Sha256::new(), 0);
        let take = |piece: &[u8]| {
            hasher.update(piece);
            len += piece.len() as u64;
            Ok(())
        };
        pieces(body, take).await?;
        match stored.len {
            Some(said) if said != len => Err(unclear(format!("{len} bytes were read of {said}"))),
            _ => Ok(Sha256(hasher.finalize().into())),
        }
    }

    fn url(&self, key: &str) -> Result<Url, ToolError> {
        let refused = |detail: String| ToolError::new(ErrorKind::Validation, format!("{key:?}: {detail}"));
        let mut url = Url::parse(&self.bucket).map_err(|e| refused(e.to_string()))?;
        let parts: Vec<_> = key.split('/').collect();
        // A URL has no such parts: they would be removed, and the key would be another one.
        if key.is_empty() || parts.iter().any(|part| matches!(*part, "." | "..")) {
            return Err(refused("no key that a URL can carry".into()));
        }
        let mut path = url.path_segments_mut().map_err(|()| refused("no base for a path".into()))?;
        path.pop_if_empty().extend(parts);
        drop(path);
        Ok(url)
    }
}

const CHECKSUM: &str = "x-amz-checksum-sha256";

fn stored(headers: &HeaderMap) -> Stored {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    Stored {
        len: text(CONTENT_LENGTH.as_str()).and_then(|len| len.parse().ok()),
        etag: text(ETAG.as_str()),
        version: text("x-amz-version-id").filter(|version| version != "null"),
    }
}

fn etag(answer: &Response) -> Option<String> {
    stored(answer.headers()).etag
}

/// The store's own digest of the whole object. A checksum over the checksums of parts is not a digest of the content.
fn said(headers: &HeaderMap) -> Option<Sha256> {
    let is_whole = headers.get("x-amz-checksum-type").is_none_or(|kind| kind == "FULL_OBJECT");
    let checksum = headers.get(CHECKSUM).filter(|_| is_whole)?;
    Sha256::from_base64(checksum.to_str().ok()?)
}

impl fmt::Debug for HttpObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpObject").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}
