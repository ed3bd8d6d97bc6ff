//! What a sender of Standard Webhooks does: it signs an event anew for each try.
#![allow(dead_code, reason = "each program uses a part")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use counterfoil::{Clock as _, SystemClock};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::RequestBuilder;
use sha2::Sha256;

/// In production it comes from the sender's settings.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The delivery of an event, signed now with [`SECRET`].
pub(crate) fn signed(request: RequestBuilder, id: &str, body: &str) -> RequestBuilder {
    let headers = headers(SECRET, id, SystemClock.now().0 / 1_000_000, body);
    let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    request.body(body.to_owned())
}

/// The headers of a delivery that is signed with this secret at this time, in seconds.
#[allow(
    clippy::missing_panics_doc,
    clippy::expect_used,
    reason = "the caller's constant is Base64, and a key of any length is one"
)]
pub(crate) fn headers(secret: &str, id: &str, at: i64, body: &str) -> [(&'static str, String); 3] {
    let secret = BASE64.decode(secret.trim_start_matches("whsec_")).expect("the secret is Base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()));
    [("webhook-id", id.to_owned()), ("webhook-timestamp", at.to_string()), ("webhook-signature", signature)]
}
