//! Requests that overlap: one effect, and each copy gets the answer or a clear 409.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil::Key;
use futures_util::future::join_all;
use serde_json::json;

use super::shop::{Scene, Shop, answered, app, guard, post_to};
use crate::world::{TestClock, acme, executor, serve};

#[tokio::test]
async fn a_request_in_flight_is_a_conflict_that_may_be_tried_again() {
    let scene = Scene::new().await;
    let body = json!({"do": "wait"});
    let first = tokio::spawn(answered(scene.post("a", &body)));
    scene.shop.waiting(1).await;
    let second = scene.send("a", &body).await;
    assert_eq!(second.problem(), (409, "request-in-progress".into()));
    assert_eq!(second.headers["retry-after"], "1");
    assert_eq!(scene.send("a", &json!({"do": "other"})).await.problem().1, "request-in-progress");
    scene.shop.release();
    assert_eq!(first.await.unwrap().text(), "order 1");
    assert!(scene.send("a", &body).await.is_replayed());
    assert_eq!(scene.shop.orders().len(), 1);
}

#[tokio::test]
async fn copies_that_may_wait_get_the_answer() {
    let scene = Scene::with(|guard| guard.wait_at_most(Duration::from_secs(60))).await;
    let body = json!({"do": "wait"});
    let first = tokio::spawn(answered(scene.post("a", &body)));
    scene.shop.waiting(1).await;
    let copies: Vec<_> = (0..8).map(|_| tokio::spawn(answered(scene.post("a", &body)))).collect();
    scene.shop.release();
    let first = first.await.unwrap();
    for copy in join_all(copies).await {
        let copy = copy.unwrap();
        assert_eq!((copy.status, &copy.body, copy.is_replayed()), (200, &first.body, true));
    }
    assert_eq!(scene.shop.orders().len(), 1);
}

// However long that is: not shorter than a client waits for a handler to be called.
#[tokio::test]
async fn a_copy_waits_for_as_long_as_the_host_says() {
    let (dir, clock, shop) = (tempfile::tempdir().unwrap(), TestClock::breathing(), Shop::default());
    let executor = executor(&dir, &clock).open().await.unwrap();
    let wait = Duration::from_secs(60);
    let layer = guard(&executor).wait_at_most(wait).layer().unwrap();
    let url = format!("{}/orders", serve(app(&shop, layer)).await);
    let send = || tokio::spawn(answered(post_to(&url, "a", &json!({"do": "wait"}))));
    let first = send();
    shop.waiting(1).await;
    let copy = send();
    clock.slept(wait).await;
    clock.advance(Duration::from_secs(50));
    shop.release();
    assert_eq!(first.await.unwrap().text(), "order 1");
    let copy = copy.await.unwrap();
    assert_eq!((copy.text().as_str(), copy.is_replayed()), ("order 1", true));
}

#[tokio::test]
async fn a_client_is_sent_to_the_status_url() {
    let scene = Scene::with(|guard| guard.status_at("/operations/").accept_in_flight()).await;
    let body = json!({"do": "wait"});
    let first = tokio::spawn(answered(scene.post("a", &body)));
    scene.shop.waiting(1).await;
    let accepted = scene.send("a", &body).await;
    assert_eq!(accepted.problem(), (202, "request-in-progress".into()));
    let location = accepted.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(accepted.member("status_url"), json!(location));
    let ask = |who: &'static str| {
        answered(reqwest::Client::new().get(format!("{}{location}", scene.url)).header("authorization", who))
    };
    let status = ask("acme").await;
    assert_eq!((status.status, &status.headers["retry-after"]), (202, &"1".parse().unwrap()));
    assert_eq!(ask("globex").await.problem(), (404, "no-such-operation".into()));
    scene.shop.release();
    let first = first.await.unwrap();
    let status = ask("acme").await;
    assert_eq!((status.status, &status.body, status.is_replayed()), (200, &first.body, true));
    // What did not happen is not there.
    assert_eq!(scene.send("b", &json!({"do": "refuse"})).await.status, 422);
    let freed = URL_SAFE_NO_PAD.encode("POST /orders:~key:b");
    for unknown in ["", "/", &format!("/{freed}"), "/%00", "/!!", "/bm90aGluZw"] {
        let url = format!("{}/operations{unknown}", scene.url);
        let asked = answered(reqwest::Client::new().get(url).header("authorization", "acme")).await;
        assert_eq!(asked.status, 404, "{unknown}");
    }
}

// The ledger holds the answers of tools, steps and runs, too: they are not for the clients of this service.
#[tokio::test]
async fn a_status_url_shows_the_requests_of_the_service_alone() {
    let scene = Scene::with(|guard| guard.status_at("/operations")).await;
    let ledger = &scene.executor;
    for key in [Key::of("charge").target("o9"), Key::given("charge", "o9")] {
        let done = ledger.execute_once(&acme(), key, &"o9", || async { Ok("card 4242".to_owned()) }).await;
        assert!(done.unwrap().answer().is_some());
    }
    let ask = async |key: &str| {
        let url = format!("{}/operations/{}", scene.url, URL_SAFE_NO_PAD.encode(key));
        answered(reqwest::Client::new().get(url).header("authorization", "acme")).await
    };
    for key in ["charge:o9", "charge:~key:o9"] {
        assert_eq!(ask(key).await.problem(), (404, "no-such-operation".into()), "{key}");
    }
    assert_eq!(scene.send("a", &json!({})).await.status, 201);
    assert_eq!(ask("POST /orders:~key:a").await.status, 201);
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_cut_the_handler_off() {
    let scene = Scene::new().await;
    let body = json!({"do": "wait"});
    let first = tokio::spawn(answered(scene.post("a", &body)));
    scene.shop.waiting(1).await;
    first.abort(); // closes its connection
    assert!(first.await.unwrap_err().is_cancelled());
    scene.shop.release();
    let again = loop {
        let again = scene.send("a", &body).await;
        if again.status != 409 {
            break again;
        }
        assert_eq!(again.problem().1, "request-in-progress");
        tokio::task::yield_now().await;
    };
    assert_eq!((again.status, again.text().as_str(), again.is_replayed()), (200, "order 1", true));
    assert_eq!(scene.shop.orders().len(), 1);
}

#[tokio::test]
async fn a_storm_of_copies_has_one_effect() {
    let scene = Scene::new().await;
    let copies: Vec<_> = (0..200).map(|_| tokio::spawn(answered(scene.post("a", &json!({}))))).collect();
    let mut created = 0;
    for copy in join_all(copies).await {
        let copy = copy.unwrap();
        match copy.status {
            201 if copy.is_replayed() => assert_eq!(copy.text(), r#"{"order":1}"#),
            201 => created += 1,
            _ => assert_eq!(copy.problem(), (409, "request-in-progress".into())),
        }
    }
    assert_eq!((created, scene.shop.orders().len()), (1, 1));
}
