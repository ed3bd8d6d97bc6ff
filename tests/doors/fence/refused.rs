//! A Redis that refuses: each refusal is told by its name, and ends when its cause does.

use counterfoil::fence::{Claimed, FenceError, KeyFence as _, RedisFence};

use super::server::Redis;
use super::{HOUR, patient, token};

#[tokio::test]
async fn a_wrong_password_is_told_and_mended_without_a_restart() {
    let redis = Redis::start().await;
    () = redis.tell(&["CONFIG", "SET", "requirepass", "secret"]).await;
    let url = |user: &str| redis.url().replace("//", &format!("//{user}@"));
    for wrong in [redis.url(), url(":guess"), url("ann:guess")] {
        let fence = RedisFence::new(&wrong).unwrap().time_limit(HOUR);
        let denied = fence.claim("k", &token(), HOUR).await.unwrap_err();
        assert!(matches!(denied, FenceError::Denied { .. }), "{wrong}: {denied:?}");
        assert!(!denied.to_string().contains("guess"), "{denied}");
    }
    let fence = RedisFence::new(&url(":secret")).unwrap().time_limit(HOUR);
    assert_eq!(fence.claim("k", &token(), HOUR).await.unwrap(), Claimed::New);

    let early = RedisFence::new(&url(":later")).unwrap().time_limit(HOUR);
    assert!(early.claim("l", &token(), HOUR).await.is_err());
    let mut operator =
        redis::Client::open(url(":secret")).unwrap().get_multiplexed_async_connection().await.unwrap();
    let () =
        redis::cmd("CONFIG").arg(&["SET", "requirepass", "later"]).query_async(&mut operator).await.unwrap();
    assert_eq!(early.claim("l", &token(), HOUR).await.unwrap(), Claimed::New);
}

#[tokio::test]
async fn a_user_without_rights_is_told() {
    let redis = Redis::start().await;
    () = redis.tell(&["ACL", "SETUSER", "ann", "on", ">pass", "~*", "+get", "+client"]).await;
    let fence = RedisFence::new(&redis.url().replace("//", "//ann:pass@")).unwrap().time_limit(HOUR);
    let denied = fence.claim("k", &token(), HOUR).await.unwrap_err();
    assert!(matches!(denied, FenceError::Denied { .. }), "{denied:?}");
}

#[tokio::test]
async fn a_replica_is_read_only_and_still_knows_what_is_sealed() {
    let (primary, replica) = (Redis::start().await, Redis::start().await);
    let fence = patient(&primary);
    let holder = token();
    assert_eq!(fence.claim("sealed", &holder, HOUR).await.unwrap(), Claimed::New);
    assert!(fence.seal("sealed", &holder, b"value", HOUR).await.unwrap());
    assert_eq!(fence.claim("held", &holder, HOUR).await.unwrap(), Claimed::New);
    replica.follow(&primary).await;
    let fence = patient(&replica);
    assert_eq!(fence.claim("sealed", &token(), HOUR).await.unwrap(), Claimed::Sealed(b"value".to_vec()));
    for refused in [
        fence.claim("k", &holder, HOUR).await.map(drop),
        fence.seal("held", &holder, b"value", HOUR).await.map(drop),
        fence.release("held", &holder).await.map(drop),
    ] {
        assert!(matches!(refused, Err(FenceError::ReadOnly)), "{refused:?}");
    }
    // Promoted under the same address, it is connected to anew.
    () = replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(fence.claim("k", &holder, HOUR).await.unwrap(), Claimed::New);
}

#[tokio::test]
async fn a_full_server_is_told_and_still_knows_what_is_sealed() {
    let redis = Redis::start().await;
    let fence = patient(&redis);
    let holder = token();
    assert_eq!(fence.claim("sealed", &holder, HOUR).await.unwrap(), Claimed::New);
    assert!(fence.seal("sealed", &holder, b"value", HOUR).await.unwrap());
    assert_eq!(fence.claim("held", &holder, HOUR).await.unwrap(), Claimed::New);
    () = redis.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for refused in [
        fence.claim("k", &holder, HOUR).await.map(drop),
        fence.seal("held", &holder, b"value", HOUR).await.map(drop),
    ] {
        assert!(matches!(refused, Err(FenceError::Full)), "{refused:?}");
    }
    assert_eq!(fence.claim("sealed", &token(), HOUR).await.unwrap(), Claimed::Sealed(b"value".to_vec()));
    () = redis.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(fence.seal("held", &holder, b"value", HOUR).await.unwrap());
}

#[tokio::test]
async fn an_entry_of_somebody_else_is_told() {
    let redis = Redis::start().await;
    let fence = patient(&redis);
    for (key, set) in [("text", ["SET", "*", "theirs"]), ("list", ["RPUSH", "*", "theirs"])] {
        let holder = token();
        assert_eq!(fence.claim(key, &holder, HOUR).await.unwrap(), Claimed::New);
        let entries: Vec<String> = redis.tell(&["KEYS", "counterfoil:fence:*"]).await;
        () = redis.tell(&["FLUSHALL"]).await;
        () = redis.tell(&[set[0], &entries[0], set[2]]).await;
        let damaged = fence.claim(key, &token(), HOUR).await.unwrap_err();
        assert!(matches!(damaged, FenceError::Damaged), "{key}: {damaged:?}");
        () = redis.tell(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn scripts_that_the_server_has_forgotten_are_loaded_again() {
    let redis = Redis::start().await;
    let fence = patient(&redis);
    let holder = token();
    for key in ["a", "b"] {
        assert_eq!(fence.claim(key, &holder, HOUR).await.unwrap(), Claimed::New);
        () = redis.tell(&["SCRIPT", "FLUSH"]).await;
        assert!(fence.seal(key, &holder, b"value", HOUR).await.unwrap());
        () = redis.tell(&["SCRIPT", "FLUSH"]).await;
        assert!(!fence.release(key, &holder).await.unwrap());
    }
}

#[test]
fn an_address_that_is_none_is_refused_without_its_password() {
    for wrong in [
        "",
        "localhost",
        "http://user:hunter2@localhost/",
        "redis://user:hunter2@localhost:port/",
        "redis://h/hunter2",
    ] {
        let refused = RedisFence::new(wrong).unwrap_err();
        assert!(matches!(refused, FenceError::Address { .. }), "{wrong}");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}
