//! A process that dies while a handler runs: the next request with the key is not let in blindly.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil::Executor;
use counterfoil::http::Idempotency;
use counterfoil::ledger::{Contract, ContractClass, LookupResult};
use counterfoil::store::QuestionKind;
use serde_json::{Value, json};

use super::shop::{Answered, Shop, answered, app, guard, post_to};
use crate::world::{Process, SETTLE, TestClock, acme, executor, serve};

/// A ledger whose process has died while a handler ran, behind its effect.
struct Died {
    dir: tempfile::TempDir,
    clock: TestClock,
    shop: Shop,
}

fn order() -> Value {
    json!({"do": "wait"})
}

/// What a handler has sent arrives within a minute of its end.
fn timely(executor: &Executor) -> Idempotency {
    guard(executor).timeout(SETTLE)
}

impl Died {
    async fn in_a_handler(say: impl FnOnce(Idempotency) -> Idempotency + Send + 'static) -> Self {
        let (dir, clock, shop) = (tempfile::tempdir().unwrap(), TestClock::breathing(), Shop::default());
        let process = Process::start(executor(&dir, &clock)).await.unwrap();
        let (serving, executor) = (shop.clone(), process.executor());
        let url =
            process.spawn(async move { serve(app(&serving, say(timely(&executor)).layer().unwrap())).await });
        let url = url.await.unwrap();
        let client =
            tokio::spawn(async move { post_to(&format!("{url}/orders"), "a", &order()).send().await });
        shop.waiting(1).await;
        process.kill();
        assert!(client.await.unwrap().is_err(), "its client got no answer");
        assert_eq!(shop.orders().len(), 1);
        shop.release();
        Self { dir, clock, shop }
    }

    /// The next process, which has found the request that was left behind and has nobody to ask about it yet.
    async fn next(&self, say: impl FnOnce(Idempotency) -> Idempotency) -> (Executor, String) {
        let executor = executor(&self.dir, &self.clock).open().await.unwrap();
        let question = loop {
            if let [question] = &executor.questions(&acme()).await.unwrap()[..] {
                break question.clone();
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(question.kind, QuestionKind::UnknownTool);
        assert!(question.question.contains("POST /orders"), "{}", question.question);
        let layer = say(timely(&executor)).layer().unwrap();
        (executor, serve(app(&self.shop, layer)).await)
    }
}

async fn send(url: &str) -> Answered {
    answered(post_to(&format!("{url}/orders"), "a", &order())).await
}

/// Comes again until the request is no longer in progress, as a client does.
async fn eventually(url: &str) -> Answered {
    for _ in 0..1000 {
        let again = send(url).await;
        if again.status == 200 {
            return again;
        }
        assert_eq!(again.problem().1, "request-in-progress");
    }
    panic!("it stays in progress")
}

fn contract() -> Contract {
    Contract::new(ContractClass::Lookup)
}

fn found() -> LookupResult<Response<Bytes>> {
    let output = Response::new(Bytes::from_static(b"order 1, found"));
    LookupResult::Committed { output, external_ref: Some("order-1".to_owned()) }
}

#[tokio::test]
async fn without_a_lookup_it_is_an_open_question() {
    let died = Died::in_a_handler(|guard| guard).await;
    let (executor, url) = died.next(|guard| guard).await;
    for _ in 0..2 {
        let unknown = send(&url).await;
        assert_eq!(unknown.problem(), (409, "outcome-unknown".into()));
        let [question] = &executor.questions(&acme()).await.unwrap()[..] else { panic!("one question") };
        assert_eq!(unknown.member("question"), json!(question.id.to_string()));
    }
    assert_eq!(died.shop.orders().len(), 1);
}

#[tokio::test]
async fn what_the_lookup_finds_is_the_answer() {
    let died = Died::in_a_handler(|guard| guard).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asking = asked.clone();
    let lookup = move |guard: Idempotency| {
        guard.reconcile(contract(), move |call, request| {
            asking.lock().unwrap().push((call.key, request));
            async { Ok(found()) }
        })
    };
    let (executor, url) = died.next(lookup).await;
    let again = send(&url).await;
    assert_eq!((again.status, again.text().as_str(), again.is_replayed()), (200, "order 1, found", true));
    let asked = asked.lock().unwrap().clone();
    let [(key, request)] = &asked[..] else { panic!("asked once: {asked:?}") };
    assert_eq!(*key, died.shop.orders()[0], "by the key that went downstream");
    assert_eq!((&request["method"], &request["body"]["json"]), (&json!("POST"), &order()));
    assert!(executor.questions(&acme()).await.unwrap().is_empty());
    assert_eq!(died.shop.orders().len(), 1);
}

// What is still to be finished elsewhere has a status, too: it is not an error.
#[tokio::test]
async fn an_operation_that_is_pending_is_in_progress_at_its_status_url() {
    let lookup = |guard: Idempotency| {
        let pending = || LookupResult::Pending { external_ref: None, look_again: SETTLE };
        guard.status_at("/operations").reconcile(contract(), move |_, _| async move { Ok(pending()) })
    };
    let died = Died::in_a_handler(lookup).await;
    let (executor, url) = died.next(lookup).await;
    assert_eq!(send(&url).await.problem(), (409, "request-in-progress".into()));
    let operation = URL_SAFE_NO_PAD.encode("POST /orders:~key:a");
    let status = reqwest::Client::new().get(format!("{url}/operations/{operation}"));
    let status = answered(status.header("authorization", "acme")).await;
    assert_eq!(status.problem(), (202, "request-in-progress".into()));
    assert_eq!(status.headers["retry-after"], "1");
    assert!(executor.questions(&acme()).await.unwrap().is_empty(), "it is pending, and nobody is asked");
    assert_eq!(died.shop.orders().len(), 1);
}

// What the dead handler has sent may still be on its way: until it no longer can, its client is told to come again, and not kept
// waiting.
#[tokio::test]
async fn what_the_lookup_does_not_find_is_handled_when_it_can_no_longer_arrive() {
    let lookup =
        |guard: Idempotency| guard.reconcile(contract(), |_, _| async { Ok(LookupResult::NotFound) });
    let died = Died::in_a_handler(lookup).await;
    let (_executor, url) = died.next(lookup).await;
    let waiting = tokio::spawn({
        let url = url.clone();
        async move { send(&url).await }
    });
    let patience = Duration::from_secs(10);
    died.clock.slept(patience).await;
    died.clock.slept(SETTLE).await;
    died.clock.advance(patience);
    assert_eq!(waiting.await.unwrap().problem().1, "request-in-progress");
    assert_eq!(died.shop.orders().len(), 1);
    died.clock.advance(SETTLE);
    let again = eventually(&url).await;
    assert_eq!((again.text().as_str(), again.is_replayed()), ("order 2", false));
    assert!(send(&url).await.is_replayed());
    assert_eq!(died.shop.orders().len(), 2);
}
