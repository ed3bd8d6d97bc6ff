//! The guard service: the ledger for processes in any language that make their calls themselves. Feature
//! `guard-service`.
//!
//! A client [begins](GuardService::begin) a call and is told the next [`Step`]: make the call with this key and
//! [seal](GuardService::seal) it, look it up and [report](GuardService::reconcile) the finding, or take the first result. Each
//! answer is such a step, so a client is a loop.
//!
//! Inside, the client's call is an [effect](Executor::effect) of the executor like any other. Its attempt is offered to the client under a
//! permit, and waits for the seal as it would wait for a provider.
//!
//! # Crash
//! A client that dies leaves an attempt without a seal. When its time is over, the outcome is unknown: the call is looked up by the next client that
//! begins it or [polls](GuardService::poll) for its tool, and is a question if there is none. A service that dies leaves the record, and the next one goes
//! on from it. A seal that comes late is kept as evidence.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use counterfoil::guard_service::{Begin, CallOutcome, GuardService, Seal, Step};
//! use counterfoil::{Executor, Tenant};
//! use serde_json::json;
//!
//! let service = GuardService::new(&Executor::in_memory().open().await?);
//! let acme = Tenant::new("acme")?;
//! let begin = Begin::new("refund", "order-9", json!({ "cents": 1200 }));
//! let Step::Send(permitted) = service.begin(&acme, begin.clone()).await? else { panic!("nobody has begun it") };
//! // … the client sends the refund, under `permitted.idempotency_key` …
//! let outcome = CallOutcome::done(json!({ "id": "re_7" }));
//! let sealed = service.seal(&acme, Seal::new(permitted.permit, outcome)).await?;
//! assert!(matches!(sealed, Step::Done { first: true, .. }));
//! let again = service.begin(&acme, begin).await?;
//! assert!(matches!(again, Step::Done { first: false, .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod late;
mod line;
mod permit;
mod request;
mod review;
mod step;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use self::line::{Clients, Execution, Line, Lines, Offered, Reply, Taker, Task};
use self::permit::Attempt;
use self::request::{operation, wait};
use self::review::Clearance;
use crate::clock::Boot;
use crate::exec::{ExecError, Executor, Outcome};
use crate::guard::approval::AskRefused;
use crate::id::Tenant;
use crate::ledger::{Contract, ErrorKind, Found, Key, KeyError, LookupResult};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::store::{Resolution, StoreError};
use crate::tool::{Call, Done, ToolError};

unstable_core! {
    pub use request::{Begin, CallOutcome, Finding, FoundEffect, Poll, Reconcile, Seal, Tasks};
    pub use step::{Permitted, Step, Stop};
}

/// The name under which the service asks for lookups beside open questions.
const AUTHOR: &str = "guard service";

/// The reason why a request has no step. Nothing was changed unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The permit was not given by this ledger for this task and tenant.
    #[error(
        "the permit is not one of this ledger for this task and tenant: nothing was sealed; begin the call again [not_found]"
    )]
    Permit,
    /// The contract cannot be kept by a client.
    #[error(
        "a client's call cannot be part of a transaction of the ledger: nothing was begun; name another contract [contract]"
    )]
    Transactional,
    /// The key or the tool's name is malformed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The approval could not be asked for.
    #[error(transparent)]
    Ask(#[from] AskRefused),
    /// The result cannot be recorded or read. If the client's output cannot be recorded, its permit stays good: it can be sealed
    /// as done without the output.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger did not answer.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// The executor as a service for clients that make their calls themselves. A clone is the same service.
#[derive(Clone)]
pub struct GuardService {
    executor: Executor,
    lines: Arc<Lines>,
}

impl std::fmt::Debug for GuardService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardService").field("executor", &self.executor).finish_non_exhaustive()
    }
}

impl GuardService {
    /// A service on this executor. Make one for each executor: two would not know of one another's permits.
    pub fn new(executor: &Executor) -> Self {
        let lines = Arc::new(Lines::new(executor.core().clock.clone()));
        Self { executor: executor.clone(), lines }
    }

