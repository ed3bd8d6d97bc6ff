//! The lookup in an object store, against one of its own that speaks HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use counterfoil::Key;
use counterfoil::ledger::{Basis, Contract, ErrorKind, LookupResult};
use counterfoil::tool::lookup::{HttpObject, Sha256};
use counterfoil::tool::{Call, Done, Reconcile, Tool, ToolError, contract, effect};

use crate::tool::lookup::world::{Cut, Faults, Sent};
use crate::world::{brief, serve};

const SOON: Duration = Duration::from_secs(5);

/// What a store says of an object besides its content.
type Headers = Vec<(&'static str, String)>;

#[derive(Default)]
struct Bucket {
    objects: Mutex<BTreeMap<String, (Bytes, Headers)>>,
    /// Puts that were refused because something was there.
    collided: Mutex<usize>,
    faults: Option<Arc<Faults>>,
}

async fn put(
    State(bucket): State<Arc<Bucket>>,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let effect = async {
        let mut objects = bucket.objects.lock().unwrap();
        if headers.get("if-none-match").is_some_and(|any| any == "*") && objects.contains_key(&key) {
            *bucket.collided.lock().unwrap() += 1;
            return StatusCode::PRECONDITION_FAILED;
        }
        let checksum = headers["x-amz-checksum-sha256"].to_str().unwrap().to_owned();
        objects.insert(key, (body, vec![("x-amz-checksum-sha256", checksum), ("etag", "\"e1\"".into())]));
        StatusCode::OK
    };
    match &bucket.faults {
        Some(faults) => faults.around(effect).await,
        None => effect.await,
    }
}

async fn show(State(bucket): State<Arc<Bucket>>, Path(key): Path<String>) -> (StatusCode, HeaderMap, Bytes) {
    let objects = bucket.objects.lock().unwrap();
    let Some((body, headers)) = objects.get(&key) else {
        return (StatusCode::NOT_FOUND, HeaderMap::new(), Bytes::new());
    };
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    (StatusCode::OK, headers.collect(), body.clone())
}

async fn open(bucket: Arc<Bucket>) -> HttpObject {
    let app = Router::new().route("/bucket/{*key}", get(show).put(put)).with_state(bucket);
    HttpObject::new(format!("{}/bucket", serve(app).await), SOON).unwrap()
}

struct Upload(HttpObject);

impl Upload {
    fn place(call: &Call) -> String {
        format!("reports/2026 07/{}.txt", call.key())
    }
}

impl Tool for Upload {
    const NAME: &'static str = "upload";
    type Effect = effect::InternalMutation;
    type Contract = contract::WithLookup<contract::NaturalKey>;
    type Input = Sent;
    type Output = u64;

    fn key(&self, sent: &Sent) -> Option<Key> {
        Some(Key::of(Self::NAME).target(&sent.text))
    }

    fn contract(&self) -> Contract {
        <Self::Contract as contract::Contract>::declaration().sight(&HttpObject::SIGHT)
    }

    fn retry(&self) -> counterfoil::ledger::RetryPolicy {
        brief()
    }

    async fn call(&self, call: &Call, sent: &Sent) -> Result<Done<u64>, ToolError> {
        let done = self.0.create(&Self::place(call), sent.text.clone()).await?;
        Ok(done.map(|object| object.len.unwrap_or_default()))
    }
}

impl Reconcile for Upload {
    async fn reconcile(&self, call: &Call, sent: &Sent) -> Result<LookupResult<u64>, ToolError> {
        let digest = Sha256::of(&sent.text);
        self.0.find(&Self::place(call), digest, |stored| stored.len.unwrap_or_default()).await
    }
}

// R-EXE-10: an upload whose answer never came.
#[tokio::test]
async fn an_upload_is_found_or_made_once_more() {
    for (cut, sends, basis) in
        [(Cut::AfterEffect, 1, Basis::Lookup), (Cut::BeforeEffect, 2, Basis::Declaration)]
    {
        let faults = Faults::new(cut);
        let bucket = Arc::new(Bucket { faults: Some(faults.clone()), ..Bucket::default() });
        let (outcome, _) = faults.outcome(Upload(open(bucket.clone()).await)).await;
        let answer = outcome.answer().unwrap_or_else(|| panic!("{outcome:?}"));
        assert_eq!((faults.sends(), answer.basis), (sends, basis), "{cut:?}");
        assert_eq!(answer.response.as_str(), Sent::new().text.len().to_string(), "{cut:?}");
        assert_eq!(bucket.objects.lock().unwrap().len(), 1, "{cut:?}");
    }
}

fn digest() -> Sha256 {
    Sha256::of("content")
}

async fn find(bucket: &Arc<Bucket>) -> Result<LookupResult<Option<String>>, ToolError> {
    open(bucket.clone()).await.find("a/b", digest(), |stored| stored.etag).await
}

fn holds(body: &'static str, headers: &[(&'static str, &str)]) -> Arc<Bucket> {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let bucket = Bucket::default();
    bucket.objects.lock().unwrap().insert("a/b".into(), (Bytes::from_static(body.as_bytes()), headers));
    Arc::new(bucket)
}

