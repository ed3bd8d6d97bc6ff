//! Errors of a fence.

use super::MAX_FENCE_VALUE;
use crate::exec::ExecError;

/// An error of a fence that gave no answer or refused. In front of the ledger it fails no request: the ledger is
/// asked instead.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The address of the fence is invalid.
    #[error(
        "the fence has no usable address: {detail}; write it as redis://user:password@host:6379/0 [fence]"
    )]
    Address {
        /// The client's error message, without the address.
        detail: String,
    },
    /// The server is unreachable, the connection was lost, or the server is starting.
    #[error(
        "the fence is away: {detail}; the claim may have been made or not, it ends with its time to live [fence]"
    )]
    Away {
        /// The client's error message.
        detail: String,
    },
    /// The answer took too long.
    #[error(
        "the fence answers late; the claim may have been made or not, it ends with its time to live [fence]"
    )]
    Late,
    /// The user or the password is wrong, or the user may not do this.
    #[error(
        "the fence lets nobody in with these credentials: {detail}; nothing was claimed, mend user, password or rights [fence]"
    )]
    Denied {
        /// The server's error message.
        detail: String,
    },
    /// The server is a replica, or has become one.
    #[error("the fence is read-only, a replica: nothing was claimed; use the primary's address [fence]")]
    ReadOnly,
    /// The server is out of memory and may not evict.
    #[error(
        "the fence is full: nothing was claimed; raise maxmemory, or let it evict entries with a time to live (volatile-ttl) [fence]"
    )]
    Full,
    /// The value to be sealed is too large.
    #[error(
        "the value has {bytes} bytes, {MAX_FENCE_VALUE} at most: nothing was sealed; seal a reference to it [fence]"
    )]
    TooLarge {
        /// The size of the value, in bytes.
        bytes: usize,
    },
    /// Another program writes entries under the names of this fence.
    #[error(
        "the fence holds an entry that no fence has written: nothing was claimed; give the fence a prefix of its own [fence]"
    )]
    Damaged,
    /// The server refused for another reason.
    #[error("the fence refused: {detail}; nothing was claimed [fence]")]
    Refused {
        /// The server's error message.
        detail: String,
    },
    /// The ledger's database did not take the claim.
    #[error("the fence's row was not written: {0}")]
    Ledger(#[from] ExecError),
}

/// The reason why [`once`](super::KeyFence::once) has no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceOnceError<E> {
    /// The closure failed, and the key is free.
    #[error("nothing was made: {0} [tool_failed]")]
    Failed(E),
    /// The fence did not answer, and the closure was not run.
    #[error("nothing was made, because nobody can say whether it was made before: {0}")]
    Fence(#[from] FenceError),
    /// The closure ran before, and its value is of another type.
    #[error(
        "the value of this key was made before and cannot be read, and nothing was made again: {0}; read it as the type that it was \
         made with [mismatch]"
    )]
    Unreadable(String),
}
