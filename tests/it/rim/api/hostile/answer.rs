//! A request, and what every answer must hold.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request};
use counterfoil::ErrorCode;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower_service::Service as _;

use super::attack::Kind;
use super::scene::CANARY;

/// The maximum length of a refusal, in bytes.
const LONGEST_REFUSAL: usize = 8 * 1024;

/// The names of problems: the codes of errors, and the words that the guide lists beside them.
static KNOWN: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let page = include_str!("../../../../../docs/api.md");
    let listed = page.split_once("\n## Problems\n").unwrap().1.split_once("\n## ").unwrap().0;
    let words = listed.split('`').skip(1).step_by(2);
    words.chain(ErrorCode::ALL.iter().map(|code| code.as_str())).collect()
});

/// A request.
pub(super) struct Shot {
    pub(super) kind: Kind,
    pub(super) method: String,
    /// The path with its query.
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    /// The statuses that the answer may have. Empty: all but those of the server's failures.
    pub(super) expected: &'static [u16],
    /// True if the caller may see the rows of all tenants.
    pub(super) sees_all: bool,
}

impl Shot {
    pub(super) fn new(kind: Kind, method: &str, path: String) -> Self {
        let (method, headers, body) = (method.to_owned(), Vec::new(), Vec::new());
        Self { kind, method, path, headers, body, expected: &[], sees_all: false }
    }

    pub(super) fn get(path: &str) -> Self {
        Self::new(Kind::Valid, "GET", path.to_owned())
    }

    pub(super) fn header(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    pub(super) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(super) fn body(self, body: Vec<u8>) -> Self {
        Self { body, ..self }
    }

    pub(super) fn expects(self, expected: &'static [u16]) -> Self {
        Self { expected, ..self }
    }

    /// Sends the request to the router, without a connection. Of a stream, the first part is read.
    pub(super) async fn fire(&self, router: &Router) -> Answer {
        let mut request = Request::builder().method(self.method.as_str()).uri(self.path.as_str());
        for (name, value) in &self.headers {
            request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let request = request.body(Body::from(self.body.clone()));
        let request = request.unwrap_or_else(|error| panic!("{self}: {error}"));
        let response = router.clone().call(request).await.unwrap();
        let (parts, mut body) = response.into_parts();
        let media = parts.headers.get("content-type").map(|media| media.to_str().unwrap().to_owned());
        let media = media.unwrap_or_default();
        let bytes = if media == "text/event-stream" {
            match body.frame().await {
                Some(frame) => frame.unwrap().into_data().unwrap_or_default(),
                None => Bytes::new(),
            }
        } else {
            axum::body::to_bytes(body, usize::MAX).await.unwrap()
        };
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), media, text }
    }
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, method, path, .. } = self;
        let short = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(400)]).into_owned();
        write!(f, "{kind:?}: {method} {}", short(path.as_bytes()))?;
        for (name, value) in self.headers.iter().filter(|(name, _)| *name != "authorization") {
            write!(f, " | {name}: {:?}", short(value))?;
        }
        write!(f, " | {:?} ({} bytes)", short(&self.body), self.body.len())
    }
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) media: String,
    pub(super) text: String,
}

impl Answer {
    pub(super) const fn is_refused(&self) -> bool {
        self.status >= 400
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|_| panic!("{}: {:?} is no JSON", self.status, self.text))
    }

    /// The name of the problem; empty if the answer has no body.
    pub(super) fn code(&self) -> String {
        if self.text.is_empty() {
            return String::new();
        }
        let json = self.json();
        let code = json["type"].as_str().and_then(|of| of.strip_prefix("urn:counterfoil:problem:"));
        code.unwrap_or_else(|| panic!("{} is no problem", self.text)).to_owned()
    }

    /// What holds of every answer, whatever was asked.
    pub(super) fn judge(&self, shot: &Shot, secrets: &[String]) {
        let shown = &self.text[..self.text.floor_char_boundary(1000)];
        let what = format!("{shot}\n{} {shown}", self.status);
        assert!((200..500).contains(&self.status), "{what}");
        assert!(
            shot.expected.is_empty() || shot.expected.contains(&self.status),
            "not {:?}: {what}",
            shot.expected
        );
        assert!(secrets.iter().all(|secret| !self.text.contains(secret)), "a token is told: {what}");
        assert!(shot.sees_all || !self.text.contains(CANARY), "another tenant's content is told: {what}");
        if !self.is_refused() {
            return;
        }
        assert_eq!(self.media, "application/problem+json", "{what}");
        assert!(self.text.len() < LONGEST_REFUSAL, "{} bytes: {what}", self.text.len());
        let code = self.code();
        if code.is_empty() {
            return assert_eq!(shot.method, "HEAD", "{what}");
        }
        assert!(KNOWN.contains(code.as_str()), "{code:?} is in no guide: {what}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{what}");
        assert!(problem["title"].is_string() && problem["detail"].is_string(), "{what}");
    }
}
