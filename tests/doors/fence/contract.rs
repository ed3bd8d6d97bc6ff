//! What each fence must keep: on Redis, on SQLite, on PostgreSQL.

use std::convert::Infallible;
use std::time::Duration;

use counterfoil::fence::{
    Claimed, FenceError, FenceOnceError, FenceTtl, KeyFence, MAX_FENCE_VALUE, OnceAtFence,
};
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::{Effect, HOUR, now, token};

const SOON: Duration = Duration::from_millis(30);

async fn one_of_many_claims_is_new(fence: impl KeyFence) {
    let tokens: Vec<_> = (0..64).map(|_| token()).collect();
    let claims = join_all(tokens.iter().map(|token| fence.claim("k", token, HOUR))).await;
    let claims: Vec<_> = claims.into_iter().map(Result::unwrap).collect();
    assert_eq!(claims.iter().filter(|claim| **claim == Claimed::New).count(), 1, "{claims:?}");
    assert_eq!(claims.iter().filter(|claim| **claim == Claimed::Pending).count(), 63, "{claims:?}");
}

async fn only_the_holder_seals_and_releases(fence: impl KeyFence) {
    let (ann, bob) = (token(), token());
    assert_eq!(fence.claim("k", &ann, HOUR).await.unwrap(), Claimed::New);
    assert_eq!(fence.claim("k", &ann, HOUR).await.unwrap(), Claimed::New, "its first answer was lost");
    assert_eq!(fence.claim("k", &bob, HOUR).await.unwrap(), Claimed::Pending);
    assert!(!fence.seal("k", &bob, b"theirs", HOUR).await.unwrap());
    assert!(!fence.release("k", &bob).await.unwrap());
    assert!(fence.release("k", &ann).await.unwrap());
    assert!(!fence.release("k", &ann).await.unwrap());
    assert!(!fence.seal("k", &ann, b"late", HOUR).await.unwrap());

    assert_eq!(fence.claim("k", &bob, HOUR).await.unwrap(), Claimed::New);
    let value = [0, 255, b'\r', b'\n', b'"'];
    assert!(fence.seal("k", &bob, &value, HOUR).await.unwrap());
    assert!(fence.seal("k", &bob, &value, HOUR).await.unwrap(), "its first answer was lost");
    assert!(!fence.seal("k", &bob, b"other", HOUR).await.unwrap());
    assert!(!fence.release("k", &bob).await.unwrap(), "what is sealed stays");
    for token in [&ann, &bob] {
        assert_eq!(fence.claim("k", token, HOUR).await.unwrap(), Claimed::Sealed(value.to_vec()));
    }
}

async fn entries_end_with_their_time_to_live(fence: impl KeyFence) {
    let (ann, bob, eve) = (token(), token(), token());
    assert_eq!(fence.claim("k", &ann, SOON).await.unwrap(), Claimed::New);
    while fence.claim("k", &bob, HOUR).await.unwrap() != Claimed::New {
        tokio::task::yield_now().await;
    }
    assert!(!fence.seal("k", &ann, b"late", HOUR).await.unwrap());
    assert!(!fence.release("k", &ann).await.unwrap());
    assert!(fence.seal("k", &bob, b"value", SOON).await.unwrap());
    while fence.claim("k", &eve, Duration::MAX).await.unwrap() != Claimed::New {
        tokio::task::yield_now().await;
    }
    assert!(fence.seal("k", &eve, b"value", Duration::MAX).await.unwrap());
    assert_eq!(fence.claim("k", &ann, HOUR).await.unwrap(), Claimed::Sealed(b"value".to_vec()));
}

async fn any_text_is_a_key_of_its_own(fence: impl KeyFence) {
    let long = "x".repeat(1 << 20);
    let keys = [
        "",
        " ",
        "a",
        "a ",
        "A",
        "ä",
        "a\u{308}",
        "a\r\nSET b c",
        "a\0",
        "a\0b",
        "'; DROP TABLE document; --",
    ];
    let keys: Vec<_> = keys.into_iter().chain([long.as_str(), &long[1..]]).collect();
    for key in &keys {
        let token = token();
        assert_eq!(fence.claim(key, &token, HOUR).await.unwrap(), Claimed::New, "{key:.30}");
        assert!(fence.seal(key, &token, key.get(..30).unwrap_or(key).as_bytes(), HOUR).await.unwrap());
    }
    for key in keys {
        let sealed = Claimed::Sealed(key.get(..30).unwrap_or(key).as_bytes().to_vec());
        assert_eq!(fence.claim(key, &token(), HOUR).await.unwrap(), sealed, "{key:.30}");
    }
}

