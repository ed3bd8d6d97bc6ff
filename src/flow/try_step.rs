//! Steps that may fail: a failure is recorded like a result, unless a new build can mend it.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::failure::{Failure, FailureCode};
use super::label::Label;
use super::recordable::Recordable;
use crate::ledger::Backoff;

type Attempt<'a, T> = Box<dyn FnMut() -> BoxFuture<'a, Result<T, Failure>> + Send + 'a>;

impl Ctx {
    /// A [step](Self::step) that may fail: its error is recorded like a result, and given back on resume. An error that a new build can
    /// mend is not recorded: it blocks the run.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// async fn total(ctx: Ctx, cents: String) -> Result<u32, Failure> {
    ///     ctx.try_step("cents", &cents, |cents| cents.parse::<u32>()).await
    /// }
    /// ```
    pub async fn try_step<I, T, E>(
        &self,
        label: impl Into<Label>,
        input: &I,
        closure: impl FnOnce(&I) -> Result<T, E>,
    ) -> Result<T, Failure>
    where
        I: Serialize + ?Sized,
        T: Recordable,
        E: Into<Failure>,
    {
        self.stepped(label.into(), input, |input| closure(input).map_err(Into::into), mendable).await?
    }

    /// An [asynchronous step](Self::step_async) that may fail, and that may be [tried again](TryStep::retry). What its last try comes to
    /// is recorded, an error too. An error that a new build can mend is not recorded: it blocks the run.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use counterfoil::{Ctx, Failure};
    /// # async fn fetch(_: &str) -> std::io::Result<String> { Ok(String::new()) }
    /// async fn page(ctx: Ctx, url: String) -> Result<String, Failure> {
    ///     let fetched = ctx.try_step_async("fetch", &url, || fetch(&url));
    ///     fetched.retry(3).timeout(Duration::from_secs(10)).await
    /// }
    /// ```
    ///
    /// # Crash
    /// As for [`step_async`](Self::step_async): if the process dies while it runs, it runs again, from its first try.
    pub fn try_step_async<'a, I, T, E, F, Fut>(
        &'a self,
        label: impl Into<Label>,
        input: &'a I,
        mut closure: F,
    ) -> TryStep<'a, I, T>
    where
        I: Serialize + Sync + ?Sized,
        T: Recordable + Send + 'a,
        E: Into<Failure> + 'a,
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
    {
        let attempt: Attempt<'a, T> = Box::new(move || {
            let tried = closure();
            Box::pin(async move { tried.await.map_err(Into::into) })
        });
        TryStep { ctx: self, label: label.into(), input, attempt, tries: 1, backoff: BACKOFF, timeout: None }
    }
}

/// The pause before a second try is drawn from the first second, and doubles up to a minute.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(1) };

/// An asynchronous step that may fail. Nothing happens before it is awaited.
#[must_use = "a step does nothing until it is awaited"]
pub struct TryStep<'a, I: ?Sized, T> {
    ctx: &'a Ctx,
    label: Label,
    input: &'a I,
    attempt: Attempt<'a, T>,
    tries: u32,
    backoff: Backoff,
    timeout: Option<Duration>,
}

impl<I: ?Sized, T> TryStep<'_, I, T> {
    /// The number of tries in one life of the process. Default: 1. Between two tries the run pauses, for a second at first, and longer each
    /// time.
    pub fn retry(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// The pauses between tries.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The longest time of one try. A try that takes longer has failed. Default: no limit.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }
}

/// A failure that is not to be recorded, because a new build can mend it.
fn mendable<T>(result: &Result<T, Failure>) -> Option<Failure> {
    result.as_ref().err().filter(|failure| failure.code.is_mendable()).cloned()
}

impl<'a, I, T> IntoFuture for TryStep<'a, I, T>
where
    I: Serialize + Sync + ?Sized,
    T: Serialize + DeserializeOwned + Send + Sync + 'a,
{
    type Output = Result<T, Failure>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { ctx, label, input, mut attempt, tries, backoff, timeout } = self;
        Box::pin(async move {
            let core = &ctx.live.core;
            let tried = move || async move {
                let mut failed = 0;
                loop {
                    let result = match timeout {
                        None => attempt().await,
                        Some(limit) => {
                            let expiry = core.clock.sleep(limit);
                            tokio::select! {
                                biased;
                                result = attempt() => result,
                                () = expiry => Err(Failure::coded(FailureCode::Workflow, format!("a try took longer than {limit:?}"))),
                            }
                        }
                    };
                    failed += 1;
                    if result.is_ok() || failed >= tries || mendable(&result).is_some() {
                        return result;
                    }
                    core.clock.sleep(backoff.delay(failed + 1, core.entropy.bits())).await;
                }
            };
            ctx.stepped_async(label, input, tried, mendable).await?
        })
    }
}
