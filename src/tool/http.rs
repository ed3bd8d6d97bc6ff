//! HTTP by reqwest: a client that sends once, and errors sorted by what may have reached the world.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response};

use super::{ToolError, in_full};
use crate::ledger::ErrorKind;

/// The maximum number of bytes of an error's text that go into the record.
const TEXT: usize = 500;

/// A client that sends a request once, so that only its user sends a request again. It follows no redirect, which would
/// carry a request to another host, or turn a POST into a GET.
pub(crate) fn sends_once() -> ClientBuilder {
    never_again(Client::builder())
}

/// The same with settings of the host. Each request has a connection of its own: on one that the provider is closing, a
/// request would be lost, and its outcome unknown.
#[cfg(any(feature = "tool-http", all(feature = "mcp-http", feature = "sqlite")))]
pub(crate) fn sends_once_on_new_connections(builder: ClientBuilder) -> ClientBuilder {
    never_again(builder).pool_max_idle_per_host(0)
}

fn never_again(builder: ClientBuilder) -> ClientBuilder {
    builder.retry(reqwest::retry::never()).redirect(reqwest::redirect::Policy::none())
}

/// The wait that a provider asks for, in seconds (RFC 9110, section 10.2.3). A date is not read.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A text as it may be written in a path and in a query (RFC 3986, unreserved).
#[cfg(feature = "lookup-http")]
pub(crate) fn percent(token: &str) -> String {
    use std::fmt::Write as _;
    token.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            _ => drop(write!(text, "%{byte:02X}")),
        }
        text
    })
}

/// The error of a request that got no answer, or half of one.
///
/// | the request | kind |
/// | --- | --- |
/// | could not be built | [`Validation`](ErrorKind::Validation): nothing was sent |
/// | found no connection | [`Unreachable`](ErrorKind::Unreachable): nothing was sent |
/// | was answered with an error (`error_for_status`) | by its status, as [`ToolError::http`] sorts it |
/// | was not answered in time | [`TimeoutDuringEffect`](ErrorKind::TimeoutDuringEffect) |
/// | was cut off, or its answer cannot be read | [`Disconnected`](ErrorKind::Disconnected) |
///
/// The URL is left out, because it may hold a password.
impl From<reqwest::Error> for ToolError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let text = in_full(&error); // the client's own words say little
        match error.status() {
            _ if error.is_builder() => Self::new(ErrorKind::Validation, text),
            _ if error.is_connect() => Self::not_sent(text),
            Some(status) => Self::http(status.as_u16(), text),
            None if error.is_timeout() => Self::new(ErrorKind::TimeoutDuringEffect, text),
            None => Self::new(ErrorKind::Disconnected, text),
        }
    }
}

impl ToolError {
    /// Returns a response unless its status is an error. Such a status is sorted by [`http`](Self::http), with the
    /// beginning of the response's text and the wait that the provider asks for (`Retry-After`, in seconds).
    ///
    /// ```no_run
    /// use counterfoil::tool::ToolError;
    /// use counterfoil::types::reqwest::Client;
    ///
    /// async fn refund(client: &Client, key: &str) -> Result<serde_json::Value, ToolError> {
    ///     let sent = client.post("https://bank.example/refunds").header("Idempotency-Key", key).send().await?;
    ///     Ok(ToolError::unless_ok(sent).await?.json().await?)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ToolError`] for an error status.
    pub async fn unless_ok(mut response: Response) -> Result<Response, Self> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let retry_after = retry_after(response.headers());
        let mut text = Vec::new();
        while text.len() < TEXT {
            // If the text cannot be read to its end, the status is enough.
            let Ok(Some(chunk)) = response.chunk().await else { break };
            text.extend_from_slice(&chunk);
        }
        text.truncate(TEXT);
        let error = Self::http(status.as_u16(), String::from_utf8_lossy(&text).trim());
        Err(Self { retry_after, ..error })
    }
}
