//! The errors of a transaction that the ledger shares with the user's own tables.
//!
//! The type is not a part of the store's trait: only the concrete stores know the caller's connection type.

use std::time::Duration;

use super::{Refusal, StoreError};

/// The reason why nothing of a transaction was kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError<E> {
    /// The closure returned an error: its changes were rolled back.
    #[error("the transaction's closure failed: its changes were rolled back [transaction]")]
    Closure(E),
    /// The checkpoint was refused: nothing was run.
    #[error("the transaction was not run: {0} [transaction]")]
    Refused(Refusal),
    /// The closure took too long: its changes were rolled back.
    #[error(
        "the transaction took longer than {limit:?}: its changes were rolled back; other writers wait meanwhile [transaction]"
    )]
    TooSlow {
        /// The time limit.
        limit: Duration,
    },
    /// The closure ended the transaction itself. The part that it had committed by then is durable, and that part is
    /// unknown.
    #[error(
        "the closure ended the transaction itself (COMMIT or ROLLBACK inside): what it committed is durable, \
             its result is not recorded; check the tables by hand, and let the engine end transactions [transaction]"
    )]
    EndedInside,
    /// A statement of the closure failed, and the closure did not return the error: its changes were rolled back.
    #[error(
        "a statement of the transaction's closure failed and the closure did not say so: its changes were rolled back \
         ({detail}); return the errors of its statements [transaction]"
    )]
    Spoilt {
        /// The message of the database.
        detail: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<E> TransactionError<E> {
    /// The error with the closure's error converted.
    pub(crate) fn map<T>(self, error: impl FnOnce(E) -> T) -> TransactionError<T> {
        match self {
            Self::Closure(said) => TransactionError::Closure(error(said)),
            Self::Refused(refusal) => TransactionError::Refused(refusal),
            Self::TooSlow { limit } => TransactionError::TooSlow { limit },
            Self::EndedInside => TransactionError::EndedInside,
            Self::Spoilt { detail } => TransactionError::Spoilt { detail },
            Self::Store(error) => TransactionError::Store(error),
        }
    }
}
