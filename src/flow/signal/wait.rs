//! A wait for a signal, with a time limit if it has one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::aside::reads;
use super::name::{NamesSignal, usable};
use crate::flow::begun::{self, Begun, polled_again};
use crate::flow::ctx::Ctx;
use crate::flow::failure::Failure;
use crate::flow::inbox::Wanted;
use crate::flow::label::Label;

/// A wait for a signal. Nothing happens before it is awaited.
#[must_use = "a wait does nothing until it is awaited"]
pub struct SignalWait<T> {
    ctx: Ctx,
    /// Absent from the first poll on.
    label: Option<Label>,
    running: Option<Begun<T>>,
}

impl Ctx {
    /// Waits for the next signal of this name, however long that takes, and holds nothing meanwhile. Signals that came
    /// before the wait are kept; those of one sender are received in the order in which they were sent. The name is a
    /// [`SignalName`](super::SignalName), which fixes the type, or a text. With [`timeout`](SignalWait::timeout) the wait has a limit.
    ///
    /// A signal that cannot be read as `T` is set aside as a [question](crate::store::QuestionKind::Unread), and the run waits for the
    /// next one.
    ///
    /// ```
    /// use counterfoil::flow::SignalName;
    /// # use std::time::Duration;
    /// # use counterfoil::{Ctx, Failure};
    /// const PAID: SignalName<u64> = SignalName::new("paid");
    ///
    /// async fn order(ctx: Ctx, _order: u32) -> Result<String, Failure> {
    ///     match ctx.signal(PAID).timeout(Duration::from_hours(72)).await? {
    ///         Some(cents) => Ok(format!("paid {cents}")),
    ///         None => Ok("forgotten".to_owned()),
    ///     }
    /// }
    /// ```
    ///
    /// # Crash
    /// A signal that was received is received again on resume, and the same one. A signal that was not received is still there.
    pub fn signal<T: DeserializeOwned + Send + 'static>(&self, name: impl NamesSignal<T>) -> SignalWait<T> {
        SignalWait { ctx: self.clone(), label: Some(name.label()), running: None }
    }

    async fn received<T: DeserializeOwned>(&self, label: Label) -> Result<T, Failure> {
        self.unless_mendable(usable(&label.name).map_err(Failure::from)).await?;
        let wanted = Wanted { name: label.name.clone(), id: None };
        let body = self.receive(label, wanted, Some(reads::<T>)).await?;
        self.decoded("signal", &body).await
    }
}

impl<T: DeserializeOwned + Send + 'static> SignalWait<T> {
    /// Gives the wait up after this long, durably: `None` if no signal came by then. A signal that comes later is kept for the next wait.
    pub fn timeout(self, limit: Duration) -> BoxFuture<'static, Result<Option<T>, Failure>> {
        let (ctx, label) = (self.ctx.clone(), self.label.clone());
        Box::pin(async move {
            let label = label.ok_or_else(|| polled_again(WAIT))?;
            ctx.in_time(label, limit, self).await
        })
    }

    fn begin(&mut self) -> Begun<T> {
        let (ctx, label) = (self.ctx.clone(), self.label.take());
        Box::pin(async move { ctx.received(label.ok_or_else(|| polled_again(WAIT))?).await })
    }
}

/// The name of this future where it is misused.
const WAIT: &str = "a wait for a signal";

// Nothing of it is pinned but the boxed future, which moves freely.
impl<T> Unpin for SignalWait<T> {}

impl<T: DeserializeOwned + Send + 'static> Future for SignalWait<T> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let running = self.running.take().unwrap_or_else(|| self.begin());
        begun::poll(running, &mut self.running, cx)
    }
}
