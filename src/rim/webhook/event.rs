//! A delivery whose signature was verified, and what identifies its event. Pure.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::scheme::{Form, Scheme, SignatureError, optional};
use crate::clock::Timestamp;
use crate::exec::inbox::LONGEST;
use crate::payload::hex;

/// A delivery whose signature was verified.
#[derive(Clone, Debug)]
pub struct WebhookEvent {
    headers: HeaderMap,
    body: Bytes,
    /// The body's SHA-256, in hex.
    digest: String,
    named: Named,
    received_at: Timestamp,
}

/// The names that a delivery gives itself, in its sender's own place for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    id: Option<String>,
    kind: Option<String>,
    action: Option<String>,
}

/// The place in a body that says it.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    id: Value,
    r#type: Value,
    action: Value,
}

impl Named {
    /// From the header that holds the id, and from the headers and the body as the sender writes them.
    pub(super) fn of(
        scheme: &Scheme,
        id: Option<String>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, SignatureError> {
        // A body that is not JSON says nothing.
        let said: Said = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: Value| value.as_str().map(str::to_owned);
        let said = Self { id: text(said.id), kind: text(said.r#type), action: text(said.action) };
        Ok(match scheme.form() {
            Form::Stripe => said,
            Form::GitHub => {
                let kind = optional(headers, "x-github-event")?.map(str::to_owned);
                Self { id, kind, action: said.action }
            }
            Form::Standard | Form::Hmac(_) => Self { id, ..said },
        })
    }
}

impl WebhookEvent {
    pub(super) fn new(headers: HeaderMap, body: Bytes, named: Named, received_at: Timestamp) -> Self {
        let digest = hex(&Sha256::digest(&body));
        Self { headers, body, digest, named, received_at }
    }

    /// The event's id, as its sender gives it: `webhook-id`, `X-GitHub-Delivery`, the body's `id` for Stripe.
    pub fn id(&self) -> Option<&str> {
        self.named.id.as_deref()
    }

    /// The kind of event: the body's `type`, or `X-GitHub-Event`.
    pub fn kind(&self) -> Option<&str> {
        self.named.kind.as_deref()
    }

    /// The body's `action`, as GitHub has it: `opened`, say.
    pub fn action(&self) -> Option<&str> {
        self.named.action.as_deref()
    }

    /// The body as it was signed.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// If it is not JSON of this form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// A header, if it is there and plain text. Most schemes do not sign it.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The time at which this delivery came in.
    pub const fn received_at(&self) -> Timestamp {
        self.received_at
    }

    pub(in crate::rim) fn digest(&self) -> &str {
        &self.digest
    }
}

/// The identity of an event among those of its source: the same identity is the same event, whatever else a delivery says.
///
/// ```
/// use counterfoil::webhook::EventIdentity;
/// // A sender whose id names the order, and not the event.
/// let identity = EventIdentity::new("order-9").version(4).action("updated");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct EventIdentity {
    id: String,
    version: Option<i64>,
    action: Option<String>,
}

impl EventIdentity {
    /// By the sender's id. Not empty, and without control characters.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), version: None, action: None }
    }

    /// The version of what the id names, where several events bear one id.
    pub const fn version(mut self, version: i64) -> Self {
        self.version = Some(version);
        self
    }

    /// The action, where several events bear one id: `opened`, `closed`.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// A text that no other identity has: the id itself where that is enough, and a digest where it would be too long.
    pub(super) fn text(&self) -> Option<String> {
        if self.id.is_empty() || self.id.chars().any(char::is_control) {
            return None;
        }
        let plain = self.version.is_none() && self.action.is_none();
        let taken = self.id.starts_with('[') || self.id.starts_with(DIGEST);
        if plain && !taken && self.id.len() <= LONGEST {
            return Some(self.id.clone());
        }
        let parts = serde_json::json!([self.id, self.version, self.action]).to_string();
        let long = || format!("{DIGEST}{}", hex(&Sha256::digest(&parts)));
        Some(if parts.len() <= LONGEST { parts } else { long() })
    }
}

/// The beginning of a text that is a digest.
pub(super) const DIGEST: &str = "sha256:";
