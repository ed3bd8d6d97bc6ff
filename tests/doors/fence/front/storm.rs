//! Storms of duplicates, with the fence up, and with the fence lost in the middle of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;

use super::super::server::Redis;
use super::super::{HOUR, patient};
use super::{Fenced, Service};

const EVENTS: u32 = 25;
const COPIES: u32 = 40;
/// Deliveries at the same time.
const AT_ONCE: usize = 64;

/// Each event comes many times, several events and several copies at once. All copies of one event get one receipt.
async fn storm(service: &Service, fenced: &Fenced, done: &Semaphore) {
    // Neighbours are copies of one event now and of several events then.
    let deliveries = (0..EVENTS * COPIES).map(|n| if n % 2 == 0 { n / COPIES } else { n % EVENTS });
    let receipts: Vec<(u32, String)> = stream::iter(deliveries)
        .map(async |event| {
            let receipt = service.deliver(fenced, &format!("event-{event}")).await;
            done.add_permits(1);
            (event, receipt)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    for event in 0..EVENTS {
        let mut of_event = receipts.iter().filter(|(of, _)| *of == event).map(|(_, receipt)| receipt);
        let first = of_event.next().unwrap();
        assert!(of_event.all(|receipt| receipt == first), "event {event} has several receipts");
    }
    assert_eq!(service.effects(), EVENTS, "each effect is made once");
}

#[tokio::test]
async fn with_the_fence_up_the_database_is_asked_once_for_each_key() {
    let (service, redis) = (Service::open().await, Redis::start().await);
    let alone = Service::open().await;
    let fenced = alone.behind(patient(&redis));
    for event in 0..EVENTS {
        alone.deliver(&fenced, &format!("alone-{event}")).await;
    }
    let fenced = service.behind(patient(&redis));
    storm(&service, &fenced, &Semaphore::new(0)).await;
    assert_eq!(service.decisions(), EVENTS);
    assert_eq!(service.asked(), alone.asked(), "a storm asks as much as one delivery of each");
}

/// A storm with something in the middle, after a third of its deliveries.
async fn disturbed(redis: Redis, disturb: impl AsyncFnOnce(Redis) -> Redis) {
    let service = Service::open().await;
    let fenced = service.behind(patient(&redis)).time_limit(Duration::from_millis(200));
    let fenced = fenced.patience(Duration::from_millis(100)).pause(Duration::from_millis(20));
    let done = Arc::new(Semaphore::new(0));
    let disturbing = async {
        done.acquire_many(EVENTS * COPIES / 3).await.unwrap().forget();
        disturb(redis).await
    };
    let (_redis, ()) = futures_util::future::join(disturbing, storm(&service, &fenced, &done)).await;
}

#[tokio::test]
async fn flushed_in_the_middle() {
    disturbed(Redis::start().await, async |redis| {
        for _ in 0..5 {
            () = redis.tell(&["FLUSHALL"]).await;
        }
        redis
    })
    .await;
}

#[tokio::test]
async fn killed_in_the_middle() {
    disturbed(Redis::start().await, async |mut redis: Redis| {
        redis.kill();
        redis
    })
    .await;
}

#[tokio::test]
async fn killed_and_started_again_in_the_middle() {
    disturbed(Redis::start().await, async |mut redis: Redis| {
        for _ in 0..3 {
            redis.kill();
            redis.start_again().await;
        }
        redis
    })
    .await;
}

#[tokio::test]
async fn frozen_in_the_middle() {
    disturbed(Redis::start().await, async |redis: Redis| {
        redis.freeze();
        redis
    })
    .await;
}

#[tokio::test]
async fn full_in_the_middle() {
    disturbed(Redis::start().await, async |redis: Redis| {
        () = redis.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
        redis
    })
    .await;
}

// What the late server makes of claims that nobody waits for any more hinders nobody.
#[tokio::test]
async fn frozen_and_thawed_in_the_middle() {
    let (service, redis) = (Service::open().await, Redis::start().await);
    let fenced = service.behind(patient(&redis)).time_limit(Duration::from_millis(50)).pause(Duration::ZERO);
    redis.freeze();
    for event in 0..EVENTS {
        assert_eq!(service.deliver(&fenced, &format!("event-{event}")).await, (event + 1).to_string());
    }
    redis.thaw();
    let fenced = fenced.time_limit(HOUR).patience(Duration::from_millis(50));
    storm(&service, &fenced, &Semaphore::new(0)).await;
}
