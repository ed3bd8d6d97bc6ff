//! What a sender of Standard Webhooks does: it signs an event anew for each try.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use counterfoil::clock::{Clock as _, SystemClock};
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::RequestBuilder;
use sha2::Sha256;

/// In production it comes from the sender's settings.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The delivery of an event, signed now with [`SECRET`].
#[allow(
    clippy::missing_panics_doc,
    clippy::expect_used,
    reason = "a constant is Base64, and a key of any length is one"
)]
pub(crate) fn signed(request: RequestBuilder, id: &str, body: &str) -> RequestBuilder {
    let at = (SystemClock.now().0 / 1_000_000).to_string();
    let secret = BASE64.decode(SECRET.trim_start_matches("whsec_")).expect("the constant is Base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()));
    let request = request.header("webhook-id", id).header("webhook-timestamp", at);
    request.header("webhook-signature", signature).body(body.to_owned())
}
