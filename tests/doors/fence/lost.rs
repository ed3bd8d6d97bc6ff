//! What the fence alone loses when its cache is lost: the effect is made once more. `docs/fence.md` lists these.

use counterfoil::fence::{KeyFence as _, OnceAtFence, RedisFence};

use super::server::Redis;
use super::{Effect, HOUR, now, patient, token};

#[tokio::test]
async fn a_restart_without_persistence_forgets() {
    let mut redis = Redis::start().await;
    let effect = Effect::default();
    let fence = patient(&redis);
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(1));
    assert_eq!(effect.once(&fence, "k").await.unwrap(), OnceAtFence::Before(1));
    redis.kill();
    assert!(effect.once(&fence, "k").await.is_err());
    assert_eq!(effect.count(), 1, "without the fence nothing is run");
    redis.start_again().await;
    assert_eq!(connected(&effect, &fence).await, now(2), "lost: made twice");
}

#[tokio::test]
async fn a_restart_with_every_write_on_disk_forgets_nothing() {
    let mut redis = Redis::durable().await;
    let effect = Effect::default();
    let fence = patient(&redis);
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(1));
    redis.kill();
    redis.start_again().await;
    assert_eq!(connected(&effect, &fence).await, OnceAtFence::Before(1));
    assert_eq!(effect.count(), 1);
}

/// The answer, once the fence has noticed that its former connection is gone.
async fn connected(effect: &Effect, fence: &RedisFence) -> OnceAtFence<u32> {
    loop {
        if let Ok(answer) = effect.once(fence, "k").await {
            return answer;
        }
    }
}

#[tokio::test]
async fn flushall_forgets() {
    let redis = Redis::start().await;
    let effect = Effect::default();
    let fence = patient(&redis);
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(1));
    () = redis.tell(&["FLUSHALL"]).await;
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(2), "lost: made twice");
}

#[tokio::test]
async fn flushall_while_the_closure_runs_is_told() {
    let redis = Redis::start().await;
    let fence = patient(&redis);
    let flushed = async || {
        () = redis.tell(&["FLUSHALL"]).await;
        Ok::<_, std::convert::Infallible>(1)
    };
    let answer = fence.once("k", counterfoil::fence::FenceTtl::default(), flushed).await.unwrap();
    assert_eq!(answer, OnceAtFence::Now { value: 1, remembered: false });
}

#[tokio::test]
async fn eviction_forgets() {
    let redis = Redis::start().await;
    let effect = Effect::default();
    let fence = patient(&redis);
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(1));
    let used: String = redis.tell(&["INFO", "memory"]).await;
    let used: u64 =
        used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    () = redis.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    () = redis.tell(&["CONFIG", "SET", "maxmemory", &(used + (2 << 20)).to_string()]).await;
    // Other keys crowd it out. It is read by nobody meanwhile.
    for other in 0.. {
        let (key, holder) = (format!("other-{other}"), token());
        let _ = fence.claim(&key, &holder, HOUR).await.unwrap();
        let _ = fence.seal(&key, &holder, &[b'x'; 16 * 1024], HOUR).await.unwrap();
        let evicted: String = redis.tell(&["INFO", "stats"]).await;
        let evicted = evicted.lines().find_map(|line| line.strip_prefix("evicted_keys:")).unwrap();
        if evicted.trim() != "0" && redis.tell::<u32>(&["EXISTS", &entry("k")]).await == 0 {
            break;
        }
    }
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(2), "lost: made twice");
}

/// The name of a key's entry, as docs/fence.md gives it.
fn entry(key: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let digest: [u8; 32] = Sha256::digest(key).into();
    let half = |from: usize| u128::from_be_bytes(digest[from..from + 16].try_into().unwrap());
    format!("counterfoil:fence:{:032x}{:032x}", half(0), half(16))
}

#[tokio::test]
async fn a_failover_to_a_replica_that_lags_forgets() {
    let (mut primary, replica) = (Redis::start().await, Redis::start().await);
    let (early, late) = (Effect::default(), Effect::default());
    let fence = patient(&primary);
    assert_eq!(early.once(&fence, "early").await.unwrap(), now(1));
    replica.follow(&primary).await;
    replica.lose_sight().await;
    assert_eq!(late.once(&fence, "late").await.unwrap(), now(1), "the primary answers alone");
    primary.kill();
    () = replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    let fence = patient(&replica);
    assert_eq!(early.once(&fence, "early").await.unwrap(), OnceAtFence::Before(1), "it had got there");
    assert_eq!(late.once(&fence, "late").await.unwrap(), now(2), "lost: made twice");
}
