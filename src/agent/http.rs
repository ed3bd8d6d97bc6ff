//! A model behind an OpenAI-compatible endpoint: chat completions with tools, the format of most model servers.

mod wire;

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Response, Url};
use serde_json::{Map, Value, json};

use self::wire::{completion, messages};
use super::bounds::cut;
use super::message::{Prompt, Reply};
use super::model::Model;
use super::usage::Usage;
use crate::ledger::ErrorKind;
use crate::tool::{Call, ToolError, retry_after, sends_once};

/// The maximum size of a response, in bytes. A larger response is an error.
const ANSWER: usize = 8 * 1024 * 1024;
/// The maximum size of an error's text in the record, in bytes.
const ERROR: usize = 500;

/// A model behind an OpenAI-compatible endpoint.
///
/// ```
/// use counterfoil::agent::{ChatCompletions, Prices};
/// use serde_json::json;
///
/// let model = ChatCompletions::at("http://localhost:11434/v1", "qwen3")?
///     .key("sk-…")
///     .prices(Prices { input_micros: 2_500_000, output_micros: 10_000_000 })
///     .option("temperature", json!(0.2));
/// # Ok::<(), counterfoil::agent::EndpointError>(())
/// ```
#[derive(Clone)]
pub struct ChatCompletions {
    client: Client,
    url: Url,
    model: String,
    key: Option<String>,
    prices: Prices,
    options: Map<String, Value>,
}

/// Prices of a million tokens, in millionths of a currency unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// The price of a million input tokens.
    pub input_micros: u64,
    /// The price of a million output tokens.
    pub output_micros: u64,
}

/// The reason why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The URL is not an HTTP or HTTPS URL.
    #[error("{url:?} is not the URL of an endpoint ({detail}): give it as http://host/v1 [configuration]")]
    Url {
        /// The URL as given.
        url: String,
        /// Description of the mistake in the URL.
        detail: String,
    },
    /// The HTTP client cannot be created.
    #[error("there is no HTTP client: {detail} [configuration]")]
    Client {
        /// The error message of the HTTP library.
        detail: String,
    },
}

impl fmt::Debug for ChatCompletions {
    /// Formats the endpoint without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatCompletions")
            .field("url", &self.url.as_str())
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl ChatCompletions {
    /// A client for the model of this name. `base` is the part of the URL before `/chat/completions`.
    pub fn at(base: &str, model: impl Into<String>) -> Result<Self, EndpointError> {
        let refused = |detail: String| EndpointError::Url { url: base.to_owned(), detail };
        let url = format!("{}/chat/completions", base.trim_end_matches('/'));
        let url = Url::parse(&url).map_err(|e| refused(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused(format!("its scheme is {:?}", url.scheme())));
        }
        let client = sends_once()
            .connect_timeout(Duration::from_secs(10))
            .build()
            .map_err(|e| EndpointError::Client { detail: e.to_string() })?;
        let (model, prices, options) = (model.into(), Prices::default(), Map::new());
        Ok(Self { client, url, model, key: None, prices, options })
    }

    /// Sets the bearer key for the endpoint.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the prices, from which [`Usage::cost_micros`] is computed.
    #[must_use]
    pub const fn prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// Adds a field to each request: `temperature`, `max_tokens`, `reasoning_effort` …
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.options.insert(name.into(), value);
        self
    }

    fn body(&self, prompt: &Prompt) -> Value {
        let mut body = self.options.clone();
        body.insert("model".into(), json!(self.model));
        body.insert("messages".into(), messages(&prompt.messages));
        if !prompt.tools.is_empty() {
            body.insert("tools".into(), json!(prompt.tools));
        }
        Value::Object(body)
    }

    /// An error with this text, without the key, in case the endpoint repeated the key.
    fn error(&self, kind: ErrorKind, text: &str) -> ToolError {
        let text = match self.key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) => text.replace(key, "[key]"),
            None => text.to_owned(),
        };
        ToolError::new(kind, cut(text, ERROR))
    }

    /// The error of a request that got no response.
    fn lost(&self, error: reqwest::Error) -> ToolError {
        let lost = ToolError::from(error);
        self.error(lost.kind, &format!("no answer: {}", lost.message))
    }

    async fn text(&self, mut response: Response) -> Result<String, ToolError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| self.lost(e))? {
            if bytes.len() + chunk.len() > ANSWER {
                return Err(self.error(ErrorKind::Unknown, "the answer is too large to be read"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn refused(&self, status: u16, headers: &HeaderMap, body: &str) -> ToolError {
        let kind = match status {
            // A chat completion cannot be a duplicate, so this 409 is no conflict of keys.
            409 => ErrorKind::Server,
            // An exhausted account does not recover by waiting.
            429 if body.contains("insufficient_quota") => ErrorKind::BudgetExceeded,
            300..=399 => ErrorKind::Validation,
            status => ToolError::http(status, "").kind,
        };
        let error = self.error(kind, &format!("HTTP {status}: {body}"));
        ToolError { retry_after: asked_wait(headers), ..error }
    }

    fn priced(&self, usage: Usage) -> Usage {
        let cost = |tokens: u64, micros: u64| u128::from(tokens) * u128::from(micros);
        let cost = cost(usage.input_tokens, self.prices.input_micros)
            + cost(usage.output_tokens, self.prices.output_micros);
        Usage { cost_micros: u64::try_from(cost / 1_000_000).unwrap_or(u64::MAX), ..usage }
    }
}

impl Model for ChatCompletions {
    async fn complete(&self, call: &Call, prompt: &Prompt) -> Result<Reply, ToolError> {
        let mut request = self.client.post(self.url.clone()).json(&self.body(prompt));
        // An endpoint or gateway that honours the key answers a second attempt without a second completion.
        request = request.header("Idempotency-Key", call.key());
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(|e| self.lost(e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = self.text(response).await;
        if !status.is_success() {
            // The status is sufficient, even if the body was cut off.
            return Err(self.refused(status.as_u16(), &headers, &text.unwrap_or_default()));
        }
        let text = text?;
        let mut reply = completion(&text).map_err(|e| {
            self.error(ErrorKind::Unknown, &format!("the answer is no chat completion: {e}: {text}"))
        })?;
        reply.usage = self.priced(reply.usage);
        Ok(reply)
    }
}

/// The wait that the endpoint asks for: in the milliseconds of `retry-after-ms`, or in the seconds of `Retry-After`.
/// A date is ignored, and the backoff applies.
fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    let milliseconds = headers.get("retry-after-ms").and_then(|ms| ms.to_str().ok()?.trim().parse().ok());
    milliseconds.map(Duration::from_millis).or_else(|| retry_after(headers))
}
