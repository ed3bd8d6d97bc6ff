//! Which requests are one, and which are refused.

use axum::http::StatusCode;
use counterfoil::Tenant;
use serde_json::json;

use super::shop::{Answered, Scene, answered, post_to};

async fn with_header(scene: &Scene, headers: &[&str]) -> Answered {
    let mut request =
        reqwest::Client::new().post(format!("{}/orders", scene.url)).header("authorization", "acme");
    for header in headers {
        request = request.header("idempotency-key", header.as_bytes());
    }
    answered(request.json(&json!({}))).await
}

#[tokio::test]
async fn a_write_without_a_key_is_refused() {
    let scene = Scene::new().await;
    assert_eq!(with_header(&scene, &[]).await.problem(), (400, "idempotency-key-missing".into()));
    let read = reqwest::Client::new().get(format!("{}/orders", scene.url));
    assert_eq!(answered(read).await.text(), "orders", "a read needs none");
    assert_eq!(scene.shop.orders().len(), 0);
}

#[tokio::test]
async fn where_keys_are_optional_a_write_without_one_is_let_through() {
    let scene = Scene::with(counterfoil::http::Idempotency::optional).await;
    let request =
        || reqwest::Client::new().post(format!("{}/orders", scene.url)).json(&json!({ "do": "refuse" }));
    // The test's handler asks for what the layer would have told it.
    assert_eq!(answered(request()).await.status, 500);
    assert_eq!(scene.send("a", &json!({})).await.status, 201);
}

// HAZARDS D14.
#[tokio::test]
async fn what_is_no_key_is_refused() {
    let scene = Scene::new().await;
    let long = "k".repeat(256);
    let hostile = [
        (vec!["a", "a"], "two headers"),
        (vec![""], "empty"),
        (vec!["\"\""], "empty in quotes"),
        (vec![long.as_str()], "256 characters"),
        (vec!["\"open"], "an open quote"),
        (vec!["\"a\"b"], "text behind the quotes"),
        (vec!["\"a\\nb\""], "a wrong escape"),
        (vec!["café"], "beyond ASCII"),
        (vec!["a\tb"], "a control character"),
    ];
    for (headers, why) in hostile {
        let refused = with_header(&scene, &headers).await;
        assert_eq!(refused.problem(), (400, "idempotency-key-malformed".into()), "{why}");
    }
    assert_eq!(scene.shop.orders().len(), 0);
    assert_eq!(with_header(&scene, &["k".repeat(255).as_str()]).await.status, 201);
}

#[tokio::test]
async fn the_quoted_spelling_is_the_same_key() {
    let scene = Scene::new().await;
    assert_eq!(with_header(&scene, &["abc"]).await.status, 201);
    assert!(with_header(&scene, &["\"abc\""]).await.is_replayed());
    assert!(with_header(&scene, &["  abc "]).await.is_replayed());
    assert!(!with_header(&scene, &["ABC"]).await.is_replayed());
    assert_eq!(scene.shop.orders().len(), 2);
}

// HAZARDS D15.
#[tokio::test]
async fn keys_of_two_tenants_or_two_routes_never_meet() {
    let scene = Scene::new().await;
    assert_eq!(scene.send("a", &json!({})).await.status, 201);
    let theirs =
        reqwest::Client::new().post(format!("{}/orders", scene.url)).header("authorization", "globex");
    let theirs = answered(theirs.header("idempotency-key", "a").json(&json!({}))).await;
    assert_eq!((theirs.status, theirs.is_replayed()), (201, false));
    let elsewhere = post_to(&format!("{}/carts/1/orders", scene.url), "a", &json!({}));
    assert!(!answered(elsewhere).await.is_replayed());
    assert_eq!(scene.shop.orders().len(), 3);
    // Of one template the path counts.
    let cart = post_to(&format!("{}/carts/2/orders", scene.url), "a", &json!({}));
    assert_eq!(answered(cart).await.problem(), (409, "idempotency-key-reused".into()));
}

#[tokio::test]
async fn whose_request_it_is_must_be_known() {
    let scene = Scene::new().await;
    let request = reqwest::Client::new().post(format!("{}/orders", scene.url)).header("idempotency-key", "a");
    assert_eq!(answered(request.json(&json!({}))).await.problem(), (401, "unauthenticated".into()));
}

#[tokio::test]
async fn another_request_under_the_key_is_a_conflict_that_shows_what_differs() {
    let scene = Scene::with(|guard| guard.redact("/card/number").redact("/pin")).await;
    let order = |cents: u32, card: &str| json!({"cents": cents, "card": {"number": card}, "pin": null});
    assert_eq!(scene.send("a", &order(100, "4242")).await.status, 201);
    assert!(scene.send("a", &order(100, "4242")).await.is_replayed());
    let refused = scene.send("a", &order(900, "4242")).await;
    assert_eq!(refused.problem(), (409, "idempotency-key-reused".into()));
    let diff = json!([{"op": "replace", "path": "/body/json/cents", "value": 900}]);
    assert_eq!(refused.member("diff"), diff);
    let refused = scene.send("a", &order(100, "5555")).await;
    assert_eq!(refused.status, 409, "a secret is compared");
    let (text, acme) = (refused.text(), Tenant::new("acme").unwrap());
    assert!(!text.contains("4242") && !text.contains("5555"), "{text}");
    assert_eq!(scene.shop.orders().len(), 1);
    assert!(scene.executor.questions(&acme).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_conflict_is_answered_as_the_host_says() {
    let scene =
        Scene::with(|guard| guard.conflict_status(StatusCode::UNPROCESSABLE_ENTITY).without_diff()).await;
    assert_eq!(scene.send("a", &json!({"cents": 1})).await.status, 201);
    let refused = scene.send("a", &json!({"cents": 2})).await;
    assert_eq!(refused.problem(), (422, "idempotency-key-reused".into()));
    assert_eq!(refused.member("diff"), json!(null));
}

#[tokio::test]
async fn the_host_chooses_what_a_key_is_bound_to() {
    let scene =
        Scene::with(|guard| guard.exclude("/sent_at").bind_header("x-version").bind_query(["dry"])).await;
    let post = |query: &str, version: &str, sent_at: u32| {
        let url = format!("{}/orders{query}", scene.url);
        answered(post_to(&url, "a", &json!({"sent_at": sent_at, "cents": 1})).header("x-version", version))
    };
    assert_eq!(post("?dry=0&utm=1", "1", 1).await.status, 201);
    assert!(post("?utm=2&dry=0", "1", 2).await.is_replayed(), "what is not bound may differ");
    assert_eq!(post("?dry=1", "1", 1).await.status, 409);
    assert_eq!(post("?dry=0", "2", 1).await.status, 409);
}

#[tokio::test]
async fn json_is_compared_by_value() {
    let scene = Scene::new().await;
    let send = |body: &'static str| {
        let request = reqwest::Client::new().post(format!("{}/orders", scene.url));
        let request = request.header("authorization", "acme").header("idempotency-key", "a");
        answered(request.header("content-type", "application/json; charset=utf-8").body(body))
    };
    assert_eq!(send(r#"{"cents": 100, "to": "ann"}"#).await.status, 201);
    assert!(send(r#"{"to":"ann","cents":1e2}"#).await.is_replayed());
    assert_eq!(send(r#"{"to":"ann","cents":101}"#).await.status, 409);
}
