//! Signatures as the senders make them, and as strangers do. (HAZARDS J06, J07, J11)

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use counterfoil::store::Resolution;
use counterfoil::webhook::{Scheme, SecretError, WebhookConfigError};
use tempfile::TempDir;

use super::*;
use crate::world::{TestClock, executor};

/// What the test's clock says.
const NOW: i64 = 1_700_000_000;

async fn open() -> (TempDir, Executor) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::breathing());
    let ledger = executor(&folder, &clock).open().await.unwrap();
    (folder, ledger)
}

async fn status(webhook: &Webhook, delivery: Delivery) -> (u16, String) {
    problem(&webhook.receive(delivery).await)
}

fn refused(kind: &str, status: u16) -> (u16, String) {
    (status, kind.to_owned())
}

const MALFORMED: &str = "webhook-header-malformed";
const MISMATCH: &str = "webhook-signature-mismatch";
const UNTIMELY: &str = "webhook-outside-tolerance";
const OK: (u16, String) = (200, String::new());

// The vector of the specification.
#[tokio::test]
async fn the_vector_of_standard_webhooks_is_accepted() {
    let (_folder, ledger) = open().await;
    let webhook = listens(standard().tolerance(Duration::from_hours(100_000)), &ledger); // it is of 2021
    let delivery = || {
        with(
            &[
                ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
                ("webhook-timestamp", "1614265330"),
                ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            ],
            r#"{"test": 2432232314}"#,
        )
    };
    assert_eq!(status(&webhook, delivery()).await, OK);
    let mut renamed = delivery();
    for name in ["id", "timestamp", "signature"] {
        let value = renamed.headers_mut().remove(format!("webhook-{name}")).unwrap();
        let name: axum::http::HeaderName = format!("svix-{name}").parse().unwrap();
        renamed.headers_mut().insert(name, value);
    }
    assert_eq!(status(&webhook, renamed).await, OK, "Svix names its headers otherwise");
}

// https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
#[tokio::test]
async fn the_vector_of_github_is_accepted() {
    let (_folder, ledger) = open().await;
    let secret = "It's a Secret to Everybody";
    let webhook = listens(Webhook::source("github", Scheme::github(), [secret], acme()).unwrap(), &ledger);
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let headers =
        [("x-hub-signature-256", signature), ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")];
    assert_eq!(status(&webhook, with(&headers, "Hello, World!")).await, OK);
    assert_eq!(status(&webhook, with(&headers, "Hello, World?")).await, refused(MISMATCH, 401));
    assert_eq!(
        status(&webhook, with(&headers[..1], "Hello, World!")).await,
        refused("webhook-without-identity", 400)
    );
    let old = [("x-hub-signature", "sha1=0123"), headers[1]];
    assert_eq!(
        status(&webhook, with(&old, "Hello, World!")).await,
        refused(MALFORMED, 400),
        "SHA-1 is no signature"
    );
}

// J05: GitHub signs the body alone, so whoever has captured a delivery can send it under any id.
#[tokio::test]
async fn a_signed_body_is_processed_under_one_id_that_is_not_signed() {
    let (_folder, ledger) = open().await;
    let secret = "a secret of some length";
    let source = |name| Webhook::source(name, Scheme::github(), [secret], acme()).unwrap();
    let send = async |webhook: &Webhook, id: &str, body: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let bytes = mac.finalize().into_bytes();
        let signature =
            bytes.iter().fold("sha256=".to_owned(), |signature, byte| format!("{signature}{byte:02x}"));
        let headers = [("x-hub-signature-256", signature.as_str()), ("x-github-delivery", id)];
        decided(&webhook.receive(with(&headers, body)).await)
    };
    let webhook = listens(source("github"), &ledger);
    assert_eq!(send(&webhook, "a", "first").await, Decided::Executed);
    assert_eq!(
        send(&webhook, "a", "first").await,
        Decided::Replayed,
        "GitHub delivers it again under its id"
    );
    for _ in 0..2 {
        assert_eq!(send(&webhook, "b", "first").await, Decided::SetAside);
    }
    let asked = ledger.questions(&acme()).await.unwrap();
    assert!(asked.len() == 1 && asked[0].question.contains("as event a"), "{asked:?}");
    // An old body does not take the id of a delivery that is on its way.
    assert_eq!(send(&webhook, "c", "first").await, Decided::SetAside);
    assert_eq!(send(&webhook, "c", "second").await, Decided::Executed);
    // Nor does a body that was held back: the delivery that is due is not acknowledged.
    assert_eq!(send(&webhook, "c", "third").await, Decided::SetAside);
    ledger.answer(&acme(), asked[0].id, Resolution::Again, "ann").await.unwrap();
    assert_eq!(send(&webhook, "b", "first").await, Decided::Executed);
    assert_eq!(send(&webhook, "b", "first").await, Decided::Replayed);
    let trusting = listens(source("proxy").trust_unsigned_id(), &ledger);
    for id in ["a", "b"] {
        assert_eq!(send(&trusting, id, "first").await, Decided::Executed, "{id}");
    }
}

