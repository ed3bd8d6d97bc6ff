//! Runs that are addressed by what the world knows of them: their workflow, and the key that they were started under.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::RunError;
use super::handle::RunHandle;
use super::inner::Inner;
use super::signal::{Addressee, Named, NamesSignal, SendSignal};
use super::start::StartRun;
use super::status::RunStatus;
use super::tenant::TenantClient;
use super::workflow::{Registered, WorkflowFn};
use crate::id::{RunId, Tenant};
use crate::store::Store as _;

/// A workflow's run, by its start key.
#[derive(Clone, Debug)]
pub(super) struct Keyed {
    /// The name of the workflow; an error for a function that is not registered.
    workflow: Result<String, RunError>,
    key: String,
}

impl Keyed {
    pub(super) async fn find(&self, inner: &Inner, tenant: &Tenant) -> Result<Option<RunId>, RunError> {
        let workflow = self.workflow.as_ref().map_err(RunError::clone)?;
        Ok(inner.core.group.run_keyed(tenant, workflow, &self.key).await?.map(|run| run.id))
    }

    pub(super) async fn id(&self, inner: &Inner, tenant: &Tenant) -> Result<RunId, RunError> {
        let unknown = || RunError::UnknownKey {
            workflow: self.workflow.clone().unwrap_or_default(),
            key: self.key.clone(),
        };
        self.find(inner, tenant).await?.ok_or_else(unknown)
    }
}

/// A run by its workflow and its start key. Nothing is read before one of its futures is awaited.
#[derive(Clone)]
#[must_use = "a run is addressed to be signalled, awaited or looked at"]
pub struct RunOf<O> {
    inner: Arc<Inner>,
    tenant: Tenant,
    keyed: Keyed,
    _output: PhantomData<fn() -> O>,
}

impl TenantClient {
    /// The run of this workflow that was started under this [key](StartRun::key).
    ///
    /// ```no_run
    /// # async fn order(ctx: counterfoil::Ctx, order: String) -> Result<(), counterfoil::Failure> { Ok(()) }
    /// # async fn paid(engine: counterfoil::Engine) -> Result<(), Box<dyn std::error::Error>> {
    /// engine.tenant("acme")?.run_of(order, "order/9").signal("paid", 4200).id("evt_1QzR").await?;
    /// # Ok(()) }
    /// ```
    pub fn run_of<W, I, O>(&self, _workflow: W, key: impl Into<String>) -> RunOf<O>
    where
        W: WorkflowFn<I, O>,
    {
        let (inner, tenant) = self.parts();
        let workflow = inner.registered::<W>().map(|workflow| workflow.name.to_string());
        let keyed = Keyed { workflow, key: key.into() };
        RunOf { inner, tenant, keyed, _output: PhantomData }
    }

    /// The run of the workflow of this name that was started under this [key](StartRun::key): for callers that know no Rust types.
    pub fn run_of_named(&self, workflow: impl Into<String>, key: impl Into<String>) -> RunOf<Value> {
        let (inner, tenant) = self.parts();
        let keyed = Keyed { workflow: Ok(workflow.into()), key: key.into() };
        RunOf { inner, tenant, keyed, _output: PhantomData }
    }

    /// A run of the newest registered version of the workflow of this name: for callers that know no Rust types. The input
    /// is JSON, or any value that has a JSON form. An input that the workflow cannot read blocks the run.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use counterfoil::{Ctx, Engine, Failure};
    /// # async fn greet(_: Ctx, name: String) -> Result<String, Failure> { Ok(format!("Hello, {name}")) }
    /// use serde_json::json;
    ///
    /// let engine = Engine::in_memory().workflow("greet", 1, greet).start().await?;
    /// let greeting = engine.default_tenant().run_named("greet", json!("Ann")).key("g1").await?;
    /// assert_eq!(greeting, json!("Hello, Ann"));
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_named<I>(&self, workflow: &str, input: I) -> StartRun<Value>
    where
        I: Serialize + Send + Sync + 'static,
    {
        let (inner, tenant) = self.parts();
        let workflow = match inner.workflows.newest(workflow) {
            Some(workflow) => Ok(workflow.clone()),
            None if inner.core.is_client() => Registered::elsewhere(workflow).map_err(RunError::from),
            None => Err(RunError::Unregistered),
        };
        StartRun::of(inner, tenant, workflow, input)
    }
}

impl Inner {
    /// The workflow with this function.
    pub(super) fn registered<W: 'static>(&self) -> Result<&Registered, RunError> {
        let without = || if self.core.is_client() { RunError::NoCode } else { RunError::Unregistered };
        self.workflows.of_function::<W>().ok_or_else(without)
    }
}

impl<O> RunOf<O> {
    /// The handle of the run, if there is such a run.
    pub async fn find(&self) -> Result<Option<RunHandle<O>>, RunError> {
        let found = self.keyed.find(&self.inner, &self.tenant).await?;
        Ok(found.map(|run| RunHandle::of(self.inner.clone(), self.tenant.clone(), run)))
    }

    /// The handle of the run.
    ///
    /// # Errors
    /// [`RunError::UnknownKey`] if no run was started under the key.
    pub async fn handle(&self) -> Result<RunHandle<O>, RunError> {
        let run = self.keyed.id(&self.inner, &self.tenant).await?;
        Ok(RunHandle::of(self.inner.clone(), self.tenant.clone(), run))
    }

    /// Sends the run a signal: see [`RunHandle::signal`].
    pub fn signal<B>(&self, name: impl NamesSignal<B>, body: B) -> SendSignal
    where
        B: Serialize + Send + Sync + 'static,
    {
        let run = Named::Keyed(self.keyed.clone());
        SendSignal::to(Addressee { inner: self.inner.clone(), tenant: self.tenant.clone(), run }, name, body)
    }

    /// The status of the run: its state, its workflow, and its times.
    pub async fn status(&self) -> Result<RunStatus, RunError> {
        self.handle().await?.status().await
    }
}

impl<O: DeserializeOwned> RunOf<O> {
    /// Waits until the run is over: see [`RunHandle::result`].
    pub async fn result(&self) -> Result<O, RunError> {
        self.handle().await?.result().await
    }
}
