//! Signature schemes: the headers of a delivery, and the content that its signature covers. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::{Sha256, Sha512};

use crate::payload::unhex;

/// The maximum number of signatures, which is more than any rotation of secrets needs.
const MOST_SIGNATURES: usize = 32;
/// The minimum length of a secret, in bytes: a shorter one can be guessed. Standard Webhooks asks for 24 bytes, and
/// each provider uses more than this minimum.
const SHORTEST_SECRET: usize = 16;

/// A sender's signature scheme.
///
/// ```
/// use counterfoil::webhook::Scheme;
/// // X-Acme-Signature: sha256=<hex of HMAC-SHA256 over "<X-Acme-Time>.<body>">
/// let acme = Scheme::hmac("x-acme-signature").prefix("sha256=").timestamp("x-acme-time", ".").id("x-acme-event");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Scheme(Form);

#[derive(Clone, Debug)]
pub(super) enum Form {
    Standard,
    Stripe,
    GitHub,
    Hmac(HmacScheme),
}

/// A sender that signs by an HMAC of its own kind: see [`Scheme::hmac`].
#[derive(Clone, Debug)]
#[must_use]
pub struct HmacScheme {
    signature: String,
    prefix: String,
    base64: bool,
    long: bool,
    timestamp: Option<(String, String)>,
    id: Option<String>,
}

impl Scheme {
    /// [Standard Webhooks](https://www.standardwebhooks.com), with symmetric keys (`v1`). The secret is `whsec_` and
    /// base64. The headers of Svix, which are named `svix-…` instead of `webhook-…`, are read, too.
    pub const fn standard_webhooks() -> Self {
        Self(Form::Standard)
    }

    /// [Stripe](https://docs.stripe.com/webhooks#verify-manually): `Stripe-Signature`, scheme `v1`.
    pub const fn stripe() -> Self {
        Self(Form::Stripe)
    }

    /// [GitHub](https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries):
    /// `X-Hub-Signature-256`. GitHub signs the body alone: no time and no id. A captured delivery can be sent again for
    /// ever, and under any id, so the body is bound to the first id that it comes under: see
    /// [`trust_unsigned_id`](super::WebhookBuilder::trust_unsigned_id).
    pub const fn github() -> Self {
        Self(Form::GitHub)
    }

    /// Any other sender that sends an HMAC-SHA256 of the body in this header, in hexadecimal.
    pub fn hmac(signature: impl Into<String>) -> HmacScheme {
        let (prefix, timestamp, id) = (String::new(), None, None);
        HmacScheme { signature: signature.into(), prefix, base64: false, long: false, timestamp, id }
    }
}

impl HmacScheme {
    /// Sets the text before the signature, such as `sha256=`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Expects the signature in base64 instead of hexadecimal.
    pub const fn base64(mut self) -> Self {
        self.base64 = true;
        self
    }

    /// Expects HMAC-SHA512 instead of HMAC-SHA256.
    pub const fn sha512(mut self) -> Self {
        self.long = true;
        self
    }

    /// Sets the header with the time of sending in seconds. The time is signed before the body, with the separator in
    /// between.
    pub fn timestamp(mut self, header: impl Into<String>, separator: impl Into<String>) -> Self {
        self.timestamp = Some((header.into(), separator.into()));
        self
    }

    /// Sets the header with the id of the event. The header is not signed, so a body is bound to the first id that it
    /// comes under: see [`trust_unsigned_id`](super::WebhookBuilder::trust_unsigned_id). If the body contains the id,
    /// read it from there with [`identify`](super::WebhookBuilder::identify).
    pub fn id(mut self, header: impl Into<String>) -> Self {
        self.id = Some(header.into());
        self
    }

    fn read(&self, headers: &HeaderMap) -> Result<Signed, SignatureError> {
        let text = required(headers, &self.signature)?.strip_prefix(self.prefix.as_str());
        let candidates = text.and_then(|text| match (self.base64, self.long) {
            (true, _) => BASE64.decode(text).ok(),
            (false, false) => unhex::<32>(text).map(|bytes| bytes.to_vec()),
            (false, true) => unhex::<64>(text).map(|bytes| bytes.to_vec()),
        });
        let id = self.id.as_ref().map(|name| required(headers, name)).transpose()?.map(str::to_owned);
        let (mut timestamp, mut before) = (None, Vec::new());
        if let Some((name, separator)) = &self.timestamp {
            let text = required(headers, name)?;
            timestamp = Some(seconds(name, text)?);
            before = format!("{text}{separator}").into_bytes();
        }
        Ok(Signed { id, timestamp, before, candidates: candidates.into_iter().collect(), long: self.long })
    }
}

