//! A delivery whose signature was verified, and the identity of its event. Pure.

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
    /// SHA-256 of the body, in hexadecimal.
    digest: String,
    named: Named,
    received_at: Timestamp,
}

/// The id, the kind and the action of a delivery, from the places where its sender writes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    id: Option<String>,
    kind: Option<String>,
    action: Option<String>,
}

/// The fields of a body that name its event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    id: Value,
    r#type: Value,
    action: Value,
}

impl Named {
    /// Reads the names: `id` from its header, the others from the headers and the body, as the scheme defines.
    pub(super) fn of(
        scheme: &Scheme,
        id: Option<String>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Self, SignatureError> {
        // A body that is not JSON has no such fields.
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

    /// The sender's id of the event: `webhook-id`, `X-GitHub-Delivery`, the body's `id` for Stripe.
    pub fn id(&self) -> Option<&str> {
        self.named.id.as_deref()
    }

    /// The kind of event: the body's `type`, or `X-GitHub-Event`.
    pub fn kind(&self) -> Option<&str> {
        self.named.kind.as_deref()
    }

    /// The body's `action`, as GitHub sends it, such as `opened`.
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
    /// If the body is not JSON of this form.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// A header, if it is present and plain text. Most schemes do not sign headers.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The time at which this delivery was received (UTC).
    pub const fn received_at(&self) -> Timestamp {
        self.received_at
    }

    pub(in crate::rim) fn digest(&self) -> &str {
        &self.digest
    }
}

/// The identity of an event within its source: the same identity is the same event, whatever else a delivery
/// contains.
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
    /// An identity by the sender's id. The id must not be empty, and must not contain control characters.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), version: None, action: None }
    }

    /// Sets the version of the object that the id names, if several events have the same id.
    pub const fn version(mut self, version: i64) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the action, if several events have the same id: `opened`, `closed`.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// A text that no other identity has: the id itself if it is sufficient, and a digest if the text would be too
    /// long.
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

/// The prefix of a text that is a digest.
pub(super) const DIGEST: &str = "sha256:";
