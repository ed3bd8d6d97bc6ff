//! The doors that a policy makes do what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use axum::routing::post;
use counterfoil::http::RequestScope;
use counterfoil::ledger::{Contract, ContractClass, EffectClass, LookupResult, RetentionMode};
use counterfoil::nonce::{Made, Nonce, NonceRequest};
use counterfoil::policy::{
    BrokerKind, FenceRole, FenceStore, HttpPolicy, LedgerStore, OnUnknown, Policy, TenantFrom, WebhookScheme,
};
use counterfoil::{Executor, Tenant};
use serde_json::Value;

/// An executor on a file of its own.
async fn executor(folder: &tempfile::TempDir) -> Executor {
    Executor::sqlite(folder.path().join("doors.db")).open().await.unwrap()
}

#[allow(clippy::unnecessary_wraps, reason = "a scope may be unknown")]
fn scope(_: &axum::http::request::Parts) -> Option<RequestScope> {
    Some(RequestScope::new(Tenant::new("acme").unwrap(), "/orders"))
}

/// A server whose handler counts how often it is called.
struct Shop {
    router: Router,
    calls: Arc<AtomicUsize>,
}

impl Shop {
    fn of(source: HttpPolicy<'_>, executor: &Executor) -> Self {
        let layer = source.idempotency(executor, scope).layer().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let handler = move || async move { format!("order {}", counted.fetch_add(1, Ordering::SeqCst) + 1) };
        Self { router: Router::new().route("/orders", post(handler)).layer(layer), calls }
    }

