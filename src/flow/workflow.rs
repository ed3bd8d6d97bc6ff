//! Workflows as they are registered: a plain `async fn`, its types forgotten.

use std::any::{TypeId, type_name};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::Ctx;
use super::deadline::Deadline;
use super::failure::Failure;
use super::queue::Queues;
use crate::id::Name;
use crate::ledger::{Budget, CountedFrom, Retention};
use crate::payload::{Payload, PayloadError};
use crate::store::Run;
use crate::tool::Registry;

/// A workflow: any `async fn(Ctx, Input) -> Result<Output, Failure>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    note = "a workflow is an `async fn(ctx: Ctx, input: Input) -> Result<Output, Failure>` whose future is `Send`"
)]
pub trait Workflow<I, O>: Send + Sync + 'static {
    /// Its execution.
    type Run: Future<Output = Result<O, Failure>> + Send + 'static;
    /// Starts it.
    fn start(&self, ctx: Ctx, input: I) -> Self::Run;
}

impl<F, I, O, Fut> Workflow<I, O> for F
where
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    type Run = Fut;
    fn start(&self, ctx: Ctx, input: I) -> Fut {
        self(ctx, input)
    }
}

/// For how long runs are kept once they have ended, unless their workflow says otherwise.
const KEPT: Duration = Duration::from_hours(90 * 24);

/// What the engine polls.
pub(super) type Body = BoxFuture<'static, Result<Payload, Failure>>;
type Start = dyn Fn(Ctx, &Payload) -> Result<Body, PayloadError> + Send + Sync;

/// A workflow, its types forgotten.
pub(super) fn erased<W, I, O>(workflow: W) -> Arc<Start>
where
    W: Workflow<I, O>,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
{
    let workflow = Arc::new(workflow);
    Arc::new(move |ctx, input| {
        let (workflow, input) = (workflow.clone(), input.decode()?);
        // Called when it is first polled, where a panic of the run's code is caught.
        Ok(Box::pin(async move { Ok(Payload::of(&workflow.start(ctx, input).await?)?) }))
    })
}

/// A version of a workflow, as it is registered.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) name: Name,
    pub(super) version: u32,
    pub(super) start: Arc<Start>,
    /// The versions whose runs it can carry on, as its author says.
    replaces: BTreeSet<u32>,
    /// The tools that it calls, if it says so.
    pub(super) calls: Option<BTreeSet<String>>,
    /// The queue that its runs are put into, unless another one is chosen.
    pub(super) queue: Option<String>,
    /// What each of its runs may use up, if that is limited.
    pub(super) budget: Option<Budget>,
    /// How long each of its runs may take, unless its start says otherwise.
    pub(super) deadline: Option<Deadline>,
    /// How long its runs are kept once they have ended.
    pub(super) retention: Retention,
}

impl Registered {
    pub(super) fn may_call(&self, tool: &str) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.contains(tool))
    }
}

/// The workflows of an engine, by name and version and by function.
#[derive(Default)]
pub(super) struct Workflows {
    by_name: HashMap<String, BTreeMap<u32, Registered>>,
    by_function: HashMap<TypeId, (String, u32)>,
    functions: HashSet<&'static str>,
    /// The one that was registered last, which its author may say more about.
    last: Option<(String, u32)>,
}