async fn a_value_is_small(fence: impl KeyFence) {
    let holder = token();
    assert_eq!(fence.claim("k", &holder, HOUR).await.unwrap(), Claimed::New);
    let large = vec![b'x'; MAX_FENCE_VALUE + 1];
    let refused = fence.seal("k", &holder, &large, HOUR).await;
    assert!(matches!(refused, Err(FenceError::TooLarge { bytes }) if bytes == large.len()), "{refused:?}");
    let fits = &large[1..];
    assert!(fence.seal("k", &holder, fits, HOUR).await.unwrap());
    assert_eq!(fence.claim("k", &token(), HOUR).await.unwrap(), Claimed::Sealed(fits.to_vec()));
}

async fn a_closure_runs_once(fence: impl KeyFence) {
    let effect = Effect::default();
    assert_eq!(effect.once(&fence, "k").await.unwrap(), now(1));
    for _ in 0..3 {
        assert_eq!(effect.once(&fence, "k").await.unwrap(), OnceAtFence::Before(1));
    }
    assert_eq!(effect.once(&fence, "other").await.unwrap(), now(2));
    let as_text = fence.once("k", FenceTtl::default(), async || Ok::<_, Infallible>(String::new())).await;
    assert!(matches!(as_text, Err(FenceOnceError::Unreadable(_))), "{as_text:?}");
}

async fn a_closure_that_fails_frees_its_key(fence: impl KeyFence) {
    let fails = async || Err::<u32, _>("no paper");
    let failed = fence.once("k", FenceTtl::default(), fails).await;
    assert!(matches!(failed, Err(FenceOnceError::Failed("no paper"))), "{failed:?}");
    assert_eq!(Effect::default().once(&fence, "k").await.unwrap(), now(1));
}

async fn a_second_call_does_not_wait_for_the_first(fence: impl KeyFence) {
    let (begun, resume, effect) = (Notify::new(), Notify::new(), Effect::default());
    let slow = async || {
        begun.notify_one();
        resume.notified().await;
        Ok::<_, Infallible>(1)
    };
    let first = async {
        let ttl = FenceTtl { pending: HOUR, sealed: HOUR };
        assert_eq!(fence.once("k", ttl, slow).await.unwrap(), now(1));
    };
    let second = async {
        begun.notified().await;
        assert_eq!(effect.once(&fence, "k").await.unwrap(), OnceAtFence::InProgress);
        assert_eq!(effect.count(), 0);
        resume.notify_one();
    };
    futures_util::future::join(first, second).await;
    assert_eq!(effect.once(&fence, "k").await.unwrap(), OnceAtFence::Before(1));
}

async fn a_closure_that_outlives_its_claim_is_told(fence: impl KeyFence) {
    let slow = async || {
        while fence.claim("k", &token(), HOUR).await.unwrap() != Claimed::New {
            tokio::task::yield_now().await;
        }
        Ok::<_, Infallible>(1)
    };
    let outlived = fence.once("k", FenceTtl { pending: SOON, sealed: HOUR }, slow).await.unwrap();
    assert_eq!(outlived, OnceAtFence::Now { value: 1, remembered: false });
}

/// The same tests on each fence.
macro_rules! on {
    ($name:ident: $open:expr; $($test:ident)+) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $test() {
                    let (_keep, fence) = $open.await;
                    super::$test(fence).await;
                }
            )+
        }
    };
    ($($name:ident: $open:expr;)+) => {
        $(on!($name: $open;
            one_of_many_claims_is_new
            only_the_holder_seals_and_releases
            entries_end_with_their_time_to_live
            any_text_is_a_key_of_its_own
            a_value_is_small
            a_closure_runs_once
            a_closure_that_fails_frees_its_key
            a_second_call_does_not_wait_for_the_first
            a_closure_that_outlives_its_claim_is_told
        );)+
    };
}

