//! The declaration of an HTTP tool, step by step.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, ClientBuilder, Method};
use serde_json::Value;

use super::answer::{Answers, ExternalId};
use super::request::{Body, HeaderText, RequestTemplate};
use super::url::UrlTemplate;
use super::{Declared, HttpTool, HttpToolError};
use crate::payload::Secret;
use crate::tool::declared::template::{Json, Text};
use crate::tool::declared::{Meaning, Recognition};
use crate::tool::lookup::HttpGet;
use crate::tool::sends_once_on_new_connections;

/// The maximum time until a connection is made. A call without a connection was certainly not sent.
const CONNECT: Duration = Duration::from_secs(10);

/// The declaration of an [`HttpTool`].
#[must_use]
pub struct HttpToolBuilder {
    method: Method,
    url: String,
    headers: Vec<(String, String)>,
    secrets: Vec<(String, Secret<String>)>,
    body: Option<Value>,
    answers: Answers,
    replayed: Option<String>,
    keys: Vec<String>,
    lookup: Option<HttpGet>,
    expected: Vec<(String, Value)>,
    client: ClientBuilder,
}

impl HttpToolBuilder {
    pub(super) fn new(method: Method, url: String) -> Self {
        Self {
            method,
            url,
            headers: Vec::new(),
            secrets: Vec::new(),
            body: None,
            answers: Answers::default(),
            replayed: None,
            keys: Vec::new(),
            lookup: None,
            expected: Vec::new(),
            client: Client::builder().connect_timeout(CONNECT),
        }
    }

    /// Sends the call's key in this header.
    pub fn key_header(self, name: impl Into<String>) -> Self {
        self.header(name, "{token}")
    }

    /// Adds a header. Its value may have holes.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a header with a secret, such as `authorization`. The secret has no holes, is neither logged nor recorded, and
    /// is sent to the tool's own origin alone: with calls, and with lookups that have no
    /// [`authorize`](HttpGet::authorize) of their own. A provider's error text that repeats the secret is recorded
    /// without it.
    pub fn secret_header(mut self, name: impl Into<String>, value: Secret<String>) -> Self {
        self.secrets.push((name.into(), value));
        self
    }

    /// Sets the JSON body. Its texts may have holes; a text that is one hole becomes the value itself. Default: the input
    /// for POST, PUT and PATCH, and no body for GET and DELETE.
    pub fn body(mut self, body: impl Into<Value>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets the meaning of a status. Default: 202 is accepted, other 2xx are done, and the rest is as
    /// [`ToolError::http`](crate::tool::ToolError::http) sorts it.
    pub fn status(mut self, status: u16, meaning: Meaning) -> Self {
        self.answers.statuses.retain(|(declared, _)| *declared != status);
        self.answers.statuses.push((status, meaning));
        self
    }

    /// Declares that an error (status 400 or more) whose body has this value at this JSON pointer refuses a key that the
    /// provider knows: see [`ToolError::http_keyed`](crate::tool::ToolError::http_keyed).
    pub fn duplicate(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        self.answers.duplicate = Some((pointer.into(), value.into()));
        self
    }

    /// Declares that an error with this header and the value `true` is the answer to each request under the key, such as
    /// Stripe's `idempotent-replayed`: see [`ToolError::replayed`](crate::tool::ToolError::replayed).
    pub fn replayed_header(mut self, name: impl Into<String>) -> Self {
        self.replayed = Some(name.into());
        self
    }

    /// Sets the JSON pointer to the provider's id for the effect, a text or a number in the answer's body.
    pub fn external_id(mut self, pointer: impl Into<String>) -> Self {
        self.answers.external_id = Some(ExternalId::Body(pointer.into()));
        self
    }

    /// Declares that the provider's id for the effect is the last path segment of the answer's header `Location`.
    pub fn external_id_from_location(mut self) -> Self {
        self.answers.external_id = Some(ExternalId::Location);
        self
    }

    /// Sets the JSON pointer to the output in the answer's body. Default: the whole body, which is null if it is empty.
    pub fn output(mut self, pointer: impl Into<String>) -> Self {
        self.answers.output = pointer.into();
        self
    }

    /// Sets the maximum size of an answer in bytes, after decompression. Default: 1 MiB. The outcome of a call with a
    /// larger answer is unknown.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.answers.max_bytes = bytes;
        self
    }

