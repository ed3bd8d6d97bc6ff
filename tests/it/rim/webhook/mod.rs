//! Webhooks: verified, then deduplicated, then put in order.

mod deliveries;
mod hostile;
mod order;
mod reactions;
mod signatures;

use std::convert::Infallible;

use axum::body::Bytes;
use axum::http::{Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use counterfoil::door::{Decided, DoorDecision, Reaction};
use counterfoil::webhook::{Scheme, Webhook, WebhookBuilder, WebhookEvent};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::Full;
use sha2::Sha256;
use sqlx::sqlite::SqliteConnection;

use crate::world::acme;

/// That of the vector in the specification of Standard Webhooks.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

pub(crate) type Delivery = Request<Full<Bytes>>;

fn seconds() -> i64 {
    SystemClock.now().0 / 1_000_000
}

fn mac(secret: &str, content: &str) -> String {
    let secret = BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).unwrap();
    mac.update(content.as_bytes());
    BASE64.encode(mac.finalize().into_bytes())
}

/// As a sender of Standard Webhooks signs it.
pub(crate) fn signed_at(secret: &str, id: &str, at: i64, body: &str) -> Delivery {
    let signature = format!("v1,{}", mac(secret, &format!("{id}.{at}.{body}")));
    with(
        &[("webhook-id", id), ("webhook-timestamp", &at.to_string()), ("webhook-signature", &signature)],
        body,
    )
}

fn signed(id: &str, body: &str) -> Delivery {
    signed_at(SECRET, id, seconds(), body)
}

fn with(headers: &[(&str, &str)], body: &str) -> Delivery {
    let request =
        headers.iter().fold(Request::post("/hook"), |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

fn standard() -> WebhookBuilder {
    Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], acme()).unwrap()
}

/// A source whose events do nothing.
fn listens(builder: WebhookBuilder, executor: &Executor) -> Webhook {
    let ignore = |_: WebhookEvent| async { Ok::<_, Infallible>(Reaction::<SqliteConnection>::ignore()) };
    builder.on(executor, ignore).unwrap()
}

fn decided(response: &Response<Bytes>) -> Decided {
    response.extensions().get::<DoorDecision>().unwrap().decision
}

/// The status, and what the problem's type ends with.
fn problem(response: &Response<Bytes>) -> (u16, String) {
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap_or_default();
    let kind = body["type"].as_str().unwrap_or_default();
    (response.status().as_u16(), kind.trim_start_matches("urn:counterfoil:problem:").to_owned())
}