impl Workflows {
    /// Adds a version of a workflow, or says why not.
    pub(super) fn add<W, I, O>(&mut self, name: &str, version: u32, workflow: W) -> Result<(), String>
    where
        W: Workflow<I, O>,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        let checked = Name::new(name).map_err(|e| e.to_string())?;
        let versions = self.by_name.entry(name.to_owned()).or_default();
        if versions.contains_key(&version) {
            return Err(format!(
                "there is a version {version} of it: their runs could not be told apart; give this one another \
                 version, or rename it"
            ));
        }
        let place = (name.to_owned(), version);
        if self.by_function.insert(TypeId::of::<W>(), place.clone()).is_some() {
            return Err("the same function is registered under another name or version".into());
        }
        self.functions.insert(type_name::<W>());
        self.last = Some(place);
        let start = erased(workflow);
        let replaces = BTreeSet::new();
        let (name, calls, queue, budget, deadline) = (checked, None, None, None, None);
        let retention = Retention::tombstone_after(KEPT);
        versions.insert(
            version,
            Registered { name, version, start, replaces, calls, queue, budget, deadline, retention },
        );
        Ok(())
    }

    /// The one that was added last, to say more about it; or why that cannot be said.
    fn last(&mut self, said: &str) -> Result<&mut Registered, (String, String)> {
        let last =
            self.last.clone().and_then(|(name, version)| self.by_name.get_mut(&name)?.get_mut(&version));
        last.ok_or_else(|| (String::new(), format!("`{said}` comes after the workflow that it is said of")))
    }

    /// The one that was added last calls this tool.
    pub(super) fn calls(&mut self, tool: &str) -> Result<(), (String, String)> {
        self.last("calls")?.calls.get_or_insert_default().insert(tool.to_owned());
        Ok(())
    }

    /// The runs of the one that was added last are put into this queue.
    pub(super) fn queue(&mut self, queue: &str) -> Result<(), (String, String)> {
        self.last("in_queue")?.queue = Some(queue.to_owned());
        Ok(())
    }

    /// The runs of the one that was added last may use up so much.
    pub(super) fn budget(&mut self, budget: Budget) -> Result<(), (String, String)> {
        self.last("budget")?.budget = Some(budget);
        Ok(())
    }

    /// Each run of the one that was added last may take so long.
    pub(super) fn deadline(&mut self, after: Duration) -> Result<(), (String, String)> {
        self.last("deadline")?.deadline = Some(Deadline::After(after));
        Ok(())
    }

    /// The runs of the one that was added last are kept for so long once they have ended.
    pub(super) fn retention(&mut self, retention: Retention) -> Result<(), (String, String)> {
        let last = self.last("retention")?;
        if retention.from == CountedFrom::LastAccess {
            let reason =
                "the retention of a run counts from its end: leave `from_last_access` out".to_owned();
            return Err((last.name.to_string(), reason));
        }
        last.retention = retention;
        Ok(())
    }

    /// How long the runs of each workflow are kept: as its newest version says. By name, so that a simulation sweeps in the same order
    /// each time.
    pub(super) fn retentions(&self) -> Vec<(Name, Retention)> {
        let newest: BTreeMap<_, _> =
            self.all().map(|workflow| (workflow.name.clone(), workflow.retention)).collect();
        newest.into_iter().collect()
    }

    /// Every version whose runs can be carried on.
    pub(super) fn carried(&self) -> Vec<(Name, u32)> {
        let versions = |workflow: &Registered| {
            let all = workflow.replaces.iter().copied().chain([workflow.version]);
            all.map(|version| (workflow.name.clone(), version)).collect::<Vec<_>>()
        };
        self.all().flat_map(versions).collect()
    }

    /// Every tool that a workflow says it calls must be there, and its queue.
    pub(super) fn check(&self, registry: &Registry, queues: &Queues) -> Result<(), (String, String)> {
        for workflow in self.all() {
            if let Some(queue) = workflow.queue.as_ref().filter(|queue| !queues.has(queue)) {
                let reason = format!("its runs go to the queue {queue:?}, which is not declared");
                return Err((workflow.name.to_string(), reason));
            }
            let mut calls = workflow.calls.iter().flatten();
            if let Some(missing) = calls.find(|tool| registry.find(tool).is_none()) {
                let reason = format!("it calls the tool {missing:?}, which is not registered");
                return Err((workflow.name.to_string(), reason));
            }
        }
        Ok(())
    }

    /// All versions of all workflows, by name and version.
    pub(super) fn all(&self) -> impl Iterator<Item = &Registered> {
        let by_name: BTreeMap<_, _> = self.by_name.iter().collect();
        by_name.into_values().flat_map(BTreeMap::values)
    }

    /// Lets the one that was added last carry on the runs of older versions; or its name and why not.
    pub(super) fn take_over(&mut self, older: impl IntoIterator<Item = u32>) -> Result<(), (String, String)> {
        let last = self.last("replaces")?;
        for version in older {
            if version >= last.version {
                let reason = format!("version {} takes over older ones only, not {version}", last.version);
                return Err((last.name.to_string(), reason));
            }
            last.replaces.insert(version);
        }
        Ok(())
    }

    /// What carries on a run that this version began: itself, or else the newest of those that take it over.
    pub(super) fn find(&self, name: &str, version: u32) -> Option<&Registered> {
        let versions = self.by_name.get(name)?;
        let heir = || versions.values().rev().find(|newer| newer.replaces.contains(&version));
        versions.get(&version).or_else(heir)
    }

    pub(super) fn newest(&self, name: &str) -> Option<&Registered> {
        self.by_name.get(name)?.values().next_back()
    }

    pub(super) fn of_function<W: 'static>(&self) -> Option<&Registered> {
        let (name, version) = self.by_function.get(&TypeId::of::<W>())?;
        self.by_name.get(name)?.get(version)
    }

    /// A function of this type is registered.
    pub(super) fn has_function(&self, type_name: &str) -> bool {
        self.functions.contains(type_name)
    }

    /// Why a run cannot be carried on, as a question.
    pub(super) fn unknown(&self, run: &Run) -> String {
        let (name, begun_by) = (run.workflow.as_str(), run.version);
        let Some(versions) = self.by_name.get(name) else {
            return format!(
                "{}: no workflow named {name:?} is registered with this engine. Register version {begun_by} of \
                 it, and the run goes on by itself; or abandon it?",
                run.id
            );
        };
        let there: Vec<_> = versions.keys().map(u32::to_string).collect();
        format!(
            "{}: it belongs to version {begun_by} of {name:?}, and of the versions registered with this engine \
             ({}) none takes it over. Register version {begun_by}, or let a newer one take it over \
             (`.replaces([{begun_by}])`), and the run goes on by itself; or abandon it?",
            run.id,
            there.join(", ")
        )
    }
}