/// Has the provider's own library sign a body; gives the headers.
fn signed_by_python(program: &str, secret: &str, body: &str) -> Vec<(String, String)> {
    let folder = std::env::var("WEBHOOK_SIGNERS")
        .expect("WEBHOOK_SIGNERS names no libraries: run `./test`, which fetches them");
    let mut python = Command::new("python3");
    python
        .env("PYTHONPATH", folder)
        .args(["-c", program, secret])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let said = python.wait_with_output().unwrap();
    assert!(said.status.success());
    serde_json::from_slice(&said.stdout).unwrap()
}

fn delivered(headers: &[(String, String)], body: &str) -> Delivery {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    with(&headers, body)
}

#[tokio::test]
async fn what_the_library_of_standard_webhooks_signs_is_accepted() {
    let program = "import sys, json, datetime, standardwebhooks\n\
                   body, now = sys.stdin.read(), datetime.datetime.now(datetime.timezone.utc)\n\
                   signature = standardwebhooks.Webhook(sys.argv[1]).sign('msg_1', now, body)\n\
                   time = str(int(now.timestamp()))\n\
                   print(json.dumps([['webhook-id', 'msg_1'], ['webhook-timestamp', time], ['webhook-signature', signature]]))";
    let (_folder, ledger, _own) = crate::exec::inbox::sqlite::open().await;
    let webhook = listens(standard(), &ledger);
    let body = r#"{"type":"user.created","naïve":"é"}"#;
    let headers = signed_by_python(program, SECRET, body);
    assert_eq!(status(&webhook, delivered(&headers, body)).await, OK);
    let foreign = signed_by_python(program, OTHER, body);
    assert_eq!(status(&webhook, delivered(&foreign, body)).await, refused(MISMATCH, 401));
}

#[tokio::test]
async fn what_the_library_of_stripe_signs_is_accepted() {
    // The library only verifies; what it computes to compare is what Stripe sends.
    let program = "import sys, json, time, stripe\n\
                   body, now = sys.stdin.read(), int(time.time())\n\
                   signature = stripe.WebhookSignature._compute_signature(f'{now}.{body}', sys.argv[1])\n\
                   header = f't={now},v1={signature},v0=00'\n\
                   stripe.Webhook.construct_event(body, header, sys.argv[1])\n\
                   print(json.dumps([['stripe-signature', header]]))";
    let secret = "whsec_0123456789abcdef0123456789abcdef";
    let (_folder, ledger, _own) = crate::exec::inbox::sqlite::open().await;
    let webhook = listens(Webhook::source("stripe", Scheme::stripe(), [secret], acme()).unwrap(), &ledger);
    let body = r#"{"id":"evt_1QzR","object":"event","type":"invoice.paid"}"#;
    let headers = signed_by_python(program, secret, body);
    let response = webhook.receive(delivered(&headers, body)).await;
    assert_eq!(problem(&response), OK);
    let decision = response.extensions().get::<DoorDecision>().unwrap();
    assert_eq!(decision.idempotency_key.as_deref(), Some("evt_1QzR"));
    assert_eq!((decision.source_type, decision.source_id.as_str()), ("webhook", "stripe"));
    let anonymous = r#"{"object":"event"}"#;
    let headers = signed_by_python(program, secret, anonymous);
    assert_eq!(
        status(&webhook, delivered(&headers, anonymous)).await,
        refused("webhook-without-identity", 400)
    );
}

