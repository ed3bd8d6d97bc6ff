//! The first of several: the winner is recorded, so that a resume cannot see another one.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either};

use super::ctx::Ctx;
use super::failure::Failure;
use super::identity::Kind;
use super::label::Label;
use super::live::{Live, Wait};

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

    /// Waits for something, but not longer than this: a durable time limit on any part of a workflow. What loses is dropped. A signal, a
    /// child and a call have a [`timeout`](super::SignalWait::timeout) of their own, which is shorter to write.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use counterfoil::{Ctx, Failure};
    /// async fn both(ctx: Ctx, _order: u32) -> Result<bool, Failure> {
    ///     let signed = async {
    ///         ctx.signal::<()>("signed by ann").await?;
    ///         ctx.signal::<()>("signed by bob").await
    ///     };
    ///     match ctx.timeout("signatures", Duration::from_hours(72), signed).await? {
    ///         Ok(signed) => signed.map(|()| true),
    ///         Err(_elapsed) => Ok(false),
    ///     }
    /// }
    /// ```
    pub async fn timeout<F>(
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

    /// The same for what may fail: nothing if the time is over first.
    pub(super) async fn in_time<T: Send>(
        &self,
        label: Label,
        limit: Duration,
        future: impl Future<Output = Result<T, Failure>> + Send,
    ) -> Result<Option<T>, Failure> {
        match self.timeout(label, limit, future).await? {
            Ok(output) => output.map(Some),
            Err(Elapsed { .. }) => Ok(None),
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
        let open = self.open(Kind::Select, label).await?;
        if self.live.with_replay(|replay| replay.is_abandoned(&open.identity)) {
            let behind = open.behind();
            self.live.ask_again(branches).await;
            drop(behind);
            let _waiting = open.wait(Wait::default());
            return std::future::pending().await;
        }
        let winner: Option<usize> = match self.live.recorded(&open).await? {
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
                        if winner.is_none() && !self.live.is_replaying() {
                            return Poll::Ready(i);
                        }
                    }
                }
                let ready = winner.or_else(|| done.iter().position(Option::is_some));
                match ready.filter(|i| done.get(*i).is_some_and(Option::is_some)) {
                    Some(_) if self.live.is_reading_back() => {
                        // A loser is still on its way to where it was: what it did must be asked for before it is dropped.
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    Some(i) => Poll::Ready(i),
                    None => Poll::Pending,
                }
            }));
            first_ready.as_mut().await
        };
        if winner.is_none() {
            let value = crate::payload::Payload::stored(won.to_string());
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

impl Live {
    /// Polls the branches of a select that was dropped in an earlier life, for as long as the run replays: what they did
    /// then counts as asked for. They do nothing new: the run comes to rest without them, and they are dropped again.
    async fn ask_again<T>(&self, branches: Vec<BoxFuture<'_, T>>) {
        let mut branches: Vec<_> = branches.into_iter().map(Some).collect();
        poll_fn(|cx| {
            if !self.replays(cx.waker()) {
                return Poll::Ready(());
            }
            for branch in &mut branches {
                if branch.as_mut().is_some_and(|branch| branch.as_mut().poll(cx).is_ready()) {
                    *branch = None;
                }
            }
            Poll::Pending
        })
        .await;
    }
}
