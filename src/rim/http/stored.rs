//! A response as the ledger keeps it, and gives it back byte for byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderName, LAST_MODIFIED, LINK, LOCATION, RETRY_AFTER, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

/// The headers that are kept, besides those that the host names: they describe the answer, and not its delivery.
pub(super) const KEPT: [HeaderName; 13] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    CONTENT_TYPE,
    ETAG,
    LAST_MODIFIED,
    LINK,
    LOCATION,
    RETRY_AFTER,
    VARY,
];

/// The headers that belong to one connection or one client, and are never kept (RFC 9110, 7.6.1).
pub(super) const NEVER: [&str; 13] = [
    "set-cookie",
    "set-cookie2",
    "date",
    "age",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
];

/// A whole response as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredResponse {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, Octets)>,
    body: Octets,
}

/// Bytes, as text if they are valid UTF-8, so that a person can read them in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Octets {
    Base64(String),
    #[serde(untagged)]
    Text(String),
}

impl Octets {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Text(text) => Some(text.into()),
            Self::Base64(text) => STANDARD.decode(text).ok().map(Bytes::from),
        }
    }
}

impl StoredResponse {
    /// The kept part of a response: its status, its body, and the headers that describe it.
    pub(super) fn of(response: &Response<Bytes>, also: &[HeaderName]) -> Self {
        let kept = |name: &HeaderName| {
            !NEVER.contains(&name.as_str()) && (KEPT.contains(name) || also.contains(name))
        };
        let headers = response.headers().iter().filter(|(name, _)| kept(name));
        Self {
            status: response.status().as_u16(),
            headers: headers.map(|(name, value)| (name.to_string(), Octets::of(value.as_bytes()))).collect(),
            body: Octets::of(response.body()),
        }
    }

    /// The response as it was. `None` if a person has answered with another value.
    pub(super) fn response(self) -> Option<Response<Bytes>> {
        let mut headers = HeaderMap::with_capacity(self.headers.len() + 1);
        for (name, value) in self.headers {
            let value = HeaderValue::from_maybe_shared(value.bytes()?).ok()?;
            headers.append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
        }
        let mut response = Response::new(self.body.bytes()?);
        *response.status_mut() = StatusCode::from_u16(self.status).ok()?;
        *response.headers_mut() = headers;
        Some(response)
    }
}