    async fn post(&self, key: Option<&str>, body: &str) -> (StatusCode, String) {
        let mut request = Request::post("/orders").header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response: Response =
            tower_service::Service::call(&mut self.router.clone(), request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_layer_requires_compares_and_answers_as_its_policy_says() {
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(&folder).await;
    let policy = Policy::parse(
        "on_conflict: {status: 422, include_diff: true}\nhttp: {orders: {tenant: single, exclude: [/sent_at], redact: [/card]}}",
    );
    let policy = policy.unwrap().checked().unwrap();
    let shop = Shop::of(policy.http("orders").unwrap(), &executor);
    assert_eq!(shop.post(None, "{}").await.0, StatusCode::BAD_REQUEST, "a key is required");
    let first = shop.post(Some("k1"), r#"{"cents": 1, "sent_at": 1, "card": "CANARY"}"#).await;
    assert_eq!(first, (StatusCode::OK, "order 1".to_owned()));
    assert_eq!(
        shop.post(Some("k1"), r#"{"cents": 1, "sent_at": 2, "card": "CANARY"}"#).await,
        first,
        "sent_at is excluded"
    );
    let (status, problem) =
        shop.post(Some("k1"), r#"{"cents": 2, "sent_at": 2, "card": "OTHER-CANARY"}"#).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = serde_json::from_str(&problem).unwrap();
    assert!(
        problem["diff"].to_string().contains("cents") && !problem.to_string().contains("CANARY"),
        "{problem}"
    );
    assert_eq!(shop.calls(), 1);
    executor.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_layer_lets_keys_and_bodies_be_where_its_policy_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(&folder).await;
    let policy = Policy::parse(
        "require_headers: []\nreject_on_body_mismatch: false\non_conflict: {include_diff: false}\nhttp: {orders: {tenant: single}}",
    );
    let policy = policy.unwrap();
    let shop = Shop::of(policy.http("orders").unwrap(), &executor);
    assert_eq!(shop.post(None, "{}").await.1, "order 1");
    assert_eq!(shop.post(None, "{}").await.1, "order 2", "without a key nothing is guarded");
    assert_eq!(shop.post(Some("k1"), r#"{"cents": 1}"#).await.1, "order 3");
    assert_eq!(
        shop.post(Some("k1"), r#"{"cents": 2}"#).await.1,
        "order 3",
        "another body gets the first answer"
    );
    assert_eq!(shop.post(Some("k1"), "").await.1, "order 3");
    // A request that was compared by its body is not met by one that is not.
    let strict =
        Policy::parse("on_conflict: {include_diff: false}\nhttp: {orders: {tenant: single}}").unwrap();
    let strict = Shop::of(strict.http("orders").unwrap(), &executor);
    let (status, problem) = strict.post(Some("k1"), r#"{"cents": 1}"#).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(serde_json::from_str::<Value>(&problem).unwrap()["diff"].is_null(), "{problem}");
    executor.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_layer_that_lacks_what_its_policy_counts_on_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(&folder).await;
    let policy = Policy::parse(
        "http:\n  pay: {preset: payment, tenant: single, on_unknown: lookup, redact: [/card]}\n  \
         book: {tenant: single, on_unknown: transaction}\n  both: {tenant: single, in_flight: accepted}",
    );
    let policy = policy.unwrap();
    let pay = || policy.http("pay").unwrap().idempotency(&executor, scope);
    let refused = pay().layer().unwrap_err().to_string();
    assert!(refused.contains("`on_unknown: lookup`") && refused.contains(".reconcile("), "{refused}");
    let lookup = Contract::new(ContractClass::Lookup).settle(Duration::from_mins(6));
    let looked = pay().reconcile(lookup.clone(), |_, _| async { Ok(LookupResult::NotFound) });
    assert!(looked.layer().is_ok());
    let book = || policy.http("book").unwrap().idempotency(&executor, scope);
    assert!(book().layer().unwrap_err().to_string().contains(".transactional::<"));
    assert!(book().reconcile(lookup, |_, _| async { Ok(LookupResult::NotFound) }).layer().is_err());
    assert!(book().transactional::<sqlx::SqliteConnection>().layer().is_ok());
    let both = policy.http("both").unwrap().idempotency(&executor, scope);
    assert!(both.layer().is_err(), "there is no status URL");
    executor.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn nonces_have_the_window_of_their_policy() {
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(&folder).await;
    let policy = Policy::parse(
        "nonces: {message: {tenant: identity, window: 10 min}, short: {tenant: identity, window: 2 s}}",
    )
    .unwrap();
    let messages = policy.nonce("message").unwrap();
    assert_eq!(
        (messages.kind(), messages.window(), messages.retry_horizon()),
        ("message", Duration::from_mins(10), Duration::from_mins(1))
    );
    let messages = messages.nonces(&executor).unwrap();
    let (acme, nonce) = (Tenant::new("acme").unwrap(), Nonce::try_from("n1").unwrap());
    let sent = NonceRequest { author: "ann", nonce: Some(&nonce), enforce: true };
    for expected in [Made::Now(1), Made::Before(1)] {
        assert_eq!(messages.once(&acme, sent, || async { Ok(1) }).await.unwrap(), expected);
    }
    assert!(policy.nonce("short").unwrap().nonces(&executor).is_err(), "shorter than a try and its retries");
    executor.shutdown(Duration::from_secs(1)).await;
}

#[test]
fn what_a_source_leaves_out_is_the_files_and_then_the_presets() {
    let policy = Policy::parse(
        "ttl: {api: 5 days}\nhttp: {own: {ttl: 6 days}, of_file: {}, of_preset: {preset: payment}, kept: {after_ttl: keep}, forgot: {after_ttl: forget}}",
    );
    let policy = policy.unwrap();
    let days = |name: &str| policy.http(name).unwrap().ttl().as_secs() / 86_400;
    assert_eq!([days("own"), days("of_file"), days("of_preset")], [6, 5, 90]);
    let mode = |name: &str| policy.http(name).unwrap().retention().mode;
    assert_eq!(
        [mode("own"), mode("kept"), mode("forgot")],
        [RetentionMode::Tombstone, RetentionMode::Keep, RetentionMode::Forget]
    );
    assert_eq!(policy.http("of_preset").unwrap().effect(), EffectClass::Payment);
    let plain = policy.http("of_file").unwrap();
    assert_eq!((plain.conflict_status(), plain.includes_diff(), plain.requires_key()), (409, true, true));
    assert_eq!((plain.on_unknown(), plain.tenant(), plain.wait()), (OnUnknown::Ask, None, None));
}

/// The example file, as the builders of the other doors are given it.
#[test]
fn webhooks_queues_and_the_fence_get_plain_values() {
    let example = include_str!("../../../docs/policy.yml");
    let policy = Policy::parse(example).unwrap().checked().unwrap();
    assert_eq!(policy.ledger_store(), Some(LedgerStore::Postgres));

    let bank = policy.webhook("bank").unwrap();
    assert_eq!(
        (bank.name(), bank.scheme(), bank.tenant()),
        ("bank", WebhookScheme::Standard, Some(TenantFrom::Endpoint))
    );
    assert_eq!(
        bank.secret_variables().collect::<Vec<_>>(),
        ["BANK_WEBHOOK_SECRET", "BANK_WEBHOOK_SECRET_OLD"]
    );
    assert_eq!(
        (bank.tolerance(), bank.version(), bank.body_window()),
        (Duration::from_mins(5), Some("/data/version"), None)
    );
    assert_eq!(bank.key(), ["provider", "event_id", "version", "action"]);
    assert_eq!(
        (bank.ttl(), bank.retry_horizon().as_secs()),
        (Duration::from_hours(7 * 24), (75 * 60 + 35) * 60 + 5)
    );
    assert_eq!(
        (bank.signature_header(), bank.max_body_bytes(), bank.on_unknown()),
        (None, 1 << 20, OnUnknown::Transaction)
    );

    let invoices = policy.queue("invoices").unwrap();
    assert_eq!((invoices.broker(), invoices.subject()), (BrokerKind::Nats, "billing.invoice.>"));
    assert_eq!(
        (invoices.tries(), invoices.retry_delay(), invoices.timeout()),
        (10, Duration::from_secs(30), Duration::from_mins(2))
    );
    assert_eq!(
        (invoices.broker_deliveries(), invoices.broker_retention()),
        (None, Some(Duration::from_hours(7 * 24)))
    );
    assert_eq!(invoices.tried_for(), Duration::from_secs(10 * 120 + 9 * 30));
    assert_eq!(invoices.key(), ["topic", "message_key", "dedupe_id"]);
    assert_eq!(policy.queue("invoices").unwrap().set_aside(), None);

    let fence = policy.fence().unwrap();
    assert_eq!(
        (fence.store(), fence.role(), fence.url_variable()),
        (Some(FenceStore::Redis), FenceRole::InFrontOfLedger, "REDIS_URL")
    );
    assert_eq!((fence.pending(), fence.sealed()), (Duration::from_secs(30), Duration::from_hours(24)));
}

/// The names of the fields that a door logged, and what it logged.
#[derive(Default)]
struct Logged(Arc<std::sync::Mutex<Vec<(String, String)>>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("counterfoil::rim::door")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Fields<'a>(&'a mut Vec<(String, String)>);
        impl tracing::field::Visit for Fields<'_> {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push((field.name().to_owned(), format!("{value:?}")));
            }
        }
        event.record(&mut Fields(&mut self.0.lock().unwrap()));
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn doors_log_the_fields_that_their_policy_includes_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let executor = executor(&folder).await;
    let policy = Policy::parse(
        "logging: {include_fields: [decision, effect_id, idempotency_key]}\nhttp: {orders: {tenant: single}}\n\
         nonces: {message: {tenant: single}}",
    );
    let policy = policy.unwrap();
    let logged = Logged::default();
    let lines = logged.0.clone();
    let guard = tracing::subscriber::set_default(logged);
    // While there is one subscriber alone, another test's thread that has none, and comes to an event first, decides that nobody logs it
    // (tracing-core 0.1, `callsite::dispatchers`).
    let _second = tracing::Dispatch::new(Logged::default());
    let shop = Shop::of(policy.http("orders").unwrap(), &executor);
    assert_eq!(shop.post(Some("k1"), "{}").await.0, StatusCode::OK);
    let names = || std::mem::take(&mut *lines.lock().unwrap());
    let of_http = names();
    let nonces = policy.nonce("message").unwrap().nonces(&executor).unwrap();
    let (acme, nonce) = (Tenant::new("acme").unwrap(), Nonce::try_from("n1").unwrap());
    let sent = NonceRequest { author: "ann", nonce: Some(&nonce), enforce: true };
    assert!(nonces.once(&acme, sent, || async { Ok(1) }).await.is_ok());
    let of_nonce = names();
    drop(guard);
    for (logged, key) in [(of_http, "k1"), (of_nonce, "n1")] {
        let mut fields: Vec<_> = logged.iter().map(|(name, _)| name.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["decision", "effect_id", "idempotency_key", "message"], "{logged:?}");
        assert!(logged.contains(&("idempotency_key".to_owned(), format!("{key:?}"))), "{logged:?}");
        assert!(logged.contains(&("decision".to_owned(), "\"executed\"".to_owned())), "{logged:?}");
    }
    executor.shutdown(Duration::from_secs(1)).await;
}