    /// Begins a call, or goes on with it: tells the client what to do next.
    ///
    /// Dropping the future does not end the call.
    ///
    /// # Crash
    /// An attempt is recorded before its permit is given out.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub async fn begin(&self, tenant: &Tenant, begin: Begin) -> Result<Step, GuardError> {
        let arrived = self.arrived();
        let key = operation(&begin.tool, &begin.key)?;
        let contract = begin.contract().ok_or(GuardError::Transactional)?;
        begin.check_labels()?; // before anybody is asked for an approval
        let clearance = match self.clearance(tenant, &key, &begin).await? {
            Ok(clearance) => clearance,
            Err(instead) => return Ok(instead),
        };
        let terms = Terms { contract, clearance };
        let asked = Asked { taker: Taker::Caller, arrived, limit: wait(begin.wait_ms) };
        let line = self.lines.of(tenant, &key);
        let (execution, is_new) = line.execution(&begin.input);
        if is_new {
            let (service, line, execution) = (self.clone(), line.clone(), execution.clone());
            let tenant = tenant.clone();
            self.executor.core().tracker.spawn(async move {
                let outcome = service.carry_out(&tenant, &begin, &terms).await;
                line.end(&execution, outcome);
            });
        }
        self.next((&line, &execution), asked, false).await
    }

    /// Takes the outcome of an attempt, and tells the client what to do next: it is done, or it is to be sent again, or
    /// looked up.
    ///
    /// # Crash
    /// The outcome is durable before the answer. A client that gets no answer begins the call again.
    ///
    /// # Errors
    /// [`GuardError::Permit`] if this ledger has not given the permit to this tenant. A seal whose time is over is no
    /// error: it is kept as evidence, and settles the call if nobody has settled it.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub async fn seal(&self, tenant: &Tenant, seal: Seal) -> Result<Step, GuardError> {
        let arrived = self.arrived();
        if let CallOutcome::Done { output, .. } = &seal.outcome {
            Payload::of(output)?; // the permit stays good, and the client can seal without the output
        }
        let Some(permit) = self.lines.permits.take(&seal.permit, Task::Send, tenant) else {
            return self.seal_late(tenant, seal).await;
        };
        let is_done = matches!(seal.outcome, CallOutcome::Done { .. });
        let execution = permit.line.under_way(&permit.input);
        // Its time may be over at this very moment.
        if let Err(Reply::Outcome(outcome)) = permit.reply.send(Reply::Outcome(seal.outcome)) {
            return self.seal_late(tenant, Seal { outcome, ..seal }).await;
        }
        let asked = Asked { taker: permit.taker, arrived, limit: wait(seal.wait_ms) };
        self.after_reply((&permit.line, execution), asked, is_done).await
    }

    /// Takes the finding of a lookup, and tells the client what to do next. A finding that was reported before, or whose time is over,
    /// changes nothing: it may be outdated.
    ///
    /// # Errors
    /// [`GuardError::Permit`] if this ledger has not given the permit to this tenant.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub async fn reconcile(&self, tenant: &Tenant, report: Reconcile) -> Result<Step, GuardError> {
        let arrived = self.arrived();
        match &report.finding {
            Finding::Happened { output, .. } => {
                Payload::of(output)?;
            }
            Finding::Duplicated { effects } => {
                for effect in effects {
                    Payload::of(&effect.output)?;
                }
            }
            Finding::NotFound | Finding::Unknown => {}
        }
        let Some(permit) = self.lines.permits.take(&report.permit, Task::Look, tenant) else {
            return self.report_late(tenant, &report.permit).await;
        };
        let execution = permit.line.under_way(&permit.input);
        // Its time may be over at this very moment.
        if permit.reply.send(Reply::Finding(report.finding)).is_err() {
            return self.report_late(tenant, &report.permit).await;
        }
        let asked = Asked { taker: permit.taker, arrived, limit: wait(report.wait_ms) };
        self.after_reply((&permit.line, execution), asked, false).await
    }

    /// Hands out a lookup of this tool that waits for a client, or [`Step::Idle`]; with [`Tasks::All`] also an attempt of a call for
    /// which no client waits.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub async fn poll(&self, tenant: &Tenant, poll: Poll) -> Result<Step, GuardError> {
        let (taker, arrived) = (Taker::Poller(poll.tasks), self.arrived());
        let asked = Asked { taker, arrived, limit: wait(poll.wait_ms) };
        let secret = self.executor.core().tenant_key(tenant).await?;
        let mut over = self.executor.clock().sleep(asked.limit);
        loop {
            let mut offered = std::pin::pin!(self.lines.offered.notified());
            offered.as_mut().enable(); // before the look, so that no offer is missed
            if let Some(line) = self.lines.offering(tenant, &poll.tool, taker)
                && let Some(step) = self.take(&line, (asked, None), &secret)
            {
                return Ok(step);
            }
            tokio::select! {
                biased;
                () = offered => {}
                () = &mut over => return Ok(Step::Idle),
            }
        }
    }

    /// The next step of a client that has replied to a task. The execution is missing if no client waits for the call.
    async fn after_reply(
        &self,
        (line, execution): (&Arc<Line>, Option<Arc<Execution>>),
        asked: Asked,
        made_here: bool,
    ) -> Result<Step, GuardError> {
        match execution {
            Some(execution) => self.next((line, &execution), asked, made_here).await,
            None => Ok(Step::recorded()),
        }
    }

    /// The next step of a client that waits for an execution.
    async fn next(
        &self,
        (line, execution): (&Arc<Line>, &Execution),
        asked: Asked,
        made_here: bool,
    ) -> Result<Step, GuardError> {
        let secret = self.executor.core().tenant_key(&line.tenant).await?;
        let _waits = (asked.taker == Taker::Caller).then(|| line.wait(&self.lines.offered));
        let mut over = self.executor.clock().sleep(asked.limit);
        loop {
            let mut changed = std::pin::pin!(line.changed.notified());
            changed.as_mut().enable(); // before the look, so that no change is missed
            if let Some(ended) = execution.ended.get() {
                return Ok(Step::after(&ended.clone()?, made_here)?);
            }
            if let Some(step) = self.take(line, (asked, Some(&execution.input)), &secret) {
                return Ok(step);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut over => return Ok(Step::InFlight),
            }
        }
    }

    fn arrived(&self) -> Boot {
        self.executor.core().clock.boot()
    }

    fn take(
        &self,
        line: &Arc<Line>,
        (asked, input): (Asked, Option<&Value>),
        secret: &DigestKey,
    ) -> Option<Step> {
        let core = self.executor.core();
        // The client counts from before it sent the request. What the request has waited here is not taken from the permit's time.
        let waited = asked.arrived.until(core.clock.boot());
        let fence = core.fence;
        line.take(&self.lines.permits, (asked.taker, input), waited, |task, call| {
            let number = match task {
                Task::Send => call.attempt(),
                Task::Look => self.lines.looks.fetch_add(1, Ordering::Relaxed),
            };
            Attempt { task, fence, number, key: line.key.clone() }.permit(secret, &line.tenant)
        })
    }

    /// Carries the call out: each attempt and each lookup is offered to a client.
    async fn carry_out(&self, tenant: &Tenant, begin: &Begin, terms: &Terms) -> Result<Outcome, ExecError> {
        let outcome = self.execute(tenant, begin, terms).await?;
        let Outcome::NeedsDecision { question } = outcome else { return Ok(outcome) };
        if !begin.lookup {
            return Ok(outcome);
        }
        // A client is here that can look the call up now.
        match self.executor.answer(tenant, question, Resolution::LookNow, AUTHOR).await {
            Ok(()) => self.execute(tenant, begin, terms).await,
            Err(_) => Ok(outcome), // the question stands as it is, and says so
        }
    }

    async fn execute(
        &self,
        tenant: &Tenant,
        begin: &Begin,
        Terms { contract, clearance }: &Terms,
    ) -> Result<Outcome, ExecError> {
        let retry = begin.retry(contract);
        let key = Key::given(begin.tool.as_str(), begin.key.as_str());
        let mut effect = self.executor.effect::<Value, Value>(tenant, key, begin.input.clone());
        effect = effect.class(begin.effect).contract(contract.clone()).retry(retry).lookups(begin.lookups());
        effect = begin.labels.iter().fold(effect, |effect, (name, value)| effect.label(name, value));
        if let Clearance::Given(given) = clearance {
            let (subject, approval) = &**given;
            effect = effect.approved_by(subject.clone(), approval);
        }
        let may_send = !matches!(clearance, Clearance::Lacking);
        if begin.without_approval {
            effect = effect.without_approval();
        }
        let clients = Clients { lines: self.lines.clone(), tool: begin.tool.clone(), time: begin.attempt() };
        if begin.lookup {
            let clients = clients.clone();
            effect = effect.lookup(move |call, input| look(clients.clone(), call, input));
        }
        let send = move |call: Call, input: Value| {
            let clients = may_send.then(|| clients.clone());
            async move {
                match clients {
                    Some(clients) => send(clients, call, input).await,
                    None => Err(ToolError::new(
                        ErrorKind::ApprovalMissing,
                        "nothing was sent: nobody has approved the call",
                    )),
                }
            }
        };
        effect.outcome(send).await
    }
}

