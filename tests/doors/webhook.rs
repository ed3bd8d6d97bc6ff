//! The webhook door with a fence in front of it, and as a policy says it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Request;
use counterfoil::door::{Decided, DoorDecision, Reaction};
use counterfoil::fence::{Fenced, RedisFence};
use counterfoil::policy::Policy;
use counterfoil::webhook::{Scheme, Webhook, WebhookBuilder, WebhookConfigError};
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Executor, Tenant};
use http_body_util::Full;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Executor as _};
use tempfile::TempDir;

use crate::fence::server::Redis;
use crate::orders_service::service::sender::{SECRET, headers};

fn signed(id: &str, body: &str) -> Request<Full<Bytes>> {
    let headers = headers(SECRET, id, SystemClock.now().0 / 1_000_000, body);
    let request = headers
        .into_iter()
        .fold(Request::post("/hook"), |request, (name, value)| request.header(name, value));
    request.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

async fn deliver(webhook: &Webhook, id: &str, body: &str) -> (u16, Decided) {
    let answer = webhook.receive(signed(id, body)).await;
    (answer.status().as_u16(), answer.extensions().get::<DoorDecision>().unwrap().decision)
}

async fn open() -> (TempDir, Executor, SqliteConnection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let executor = Executor::sqlite(&path).open().await.unwrap();
    let mut own = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    own.execute("CREATE TABLE entry (what INTEGER NOT NULL)").await.unwrap();
    (folder, executor, own)
}

/// A source whose events are entered, one line for each.
fn enters(source: WebhookBuilder, executor: &Executor) -> Webhook {
    let enter = |_| async {
        Ok::<_, Infallible>(Reaction::transaction(|db: &mut SqliteConnection| {
            Box::pin(async move { sqlx::query("INSERT INTO entry VALUES (1)").execute(db).await.map(drop) })
        }))
    };
    source.on(executor, enter).unwrap()
}

async fn lines(own: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(own).await.unwrap()
}

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

// A ledger that is closed answers nobody: what is answered then, the fence has answered.
#[tokio::test]
async fn behind_a_fence_a_duplicate_does_not_reach_the_ledger_and_losing_the_fence_loses_nothing() {
    let (mut redis, (folder, executor, mut own)) = (Redis::start().await, open().await);
    let fenced = |executor: &Executor| {
        let fence = RedisFence::new(&redis.url()).unwrap().time_limit(Duration::from_hours(1));
        let fenced = Fenced::new(executor, fence).time_limit(Duration::from_hours(1));
        let source = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], acme()).unwrap();
        enters(source.fence(fenced), executor)
    };
    let webhook = fenced(&executor);
    assert_eq!(deliver(&webhook, "evt_1", "{}").await, (200, Decided::Executed));
    executor.shutdown(Duration::from_secs(5)).await;
    for body in ["{}", "{ }"] {
        assert_eq!(deliver(&webhook, "evt_1", body).await, (200, Decided::Replayed));
    }
    assert_eq!(deliver(&webhook, "evt_2", "{}").await, (503, Decided::Failed), "the ledger is needed for it");
    drop(webhook);

    let executor = Executor::sqlite(folder.path().join("shop.db")).open().await.unwrap();
    let webhook = fenced(&executor);
    redis.kill();
    redis.start_again().await; // it has forgotten everything
    for expected in [Decided::Replayed, Decided::Replayed] {
        assert_eq!(deliver(&webhook, "evt_1", "{}").await, (200, expected));
    }
    assert_eq!(deliver(&webhook, "evt_2", "{}").await, (200, Decided::Executed));
    assert_eq!(lines(&mut own).await, 2);
}

