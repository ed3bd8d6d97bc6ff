//! Children: runs that a run begins, waits for or leaves alone. A child's end is said to its parent as a signal, in the
//! transaction that ends it.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::again::{self, Mark, Place, child_begun_again};
use super::ctx::{Ctx, Label};
use super::engine::Inner;
use super::failure::{Failure, FailureCode};
use super::inbox::Wanted;
use super::live::{Live, Open, misuse};
use super::queue::Choice;
use super::replay::{Identity, Kind};
use super::start::Canonical;
use super::workflow::{Registered, Workflow};
use crate::exec::{Core, ExecError, to_the_end};
use crate::id::{RunId, RunNumber};
use crate::ledger::RequestHash;
use crate::payload::{Payload, Stored};
use crate::store::{InQueue, Run, RunState, Signal, Store as _, Verdict};
use crate::tool::canonical;

/// The signal that a child sends its parent when it ends; its id is the child.
pub(super) const ENDED: &str = "~child";

/// Behind the id of a receipt of such a signal: the checkpoint of where it stands among what the run did.
pub(super) const PLACE: &str = ":~place";

/// What a child says at its end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    Succeeded(Box<RawValue>),
    Failed(Failure),
}

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
        W: Workflow<I, O>,
        I: Serialize + Send + Sync + 'static,
    {
        ChildRun {
            ctx: self.clone(),
            workflow: self.live.engine.workflows.of_function::<W>().cloned(),
            input: Box::new(move |key| canonical(&input, key)),
            id: None,
            choice: Choice::default(),
            _output: PhantomData,
        }
    }
}

/// A child to be begun. Nothing happens before it is awaited.
#[must_use = "a child does nothing until it is awaited or started"]
pub struct ChildRun<O> {
    ctx: Ctx,
    workflow: Option<Registered>,
    input: Box<Canonical>,
    id: Option<String>,
    choice: Choice,
    _output: PhantomData<fn() -> O>,
}

/// A child that was begun, and is waited for or not.
#[derive(Debug)]
pub struct Child<O> {
    ctx: Ctx,
    id: RunId,
    /// How often it was waited for. A wait that lost a select is abandoned for good, and the next is another one.
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
        let body = self.ctx.receive(Label::from((ENDED, &id)), wanted).await?;
        Ok(self.ended.get_or_init(|| body).clone())
    }
}

impl<O: DeserializeOwned + 'static> ChildRun<O> {
    /// Which child of this workflow it is: needed where several are open at once.
    #[allow(clippy::needless_pass_by_value, reason = "`.id(7)` and `.id(&name)` both read well")]
    pub fn id(mut self, id: impl ToString) -> Self {
        self.id = Some(id.to_string());
        self
    }

    /// Puts it into a queue: it begins when it is its turn there. The parent waits outside, and has no place for it.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.choice.queue = Some(name.into());
        self
    }

    /// What it is counted under by [`Queue::per_key`](crate::Queue::per_key), beside its tenant.
    pub fn queue_key(mut self, key: impl Into<String>) -> Self {
        self.choice.key = Some(key.into());
        self
    }

    /// Among the queued runs of its tenant a higher one begins first; 0 unless it is said.
    pub fn priority(mut self, priority: i32) -> Self {
        self.choice.priority = priority;
        self
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
        let Self { ctx, workflow, input, id, choice, .. } = self;
        let live = &ctx.live;
        let Some(workflow) = workflow else {
            return Err(misuse(
                "this workflow is not registered with the engine: add `.workflow(name, version, function)`",
            ));
        };
        let queue = live.engine.in_queue(&workflow, choice).map_err(|error| misuse(error.to_string()))?;
        let open = live.open(ctx.turn, Kind::Child, workflow.name.as_str(), id)?;
        let past = live.recorded(&open).await?;
        let (open, payload) = live.fitting(open, past.is_some(), &*input).await?;
        let hash = RequestHash::of(workflow.name.as_str(), &payload);
        if let Some(past) = past {
            return ctx.replayed(open, Some(hash), past).await;
        }
        live.released(&open, None).await;
        let begun = {
            let _resting = open.rest();
            live.begin_child(&open, &workflow, payload, hash, attached.then_some(live.id), queue).await
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

impl<O: DeserializeOwned + Send + 'static> IntoFuture for ChildRun<O> {
    type Output = Result<O, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start().await?.result().await })
    }
}

impl Live {
    /// The run that was begun here before this one was begun again, and how that was done.
    fn former(&self, identity: &Identity) -> Option<(RunId, Vec<Mark>)> {
        self.with_replay(|replay| {
            let Identity { turn, kind, name, id } = identity;
            let place: Place = (*turn, kind.checkpoint().code(), name.clone(), id.clone());
            Some((replay.again.former(&place)?, replay.again.marks().to_vec()))
        })
    }

