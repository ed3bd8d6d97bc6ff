//! The replay check: edited code, run against the records of runs before it is deployed. Nothing is written, and no
//! tool is called. A recorded step is run again only if it is synchronous and its input has changed, as in the engine.

mod asked;
mod judge;
mod report;
mod undecided;

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) use asked::Check;
pub use report::{
    Changed, Consequence, LeftBehind, ReplayAnswer, ReplayEntry, ReplayOutcome, ReplayReport, WaitsFor,
};

pub(super) use undecided::undecided;

use self::judge::Seen;
use super::again::{self, Again};
use super::builder::EngineBuilder;
use super::ctx::Ctx;
use super::error::RunError;
use super::inner::Inner;
use super::live::{Live, Rest, Stop};
use super::replay::Replay;
use super::status::RunStatus;
use super::workflow::{Body, WorkflowFn, erased};
use crate::exec::{Core, StartError};
use crate::id::{RunId, Tenant};
use crate::panics::message;
use crate::store::{QuestionKind, ReadOnly, Store as _};

/// The number of polls after which a body that wakes itself without progress counts as stopped.
const POLLS: usize = 10_000;
/// The number of polls before other tasks get their turn.
const TURN: usize = 32;

/// Runs workflow code against recorded runs, without touching the world or the store.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("agents.db");
/// use counterfoil::{Ctx, Engine, Failure, Tenant};
///
/// async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
///     ctx.step("greeting", &name, |name| format!("Hello, {name}")).await
/// }
/// # let engine = Engine::sqlite(&path).workflow("greet", 1, greet).start().await?;
/// # engine.tenant("acme")?.run(greet, "Ann".to_owned()).await?;
/// # engine.shutdown(std::time::Duration::from_secs(1)).await;
///
/// // The code as it is to be deployed: a step has come in front of the recorded one.
/// async fn edited(ctx: Ctx, name: String) -> Result<String, Failure> {
///     let title = ctx.step("title", &name, |_| "Dr.".to_owned()).await?;
///     let greeting: String = ctx.step("greeting", &name, |name| format!("Hello, {name}")).await?;
///     Ok(format!("{title} {greeting}"))
/// }
///
/// // With the tools that the code calls. New steps are run, to see what comes behind them.
/// let replayer = Engine::sqlite(&path).replayer().await?.run_new_steps();
/// let acme = Tenant::new("acme")?;
/// for run in replayer.runs(&acme, None).await? {
///     let report = replayer.run(&acme, run.id, edited).await?;
///     assert!(report.is_ok(), "{report}");
///     assert_eq!(report.anew[0].name, "title");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replayer {
    inner: Arc<Inner>,
    store: Arc<ReadOnly>,
    run_new_steps: bool,
}

impl fmt::Debug for Replayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replayer").field("store", &self.store).finish_non_exhaustive()
    }
}

impl EngineBuilder {
    /// Opens the store to look at its records: a [`Replayer`], for tests of edited code. The replayer needs the tools
    /// that the code calls, for their keys. A SQLite file is opened read-only, beside an engine or without one; a
    /// PostgreSQL database is opened as an engine opens it, which brings an older schema up to date.
    ///
    /// # Errors
    /// If a tool or the database was refused.
    pub async fn replayer(self) -> Result<Replayer, StartError> {
        self.checked()?;
        let slot = Arc::new(OnceLock::new());
        let kept = slot.clone();
        let (executor, workflows) = self.into_parts();
        let executor = executor.read_only().wrap_store(move |store| {
            let store = Arc::new(ReadOnly::new(store));
            kept.get_or_init(|| store.clone());
            store
        });
        let core = Core::looking_on(executor.open_store().await?);
        let Some(store) = slot.get().cloned() else {
            unreachable!("the store was wrapped when it was opened")
        };
        Ok(Replayer { inner: Inner::looking_on(core, workflows), store, run_new_steps: false })
    }
}

impl Replayer {
    /// Runs the closures of synchronous steps that a run has not recorded, to see what comes behind them. Such a closure
    /// touches nothing, if it keeps to its contract. Without this, a branch of the run stops at the first new step.
    #[must_use]
    pub fn run_new_steps(self) -> Self {
        Self { run_new_steps: true, ..self }
    }

    /// The runs of a tenant, from `after` on, at most a thousand.
    pub async fn runs(&self, tenant: &Tenant, after: Option<RunId>) -> Result<Vec<RunStatus>, RunError> {
        let after = after.unwrap_or(RunId(i64::MIN));
        let rows = self.inner.core.group.run_list(tenant, after, 1000).await?;
        Ok(rows.into_iter().map(RunStatus::from).collect())
    }

