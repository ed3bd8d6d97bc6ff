//! The fence alone: for effects that may be lost.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Claimed, FenceError, FenceOnceError, FenceToken, FenceTtl, KeyFence};
use crate::rim::door::{Decided, DoorDecision, LogFields};

/// The answer of [`once`](KeyFence::once).
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum OnceAtFence<T> {
    /// The closure has run now.
    Now {
        /// The value that the closure returned.
        value: T,
        /// True if the fence has stored the value. Otherwise (the closure took longer than the pending time to live,
        /// the fence lost the claim, or the value is too large), the next call with this key runs its closure again.
        remembered: bool,
    },
    /// The closure of an earlier call has run, with this value. Nothing was run.
    Before(T),
    /// The closure of another call is running, or its process died within the pending time to live. Nothing was run.
    InProgress,
}

pub(super) async fn once<K, T, E, F, Fut>(
    fence: &K,
    key: &str,
    ttl: FenceTtl,
    make: F,
) -> Result<OnceAtFence<T>, FenceOnceError<E>>
where
    K: KeyFence,
    T: Serialize + DeserializeOwned + Send,
    E: Send,
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = Result<T, E>> + Send,
{
    let token = FenceToken::draw();
    let answer = match fence.claim(key, &token, ttl.pending).await {
        Err(error) => Err(error.into()),
        Ok(Claimed::Pending) => Ok(OnceAtFence::InProgress),
        Ok(Claimed::Sealed(value)) => match serde_json::from_slice(&value) {
            Ok(value) => Ok(OnceAtFence::Before(value)),
            Err(error) => Err(FenceOnceError::Unreadable(error.to_string())),
        },
        Ok(Claimed::New) => match make().await {
            Ok(value) => {
                let sealed = match serde_json::to_vec(&value) {
                    Ok(bytes) => fence.seal(key, &token, &bytes, ttl.sealed).await,
                    Err(error) => Err(FenceError::Refused { detail: error.to_string() }),
                };
                Ok(OnceAtFence::Now { value, remembered: is_remembered(fence.kind(), sealed) })
            }
            Err(error) => {
                if let Err(kept) = fence.release(key, &token).await {
                    tracing::warn!(fence = fence.kind(), error = %kept, "key not freed, its claim runs out");
                }
                Err(FenceOnceError::Failed(error))
            }
        },
    };
    log(fence.kind(), key, &answer);
    answer
}

/// True if the fence has sealed the claim. Otherwise the log says what may follow.
fn is_remembered(kind: &'static str, sealed: Result<bool, FenceError>) -> bool {
    match sealed {
        Ok(true) => true,
        Ok(false) => {
            tracing::warn!(fence = kind, "claim lost before its seal, effect may be made twice");
            false
        }
        Err(error) => {
            tracing::warn!(fence = kind, %error, "claim not sealed, effect may be made twice");
            false
        }
    }
}

fn log<T, E>(kind: &'static str, key: &str, answer: &Result<OnceAtFence<T>, FenceOnceError<E>>) {
    let decision = match answer {
        Ok(OnceAtFence::Now { .. }) => Decided::Executed,
        Ok(OnceAtFence::Before(_)) => Decided::Replayed,
        Ok(OnceAtFence::InProgress) => Decided::InProgress,
        Err(FenceOnceError::Failed(_)) => Decided::Freed,
        Err(FenceOnceError::Fence(_) | FenceOnceError::Unreadable(_)) => Decided::Failed,
    };
    DoorDecision {
        tenant: None,
        idempotency_key: Some(key.to_owned()),
        decision,
        effect_id: None,
        source_type: "fence",
        source_id: kind.to_owned(),
    }
    .log(LogFields::ALL);
}