#[tokio::test]
async fn stripes_header_is_read_strictly() {
    let (_folder, ledger) = open().await;
    let webhook =
        listens(Webhook::source("stripe", Scheme::stripe(), ["0123456789abcdef"], acme()).unwrap(), &ledger);
    let send = async |header: &str| {
        status(&webhook, with(&[("stripe-signature", header)], r#"{"id":"evt_1"}"#)).await
    };
    for malformed in [
        "",
        "t",
        "v1=00",
        "t=,v1=00",
        "t=12a,v1=00",
        "t=-5,v1=00",
        "t=1,t=1,v1=00",
        "t=99999999999999999999,v1=00",
    ] {
        assert_eq!(send(malformed).await, refused(MALFORMED, 400), "{malformed}");
    }
    for mismatch in
        ["t=1700000000", "t=1700000000,v0=00", "t=1700000000,v1=zz", "t=1700000000,v1=+f", "t=1700000000,v1="]
    {
        assert_eq!(send(mismatch).await, refused(MISMATCH, 401), "{mismatch}");
    }
    let many = format!("t=1700000000{}", format!(",v1={}", "0".repeat(64)).repeat(100));
    assert_eq!(send(&many).await, refused(MALFORMED, 400));
}

// J06.
#[tokio::test]
async fn one_valid_signature_of_several_is_enough() {
    let (_folder, ledger) = open().await;
    let webhook = listens(standard(), &ledger);
    let body = "{}";
    let valid = format!("v1,{}", mac(SECRET, &format!("m.{NOW}.{body}")));
    let send = async |signatures: &str| {
        let time = NOW.to_string();
        let headers =
            [("webhook-id", "m"), ("webhook-timestamp", time.as_str()), ("webhook-signature", signatures)];
        status(&webhook, with(&headers, body)).await
    };
    let foreign = format!("v1,{}", mac(OTHER, &format!("m.{NOW}.{body}")));
    for good in
        [valid.clone(), format!("{foreign} {valid}"), format!("v1a,AAAA {valid}"), format!("v1,!!! {valid}")]
    {
        assert_eq!(send(&good).await, OK, "{good}");
    }
    let truncated = &valid[..valid.len() - 8];
    for bad in [foreign.as_str(), truncated, "v1,", "v1a,AAAA", "v2,AAAA", " "] {
        assert_eq!(send(bad).await, refused(MISMATCH, 401), "{bad}");
    }
    for malformed in ["v1", "AAAA", &format!("{} {valid}", "v1,AAAA ".repeat(1300))] {
        assert_eq!(send(malformed).await, refused(MALFORMED, 400), "{malformed}");
    }
}

#[tokio::test]
async fn a_secret_is_rotated_with_both_known() {
    let (_folder, ledger) = open().await;
    let both = Webhook::source("shop", Scheme::standard_webhooks(), [OTHER, SECRET], acme()).unwrap();
    let webhook = listens(both, &ledger);
    for (id, secret) in [("a", SECRET), ("b", OTHER)] {
        assert_eq!(status(&webhook, signed_at(secret, id, NOW, "{}")).await, OK);
    }
    let new = Webhook::source("shop", Scheme::standard_webhooks(), [OTHER], acme()).unwrap();
    let delivery = signed_at(SECRET, "c", NOW, "{}");
    assert_eq!(status(&listens(new, &ledger), delivery).await, refused(MISMATCH, 401), "the old one is over");
}

#[tokio::test]
async fn the_time_is_tolerated_in_both_directions() {
    let (_folder, ledger) = open().await;
    let webhook = listens(standard(), &ledger);
    for (off, expected) in [
        (-301, refused(UNTIMELY, 400)),
        (-300, OK),
        (300, OK),
        (301, refused(UNTIMELY, 400)),
        (-1_000_000, refused(UNTIMELY, 400)),
    ] {
        assert_eq!(status(&webhook, signed_at(SECRET, "m", NOW + off, "{}")).await, expected, "{off}");
    }
    let forged = signed_at(OTHER, "m", NOW - 1_000_000, "{}");
    assert_eq!(
        status(&webhook, forged).await,
        refused(MISMATCH, 401),
        "a stranger learns nothing of our clock"
    );
    let narrow = listens(standard().tolerance(Duration::from_secs(10)), &ledger);
    assert_eq!(status(&narrow, signed_at(SECRET, "m", NOW - 11, "{}")).await, refused(UNTIMELY, 400));
}

#[tokio::test]
async fn headers_that_are_missing_or_there_twice_are_refused() {
    let (_folder, ledger) = open().await;
    let webhook = listens(standard(), &ledger);
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mut without = signed_at(SECRET, "m", NOW, "{}");
        let value = without.headers_mut().remove(name).unwrap();
        assert_eq!(status(&webhook, without).await, refused(MALFORMED, 400), "{name}");
        let mut twice = signed_at(SECRET, "m", NOW, "{}");
        twice.headers_mut().append(name, value);
        assert_eq!(status(&webhook, twice).await, refused(MALFORMED, 400), "{name}");
    }
    // Its parts are joined by dots: (`a`, `1.b`) and (`a.1`, `b`) would have one signature.
    assert_eq!(status(&webhook, signed_at(SECRET, "a.1", NOW, "{}")).await, refused(MALFORMED, 400));
}

// J07: what is verified is what came, byte for byte.
#[tokio::test]
async fn a_body_that_was_written_anew_is_refused() {
    let (_folder, ledger) = open().await;
    let webhook = listens(standard(), &ledger);
    let (mut parts, _) = signed_at(SECRET, "m", NOW, r#"{"a": 1}"#).into_parts();
    parts.uri = "/hook".parse().unwrap();
    let anew = Delivery::from_parts(parts, Full::new(Bytes::from_static(br#"{"a":1}"#)));
    assert_eq!(status(&webhook, anew).await, refused(MISMATCH, 401));
}

#[tokio::test]
async fn any_other_scheme_of_hmac_can_be_said() {
    let (_folder, ledger) = open().await;
    let scheme = Scheme::hmac("x-acme-signature")
        .prefix("sha512=")
        .sha512()
        .base64()
        .timestamp("x-acme-time", ":")
        .id("x-acme-event");
    let secret = "a secret of some length";
    let webhook = listens(Webhook::source("acme", scheme, [secret], acme()).unwrap(), &ledger);
    let mut mac = Hmac::<sha2::Sha512>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{NOW}:{{}}").as_bytes());
    let signature = format!("sha512={}", BASE64.encode(mac.finalize().into_bytes()));
    let time = NOW.to_string();
    let headers = [("x-acme-signature", signature.as_str()), ("x-acme-time", &time), ("x-acme-event", "e-1")];
    assert_eq!(status(&webhook, with(&headers, "{}")).await, OK);
    assert_eq!(status(&webhook, with(&headers, "{ }")).await, refused(MISMATCH, 401));
    assert_eq!(status(&webhook, with(&headers[..2], "{}")).await, refused(MALFORMED, 400));
}

#[tokio::test]
async fn a_source_that_could_verify_nothing_is_refused() {
    let none: [&str; 0] = [];
    let error = Webhook::source("shop", Scheme::standard_webhooks(), none, acme()).unwrap_err();
    assert!(matches!(error, WebhookConfigError::NoSecret { .. }));
    let error = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET, "whsec_no base64"], acme())
        .unwrap_err();
    assert!(
        matches!(error, WebhookConfigError::Secret { number: 2, error: SecretError::NotBase64, .. }),
        "{error}"
    );
    let error = Webhook::source("shop", Scheme::github(), ["short"], acme()).unwrap_err();
    assert!(!error.to_string().contains("short,") && error.to_string().contains("5 bytes"), "{error}");
}
