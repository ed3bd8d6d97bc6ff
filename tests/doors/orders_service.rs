//! The example with all doors in one service: with a broker and a Redis, and without both.

use std::collections::BTreeMap;
use std::time::Duration;

use service::Surroundings;
use service::show::{self, COPIES, NUMBERS, Shown};

use crate::fence::server::Redis;
use crate::own_server::daemon::Daemon;
use crate::queue::nats;

#[path = "../../workflows/orders_service.rs"]
pub(crate) mod service;

async fn shown(nats: Option<String>, redis: Option<String>) -> Vec<Shown> {
    let folder = tempfile::tempdir().unwrap();
    // A slow machine must not make the service go on without its fence.
    let redis_time_limit = Duration::from_hours(1);
    let around = Surroundings { nats, redis, redis_time_limit, secrets: show::secrets() };
    show::storm(&folder.path().join("orders.db"), &around).await.unwrap()
}

fn happened(shown: &[Shown]) -> Vec<(&'static str, i64)> {
    shown.iter().filter_map(|shown| shown.happened).collect()
}

/// Every copy is answered, and of each order the first one alone is told that it was created.
fn all_are_answered(shown: &[Shown]) {
    let orders = BTreeMap::from([(201, NUMBERS), (200, NUMBERS * (COPIES - 1))]);
    let others = BTreeMap::from([(200, NUMBERS * COPIES)]);
    let answers: Vec<_> = shown.iter().map(|shown| &shown.answers).take(4).collect();
    assert_eq!(answers, [&orders, &others, &others, &others]);
}

#[tokio::test]
async fn everything_that_is_sent_four_times_happens_once() {
    let (broker, redis) = (Daemon::start(nats::server).await, Redis::start().await);
    let nats = format!("nats://127.0.0.1:{}", broker.port());
    let shown = shown(Some(nats), Some(redis.url())).await;
    all_are_answered(&shown);
    assert_eq!(happened(&shown), [("orders", 10), ("payments", 10), ("notes", 10), ("invoices", 10)]);
    assert_eq!(redis.tell::<usize>(&["DBSIZE"]).await, NUMBERS, "each order is sealed at the fence");
}

#[tokio::test]
async fn the_service_works_without_a_broker_and_a_fence() {
    let shown = shown(None, None).await;
    all_are_answered(&shown);
    assert_eq!(happened(&shown), [("orders", 10), ("payments", 10), ("notes", 10)]);
}
