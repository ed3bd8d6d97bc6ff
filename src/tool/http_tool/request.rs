//! The request of an HTTP tool: built from its templates, before anything is sent.

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};

use super::url::UrlTemplate;
use crate::tool::ToolError;
use crate::tool::declared::template::{Json, Text, Values};
use crate::tool::declared::{holds_secret, without_secrets};

#[derive(Clone, Debug)]
pub(super) enum Body {
    None,
    /// The input as JSON.
    Input,
    Template(Json),
}

/// A header whose value has holes.
#[derive(Clone, Debug)]
pub(super) struct HeaderText {
    pub(super) name: HeaderName,
    pub(super) value: Text,
}

#[derive(Clone, Debug)]
pub(super) struct RequestTemplate {
    pub(super) method: Method,
    pub(super) url: UrlTemplate,
    pub(super) headers: Vec<HeaderText>,
    /// Headers with secrets, which are marked as sensitive.
    pub(super) secrets: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Body,
}

impl RequestTemplate {
    /// True if the request carries the call's key.
    pub(super) fn has_token(&self) -> bool {
        let in_body = matches!(&self.body, Body::Template(body) if body.has_token());
        in_body || self.url.has_token() || self.headers.iter().any(|header| header.value.has_token())
    }

    /// The request with these values.
    ///
    /// # Errors
    /// A refusal if the input does not fill the templates: nothing was sent.
    pub(super) fn fill(&self, values: Values<'_>) -> Result<Request, ToolError> {
        if holds_secret(values.input) {
            let why = "not sent: the input holds a `Secret`, which only a secret header carries";
            return Err(ToolError::refused(why));
        }
        let mut request = Request::new(self.method.clone(), self.url.fill(values)?);
        for HeaderText { name, value } in &self.headers {
            let refused = |_| ToolError::refused(format!("not sent: no value of the header {name}"));
            let value = HeaderValue::from_str(&value.fill(values)?).map_err(refused)?;
            request.headers_mut().insert(name.clone(), value);
        }
        for (name, value) in &self.secrets {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let body = match &self.body {
            Body::None => return Ok(request),
            Body::Input => values.input.to_string(),
            Body::Template(body) => body.fill(values)?.to_string(),
        };
        request.headers_mut().entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(body.into());
        Ok(request)
    }

    /// A function that adds the secret headers to requests to the tool's own origin.
    pub(super) fn credentials(&self) -> impl Fn(&mut Request) + Send + Sync + 'static {
        let (secrets, own) = (self.secrets.clone(), Url::parse(&self.url.sample()).map(|url| url.origin()));
        move |request| {
            if own.as_ref().is_ok_and(|own| *own == request.url().origin()) {
                request.headers_mut().extend(secrets.iter().cloned());
            }
        }
    }

    /// A provider's text without the secrets that it repeats.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        without_secrets(text, self.secrets.iter().filter_map(|(_, value)| value.to_str().ok()))
    }
}