/// A request that is answered with the next step.
#[derive(Clone, Copy)]
struct Asked {
    taker: Taker,
    /// The instant at which it arrived.
    arrived: Boot,
    /// The longest wait for a step.
    limit: Duration,
}

/// The terms on which a call is carried out.
struct Terms {
    contract: Contract,
    clearance: Clearance,
}

/// Offers an attempt.
async fn send(clients: Clients, call: Call, input: Value) -> Result<Done<Value>, ToolError> {
    match clients.offer(Task::Send, call, input).await {
        Offered::Replied(Reply::Outcome(CallOutcome::Done { output, external_ref })) => {
            Ok(Done { external_ref, ..Done::new(output) })
        }
        Offered::Replied(Reply::Outcome(CallOutcome::Failed { kind, message, retry_after_ms })) => {
            let retry_after = retry_after_ms.map(Duration::from_millis);
            Err(ToolError { retry_after, ..ToolError::new(kind, message) })
        }
        Offered::Untaken => Err(ToolError::new(
            ErrorKind::TimeoutBeforeEffect,
            "no client has taken the attempt: nothing was sent",
        )),
        Offered::Lost => Err(ToolError::unknown("a client has taken the attempt, and its reply is lost")),
        Offered::Replied(Reply::Finding(_)) => {
            Err(ToolError::unknown("the client has replied with a finding"))
        }
    }
}