on! {
    redis: super::open::redis();
    sqlite: super::open::sqlite();
    postgres: super::open::postgres();
}

mod open {
    use counterfoil::exec::ExecutorBuilder;
    use counterfoil::fence::{RedisFence, SqlFence};
    use counterfoil::{Executor, Tenant};

    use super::super::patient;
    use super::super::server::Redis;
    use crate::server::Schema;

    pub(super) async fn redis() -> (Redis, RedisFence) {
        let redis = Redis::start().await;
        let fence = patient(&redis);
        (redis, fence)
    }

    pub(super) async fn sqlite() -> (tempfile::TempDir, SqlFence) {
        let folder = tempfile::tempdir().unwrap();
        let executor = Executor::sqlite(folder.path().join("test.db")).open().await.unwrap();
        (folder, SqlFence::new(&executor, Tenant::new("acme").unwrap()))
    }

    pub(super) async fn postgres() -> (Schema, SqlFence) {
        let schema = Schema::new();
        let executor = ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
        let executor = executor.open().await.unwrap();
        (schema, SqlFence::new(&executor, Tenant::new("acme").unwrap()))
    }
}

/// The rows of the SQL fence.
mod rows {
    use counterfoil::fence::{Claimed, KeyFence as _, SqlFence};
    use counterfoil::{Executor, Tenant};
    use sha2::{Digest as _, Sha256};
    use sqlx::ConnectOptions as _;
    use sqlx::sqlite::SqliteConnectOptions;

    use super::super::{HOUR, token};
    use super::SOON;

    /// Two keys whose entries are in one row.
    fn neighbours() -> (String, String) {
        let row = |key: &str| {
            let digest = Sha256::digest(key);
            (digest[0], digest[1] >> 4)
        };
        let other =
            (0..1_000_000).map(|n: u32| format!("key-{n}")).find(|key| row(key) == row("key")).unwrap();
        ("key".to_owned(), other)
    }

    #[tokio::test]
    async fn what_is_over_is_removed_by_the_next_writer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("test.db");
        let executor = Executor::sqlite(&file).open().await.unwrap();
        let fence = SqlFence::new(&executor, Tenant::new("acme").unwrap());
        let (key, other) = neighbours();
        let first = token();
        assert_eq!(fence.claim(&key, &first, SOON).await.unwrap(), Claimed::New);
        assert_eq!(fence.claim(&other, &token(), SOON).await.unwrap(), Claimed::New);
        while fence.claim(&other, &token(), HOUR).await.unwrap() != Claimed::New {
            tokio::task::yield_now().await;
        }
        let mut own = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
        let rows = sqlx::query_scalar("SELECT body FROM document WHERE kind = 'fence'");
        let rows: Vec<String> = rows.fetch_all(&mut own).await.unwrap();
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].matches("pending").count(), 1, "{rows:?}");
        assert!(!rows[0].contains(first.as_str()), "{rows:?}");
    }

    #[tokio::test]
    async fn what_is_sealed_outlives_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let executor = Executor::sqlite(folder.path().join("test.db")).open().await.unwrap();
            (SqlFence::new(&executor, Tenant::new("acme").unwrap()), executor)
        };
        let (fence, executor) = open().await;
        let holder = token();
        assert_eq!(fence.claim("k", &holder, HOUR).await.unwrap(), Claimed::New);
        assert!(fence.seal("k", &holder, b"value", HOUR).await.unwrap());
        drop(fence);
        executor.shutdown(HOUR).await;
        let (fence, executor) = open().await;
        assert_eq!(fence.claim("k", &token(), HOUR).await.unwrap(), Claimed::Sealed(b"value".to_vec()));
        let theirs = SqlFence::new(&executor, Tenant::new("globex").unwrap());
        assert_eq!(theirs.claim("k", &token(), HOUR).await.unwrap(), Claimed::New, "tenants never meet");
        executor.erase_tenant(&Tenant::new("acme").unwrap()).await.unwrap();
        assert_eq!(fence.claim("k", &token(), HOUR).await.unwrap(), Claimed::New, "erased with its tenant");
    }
}
