//! The effect of a door in the ledger's own database: its changes and the seal of its record are one transaction.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::crash::CrashPoint;
use crate::exec::{Executor, OwnConnection};
use crate::ledger::ErrorKind;
use crate::payload::Payload;
use crate::store::TransactionError;
use crate::store::own::Within;
use crate::tool::{Call, ToolError};

/// The time limit of a transaction. Other writers wait while a transaction runs.
const LIMIT: Duration = Duration::from_secs(5);

/// The reason why a record was not sealed in its transaction.
pub(super) enum Unsealed<E> {
    /// The closure failed: everything was rolled back.
    Closure(E),
    /// Everything was rolled back: nothing happened.
    RolledBack(String),
    /// The outcome of the transaction is unknown.
    Unknown(String),
}

impl<E> Unsealed<E> {
    /// The error for the ledger: a transaction that was rolled back did not happen, and is tried again only on
    /// another request.
    pub(super) fn error(self, said: impl FnOnce(E) -> String) -> ToolError {
        match self {
            Self::Closure(error) => ToolError::new(ErrorKind::Validation, said(error)),
            Self::RolledBack(why) => ToolError::new(ErrorKind::Validation, why),
            Self::Unknown(why) => ToolError::new(ErrorKind::Unknown, why),
        }
    }
}

/// Runs `work` in a transaction that is committed with the seal of the call's record, which holds the payload that
/// `work` returns.
///
/// # Crash
/// Before this returns: the changes of the closure and the seal are both durable, or neither is. Afterwards: both
/// are.
pub(super) async fn sealed<C, T, E, F>(call: &Call, executor: &Executor, work: F) -> Result<T, Unsealed<E>>
where
    C: OwnConnection,
    T: Send + 'static,
    E: Send + 'static,
    F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<(T, Payload), E>> + Send,
{
    let over = || Unsealed::RolledBack("the attempt is over, or the ledger has no such database".to_owned());
    let (Some(seals), Some(database)) = (call.seals(), executor.database()) else { return Err(over()) };
    let mark = seals.mark();
    let crashes = executor.clone();
    let within = Within { limit: LIMIT, clock: &**executor.clock() };
    let transaction = database.sealed::<_, _, Option<E>, _>(&mark, within, move |connection: &mut C| {
        let working = work(connection);
        Box::pin(async move {
            let (value, response) = working.await.map_err(Some)?;
            let seal = seals.seal(&response).ok_or(None)?;
            crashes.at(CrashPoint::BeforeTransaction);
            Ok(((value, seals), seal))
        })
    });
    match transaction.await.ok_or_else(over)? {
        Ok(((value, seals), seal)) => {
            executor.at(CrashPoint::AfterTransaction);
            seals.took_place(seal);
            Ok(value)
        }
        Err(TransactionError::Closure(said)) => Err(said.map_or_else(over, Unsealed::Closure)),
        Err(
            error @ (TransactionError::TooSlow { .. }
            | TransactionError::Spoilt { .. }
            | TransactionError::Refused(_)),
        ) => Err(Unsealed::RolledBack(error.to_string())),
        Err(error @ TransactionError::EndedInside) => {
            // The closure's own COMMIT has left the mark in the database; a ROLLBACK has removed the mark, so it is
            // written again.
            if let Some(seals) = call.seals()
                && let Err(failed) = seals.ended_inside().await
            {
                tracing::error!(tenant = %call.tenant(), key = %call.operation_key(), error = %failed, "record not marked, call stays of unknown outcome");
            }
            Err(Unsealed::Unknown(error.to_string()))
        }
        Err(error @ TransactionError::Store(_)) => Err(Unsealed::Unknown(error.to_string())),
    }
}
