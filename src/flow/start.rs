//! A run to be started.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::deadline::Deadline;
use super::error::RunError;
use super::handle::RunHandle;
use super::inner::Inner;
use super::queue::Choice;
use super::row::NewRow;
use super::signal::OWN;
use super::workflow::Registered;
use crate::clock::Timestamp;
use crate::exec::{Core, to_the_end};
use crate::id::{IdError, RunId, Tenant};
use crate::ledger::{RequestHash, diff};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::store::{Change, InQueue, Labels, OrderingKey, Refusal, Run, Store as _, Ticket, Verdict};
use crate::tool::canonical;
use crate::trace::TraceContext;

pub(super) type Canonical = dyn Fn(Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> + Send + Sync;

/// A run to be started. Nothing happens before it is awaited.
#[must_use = "a run does nothing until it is awaited"]
pub struct StartRun<O> {
    pub(super) inner: Arc<Inner>,
    pub(super) tenant: Tenant,
    pub(super) workflow: Result<Registered, RunError>,
    pub(super) input: Box<Canonical>,
    pub(super) key: Option<String>,
    pub(super) reject: bool,
    pub(super) choice: Choice,
    pub(super) deadline: Option<Deadline>,
    pub(super) traceparent: Option<TraceContext>,
    pub(super) labels: Labels,
    pub(super) _output: PhantomData<fn() -> O>,
}

impl<O> StartRun<O> {
    pub(super) fn of<I: Serialize + Send + Sync + 'static>(
        inner: Arc<Inner>,
        tenant: Tenant,
        workflow: Result<Registered, RunError>,
        input: I,
    ) -> Self {
        Self {
            inner,
            tenant,
            workflow,
            input: Box::new(move |key| canonical(&input, key)),
            key: None,
            reject: false,
            choice: Choice::default(),
            deadline: None,
            traceparent: None,
            labels: Labels::default(),
            _output: PhantomData,
        }
    }
}

