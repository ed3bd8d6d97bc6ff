//! A tool that is one HTTP request, from a declaration. Feature `tool-http`.

mod answer;
mod builder;
mod error;
mod request;
mod url;

use std::future::Future;
use std::sync::Arc;

use reqwest::{Client, Method};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use builder::HttpToolBuilder;
pub use error::HttpToolError;

use answer::Answers;
use request::RequestTemplate;
use url::UrlTemplate;

use super::declared::template::{Json, Values};
use super::declared::{Declaration, dynamic, expected, find, relies_on_key, send};
use super::lookup::HttpGet;
use super::{Call, Done, DynamicTool, ToolError};
use crate::ledger::{Contract, EffectClass, LookupResult};

/// A tool that is one HTTP request: the request, the meaning of its answers, and the lookup.
///
/// The URL, the headers and the body may have holes: `{field}` and `{/json/pointer}` are values of the input, and
/// `{token}` is the call's key. Each value is escaped for its place. A value that does not fit, such as `..` in a path or
/// a line break in a header, refuses the call before anything is sent.
///
/// Each attempt sends one request: its client follows no redirects, retries nothing, and uses each connection once, so
/// that no request is lost on a connection that the provider is closing. A second write within one attempt is refused.
///
/// ```
/// # use std::time::Duration;
/// use counterfoil::Engine;
/// use counterfoil::ledger::{Contract, ContractClass, EffectClass};
/// use counterfoil::payload::Secret;
/// use counterfoil::tool::http_tool::HttpTool;
/// use counterfoil::tool::lookup::HttpGet;
/// use serde_json::json;
///
/// let refunds = HttpGet::list("https://pay.example/charges/{charge}/refunds", "/data", Duration::from_secs(10))?;
/// let refund = HttpTool::post("https://pay.example/charges/{charge}/refunds")
///     .key_header("Idempotency-Key")
///     .secret_header("authorization", Secret::new("Bearer sk_test_1".to_owned()))
///     .body(json!({ "amount": "{cents}", "reference": "{token}" }))
///     .key_fields(["charge", "case"])
///     .external_id("/id")
///     .lookup(refunds.carries_if_any("/reference"))
///     .expects("/amount", "{cents}")
///     .build()?
///     .dynamic("refund", EffectClass::Payment, Contract::new(ContractClass::ReplaysKey))?;
/// let engine = Engine::in_memory().dynamic_tool(refund);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A typed [`Tool`](super::Tool) holds an `HttpTool`, and calls [`send`](Self::send) and [`find`](Self::find).
#[derive(Clone)]
pub struct HttpTool(Arc<Declared>);

struct Declared {
    request: RequestTemplate,
    answers: Answers,
    keys: Vec<String>,
    lookup: Option<(HttpGet, UrlTemplate)>,
    expected: Vec<(String, Json)>,
    client: Client,
}

impl HttpTool {
    /// A tool that sends a POST to this URL.
    pub fn post(url: impl Into<String>) -> HttpToolBuilder {
        HttpToolBuilder::new(Method::POST, url.into())
    }

    /// A tool that sends a PUT to this URL.
    pub fn put(url: impl Into<String>) -> HttpToolBuilder {
        HttpToolBuilder::new(Method::PUT, url.into())
    }

    /// A tool that sends a PATCH to this URL.
    pub fn patch(url: impl Into<String>) -> HttpToolBuilder {
        HttpToolBuilder::new(Method::PATCH, url.into())
    }

    /// A tool that sends a DELETE to this URL.
    pub fn delete(url: impl Into<String>) -> HttpToolBuilder {
        HttpToolBuilder::new(Method::DELETE, url.into())
    }

    /// A tool that sends a GET to this URL, for an effect of class [`ReadOnly`](EffectClass::ReadOnly).
    pub fn get(url: impl Into<String>) -> HttpToolBuilder {
        HttpToolBuilder::new(Method::GET, url.into())
    }

