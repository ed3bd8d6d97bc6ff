//! The provider as our tools use it, and its HTTP interface. The whole art is to say truly what an error means: what
//! *may* have reached the provider is never reported as "nothing happened".

use std::collections::BTreeMap;
use std::time::Duration;

use counterfoil::ledger::{Backoff, ErrorKind, LookupResult, RetryPolicy};
use counterfoil::tool::{Call, Done, ToolError};
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[cfg(feature = "sim")]
use super::simulated::Simulated;
use super::{Notice, Receipt};

/// A provider of notices. Our reference for a notice is the key of its call.
#[derive(Clone, Debug)]
pub struct Provider {
    place: Place,
    /// How long a request may still be on its way when its sender has died. Until then the provider's "not
    /// found" is not believed.
    pub settle: Duration,
    /// After this long without an answer we stop waiting. What became of the request is then unknown.
    pub patience: Duration,
}

/// Where it is.
#[derive(Clone, Debug)]
pub enum Place {
    Http(Http),
    /// In a simulation, which has no network.
    #[cfg(feature = "sim")]
    Simulated(Simulated),
}

/// A provider behind HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    client: reqwest::Client,
    url: String,
}

/// A notice as the provider shows it.
#[derive(Debug, Deserialize)]
struct Shown {
    id: String,
    recipient: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Shown>,
    next: Option<u32>,
}

/// What the provider has counted.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Counted {
    /// Notices sent, by our reference.
    pub effects: BTreeMap<String, u64>,
    /// Requests to send one that have reached it.
    pub requests: u64,
    /// Effects that no lookup sees yet.
    pub unseen: u64,
}

impl Provider {
    /// The provider at this place.
    pub const fn new(place: Place, settle: Duration) -> Self {
        Self { place, settle, patience: Duration::from_secs(10) }
    }

    /// Few and quick attempts.
    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            backoff: Backoff { base: Duration::from_millis(20), cap: Duration::from_secs(1) },
            attempt_timeout: self.patience,
            ..RetryPolicy::default()
        }
    }

    /// Sends a notice, with an idempotency key where the provider takes one.
    pub async fn create(
        &self,
        call: &Call,
        notice: &Notice,
        key: Option<&str>,
    ) -> Result<Done<Receipt>, ToolError> {
        match &self.place {
            Place::Http(http) => http.create(call.key(), notice, key).await,
            #[cfg(feature = "sim")]
            Place::Simulated(simulated) => simulated.create(call, notice).await,
        }
    }

    /// Sends a notice under an id that we choose: the second time it is there already.
    pub async fn create_as(&self, call: &Call, notice: &Notice) -> Result<Done<Receipt>, ToolError> {
        match &self.place {
            Place::Http(http) => http.create_as(call.key(), notice).await,
            #[cfg(feature = "sim")]
            Place::Simulated(simulated) => simulated.create_as(call, notice).await,
        }
    }

    /// What the provider has under our reference.
    pub async fn find(&self, call: &Call, notice: &Notice) -> Result<LookupResult<Receipt>, ToolError> {
        match &self.place {
            Place::Http(http) => http.find(call.key(), notice).await,
            #[cfg(feature = "sim")]
            Place::Simulated(simulated) => simulated.find(call, notice).await,
        }
    }
}

