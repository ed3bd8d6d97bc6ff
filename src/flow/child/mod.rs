//! Children: runs that a run begins, waits for or leaves alone. A child's end is said to its parent as a signal, in the
//! transaction that ends it.

mod begin;
pub(super) mod farewell;
pub(super) mod lineage;

use std::any::type_name;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::begin::NewChild;
use self::farewell::Ended;
use self::lineage::ENDED;
use super::begun::{self, Begun, polled_again};
use super::ctx::Ctx;
use super::failure::{Failure, FailureCode, misuse};
use super::identity::Kind;
use super::inbox::Wanted;
use super::label::Label;
use super::queue::Choice;
use super::start::Canonical;
use super::unregistered::Unregistered;
use super::workflow::{Registered, WorkflowFn};
use crate::id::RunId;
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::tool::canonical;

impl Ctx {
    /// A child: a run of a registered workflow. Await it for its result, or [`start`](ChildRun::start) it and await it
    /// later. It is begun once, whatever dies in between.
    ///
    /// ```
    /// # use counterfoil::{Ctx, Failure};
    /// # async fn ship(_: Ctx, order: u32) -> Result<String, Failure> { Ok(format!("parcel {order}")) }
    /// async fn order(ctx: Ctx, order: u32) -> Result<String, Failure> {
    ///     let parcel = ctx.child(ship, order).await?;
    ///     Ok(format!("sent as {parcel}"))
    /// }
    /// ```
    ///
    /// # Crash
    /// The child's row and this run's record of it are one transaction.
    pub fn child<W, I, O>(&self, _workflow: W, input: I) -> ChildRun<O>
    where
        W: WorkflowFn<I, O>,
        I: Serialize + Send + Sync + 'static,
    {
        let asked = Asked {
            workflow: self.engine.workflows.of_function::<W>().cloned().ok_or(type_name::<W>()),
            input: Box::new(move |key| canonical(&input, key)),
            id: None,
            choice: Choice::default(),
        };
        ChildRun { ctx: self.clone(), asked: Some(asked), running: None }
    }
}

/// A child to be begun. Nothing happens before it is awaited.
#[must_use = "a child does nothing until it is awaited or started"]
pub struct ChildRun<O> {
    ctx: Ctx,
    /// Absent from the first poll on.
    asked: Option<Asked>,
    running: Option<Begun<O>>,
}

/// A child that the run's code asks for.
struct Asked {
    /// Or the type of its function, if that is not registered.
    workflow: Result<Registered, &'static str>,
    input: Box<Canonical>,
    id: Option<String>,
    choice: Choice,
}

/// A child that was begun, and is waited for or not.
#[derive(Debug)]
pub struct Child<O> {
    ctx: Ctx,
    id: RunId,
    /// The number of waits for the child. A wait that lost a select is abandoned for good, and the next is another one.
    waits: AtomicU32,
    ended: OnceLock<Stored>,
    _output: PhantomData<fn() -> O>,
}

impl<O> Child<O> {
    /// The child's run.
    pub const fn id(&self) -> RunId {
        self.id
    }
}

impl<O: DeserializeOwned> Child<O> {
    /// Waits for its end, however long that takes, and holds nothing meanwhile.
    ///
    /// # Errors
    /// [`FailureCode::ChildFailed`] if it failed; its failure is the detail.
    pub async fn result(&self) -> Result<O, Failure> {
        let body = match self.ended.get() {
            Some(body) => body.clone(),
            None => self.end().await?,
        };
        match self.ctx.decoded("child", &body).await? {
            Ended::Succeeded(output) => {
                let output = Payload::stored(output.get());
                self.ctx.decoded("child", &Stored::Inline(output)).await
            }
            Ended::Failed(failure) => {
                let message = format!("the child {} failed: {failure}", self.id);
                let detail = serde_json::to_value(&failure).unwrap_or_default();
                Err(Failure::coded(FailureCode::ChildFailed, message).detail(detail))
            }
        }
    }
}

impl<O> Child<O> {
    async fn end(&self) -> Result<Stored, Failure> {
        let child = self.id.to_string();
        let id = match self.waits.fetch_add(1, Ordering::Relaxed) {
            0 => child.clone(),
            before => format!("{child}:{}", before + 1),
        };
        let wanted = Wanted { name: ENDED.into(), id: Some(child) };
        let body = self.ctx.receive(Label::from((ENDED, &id)), wanted, None).await?;
        Ok(self.ended.get_or_init(|| body).clone())
    }
}