impl<O: DeserializeOwned + 'static> StartRun<O> {
    /// A start key: the same key and input give the same run; another input is a conflict. A key that begins with `~` is
    /// refused.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a label, by which runs are [listed](crate::flow::RunFilter::label) and
    /// [erased](crate::flow::TenantClient::erase_labelled): a customer, a case, a subject. A run has at most 8 labels, one of each name.
    /// A name has at most 128 bytes, and a value 256. Labels are not encrypted and stay as they are; a start whose key was used before
    /// gives that run none. A [fork](crate::flow::RunHandle::fork) has the labels of its origin, and a child has none.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use counterfoil::flow::RunFilter;
    /// use counterfoil::{Ctx, Engine, Failure};
    ///
    /// async fn order(_: Ctx, cents: u32) -> Result<u32, Failure> {
    ///     Ok(cents)
    /// }
    ///
    /// let engine = Engine::in_memory().workflow("order", 1, order).start().await?;
    /// let acme = engine.tenant("acme")?;
    /// acme.run(order, 4200).label("customer", "c-7").await?;
    /// acme.run(order, 100).label("customer", "c-8").await?;
    /// let of_customer = RunFilter::new().label("customer", "c-7");
    /// assert_eq!(acme.list_runs(&of_customer, None, 50).await?.runs.len(), 1);
    /// # engine.shutdown(std::time::Duration::ZERO).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.add(name, value);
        self
    }

    /// A start whose key was used before is refused with [`RunError::Duplicate`], which names the run. Otherwise it is
    /// given that run, if it has the same input.
    pub fn reject_duplicate(mut self) -> Self {
        self.reject = true;
        self
    }

    /// Puts the run into a queue: it begins when it is its turn there.
    ///
    /// # Crash
    /// The run is durable when the start returns, and begins whoever dies.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.choice.queue = Some(name.into());
        self
    }

    /// The key that [`Queue::per_key`](crate::Queue::per_key) counts the run under, beside its tenant.
    pub fn queue_key(mut self, key: impl Into<String>) -> Self {
        self.choice.key = Some(key.into());
        self
    }

    /// Among the queued runs of its tenant a higher one begins first; 0 unless it is said. Of one priority the oldest.
    pub fn priority(mut self, priority: i32) -> Self {
        self.choice.priority = priority;
        self
    }

    /// The time that the run may take, from now on. It replaces the one [of its workflow](crate::flow::Workflow::deadline). A
    /// run that has not ended by then is cancelled, as by [`RunHandle::cancel`]: whether it is under way, waits, is queued, paused or
    /// blocked. A call that is under way is followed to its end first. A start whose key was used before is given the run that there
    /// is, with the deadline that this one has.
    ///
    /// # Crash
    /// The deadline is durable with the run, and any worker sees to it.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(Deadline::After(after));
        self
    }

    /// The same, by the instant (UTC).
    pub fn deadline_at(mut self, at: Timestamp) -> Self {
        self.deadline = Some(Deadline::At(at));
        self
    }

    /// Makes the run a span of its caller's trace, which the run's calls pass on to their providers
    /// ([`Call::traceparent`](crate::tool::Call::traceparent)). Without it the run has a trace of its own.
    ///
    /// # Crash
    /// The context is durable with the run: whoever takes the run over continues the trace.
    pub fn traceparent(mut self, caller: TraceContext) -> Self {
        self.traceparent = Some(caller);
        self
    }

    /// Starts the run and returns when that is durable.
    pub async fn start(self) -> Result<RunHandle<O>, RunError> {
        self.begun(true).await.map(|(handle, _)| handle)
    }

    /// Dropped between the run's row and its task, the start would leave a run that nobody carries out.
    async fn begun(self, durable: bool) -> Result<(RunHandle<O>, Option<Ticket>), RunError> {
        let tracker = self.inner.core.tracker.clone();
        to_the_end(&tracker, self.begin(durable)).await
    }

    /// The run, and the write that it depends on, if it is not durable yet.
    async fn begin(self, durable: bool) -> Result<(RunHandle<O>, Option<Ticket>), RunError> {
        let (inner, new) = self.checked().await?;
        let core = &inner.core;
        // A deadline is looked for in the store, so it must be there before anybody looks.
        // A client's run is nobody's before its row is there.
        let awaited =
            durable || core.is_client() || new.key.is_some() || new.queue.is_some() || new.deadline.is_some();
        let lane = core.new_lane();
        core.group.room().await;
        // Not in this future, which would hold all of it while it waits.
        let submit = || {
            // If nobody waits for its row: nothing of the run leaves the engine before its first awaited write, which
            // comes behind this one. In the lane of its first activation: should its row be refused, nothing of the
            // run goes out behind it.
            let (run, change) = new.row(core, (!awaited).then_some(lane));
            (run, core.group.submit(change))
        };
        let (run, ticket) = submit();
        let id = run.id;
        let handle = |id| RunHandle::of(inner.clone(), new.tenant.clone(), id);
        if !awaited {
            inner.spawn(run, Some(lane));
            return Ok((handle(id), Some(ticket)));
        }
        let verdict = ticket.durable().await;
        if verdict.is_err() {
            inner.perhaps_ours(&run.tenant, id);
        }
        match verdict? {
            Verdict::Admitted => {
                inner.go_on(run).await;
                Ok((handle(id), None))
            }
            Verdict::Refused(refusal) => {
                // Boxed because it is rare.
                let first = Box::pin(inner.first_under(&run, &new, refusal)).await?;
                if first == id {
                    inner.spawn(run, None); // this very write took place, its answer was lost, and it was tried again
                } else {
                    new.once(first)?;
                }
                Ok((handle(first), None))
            }
        }
    }

    /// The run to be started, or the error that prevents it.
    pub(super) async fn checked(self) -> Result<(Arc<Inner>, NewRun), RunError> {
        let Self {
            inner, tenant, workflow, input, key, reject, choice, deadline, traceparent, labels, ..
        } = self;
        let workflow = workflow?;
        // Under a key of the engine's, such as that of a child or a tick, that child or tick would not begin.
        if key.as_deref().is_some_and(|key| key.starts_with(OWN)) {
            return Err(IdError::Reserved { what: "start key" }.into());
        }
        labels.check()?;
        let queue = inner.queues.place(workflow.queue.as_ref(), choice)?;
        let input: Result<_, RunError> = inner.core.canonical(&tenant, &*input).await;
        let input = input?.within(&inner.core.limits)?;
        let deadline = deadline.or(workflow.deadline);
        let new = NewRun { tenant, workflow, queue, deadline, traceparent, input, key, reject, labels };
        Ok((inner, new))
    }
}