impl Http {
    /// The provider at this URL.
    pub fn new(url: impl Into<String>) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            // One point of retry, and it is the executor: a client that retries by itself sends twice.
            .retry(reqwest::retry::never())
            // A notice must not end up at another host because that one said so.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self { client, url: url.into() })
    }

    /// Sends a notice under our reference, with an idempotency key where the provider takes one.
    pub async fn create(
        &self,
        reference: &str,
        notice: &Notice,
        key: Option<&str>,
    ) -> Result<Done<Receipt>, ToolError> {
        let mut request = self.client.post(format!("{}/notices", self.url)).json(&body(reference, notice));
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let shown: Shown = answer(accepted(send(request).await?).await?).await?;
        Ok(receipt(shown))
    }

    /// Sends a notice under an id that we choose: the second time it is there already.
    pub async fn create_as(&self, id: &str, notice: &Notice) -> Result<Done<Receipt>, ToolError> {
        let request = self.client.put(format!("{}/notices/{id}", self.url)).json(&body(id, notice));
        let response = send(request).await?;
        if response.status() != reqwest::StatusCode::PRECONDITION_FAILED {
            return Ok(receipt(answer(accepted(response).await?).await?));
        }
        // Taken: by this very notice, or by another that it must not be confused with.
        let shown: Shown = answer(response).await?;
        if shown.is(notice) {
            Ok(receipt(shown))
        } else {
            Err(ToolError::new(ErrorKind::Validation, format!("the id {id} is taken by another notice")))
        }
    }

    /// What the provider has under our reference, over all pages.
    pub async fn find(&self, reference: &str, notice: &Notice) -> Result<LookupResult<Receipt>, ToolError> {
        let mut found = Vec::new();
        let mut next = Some(1);
        while let Some(page) = next {
            // A reference is `[A-Za-z0-9_-]`: nothing to be escaped.
            let url = format!("{}/notices?reference={reference}&page={page}", self.url);
            let page: Page = answer(accepted(send(self.client.get(url)).await?).await?).await?;
            found.extend(page.items);
            next = page.next;
        }
        if found.iter().any(|shown| !shown.is(notice)) {
            return Ok(LookupResult::Unknown); // not ours, under our reference: a person has to look
        }
        let ids: Vec<_> = found.into_iter().map(|shown| shown.id).collect();
        Ok(match ids.as_slice() {
            [] => LookupResult::NotFound,
            [id] => {
                LookupResult::Committed { output: Receipt { id: id.clone() }, external_ref: Some(id.clone()) }
            }
            _ => LookupResult::duplicated(ids.into_iter().map(|id| (id.clone(), Receipt { id }))),
        })
    }

    /// Everything that the provider has counted: for demos and tests, which take nobody else's word.
    pub async fn effects(&self) -> Result<Counted, ToolError> {
        answer(accepted(send(self.client.get(format!("{}/effects", self.url))).await?).await?).await
    }
}

impl Shown {
    fn is(&self, notice: &Notice) -> bool {
        self.recipient == notice.recipient && self.text == notice.text
    }
}

fn body(reference: &str, notice: &Notice) -> serde_json::Value {
    json!({ "reference": reference, "recipient": notice.recipient, "text": notice.text })
}

fn receipt(shown: Shown) -> Done<Receipt> {
    Done::new(Receipt { id: shown.id.clone() }).external_ref(shown.id)
}

/// Sends a request once.
async fn send(request: RequestBuilder) -> Result<Response, ToolError> {
    request.send().await.map_err(|error| {
        let kind = if error.is_connect() {
            ErrorKind::Unreachable // no connection came about: not a byte has left
        } else if error.is_timeout() {
            ErrorKind::TimeoutDuringEffect
        } else if error.is_builder() {
            ErrorKind::Validation
        } else {
            ErrorKind::Disconnected // some of it may have arrived, or all of it
        };
        ToolError::new(kind, explained(&error))
    })
}

/// An answer that says yes.
async fn accepted(response: Response) -> Result<Response, ToolError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let retry_after =
        response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
    let error = ToolError::http(status.as_u16(), response.text().await.unwrap_or_default());
    Err(match retry_after {
        Some(seconds) => error.retry_after(Duration::from_secs(seconds)),
        None => error,
    })
}

/// What the answer says. If it breaks off, the notice may well have been sent.
async fn answer<T: DeserializeOwned>(response: Response) -> Result<T, ToolError> {
    response.json().await.map_err(|error| ToolError::new(ErrorKind::Disconnected, explained(&error)))
}

/// The error with its causes: the first line alone says little.
fn explained(error: &reqwest::Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