    /// Runs this code against the records of a run, whatever the run's state. The code need not be registered. The
    /// closure of a synchronous step whose input has changed is run, to compare its result with the recorded one.
    pub async fn run<W, I, O>(&self, tenant: &Tenant, run: RunId, code: W) -> Result<ReplayReport, RunError>
    where
        W: WorkflowFn<I, O>,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        let group = &self.inner.core.group;
        let mut row = group.run_find(tenant, run).await?.ok_or(RunError::Unknown { run })?;
        let history = group.run_history(tenant, run, row.present()).await?;
        let again = Again::of(again::marks(&self.inner.core, tenant, &history).await?);
        let replay = Replay::of(history, again);
        let continued = replay.input(row.base).and_then(|step| step.value.clone());
        let input = self.inner.core.load(tenant, continued.as_ref().unwrap_or(&row.input)).await?;
        let mut report = ReplayReport::new(&row);
        row.deaths = 0; // a check writes no progress
        let check = Check::new(self.run_new_steps);
        let live = Live::checking(self.inner.core.clone(), row, replay, check);
        let mut seen = Seen::Part;
        match erased(code)(Ctx::new(self.inner.clone(), live.clone()), &input) {
            Ok(body) => (report.outcome, seen) = self.carry(&live, body, &mut report).await,
            Err(error) => report.changed.push(Changed { what: "input".into(), why: error.to_string() }),
        }
        live.end();
        if let Some(check) = &live.check {
            check.add_to(&mut report);
            if check.has_stopped_short() || !report.changed.is_empty() {
                seen = Seen::Part;
            }
        }
        self.judge(&live, seen, &mut report).await?;
        Ok(report)
    }

    /// Polls the body until it ends, or until no branch of it can go on.
    async fn carry(
        &self,
        live: &Arc<Live>,
        mut body: Body,
        report: &mut ReplayReport,
    ) -> (ReplayOutcome, Seen) {
        let waker = Waker::from(live.waker.clone());
        let mut polls = 0;
        let outcome = poll_fn(|cx| {
            live.waker.driven_by(cx.waker());
            for _ in 0..TURN {
                live.waker.take_woken();
                let polled =
                    catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(&mut Context::from_waker(&waker))));
                match polled {
                    Ok(Poll::Ready(Ok(output))) => {
                        let output = output.value().unwrap_or_default();
                        return Poll::Ready((ReplayOutcome::Returned(output), Seen::End));
                    }
                    Ok(Poll::Ready(Err(failure))) => {
                        return Poll::Ready((ReplayOutcome::Failed(failure), Seen::End));
                    }
                    Err(panic) => {
                        return Poll::Ready((ReplayOutcome::Panicked(message(&*panic)), Seen::Part));
                    }
                    Ok(Poll::Pending) => polls += 1,
                }
                note(live.take_stop(), report);
                if live.waker.take_woken() && polls < POLLS {
                    continue;
                }
                if self.store.is_reading() {
                    polls = 0;
                    return Poll::Pending;
                }
                return Poll::Ready(came_to_rest(live));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        live.end(); // a future that is dropped from here on leaves no mark
        outcome
    }
}

/// The outcome of code that no longer goes on by itself, and the extent to which the check has seen it.
fn came_to_rest(live: &Live) -> (ReplayOutcome, Seen) {
    match (live.rest(), live.waits()) {
        (Rest::Quiescent, Some(waits)) => {
            let on = waits.iter().flat_map(WaitsFor::of).collect();
            (ReplayOutcome::Waiting { on }, Seen::Rest)
        }
        (Rest::Quiescent, None) => (ReplayOutcome::Stopped, Seen::Rest),
        // The code waits for something that is not the context's.
        (Rest::Working | Rest::Waiting { .. }, _) => (ReplayOutcome::Stopped, Seen::Part),
    }
}

/// Notes a stop that would block the run.
fn note(stop: Option<Stop>, report: &mut ReplayReport) {
    match stop {
        Some(Stop::Block { kind: QuestionKind::Diverged | QuestionKind::Damaged, question, .. }) => {
            report.changed.push(Changed { what: "recorded".into(), why: question });
        }
        Some(Stop::Block { question, .. }) => {
            report.changed.push(Changed { what: "run".into(), why: question });
        }
        Some(Stop::Unmended(failure)) => {
            report.changed.push(Changed { what: "run".into(), why: failure.message });
        }
        Some(Stop::Failed(error)) => {
            report.changed.push(Changed { what: "store".into(), why: error.to_string() });
        }
        Some(Stop::Bounce | Stop::Continue(_) | Stop::Paused(_) | Stop::Cancelled) | None => {}
    }
}