    async fn begin_child(
        &self,
        open: &Open,
        workflow: &Registered,
        input: Payload,
        input_hash: RequestHash,
        parent: Option<RunId>,
        queue: Option<Box<InQueue>>,
    ) -> Result<RunId, ExecError> {
        let core = &self.engine.core;
        let failed = |source| ExecError::Store { key: open.identity.to_string(), source };
        // Boxed because it is rare.
        let (number, mark) = match self.former(&open.identity) {
            None => (None, None),
            Some((former, marks)) => {
                Box::pin(child_begun_again(core, &self.tenant, former, marks)).await?.unzip()
            }
        };
        core.group.room().await;
        let (input, large) = core.storable(input);
        let now = core.now();
        let run = Run {
            id: RunId(core.ids.next()),
            tenant: self.tenant.clone(),
            number: number.unwrap_or_else(|| RunNumber::draw(&*core.entropy)),
            workflow: workflow.name.clone(),
            version: workflow.version,
            // Its parent's checkpoint tells it apart; this is for people, and for a store that is looked at by hand.
            key: Some(format!("{ENDED}/{}/{}", self.id, self.recorded_as(&open.identity).place())),
            parent,
            input,
            input_hash,
            state: if queue.is_some() { RunState::Queued } else { RunState::Active },
            queue: queue.clone(),
            fence: core.fence,
            revision: 1,
            deaths: 0,
            unsettled: false,
            base: 0,
            turn: 1,
            created_at: now,
            updated_at: now,
        };
        let id = run.id;
        let value = Payload::of(&id).unwrap_or_else(|_| Payload::stored(id.0.to_string()));
        let identity = &open.identity;
        let step = self.step(identity, identity.kind.checkpoint(), Some(input_hash), Stored::Inline(value));
        let mut change = core.change(Some(self.lane)).step(step).run(run.clone());
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        if let Some(mark) = mark {
            let (step, large) =
                again::checkpoint(core, (&run.tenant, run.id, run.base), "begun again", &mark)?;
            change.steps.push(step);
            change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        }
        let engine = self.engine.clone();
        // Dropped between the row and the task, as what loses a select is, this would leave a child that nobody has.
        let begun = to_the_end(&core.tracker, async move {
            let verdict = engine.core.group.commit_one(change).await;
            match (&verdict, queue) {
                (Ok(Verdict::Admitted), Some(queue)) => engine.queued(queue.name.as_str()).await,
                (Ok(Verdict::Admitted), None) => engine.spawn(Box::new(run), None),
                _ => engine.perhaps_ours(&run.tenant, run.id),
            }
            verdict
        });
        match begun.await.map_err(failed)? {
            Verdict::Admitted => Ok(id),
            Verdict::Refused(refusal) => Err(ExecError::Refused { key: open.identity.to_string(), refusal }),
        }
    }
}

/// The turn in which a child was begun, or its parent's base. By its key, for the checkpoints of a turn may be pruned.
pub(crate) fn begun_in(child: &Run) -> u32 {
    let turn = || {
        let before = format!("{ENDED}/{}/{}/~turn:", child.parent?, child.workflow);
        child.key.as_deref()?.strip_prefix(&before)?.split('/').next()?.parse().ok()
    };
    turn().unwrap_or(0)
}

impl Inner {
    /// A child has ended, durably, and whoever was to tell its parent may not have: only a hint, like any other.
    pub(super) async fn tell_parent(self: &Arc<Self>, child: &Run) {
        let Some(parent) = child.parent else { return };
        let id = child.id.to_string();
        match self.core.group.signal_find(&child.tenant, parent, ENDED, &id).await {
            Ok(Some(signal)) => self.delivered(signal).await,
            Ok(None) => {}
            Err(error) => tracing::error!(run = %parent, %error, "cannot be told of its child's end"),
        }
    }
}

/// What a run that ends says to its parent, if it has one that waits.
pub(super) fn farewell(
    core: &Core,
    run: &Run,
    result: Result<&Payload, &Failure>,
) -> Option<(Signal, Option<Payload>)> {
    let parent = run.parent?;
    let ended = match result {
        Ok(output) => Ended::Succeeded(RawValue::from_string(output.as_str().to_owned()).ok()?),
        Err(failure) => Ended::Failed(failure.clone()),
    };
    let text = serde_json::to_string(&ended).ok()?;
    let (body, large) = core.storable(Payload::stored(text));
    let signal = Signal {
        tenant: run.tenant.clone(),
        run: parent,
        name: ENDED.into(),
        id: run.id.to_string(),
        place: 0,
        body,
        at: core.now(),
    };
    Some((signal, large))
}
