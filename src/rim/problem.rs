//! The answers of HTTP doors themselves: problem details (RFC 9457) with stable types.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::{Map, Value};

/// The default prefix of the types, for hosts without pages of their own about them.
pub(super) const TYPES: &str = "urn:counterfoil:problem:";

/// The maximum length of a detail, in bytes. An error may quote the request, which may be long.
const LONGEST_DETAIL: usize = 2000;

/// A detail of bounded length. A control character, which JSON spells with six bytes, is replaced in a detail that is cut.
fn bounded(detail: String) -> String {
    if detail.len() <= LONGEST_DETAIL {
        return detail;
    }
    let beginning = &detail[..detail.floor_char_boundary(LONGEST_DETAIL)];
    format!("{} …", beginning.replace(char::is_control, "\u{fffd}"))
}

/// A kind of problem.
pub(super) trait Kind: Copy {
    /// The stable name, after the prefix of the type URI.
    fn name(self) -> &'static str;
    /// The HTTP status of the problem.
    fn status(self) -> StatusCode;
    fn title(self) -> &'static str;
}

/// A problem on its way to the client.
#[derive(Clone, Debug)]
pub(super) struct Details<P> {
    pub(super) problem: P,
    status: StatusCode,
    members: Map<String, Value>,
    retry_after: Option<u64>,
    location: Option<HeaderValue>,
}

impl<P: Kind> Details<P> {
    pub(super) fn of(problem: P, detail: impl Into<String>) -> Self {
        let mut members = Map::new();
        members.insert("detail".to_owned(), bounded(detail.into()).into());
        Self { problem, status: problem.status(), members, retry_after: None, location: None }
    }

    /// The problem in words.
    #[cfg(feature = "dashboard")]
    pub(super) fn detail(&self) -> &str {
        self.members["detail"].as_str().unwrap_or_default()
    }

    /// The response. `types` is the prefix of the type URI.
    pub(super) fn response(self, types: &str) -> Response<Bytes> {
        let Self { problem, status, mut members, retry_after, location } = self;
        members.insert("type".to_owned(), format!("{types}{}", problem.name()).into());
        members.insert("title".to_owned(), problem.title().into());
        members.insert("status".to_owned(), status.as_u16().into());
        let mut response = Response::new(Bytes::from(Value::Object(members).to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(retry_after.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        headers.extend(location.map(|url| (LOCATION, url)));
        response
    }
}

/// The further details of the HTTP layer.
#[cfg(feature = "http")]
impl<P> Details<P> {
    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(super) fn member(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// Sets the time after which the client may ask again, in seconds.
    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(super) fn location(mut self, url: Option<&str>) -> Self {
        self.location = url.and_then(|url| HeaderValue::from_str(url).ok());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_DETAIL, bounded};

    #[test]
    fn a_long_detail_is_cut_between_two_characters() {
        let short = "a".repeat(LONGEST_DETAIL);
        assert_eq!(bounded(short.clone()), short);
        let cut = bounded(format!("a{}", "\u{e4}".repeat(LONGEST_DETAIL)));
        assert_eq!(cut, format!("a{} …", "\u{e4}".repeat(LONGEST_DETAIL / 2 - 1)));
        let spelled = serde_json::Value::from(bounded("\0".repeat(1 << 20))).to_string();
        assert!(spelled.len() < 8000, "{}", spelled.len());
    }
}
