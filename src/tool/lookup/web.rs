//! How lookups over HTTP ask: without redirects and caches, and with an error for whatever is no clear answer.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CACHE_CONTROL, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use serde_json::Value;

use super::seen::unclear;
use crate::tool::{ToolError, retry_after, sends_once};

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
        let client = sends_once().timeout(timeout).build()?;
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
        Ok(self.client.execute(request).await?)
    }
}

/// An answer that is neither "there" nor "not there".
pub(super) fn refused(answer: &Response) -> ToolError {
    let error = ToolError::http(answer.status().as_u16(), "the lookup was not answered");
    ToolError { retry_after: retry_after(answer.headers()), ..error }
}

/// The body, piece by piece and within bounds.
pub(super) async fn pieces(
    mut answer: Response,
    mut take: impl FnMut(&[u8]) -> Result<(), ToolError>,
) -> Result<(), ToolError> {
    while let Some(piece) = answer.chunk().await? {
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