    /// Sends the request of a call, once.
    ///
    /// # Errors
    /// [`ToolError`], sorted by what may have reached the provider. A second write within one attempt, and a write after
    /// its attempt has ended, are not sent: the error leaves the outcome of the attempt unknown.
    pub fn send<I, O>(
        &self,
        call: &Call,
        input: &I,
    ) -> impl Future<Output = Result<Done<O>, ToolError>> + Send + use<I, O>
    where
        I: Serialize + ?Sized,
        O: DeserializeOwned,
    {
        send(&self.0, call, input)
    }

    /// Looks for the effect of a call, by the declared lookup.
    ///
    /// # Errors
    /// [`ToolError`] if the provider has not clearly shown the outcome, or no lookup is declared.
    pub fn find<I, O>(
        &self,
        call: &Call,
        input: &I,
    ) -> impl Future<Output = Result<LookupResult<O>, ToolError>> + Send + use<I, O>
    where
        I: Serialize + ?Sized,
        O: DeserializeOwned + Send,
    {
        find(&self.0, call, input)
    }

    /// The tool under this name, for [`Engine::dynamic_tool`](crate::flow::EngineBuilder::dynamic_tool) or
    /// [`Executor`](crate::Executor): add there what an HTTP request does not say, such as an approval, a quota or a
    /// description for a model. The declared lookup is added to the contract.
    ///
    /// # Errors
    /// [`HttpToolError::KeyNotSent`] if the contract or the lookup relies on a key that the request does not carry.
    pub fn dynamic(
        &self,
        name: impl Into<String>,
        effect: EffectClass,
        contract: impl Into<Contract>,
    ) -> Result<DynamicTool, HttpToolError> {
        let (name, contract) = (name.into(), contract.into());
        // A lookup by a key that was never sent finds nothing, and the call would be sent again.
        let by_key = self.0.lookup.as_ref().is_some_and(|(get, url)| get.compares_token() || url.has_token());
        if (relies_on_key(&contract) || by_key) && !self.0.request.has_token() {
            return Err(HttpToolError::KeyNotSent { tool: name });
        }
        Ok(dynamic(&self.0, name, effect, contract))
    }
}

impl Declaration for Declared {
    const NOT_SENT: &'static str = "not sent";

    async fn send(&self, call: &Call, input: &Value) -> Result<Done<Value>, ToolError> {
        let mut request = self.request.fill(Values { input, token: call.key() })?;
        if !request.method().is_safe() {
            call.claim_send()?;
        }
        if let Some(left) = call.time_left() {
            *request.timeout_mut() = Some(left);
        }
        let answered = match self.client.execute(request).await {
            Ok(response) => self.answers.read(response).await,
            Err(error) => Err(error.into()),
        };
        answered.map_err(|error| ToolError { message: self.request.without_secrets(&error.message), ..error })
    }

    async fn find<O>(&self, call: &Call, input: &Value) -> Result<LookupResult<O>, ToolError>
    where
        O: DeserializeOwned + Send,
    {
        let unclear = |error: ToolError| ToolError::unknown(error.message);
        let Some((get, url)) = &self.lookup else {
            return Err(ToolError::unknown("the HTTP tool declares no lookup"));
        };
        let values = Values { input, token: call.key() };
        let expected = expected(&self.expected, values)?;
        let get = get.at(url.fill(values).map_err(unclear)?);
        get.find(call, &expected, serde_json::from_value).await
    }

    fn key_fields(&self) -> &[String] {
        &self.keys
    }

    fn blind_spots(&self) -> Option<&'static [&'static str]> {
        self.lookup.as_ref().map(|_| HttpGet::SIGHT.blind_spots)
    }
}

impl std::fmt::Debug for HttpTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RequestTemplate { method, url, .. } = &self.0.request;
        f.debug_struct("HttpTool").field("method", method).field("url", url).finish_non_exhaustive()
    }
}
