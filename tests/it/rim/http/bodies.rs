//! Bodies that are hostile, huge or endless, in both directions.

use serde_json::json;

use super::shop::{Answered, Scene, answered};

async fn raw(scene: &Scene, key: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answered {
    let request =
        reqwest::Client::new().post(format!("{}/orders", scene.url)).header("authorization", "acme");
    answered(request.header("idempotency-key", key).header("content-type", kind).body(body)).await
}

#[tokio::test]
async fn a_response_that_cannot_be_kept_is_told_about_and_its_effect_not_repeated() {
    let scene = Scene::with(|guard| guard.max_response(1024)).await;
    for (key, what) in [("a", "large"), ("b", "stream"), ("c", "broken")] {
        for _ in 0..2 {
            let told = scene.send(key, &json!({"do": what})).await;
            assert_eq!(told.problem(), (500, "response-not-kept".into()), "{what}");
        }
    }
    assert_eq!(scene.shop.orders().len(), 3);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let scene = Scene::with(|guard| guard.max_request(1024)).await;
    let long = json!({ "note": "x".repeat(2048) });
    assert_eq!(scene.send("a", &long).await.problem(), (413, "request-too-large".into()));
    let frames = (0..100).map(|_| Ok::<_, std::io::Error>("x".repeat(100)));
    let stream = reqwest::Body::wrap_stream(futures_util::stream::iter(frames));
    assert_eq!(raw(&scene, "a", "text/plain", stream).await.problem(), (413, "request-too-large".into()));
    assert_eq!(scene.send("a", &json!({})).await.status, 201, "the key is free");
}

// HAZARDS E03, E05, E10: what has no one value is compared byte for byte.
#[tokio::test]
async fn what_is_no_exact_json_is_compared_byte_for_byte() {
    let scene = Scene::new().await;
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let deepest = format!("{}{}", "[".repeat(126), "]".repeat(126));
    let bodies: [(&str, &[u8], &[u8]); 8] = [
        ("twice", br#"{"do":"order","a":1,"a":2}"#, br#"{"do":"order","a":3,"a":2}"#),
        ("large numbers", br#"{"a":9007199254740993}"#, br#"{"a":9007199254740992}"#),
        ("deep", deep.as_bytes(), b"[[]]"),
        ("as deep as JSON may be", deepest.as_bytes(), b"[[]]"),
        ("no JSON", b"{", b"{{"),
        ("no UTF-8", &[0xff, 0xfe], &[0xfe, 0xff]),
        ("a NUL", b"\0", b"\0\0"),
        ("nothing", b"", b" "),
    ];
    for (key, body, other) in bodies {
        let first = raw(&scene, key, "application/json", body.to_vec()).await;
        if first.status == 201 {
            assert!(raw(&scene, key, "application/json", body.to_vec()).await.is_replayed(), "{key}");
            assert_eq!(raw(&scene, key, "application/json", other.to_vec()).await.status, 409, "{key}");
        } else {
            assert!((400..500).contains(&first.status), "{key}: {first:?}");
        }
    }
}
