//! The first of several: the winner is recorded, so that a resume cannot see another one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either};

use super::ctx::{Ctx, Label};
use super::failure::Failure;
use super::replay::Kind;

/// A wait was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wait was given up after {} s", limit.as_secs_f64())]
pub struct Elapsed {
    /// After how long.
    pub limit: Duration,
}

impl Ctx {
    /// Waits for the first of two, and drops the other. The form to use in workflows instead of `select!`.
    pub async fn select<A, B>(
        &self,
        label: impl Into<Label>,
        first: A,
        second: B,
    ) -> Result<Either<A::Output, B::Output>, Failure>
    where
        A: Future + Send,
        B: Future + Send,
        A::Output: Send,
        B::Output: Send,
    {
        let first: BoxFuture<'_, _> = Box::pin(async { Either::Left(first.await) });
        let second = Box::pin(async { Either::Right(second.await) });
        self.select_all(label, vec![first, second]).await.map(|(_, output)| output)
    }

    /// Waits for something, but not longer than this: a durable time-out, for a signal, a child, a call. What loses
    /// is dropped.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use counterfoil::{Ctx, Failure};
    /// async fn order(ctx: Ctx, _order: u32) -> Result<&'static str, Failure> {
    ///     match ctx.within("payment", Duration::from_hours(72), ctx.signal::<u64>("paid")).await? {
    ///         Ok(paid) => paid.map(|_| "paid"),
    ///         Err(_elapsed) => Ok("forgotten"),
    ///     }
    /// }
    /// ```
    pub async fn within<F>(
        &self,
        label: impl Into<Label>,
        limit: Duration,
        future: F,
    ) -> Result<Result<F::Output, Elapsed>, Failure>
    where
        F: Future + Send,
        F::Output: Send,
    {
        let label = label.into();
        let limited = self.sleep_named(label.clone(), limit);
        match self.select(label, future, limited).await? {
            Either::Left(output) => Ok(Ok(output)),
            Either::Right(slept) => slept.map(|()| Err(Elapsed { limit })),
        }
    }

    /// Waits for the first of many, drops the others, and says which it was. Earlier ones win ties.
    ///
    /// On resume all are polled, so that what they recorded counts as asked for, but only the recorded winner
    /// is waited for.
    pub async fn select_all<T>(
        &self,
        label: impl Into<Label>,
        mut branches: Vec<BoxFuture<'_, T>>,
    ) -> Result<(usize, T), Failure> {
        let open = self.open(Kind::Select, label)?;
        let winner: Option<usize> = match self.live.recorded(&open).await {
            Some(past) => {
                let stored = past.value;
                match stored {
                    Some(stored) => Some(self.decoded("select", &stored).await?),
                    None => None,
                }
            }
            None => None,
        };
        let mut done: Vec<Option<T>> = branches.iter().map(|_| None).collect();
        let won = {
            let _behind = open.behind();
            let mut first_ready = pin!(poll_fn(|cx| {
                for (i, branch) in branches.iter_mut().enumerate() {
                    if done[i].is_none()
                        && let Poll::Ready(output) = branch.as_mut().poll(cx)
                    {
                        done[i] = Some(output);
                        if winner.is_none() {
                            return Poll::Ready(i);
                        }
                    }
                }
                match winner {
                    Some(i) if done.get(i).is_some_and(Option::is_some) => Poll::Ready(i),
                    _ => Poll::Pending,
                }
            }));
            first_ready.as_mut().await
        };
        if winner.is_none() {
            let value = crate::payload::Payload::of(&won)?;
            // Before the losers are dropped, so that their marks come behind it.
            self.live.checkpoint(&open.identity, None, value).await;
        }
        drop(branches);
        open.close();
        match done.into_iter().nth(won).flatten() {
            Some(output) => Ok((won, output)),
            None => unreachable!("the winner is the one whose output is there"),
        }
    }
}
