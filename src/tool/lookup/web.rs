//! How lookups over HTTP ask: without redirects and caches, and with an error for whatever is no clear answer.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CACHE_CONTROL, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Request, Response, Url};
use serde_json::Value;

use super::seen::unclear;
use crate::ledger::ErrorKind;
use crate::tool::ToolError;

/// The largest answer that is read, in bytes. Beyond that it is no page.
const ANSWER: usize = 8 * 1024 * 1024;

/// Adds what a request needs.
type Authorize = dyn Fn(&mut Request) + Send + Sync;

/// How requests go out.
#[derive(Clone)]
pub(super) struct Web {
    pub(super) client: Client,
    pub(super) authorize: Option<Arc<Authorize>>,
}

impl Web {
    pub(super) fn new(timeout: Duration) -> Result<Self, reqwest::Error> {
        // A redirect to a login page would answer 200, and show nothing.
        let client = Client::builder().timeout(timeout).redirect(Policy::none());
        let client = client.retry(reqwest::retry::never()).build()?; // who asks again is the executor
        Ok(Self { client, authorize: None })
    }

    pub(super) fn request(method: Method, url: Url) -> Request {
        let mut request = Request::new(method, url);
        // What a cache remembers is from before the effect.
        request.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        request
    }

    /// Asks, with these headers besides.
    pub(super) async fn get(
        &self,
        method: Method,
        url: Url,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Response, ToolError> {
        let mut request = Self::request(method, url);
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        self.send(request).await
    }

    pub(super) async fn send(&self, mut request: Request) -> Result<Response, ToolError> {
        if let Some(authorize) = &self.authorize {
            authorize(&mut request);
        }
        self.client.execute(request).await.map_err(broken)
    }
}

/// No answer, or half of one. The client's own words name the URL, which may hold a password.
fn broken(error: reqwest::Error) -> ToolError {
    let kind = match &error {
        error if error.is_connect() => ErrorKind::Unreachable,
        error if error.is_timeout() => ErrorKind::TimeoutDuringEffect,
        _ => ErrorKind::Disconnected,
    };
    ToolError::new(kind, error.without_url().to_string())
}

/// An answer that is neither "there" nor "not there".
pub(super) fn refused(answer: &Response) -> ToolError {
    let error = ToolError::http(answer.status().as_u16(), "the lookup was not answered");
    match retry_after(answer.headers()) {
        Some(after) => error.retry_after(after),
        None => error,
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The body, piece by piece and within bounds.
pub(super) async fn pieces(
    mut answer: Response,
    mut take: impl FnMut(&[u8]) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    while let Some(piece) = answer.chunk().await.map_err(broken)? {
        take(&piece)?;
    }
    Ok(())
}

pub(super) async fn json(answer: Response) -> Result<Value, ToolError> {
    let mut body = Vec::new();
    let take = |piece: &[u8]| {
        body.extend_from_slice(piece);
        if body.len() > ANSWER {
            Err(unclear(format!("an answer of more than {ANSWER} bytes")))
        } else {
            Ok(())
        }
    };
    pieces(answer, take).await?;
    serde_json::from_slice(&body).map_err(|e| unclear(format!("an answer that is no JSON: {e}")))
}
