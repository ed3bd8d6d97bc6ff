//! The first answer is given again, byte for byte; and the key is free where nothing happened.

use counterfoil::Tenant;
use counterfoil::http::KeyFate;
use counterfoil::ledger::Retention;
use counterfoil::store::Resolution;
use serde_json::json;

use super::shop::{Scene, answered, app, guard, open, post_to};
use crate::world::serve;

#[tokio::test]
async fn the_first_answer_is_given_again() {
    let scene = Scene::new().await;
    let first = scene.send("a", &json!({})).await;
    assert_eq!((first.status, first.text().as_str(), first.is_replayed()), (201, r#"{"order":1}"#, false));
    assert_eq!(first.headers["set-cookie"], "visit=1");
    let again = scene.send("a", &json!({})).await;
    assert_eq!((again.status, &again.body, again.is_replayed()), (201, &first.body, true));
    for described in ["content-type", "location", "content-length"] {
        assert_eq!(again.headers[described], first.headers[described]);
    }
    for delivered in ["set-cookie", "x-trace"] {
        assert!(!again.headers.contains_key(delivered), "{delivered}");
    }
    assert_eq!(scene.shop.orders().len(), 1);
}

#[tokio::test]
async fn the_host_chooses_headers_and_the_status_of_a_replay() {
    let scene = Scene::with(|guard| guard.keep_header("X-Trace").created_then_ok()).await;
    assert_eq!(scene.send("a", &json!({})).await.status, 201);
    let again = scene.send("a", &json!({})).await;
    assert_eq!((again.status, &again.headers["x-trace"]), (200, &"1".parse().unwrap()));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_given_again() {
    let scene = Scene::new().await;
    let first = scene.send("a", &json!({"do": "binary"})).await;
    let again = scene.send("a", &json!({"do": "binary"})).await;
    assert_eq!((again.is_replayed(), &again.body), (true, &vec![0, 159, 146, 150, 255]));
    assert_eq!((&first.body, &first.headers["content-type"]), (&again.body, &again.headers["content-type"]));
}

#[tokio::test]
async fn an_answer_survives_its_process() {
    let Scene { dir, executor, shop, url } = Scene::new().await;
    let order = || answered(post_to(&format!("{url}/orders"), "a", &json!({})));
    let first = order().await;
    executor.shutdown(std::time::Duration::from_secs(1)).await;
    assert_eq!(
        answered(post_to(&format!("{url}/orders"), "b", &json!({}))).await.problem().1,
        "ledger-unavailable"
    );
    let next = open(&dir).await;
    let url = serve(app(&shop, guard(&next).layer().unwrap())).await;
    let again = answered(post_to(&format!("{url}/orders"), "a", &json!({}))).await;
    assert_eq!((again.is_replayed(), again.body), (true, first.body));
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_5xx_behind_the_effect_is_kept() {
    let scene = Scene::new().await;
    assert_eq!(scene.send("a", &json!({"do": "fail"})).await.status, 500);
    let again = scene.send("a", &json!({"do": "fail"})).await;
    assert_eq!((again.status, again.text().as_str(), again.is_replayed()), (500, "order 1 failed", true));
    assert_eq!(scene.send("a", &json!({})).await.status, 409);
    assert_eq!(scene.shop.orders().len(), 1);
}

#[tokio::test]
async fn where_nothing_happened_the_key_is_free_for_a_corrected_request() {
    let scene = Scene::new().await;
    for _ in 0..2 {
        let refused = scene.send("a", &json!({"do": "refuse"})).await;
        assert_eq!(
            (refused.status, refused.text().as_str(), refused.is_replayed()),
            (422, "no such article", false)
        );
    }
    assert_eq!(scene.send("a", &json!({"do": "busy"})).await.status, 503, "marked by the handler");
    assert_eq!(scene.send("a", &json!({"do": "order"})).await.status, 201);
    assert!(scene.send("a", &json!({"do": "order"})).await.is_replayed());
    assert_eq!(scene.send("a", &json!({"do": "refuse"})).await.status, 409);
    assert_eq!(scene.shop.orders().len(), 1);
}

#[tokio::test]
async fn a_handler_says_that_it_acted_although_its_status_does_not() {
    let scene = Scene::new().await;
    assert_eq!(scene.send("a", &json!({"do": "deny"})).await.status, 403);
    assert!(scene.send("a", &json!({"do": "deny"})).await.is_replayed());
    assert_eq!(scene.shop.orders().len(), 1);
}

#[tokio::test]
async fn the_host_has_its_own_table() {
    let scene = Scene::with(|guard| {
        guard.key_fate(|status| if status.is_success() { KeyFate::Freed } else { KeyFate::Kept })
    })
    .await;
    assert_eq!(scene.send("a", &json!({"do": "refuse"})).await.status, 422);
    assert!(scene.send("a", &json!({"do": "refuse"})).await.is_replayed());
    assert_eq!(scene.send("b", &json!({})).await.text(), r#"{"order":1}"#);
    assert_eq!(scene.send("b", &json!({})).await.text(), r#"{"order":2}"#);
}

#[tokio::test]
async fn a_handler_that_dies_leaves_a_question_that_the_answer_names() {
    let scene = Scene::new().await;
    let acme = Tenant::new("acme").unwrap();
    for _ in 0..3 {
        let unknown = scene.send("a", &json!({"do": "panic"})).await;
        assert_eq!(unknown.problem(), (409, "outcome-unknown".into()));
        let [question] = &scene.executor.questions(&acme).await.unwrap()[..] else { panic!("one question") };
        assert_eq!(unknown.member("question"), json!(question.id.to_string()));
    }
    assert_eq!(scene.shop.orders().len(), 1, "it is not let in blindly");
    let question = scene.executor.questions(&acme).await.unwrap()[0].id;
    let happened = Resolution::Happened(json!({"order": 1}));
    scene.executor.answer(&acme, question, happened, "ann").await.unwrap();
    let answered = scene.send("a", &json!({"do": "panic"})).await;
    assert_eq!(
        (answered.status, answered.text().as_str(), answered.is_replayed()),
        (200, r#"{"order":1}"#, true)
    );
}

#[tokio::test]
async fn what_did_not_happen_may_be_sent_again() {
    let scene = Scene::new().await;
    let acme = Tenant::new("acme").unwrap();
    assert_eq!(scene.send("a", &json!({"do": "die"})).await.problem().1, "outcome-unknown");
    let question = scene.executor.questions(&acme).await.unwrap()[0].id;
    scene.executor.answer(&acme, question, Resolution::DidNotHappen, "ann").await.unwrap();
    assert_eq!(scene.send("a", &json!({})).await.status, 201, "also with another body");
}

#[tokio::test]
async fn what_is_unsafe_is_refused_when_the_layer_is_made() {
    use counterfoil::ledger::EffectClass;
    let scene = Scene::new().await;
    let refused = |guard: counterfoil::http::Idempotency| guard.layer().map(drop).unwrap_err().to_string();
    let new = || guard(&scene.executor);
    let day = std::time::Duration::from_hours(24);
    for (guard, why) in [
        (new().effect(EffectClass::Payment), "payment"),
        (new().effect(EffectClass::Notification), "needs an approval"),
        (new().keep_header("Set-Cookie"), "set-cookie"),
        (new().bind_header("a b"), "a b"),
        (new().exclude("sent_at"), "/metadata/sent_at"),
        (new().max_response(1 << 30), "Limits::max_bytes"),
        (new().accept_in_flight(), "status_at"),
        (new().conflict_status(axum::http::StatusCode::OK), "409 or 422"),
        (new().retention(Retention::forget_after(day / 1000)), "kept for 86.4s"),
    ] {
        let refusal = refused(guard);
        assert!(refusal.contains(why), "{why}: {refusal}");
    }
}