#[tokio::test]
async fn the_digest_is_the_stores_own_or_that_of_the_bytes() {
    let (right, wrong) = (digest().base64(), Sha256::of("other").base64());
    let (checksum, kind) = ("x-amz-checksum-sha256", "x-amz-checksum-type");
    let there = |external_ref: Option<&str>, etag: Option<&str>| LookupResult::Committed {
        output: etag.map(str::to_owned),
        external_ref: external_ref.map(str::to_owned),
    };
    let said = holds("not looked at", &[(checksum, &right), ("etag", "\"e\""), ("x-amz-version-id", "v3")]);
    assert_eq!(find(&said).await.unwrap(), there(Some("v3"), Some("\"e\"")));
    let read = holds("content", &[("etag", "\"9a0364b9e99bb480dd25e1f0284c8555\"")]);
    let etag = Some("\"9a0364b9e99bb480dd25e1f0284c8555\"");
    assert_eq!(find(&read).await.unwrap(), there(etag, etag), "the etag is no digest");
    let parts = holds("content", &[(checksum, &wrong), (kind, "COMPOSITE")]);
    assert_eq!(find(&parts).await.unwrap(), there(None, None), "nor is a checksum of checksums");
    for other in [holds("content", &[(checksum, &wrong), (kind, "FULL_OBJECT")]), holds("conten", &[])] {
        assert!(matches!(find(&other).await.unwrap(), LookupResult::Foreign { .. }));
    }
}

// C10
#[tokio::test]
async fn only_a_404_is_a_miss() {
    assert_eq!(find(&Arc::default()).await.unwrap(), LookupResult::NotFound);
    for status in [206, 301, 401, 403, 410, 412, 429, 500, 503] {
        let status = StatusCode::from_u16(status).unwrap();
        let base = serve(Router::new().fallback(async move || status)).await;
        let bucket = HttpObject::new(base, SOON).unwrap();
        assert!(bucket.find("a/b", digest(), |_| ()).await.is_err(), "{status}");
    }
    let app = Router::new().fallback(async || (StatusCode::NOT_FOUND, [("x-amz-delete-marker", "true")]));
    let bucket = HttpObject::new(serve(app).await, SOON).unwrap();
    let error = bucket.find("a/b", digest(), |_| ()).await.unwrap_err();
    assert!(error.message.contains("deleted"), "{error}");
}

#[tokio::test]
async fn two_creates_collide() {
    let bucket = Arc::new(Bucket::default());
    let store = open(bucket.clone()).await;
    store.create("a/ü?#%2F/c", "content").await.unwrap();
    let error = store.create("a/ü?#%2F/c", "other").await.unwrap_err();
    assert_eq!((error.kind, *bucket.collided.lock().unwrap()), (ErrorKind::Duplicate, 1));
    assert_eq!(bucket.objects.lock().unwrap().keys().collect::<Vec<_>>(), ["a/ü?#%2F/c"]);
    for key in ["", "a/../b", "./a"] {
        assert_eq!(store.create(key, "content").await.unwrap_err().kind, ErrorKind::Validation, "{key:?}");
    }
}