    /// Sets the fields of the input that make the key of a [`dynamic`](HttpTool::dynamic) tool: field names or JSON
    /// pointers to texts or numbers. A request without one of them is refused.
    pub fn key_fields(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keys = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the lookup. Its URL may have holes as well. What it finds is the output of the call.
    ///
    /// A lookup needs [`carries`](HttpGet::carries), `{token}` in its URL, or an [expected field](Self::expects): any answer would count
    /// as the effect otherwise. For [one thing](HttpGet::one) a value of the input in its URL is enough.
    pub fn lookup(mut self, lookup: HttpGet) -> Self {
        self.lookup = Some(lookup);
        self
    }

    /// Adds a field by which the lookup recognises the effect: the value at this JSON pointer in the thing that is found
    /// must be this one, which may have holes.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use counterfoil::tool::http_tool::HttpTool;
    /// use counterfoil::tool::lookup::HttpGet;
    ///
    /// let charges = HttpGet::list("https://pay.example/charges?reference={token}", "/data", Duration::from_secs(10))?;
    /// let tool = HttpTool::post("https://pay.example/charges")
    ///     .key_header("Idempotency-Key")
    ///     .lookup(charges.carries("/reference"))
    ///     .expects("/amount", "{cents}")
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expects(mut self, pointer: impl Into<String>, value: impl Into<Value>) -> Self {
        self.expected.push((pointer.into(), value.into()));
        self
    }

    /// Sets the client's proxies, certificates and connect timeout. Redirects, retries and the reuse of connections are
    /// switched off whatever the builder says. Lookups have a [client](HttpGet::client) of their own.
    pub fn client(mut self, client: ClientBuilder) -> Self {
        self.client = client;
        self
    }

    /// Checks the declaration.
    ///
    /// # Errors
    /// [`HttpToolError`] if a template or a header is malformed, the lookup takes any answer for the effect, or the client cannot be
    /// built.
    pub fn build(self) -> Result<HttpTool, HttpToolError> {
        let wrong = |part| move |detail| HttpToolError::Template { part, detail };
        let takes_input = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        let body = match &self.body {
            Some(template) => Body::Template(Json::parse(template).map_err(wrong("body"))?),
            None if takes_input => Body::Input,
            None => Body::None,
        };
        let texts = self.headers.iter().map(|(name, value)| {
            let value = Text::parse(value).map_err(wrong("header"))?;
            Ok(HeaderText { name: header_name(name)?, value })
        });
        let secrets = self.secrets.iter().map(|(name, secret)| {
            let refused = || HttpToolError::Header { name: name.clone() };
            let secret = secret.expose().ok_or_else(refused)?;
            let mut value = HeaderValue::from_str(secret).map_err(|_| refused())?;
            value.set_sensitive(true);
            Ok((header_name(name)?, value))
        });
        let expected = self.expected.iter().map(|(pointer, value)| {
            Ok((pointer.clone(), Json::parse(value).map_err(wrong("expected field"))?))
        });
        let request = RequestTemplate {
            url: UrlTemplate::parse(&self.url).map_err(wrong("URL"))?,
            method: self.method,
            headers: texts.collect::<Result<_, _>>()?,
            secrets: secrets.collect::<Result<_, _>>()?,
            body,
        };
        let lookup = match self.lookup {
            Some(get) => {
                let url = UrlTemplate::parse(get.url()).map_err(wrong("lookup"))?;
                let recognition = Recognition {
                    compares: get.compares_token() || !self.expected.is_empty(),
                    asks_by_key: url.has_token(),
                    asks_for_one: get.is_of_one() && url.has_holes(),
                };
                if !recognition.suffices() {
                    return Err(wrong("lookup")(Recognition::NONE.to_owned()));
                }
                Some((get.or_authorize(request.credentials()), url))
            }
            None => None,
        };
        let replayed = self.replayed.as_deref().map(header_name).transpose()?;
        let client = sends_once_on_new_connections(self.client)
            .build()
            .map_err(|error| HttpToolError::Client { detail: error.to_string() })?;
        Ok(HttpTool(Arc::new(Declared {
            request,
            answers: Answers { replayed, ..self.answers },
            expected: expected.collect::<Result<_, HttpToolError>>()?,
            keys: self.keys,
            lookup,
            client,
        })))
    }
}

fn header_name(name: &str) -> Result<HeaderName, HttpToolError> {
    name.parse().map_err(|_| HttpToolError::Header { name: name.to_owned() })
}

impl std::fmt::Debug for HttpToolBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpToolBuilder")
            .field("method", &self.method)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