impl<O: DeserializeOwned + Send + 'static> ChildRun<O> {
    fn with(mut self, change: impl FnOnce(&mut Asked)) -> Self {
        if let Some(asked) = &mut self.asked {
            change(asked);
        }
        self
    }

    /// Which child of this workflow it is: needed where several are open at once.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(self, id: impl ToString) -> Self {
        self.with(|asked| asked.id = Some(id.to_string()))
    }

    /// Puts it into a queue: it begins when it is its turn there. The parent waits outside, and has no place for it.
    pub fn queue(self, name: impl Into<String>) -> Self {
        self.with(|asked| asked.choice.queue = Some(name.into()))
    }

    /// The key that [`Queue::per_key`](crate::Queue::per_key) counts the child under, beside its tenant.
    pub fn queue_key(self, key: impl Into<String>) -> Self {
        self.with(|asked| asked.choice.key = Some(key.into()))
    }

    /// Among the queued runs of its tenant a higher one begins first; 0 unless it is said.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|asked| asked.choice.priority = priority)
    }

    /// Gives the wait for its result up after this long, durably: `None` if it has not ended by then. The child lives on, and ends with
    /// its parent.
    pub fn timeout(self, limit: Duration) -> BoxFuture<'static, Result<Option<O>, Failure>> {
        let ctx = self.ctx.clone();
        let label = self.asked.as_ref().map(|Asked { workflow, id, .. }| {
            let name = workflow.as_ref().map_or_else(|function| *function, |workflow| workflow.name.as_str());
            Label::of(name, id.clone())
        });
        Box::pin(async move {
            let label = label.ok_or_else(|| polled_again(CHILD))?;
            ctx.in_time(label, limit, self).await
        })
    }

    /// Begins it and returns when that is durable. It ends with its parent: it is cancelled when this run is, or fails.
    pub async fn start(self) -> Result<Child<O>, Failure> {
        let ctx = self.ctx.clone();
        let id = self.begin(true).await?;
        Ok(Child { ctx, id, waits: AtomicU32::new(0), ended: OnceLock::new(), _output: PhantomData })
    }

    /// Begins it as a run that stands alone: it says nothing to this one when it ends, and lives on without it.
    pub async fn detach(self) -> Result<RunId, Failure> {
        self.begin(false).await
    }

    async fn begin(self, attached: bool) -> Result<RunId, Failure> {
        let Self { ctx, asked, .. } = self;
        let Asked { workflow, input, id, choice } = asked.ok_or_else(|| polled_again(CHILD))?;
        let live = &ctx.live;
        let workflow = workflow.map_err(|function| Unregistered::Child(function.to_owned()).into());
        let workflow = ctx.unless_mendable(workflow).await?;
        let queue = ctx.engine.queues.place(workflow.queue.as_ref(), choice);
        let queue = ctx.unless_mendable(queue.map_err(|error| misuse(error.to_string()))).await?;
        let open = ctx.open(Kind::Child, Label::of(workflow.name.as_str(), id)).await?;
        let past = live.recorded(&open).await?;
        let (open, payload) = live.fitting(open, past.is_some(), &*input).await?;
        let hash = RequestHash::of(workflow.name.as_str(), &payload);
        if let Some(past) = past {
            return ctx.replayed(open, Some(hash), past).await;
        }
        live.released(&open, None).await;
        let begun = {
            let _resting = open.rest();
            let child = NewChild { workflow, input: payload, input_hash: hash, attached, queue };
            ctx.begin_child(&open, child).await
        };
        match begun {
            Ok(id) => {
                live.progressed();
                open.close();
                Ok(id)
            }
            Err(error) => Err(live.told(open, error).await),
        }
    }
}

/// The name of this future where it is misused.
const CHILD: &str = "a child";

// Nothing of it is pinned but the boxed future, which moves freely.
impl<O> Unpin for ChildRun<O> {}

/// A future, and not only what turns into one, so that `join_all` and `select` take children.
impl<O: DeserializeOwned + Send + 'static> Future for ChildRun<O> {
    type Output = Result<O, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let running = self.running.take().unwrap_or_else(|| {
            let child = Self { ctx: self.ctx.clone(), asked: self.asked.take(), running: None };
            Box::pin(async move { child.start().await?.result().await })
        });
        begun::poll(running, &mut self.running, cx)
    }
}
