//! The requests of lookups over HTTP: without redirects and caches, and with an error for each answer that is not
//! clear.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CACHE_CONTROL, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use serde_json::Value;

use super::seen::unclear;
use crate::tool::{ToolError, retry_after, sends_once};

/// The maximum size of an answer, in bytes. A larger one is no page.
const ANSWER: usize = 8 * 1024 * 1024;

/// A function that adds what a request needs.
type Authorize = dyn Fn(&mut Request) + Send + Sync;

/// The client of lookups, and the function that authorizes its requests.
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
        // A cache may hold an answer from before the effect.
        request.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        request
    }

    /// Sends a request with these additional headers.
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

/// The error for an answer that is neither "there" nor "not there".
pub(super) fn refused(answer: &Response) -> ToolError {
    let error = ToolError::http(answer.status().as_u16(), "the lookup was not answered");
    ToolError { retry_after: retry_after(answer.headers()), ..error }
}

/// Reads the body piece by piece, until `take` refuses a piece.
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
