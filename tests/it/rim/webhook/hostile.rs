//! Bodies and ids that nobody means well by. Whatever is signed and can be identified is taken; nothing else leaves a trace.

use super::*;

async fn open() -> (tempfile::TempDir, Executor, Webhook) {
    let (folder, executor, _own) = crate::exec::inbox::sqlite::open().await;
    let webhook = listens(standard().max_body(1000), &executor);
    (folder, executor, webhook)
}

#[tokio::test]
async fn a_body_is_only_bytes() {
    let (_folder, _executor, webhook) = open().await;
    let deep = "[".repeat(900);
    let bodies =
        ["", "not json", "null", "{\"a\":1,\"a\":2}", "{\"type\":5,\"id\":{}}", "\u{0}", "{\"type\":", &deep];
    for (n, body) in bodies.into_iter().enumerate() {
        let answer = webhook.receive(signed(&format!("evt_{n}"), body)).await;
        assert_eq!((answer.status().as_u16(), decided(&answer)), (200, Decided::Executed), "{body:?}");
    }
    let bytes = Bytes::from_static(b"\xff\xfe\x00");
    let (parts, _) = signed("evt", "").into_parts();
    let answer = webhook.receive(Delivery::from_parts(parts, Full::new(bytes))).await;
    assert_eq!(answer.status(), 401, "what is not signed is refused, whatever it is");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_and_can_be_sent_shorter() {
    let (_folder, _executor, webhook) = open().await;
    let answer = webhook.receive(signed("evt_1", &"x".repeat(1001))).await;
    assert_eq!(problem(&answer), (413, "webhook-too-large".to_owned()));
    assert_eq!(decided(&answer), Decided::Refused);
    let answer = webhook.receive(signed("evt_1", &"x".repeat(1000))).await;
    assert_eq!(decided(&answer), Decided::Executed);
}

#[tokio::test]
async fn a_body_that_breaks_off_marks_nothing() {
    let (_folder, _executor, webhook) = open().await;
    let (parts, _) = signed("evt_1", "{}").into_parts();
    let broken = futures_util::stream::iter([Ok(Bytes::from_static(b"{")), Err("the line is dead")]);
    let broken = axum::body::Body::from_stream(broken);
    let answer = webhook.receive(Request::from_parts(parts, broken)).await;
    assert_eq!(problem(&answer), (400, "webhook-incomplete".to_owned()));
    assert_eq!(decided(&webhook.receive(signed("evt_1", "{}")).await), Decided::Executed);
}

#[tokio::test]
async fn an_id_is_taken_whole_or_not_at_all() {
    let (_folder, _executor, webhook) = open().await;
    let long = "e".repeat(5000);
    let ids = ["'; DROP TABLE inbox; --", "%", "[\"a\"]", "sha256:00", "../..", &long, &format!("{long}2")];
    for expected in [Decided::Executed, Decided::Replayed] {
        for id in ids {
            // A dot would be refused with the headers.
            let answer = webhook.receive(signed(&id.replace('.', "-"), "{}")).await;
            assert_eq!((answer.status().as_u16(), decided(&answer)), (200, expected), "{id}");
        }
    }
    let (mut parts, body) = signed("evt_1", "{}").into_parts();
    parts.headers.insert("webhook-id", axum::http::HeaderValue::from_bytes(b"evt\x80").unwrap());
    let answer = webhook.receive(Delivery::from_parts(parts, body)).await;
    assert_eq!(problem(&answer), (400, "webhook-header-malformed".to_owned()));
    assert_eq!(webhook.receive(signed("evt\t1", "{}")).await.status(), 400, "a control character");
    assert_eq!(webhook.receive(signed("", "{}")).await.status(), 400);
}
