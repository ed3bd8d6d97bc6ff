//! A handler's transaction on the ledger's own database: its changes and its answer are committed together, or
//! neither.

use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::Extensions;
use tokio::sync::{mpsc, oneshot};

use super::handling::Handled;
use crate::exec::{Executor, OwnConnection};
use crate::ledger::ErrorKind;
use crate::rim::sealed::{Unsealed, sealed};
use crate::tool::{Call, ToolError};

type Job<C> = Box<dyn for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, ()> + Send>;

/// A connection to the ledger's own database, among the extensions of a request to a
/// [transactional](super::Idempotency::transactional) route: sqlx's `SqliteConnection` or `PgConnection`, according
/// to the store.
///
/// The first use begins a transaction. The transaction is committed together with the handler's complete answer if
/// that is 2xx or 3xx; otherwise it is rolled back. The handler has five seconds from the first use on.
#[derive(Debug)]
pub struct LedgerTransaction<C> {
    jobs: mpsc::Sender<Job<C>>,
}

impl<C> Clone for LedgerTransaction<C> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone() }
    }
}

/// The reason why a handler's work on the connection has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerTransactionError<E> {
    /// The closure failed. Answer the request with an error to roll everything back.
    #[error("the work in the transaction failed: {0} [transaction]")]
    Failed(E),
    /// The transaction has ended, because its handler has answered or has exceeded its time.
    #[error("the request's transaction has ended: nothing was done [invalid]")]
    Over,
}

impl<C: OwnConnection + 'static> LedgerTransaction<C> {
    /// Runs a closure on the connection. The closure must leave the transaction open: no COMMIT, no ROLLBACK.
    ///
    /// # Errors
    /// If the closure fails, or the transaction has ended.
    ///
    /// # Crash
    /// Before the answer is sealed: the database holds none of the changes, and the next request with the key is
    /// handled from the beginning.
    pub async fn run<T, E, F>(&self, work: F) -> Result<T, LedgerTransactionError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    {
        let (done, told) = oneshot::channel();
        let job: Job<C> = Box::new(move |connection| {
            Box::pin(async move {
                let _ = done.send(work(connection).await); // a handler that is gone needs no result
            })
        });
        self.jobs.send(job).await.map_err(|_| LedgerTransactionError::Over)?;
        let result = told.await.map_err(|_| LedgerTransactionError::Over)?;
        result.map_err(LedgerTransactionError::Failed)
    }
}

/// A source of transactions for handlers, on any kind of connection.
pub(super) trait Transactions: Send + Sync {
    /// Adds the handle of a transaction to the extensions of a request. The transaction is not begun.
    fn offer(&self, extensions: &mut Extensions) -> Box<dyn Offered>;
}

/// A transaction that the handler may begin.
pub(super) trait Offered: Send {
    /// Runs the handler, in its transaction if the handler uses it.
    fn carry_out<'a>(
        self: Box<Self>,
        handled: BoxFuture<'static, Result<Handled, ToolError>>,
        call: &'a Call,
        executor: &'a Executor,
    ) -> BoxFuture<'a, Result<Handled, ToolError>>;
}

/// Transactions on this kind of connection.
pub(super) struct On<C>(PhantomData<fn() -> C>);

impl<C> Default for On<C> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<C: OwnConnection + 'static> Transactions for On<C> {
    fn offer(&self, extensions: &mut Extensions) -> Box<dyn Offered> {
        let (jobs, waiting) = mpsc::channel::<Job<C>>(1);
        extensions.insert(LedgerTransaction { jobs });
        Box::new(waiting)
    }
}

/// The reason why a transaction was rolled back.
enum Undone {
    /// The handler answered with an error.
    Answered(Handled),
    /// The handler ended without an answer.
    Died(String),
}

impl<C: OwnConnection + 'static> Offered for mpsc::Receiver<Job<C>> {
    fn carry_out<'a>(
        mut self: Box<Self>,
        handled: BoxFuture<'static, Result<Handled, ToolError>>,
        call: &'a Call,
        executor: &'a Executor,
    ) -> BoxFuture<'a, Result<Handled, ToolError>> {
        Box::pin(async move {
            let mut handled = AssertUnwindSafe(handled).catch_unwind();
            let first = tokio::select! {
                biased;
                handled = &mut handled => return or_died(handled).map_err(rolled_back),
                first = self.recv() => first,
            };
            let Some(first) = first else { return or_died(handled.await).map_err(rolled_back) };
            let answered = sealed(call, executor, move |connection: &mut C| {
                Box::pin(async move {
                    first(connection).await;
                    let handled = loop {
                        tokio::select! {
                            biased;
                            handled = &mut handled => break or_died(handled).map_err(Undone::Died)?,
                            Some(job) = self.recv() => job(connection).await,
                        }
                    };
                    match handled.kept_in_transaction().cloned() {
                        Some(response) => Ok((handled, response)),
                        None => Err(Undone::Answered(handled)),
                    }
                })
            });
            match answered.await {
                Ok(handled) => Ok(handled),
                Err(Unsealed::Closure(Undone::Answered(handled))) => Ok(handled.undone()),
                Err(unsealed) => Err(unsealed.error(|undone| match undone {
                    Undone::Died(why) => why,
                    Undone::Answered(_) => "the handler's answer is an error".to_owned(),
                })),
            }
        })
    }
}

/// The handler's answer, or the reason why it ended without one.
fn or_died(
    handled: Result<Result<Handled, ToolError>, Box<dyn std::any::Any + Send>>,
) -> Result<Handled, String> {
    match handled {
        Ok(Ok(handled)) => Ok(handled),
        Ok(Err(error)) => Err(error.message),
        Err(_) => Err("the handler panicked".to_owned()),
    }
}

/// The error for a rollback: its kind frees the key, because nothing happened.
fn rolled_back(why: String) -> ToolError {
    ToolError::new(ErrorKind::Validation, why)
}