/// Offers a lookup.
async fn look(clients: Clients, call: Call, input: Value) -> Result<LookupResult<Value>, ToolError> {
    let kept = call.external_ref().map(str::to_owned);
    Ok(match clients.offer(Task::Look, call, input).await {
        Offered::Replied(Reply::Finding(finding)) => shown(finding, kept),
        _ => LookupResult::Unknown,
    })
}

/// What a finding shows of a call whose record keeps this id. Only a record that is done keeps one here, because clients note no id
/// before: another id is a second effect.
fn shown(finding: Finding, kept: Option<String>) -> LookupResult<Value> {
    match finding {
        Finding::Happened { output, external_ref: Some(other) }
            if kept.as_ref().is_some_and(|kept| *kept != other) =>
        {
            let effects = vec![
                Found { external_ref: kept, output: None },
                Found { external_ref: Some(other), output: Some(output) },
            ];
            LookupResult::Duplicated { effects }
        }
        Finding::Happened { output, external_ref } => LookupResult::Committed { output, external_ref },
        Finding::Duplicated { effects } => {
            let found = |effect: FoundEffect| Found {
                external_ref: effect.external_ref,
                output: Some(effect.output),
            };
            match <[FoundEffect; 1]>::try_from(effects) {
                Ok([FoundEffect { output, external_ref }]) => {
                    shown(Finding::Happened { output, external_ref }, kept)
                }
                Err(effects) if effects.is_empty() => LookupResult::Unknown,
                Err(effects) => {
                    LookupResult::Duplicated { effects: effects.into_iter().map(found).collect() }
                }
            }
        }
        Finding::NotFound => LookupResult::NotFound,
        Finding::Unknown => LookupResult::Unknown,
    }
}
