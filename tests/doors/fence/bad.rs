//! A Redis that is killed, frozen or not there: late answers are told, and the fence comes back by itself.

use std::time::Duration;

use counterfoil::fence::{Claimed, FenceError, KeyFence as _, OnceAtFence, RedisFence};

use super::server::Redis;
use super::{Effect, HOUR, now, patient, token};

#[tokio::test]
async fn a_server_that_is_not_there_is_told() {
    let mut redis = Redis::start().await;
    redis.kill();
    let (fence, effect) = (patient(&redis), Effect::default());
    let away = fence.claim("k", &token(), HOUR).await.unwrap_err();
    assert!(matches!(away, FenceError::Away { .. }), "{away:?}");
    let refused = effect.once(&fence, "k").await.unwrap_err();
    assert!(refused.to_string().contains("nothing was made"), "{refused}");
    assert_eq!(effect.count(), 0);
    redis.start_again().await;
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(1));
}

#[tokio::test]
async fn a_server_that_hangs_is_late_and_its_claim_is_repeated() {
    let redis = Redis::start().await;
    let fence = RedisFence::new(&redis.url()).unwrap().time_limit(Duration::from_millis(50));
    let (holder, effect) = (token(), Effect::default());
    while fence.claim("open", &token(), HOUR).await.is_err() {} // connected
    redis.freeze();
    for _ in 0..3 {
        let late = fence.claim("k", &holder, HOUR).await.unwrap_err();
        assert!(matches!(late, FenceError::Late), "{late:?}");
    }
    assert!(effect.once(&fence, "k").await.is_err());
    redis.thaw();
    // Whatever the server made of the claims when it thawed: the token holds the key, and nobody else gets it.
    while !matches!(fence.claim("k", &holder, HOUR).await, Ok(Claimed::New)) {
        tokio::task::yield_now().await;
    }
    let patient = patient(&redis);
    assert_eq!(patient.claim("k", &token(), HOUR).await.unwrap(), Claimed::Pending);
    assert_eq!(effect.once(&patient, "k").await.unwrap(), OnceAtFence::InProgress);
    assert!(patient.seal("k", &holder, b"7", HOUR).await.unwrap());
    assert_eq!(effect.once(&patient, "k").await.unwrap(), OnceAtFence::Before(7));
    assert_eq!(effect.count(), 0);
}

// Nobody tells a client that its packets are swallowed: the next question goes out on a new connection.
#[tokio::test]
async fn a_question_that_was_given_up_costs_its_connection() {
    let redis = Redis::start().await;
    let fence = patient(&redis);
    assert_eq!(fence.claim("a", &token(), HOUR).await.unwrap(), Claimed::New);
    let clients = async || {
        let list: String = redis.tell(&["CLIENT", "LIST", "TYPE", "normal"]).await;
        list.lines()
            .filter(|line| !line.contains("cmd=client|list"))
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let before = clients().await;
    assert_eq!(before.len(), 1, "{before:?}");
    redis.freeze();
    let (key, holder) = ("b", token());
    let asked = fence.claim(key, &holder, HOUR);
    let given_up = tokio::select! { biased; _ = asked => false, () = tokio::task::yield_now() => true };
    assert!(given_up);
    redis.thaw();
    assert!(matches!(fence.claim("c", &token(), HOUR).await.unwrap(), Claimed::New));
    let mut after = clients().await;
    while after.contains(&before[0]) {
        after = clients().await;
    }
    assert_eq!(after.len(), 1, "{after:?}");
}