impl From<HmacScheme> for Scheme {
    fn from(scheme: HmacScheme) -> Self {
        Self(Form::Hmac(scheme))
    }
}

/// The reason why a delivery was not accepted. Nothing was recorded of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// A header that the scheme needs is missing.
    #[error("the header {header} is missing [signature]")]
    Missing {
        /// The name of the header.
        header: String,
    },
    /// A header cannot be read.
    #[error("the header {header} is malformed: {why} [signature]")]
    Malformed {
        /// The name of the header.
        header: String,
        /// The fault in the header.
        why: &'static str,
    },
    /// No signature matches this delivery: the secret is another one, or the body was changed on its way.
    #[error(
        "no signature of this delivery fits its body under a secret that is known here: check that the secret is the sender's, and \
         that the body arrives unchanged [signature]"
    )]
    Mismatch,
    /// The delivery was signed too long ago, or the clocks differ.
    #[error("the delivery was signed {seconds} seconds ago, and {tolerance} are tolerated [signature]")]
    TooOld {
        /// The age of the delivery, in seconds.
        seconds: i64,
        /// The tolerance, in seconds.
        tolerance: i64,
    },
    /// The delivery was signed in the future: the clocks differ.
    #[error(
        "the delivery was signed {seconds} seconds in the future, and {tolerance} are tolerated [signature]"
    )]
    TooNew {
        /// The time by which the delivery is ahead, in seconds.
        seconds: i64,
        /// The tolerance, in seconds.
        tolerance: i64,
    },
}

/// The reason why a text is refused as a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The text is not base64.
    #[error("a secret of Standard Webhooks is `whsec_` and base64, and this one is not [configuration]")]
    NotBase64,
    /// The secret is too short, and could be guessed.
    #[error(
        "a secret of {length} bytes is too short: {SHORTEST_SECRET} are the least, and 24 are usual [configuration]"
    )]
    TooShort {
        /// The length of the secret, in bytes.
        length: usize,
    },
}

/// The signature headers of a delivery.
#[derive(Debug)]
pub(super) struct Signed {
    /// The event's id, if it is in a header.
    pub(super) id: Option<String>,
    /// The time of sending, in seconds since 1970.
    timestamp: Option<i64>,
    /// The content that is signed before the body.
    before: Vec<u8>,
    candidates: Vec<Vec<u8>>,
    long: bool,
}

impl Scheme {
    pub(super) const fn form(&self) -> &Form {
        &self.0
    }

    /// True if the signature covers the id of the event.
    pub(super) const fn signs_id(&self) -> bool {
        match self.0 {
            Form::Standard | Form::Stripe => true,
            Form::GitHub | Form::Hmac(_) => false,
        }
    }

    /// The bytes of a secret in the form of the sender's settings.
    pub(super) fn secret(&self, text: &str) -> Result<Vec<u8>, SecretError> {
        let secret = match self.0 {
            Form::Standard => {
                let encoded = text.strip_prefix("whsec_").unwrap_or(text);
                BASE64.decode(encoded).map_err(|_| SecretError::NotBase64)?
            }
            _ => text.as_bytes().to_vec(),
        };
        if secret.len() < SHORTEST_SECRET {
            return Err(SecretError::TooShort { length: secret.len() });
        }
        Ok(secret)
    }

    /// Reads the signature headers.
    pub(super) fn read(&self, headers: &HeaderMap) -> Result<Signed, SignatureError> {
        match &self.0 {
            Form::Standard => standard(headers),
            Form::Stripe => stripe(headers),
            Form::GitHub => {
                let signature = required(headers, "x-hub-signature-256")?;
                let candidates = signature.strip_prefix("sha256=").and_then(unhex::<32>);
                let candidates = candidates.map(|bytes| bytes.to_vec()).into_iter().collect();
                let id = optional(headers, "x-github-delivery")?.map(str::to_owned);
                Ok(Signed { id, timestamp: None, before: Vec::new(), candidates, long: false })
            }
            Form::Hmac(scheme) => scheme.read(headers),
        }
    }
}