/// A run that may be started.
pub(super) struct NewRun {
    tenant: Tenant,
    workflow: Registered,
    queue: Option<Box<InQueue>>,
    deadline: Option<Deadline>,
    traceparent: Option<TraceContext>,
    input: Payload,
    key: Option<String>,
    reject: bool,
    labels: Labels,
}

impl NewRun {
    /// Its key was used before.
    ///
    /// # Errors
    /// If its host wants no such run.
    pub(super) fn once(&self, first: RunId) -> Result<(), RunError> {
        match &self.key {
            Some(key) if self.reject => Err(RunError::Duplicate { key: key.clone(), run: first }),
            _ => Ok(()),
        }
    }

    /// Its row, and the change that writes it.
    pub(super) fn row(&self, core: &Core, lane: Option<OrderingKey>) -> (Box<Run>, Change) {
        let now = core.now();
        let (stored, large) = core.storable(self.input.clone());
        let row = NewRow {
            tenant: &self.tenant,
            workflow: &self.workflow,
            number: None,
            key: self.key.clone(),
            parent: None,
            queue: self.queue.clone(),
            deadline: self.deadline,
            input: stored,
            input_hash: RequestHash::of(self.workflow.name.as_str(), &self.input),
            traceparent: self.traceparent,
        };
        let run = Box::new(row.at(core, now));
        let mut change = core.change(lane).run(run.clone());
        change.labels.extend(self.labels.of_run(&run));
        change.payloads.extend(large.map(|payload| (self.tenant.clone(), payload)));
        (run, change)
    }
}

impl<O: DeserializeOwned + Send + 'static> IntoFuture for StartRun<O> {
    type Output = Result<O, RunError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (handle, begun) = self.begun(false).await?;
            match (handle.result().await, begun) {
                // Perhaps it never began.
                (Err(gone @ (RunError::Closed { .. } | RunError::Unknown { .. })), Some(begun)) => {
                    match begun.durable().await? {
                        Verdict::Admitted => Err(gone),
                        Verdict::Refused(refusal) => Err(RunError::Refused { run: handle.id, refusal }),
                    }
                }
                (result, _) => result,
            }
        })
    }
}

impl Inner {
    /// The run that has the start key of this one, which was refused; a conflict if it has another input.
    pub(super) async fn first_under(
        &self,
        refused: &Run,
        new: &NewRun,
        refusal: Refusal,
    ) -> Result<RunId, RunError> {
        let Run { id, tenant, workflow, input_hash, .. } = refused;
        let (Refusal::Exists, Some(key)) = (&refusal, &new.key) else {
            return Err(RunError::Refused { run: *id, refusal });
        };
        let first = self.core.group.run_keyed(tenant, workflow.as_str(), key).await?;
        let first = first.ok_or(RunError::Refused { run: *id, refusal })?;
        if first.state.is_expired() {
            let key = self.core.tenant_key(tenant).await?;
            if first.input_hash == input_hash.keyed(&key) {
                return Ok(first.id);
            }
            return Err(RunError::Expired { run: first.id });
        }
        if first.input_hash != *input_hash {
            let recorded = self.core.load(tenant, &first.input).await?;
            let diff = diff(&recorded, &new.input)?;
            return Err(RunError::Conflict { key: key.clone(), run: first.id, diff });
        }
        Ok(first.id)
    }
}