// The fence remembers more than the ledger: it is not believed while the restore is in force, nor after it was lifted.
#[tokio::test]
async fn behind_a_fence_an_event_that_a_restore_took_back_is_processed_again() {
    let (redis, (folder, executor, own)) = (Redis::start().await, open().await);
    let (ledger, copy) = (folder.path().join("shop.db"), folder.path().join("copy.db"));
    own.close().await.unwrap();
    executor.shutdown(Duration::from_secs(5)).await;
    std::fs::copy(&ledger, &copy).unwrap();
    let fenced = |executor: &Executor| {
        let fence = RedisFence::new(&redis.url()).unwrap().time_limit(Duration::from_hours(1));
        let fenced = Fenced::new(executor, fence).time_limit(Duration::from_hours(1));
        let source = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], acme()).unwrap();
        enters(source.fence(fenced), executor)
    };

    let executor = Executor::sqlite(&ledger).open().await.unwrap();
    let webhook = fenced(&executor);
    for event in ["evt_1", "evt_2"] {
        assert_eq!(deliver(&webhook, event, "{}").await, (200, Decided::Executed));
    }
    executor.shutdown(Duration::from_secs(5)).await;
    drop(webhook);
    std::fs::copy(&copy, &ledger).unwrap();

    let executor = Executor::sqlite(&ledger).restored(None).open().await.unwrap();
    let webhook = fenced(&executor);
    for expected in [Decided::Executed, Decided::Replayed] {
        assert_eq!(deliver(&webhook, "evt_1", "{}").await, (200, expected));
    }
    executor.lift_restored("ann", "all is seen to").await.unwrap();
    assert_eq!(deliver(&webhook, "evt_2", "{}").await, (200, Decided::Executed));
    // A ledger that is closed answers nobody: the event is sealed at the fence again.
    executor.shutdown(Duration::from_secs(5)).await;
    assert_eq!(deliver(&webhook, "evt_2", "{}").await, (200, Decided::Replayed));
    let mut own = SqliteConnection::connect(ledger.to_str().unwrap()).await.unwrap();
    assert_eq!(lines(&mut own).await, 2);
}

// GitHub signs the body alone: a captured delivery under a new id is not a new event, also if the policy names the id itself.
#[tokio::test]
async fn a_key_of_a_policy_with_an_unsigned_part_binds_the_body() {
    let (_folder, executor, mut own) = open().await;
    let secret = "It's a Secret to Everybody";
    let github = |key: &str, id: &str| {
        let file = format!(
            "webhooks: {{{id}: {{tenant: single, scheme: github, secrets: [SECRET], key: [{key}]}}}}"
        );
        let policy = Policy::parse(file.as_str()).unwrap().checked().unwrap();
        let source = policy.webhook(id).unwrap().source(acme(), |_| Some(secret.to_owned())).unwrap();
        enters(source, &executor)
    };
    // https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let send = async |webhook: &Webhook, id: &str| {
        let request = Request::post("/hook")
            .header("x-hub-signature-256", signature)
            .header("x-github-delivery", id)
            .header("x-number", id)
            .body(Full::new(Bytes::from("Hello, World!")))
            .unwrap();
        let answer = webhook.receive(request).await;
        answer.extensions().get::<DoorDecision>().unwrap().decision
    };
    for (name, key) in [("by_id", "provider, event_id"), ("by_header", "'header:X-Number'")] {
        let webhook = github(key, name);
        assert_eq!(send(&webhook, "a").await, Decided::Executed, "{name}");
        assert_eq!(send(&webhook, "a").await, Decided::Replayed, "{name}");
        assert_eq!(send(&webhook, "b").await, Decided::SetAside, "{name}");
    }
    assert_eq!(lines(&mut own).await, 2);
}

#[tokio::test]
async fn a_policy_makes_the_door() {
    let (_folder, executor, mut own) = open().await;
    let file = "webhooks:\n  shop:\n    tenant: single\n    scheme: standard\n    secrets: [SHOP_SECRET]\n    \
                key: [provider, /order, action]\n    max_body_bytes: 100\n";
    let policy = Policy::parse(file).unwrap().checked().unwrap();
    let shop = policy.webhook("shop").unwrap();
    let error = shop.source(acme(), |_| None).unwrap_err();
    let WebhookConfigError::NoVariable { variable, .. } = error else { panic!("{error}") };
    assert_eq!(variable, "SHOP_SECRET");

    let source = shop.source(acme(), |name| (name == "SHOP_SECRET").then(|| SECRET.to_owned())).unwrap();
    let webhook = enters(source, &executor);
    for (id, body, expected) in [
        ("a", r#"{"order":"9","action":"paid"}"#, (200, Decided::Executed)),
        ("b", r#"{"order":"9","action":"paid","try":2}"#, (200, Decided::Replayed)),
        ("c", r#"{"order":"9","action":"sent"}"#, (200, Decided::Executed)),
        ("d", r#"{"order":"10","action":"paid"}"#, (200, Decided::Executed)),
        ("e", r#"{"action":"paid"}"#, (400, Decided::Refused)),
        ("f", &format!(r#"{{"order":"{}"}}"#, "9".repeat(100)), (413, Decided::Refused)),
    ] {
        assert_eq!(deliver(&webhook, id, body).await, expected, "{body}");
    }
    assert_eq!(lines(&mut own).await, 3);
}