impl Signed {
    /// Checks that one of the signatures matches this body under one of these secrets, and that its time is within
    /// the tolerance. In constant time for each secret and signature.
    pub(super) fn verify(
        &self,
        secrets: &[Vec<u8>],
        body: &[u8],
        now: i64,
        tolerance: i64,
    ) -> Result<(), SignatureError> {
        let content = [self.before.as_slice(), body];
        let matches = |secret: &Vec<u8>| {
            if self.long {
                self.is_by::<Hmac<Sha512>>(secret, &content)
            } else {
                self.is_by::<Hmac<Sha256>>(secret, &content)
            }
        };
        if !secrets.iter().any(matches) {
            return Err(SignatureError::Mismatch);
        }
        // The time is checked last: an unverified sender does not learn the difference of the clocks.
        let age = self.timestamp.map_or(0, |timestamp| now.saturating_sub(timestamp));
        match age {
            _ if age > tolerance => Err(SignatureError::TooOld { seconds: age, tolerance }),
            _ if age < -tolerance => Err(SignatureError::TooNew { seconds: age.saturating_neg(), tolerance }),
            _ => Ok(()),
        }
    }

    fn is_by<M: Mac + KeyInit + Clone>(&self, secret: &[u8], content: &[&[u8]]) -> bool {
        let Ok(mut mac) = <M as KeyInit>::new_from_slice(secret) else { return false };
        for part in content {
            mac.update(part);
        }
        self.candidates.iter().any(|candidate| mac.clone().verify_slice(candidate).is_ok())
    }
}

fn standard(headers: &HeaderMap) -> Result<Signed, SignatureError> {
    let brand = if headers.contains_key("svix-id") { "svix" } else { "webhook" };
    let [id_name, time_name, signature_name] =
        ["id", "timestamp", "signature"].map(|name| format!("{brand}-{name}"));
    let id = required(headers, &id_name)?;
    if id.is_empty() || id.contains('.') {
        // The signed parts are joined by dots: with a dot in the id, another id and body could have the same
        // signature.
        return Err(malformed(&id_name, "an id is not empty and holds no dot"));
    }
    let time = required(headers, &time_name)?;
    let timestamp = Some(seconds(&time_name, time)?);
    let mut candidates = Vec::new();
    for entry in required(headers, &signature_name)?.split_ascii_whitespace() {
        match entry.split_once(',') {
            Some(("v1", signature)) => candidates.extend(BASE64.decode(signature).ok()),
            Some(_) => {} // another version, such as `v1a`
            None => return Err(malformed(&signature_name, "an entry is a version, a comma and a signature")),
        }
        if candidates.len() > MOST_SIGNATURES {
            return Err(malformed(&signature_name, "it holds too many signatures"));
        }
    }
    let before = format!("{id}.{time}.").into_bytes();
    Ok(Signed { id: Some(id.to_owned()), timestamp, before, candidates, long: false })
}

fn stripe(headers: &HeaderMap) -> Result<Signed, SignatureError> {
    const NAME: &str = "stripe-signature";
    let (mut time, mut candidates) = (None, Vec::new());
    for entry in required(headers, NAME)?.split(',') {
        match entry.trim().split_once('=') {
            Some(("t", _)) if time.is_some() => return Err(malformed(NAME, "it holds two times")),
            Some(("t", text)) => time = Some(text),
            Some(("v1", signature)) => candidates.extend(unhex::<32>(signature).map(|bytes| bytes.to_vec())),
            Some(_) => {} // another version, such as `v0`
            None => return Err(malformed(NAME, "an entry is a name, an equals sign and a value")),
        }
        if candidates.len() > MOST_SIGNATURES {
            return Err(malformed(NAME, "it holds too many signatures"));
        }
    }
    let time = time.ok_or_else(|| malformed(NAME, "it holds no time"))?;
    let timestamp = Some(seconds(NAME, time)?);
    Ok(Signed { id: None, timestamp, before: format!("{time}.").into_bytes(), candidates, long: false })
}

/// The value of a header that is present once.
fn required<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, SignatureError> {
    optional(headers, name)?.ok_or_else(|| SignatureError::Missing { header: name.to_owned() })
}

pub(super) fn optional<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().map_err(|_| malformed(name, "it is no plain text")));
    match values.next() {
        Some(_) => Err(malformed(name, "it is there twice")),
        None => value.transpose(),
    }
}

fn malformed(header: &str, why: &'static str) -> SignatureError {
    SignatureError::Malformed { header: header.to_owned(), why }
}

/// Parses digits only: the text is signed, and a text must mean one time.
fn seconds(header: &str, text: &str) -> Result<i64, SignatureError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = digits.then(|| text.parse().ok()).flatten();
    seconds.ok_or_else(|| malformed(header, "a time is a whole number of seconds since 1970"))
}
