//! The engine, as a program holds it.

use std::sync::Arc;
use std::time::Duration;

use super::guarantees::Guarantees;
use super::inner::Inner;
use super::tenant::TenantClient;
use crate::exec::{Executor, Health};
use crate::id::{IdError, Tenant};
use crate::tool::ToolSpec;

/// Workflows on a store, in this process.
#[derive(Clone)]
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("core", &self.inner.core).finish_non_exhaustive()
    }
}

impl Engine {
    /// Everything of one tenant.
    pub fn tenant(&self, name: impl AsRef<str>) -> Result<TenantClient, IdError> {
        Ok(TenantClient::new(self.inner.clone(), Tenant::new(name)?))
    }

    /// The operations of a tenant whose name has been checked.
    pub fn as_tenant(&self, tenant: &Tenant) -> TenantClient {
        TenantClient::new(self.inner.clone(), tenant.clone())
    }

    /// Everything of the [default tenant](Tenant::default): for programs that have one tenant only.
    pub fn default_tenant(&self) -> TenantClient {
        TenantClient::new(self.inner.clone(), Tenant::default())
    }

    /// The executor of this engine, for guarded tool calls outside any workflow. It keeps the engine going.
    pub fn executor(&self) -> Executor {
        Executor::of(self.inner.core.clone(), self.inner.clone())
    }

    /// Resolves when this worker has lost its lease, in a store that several share: it was stopped for too long, or cut
    /// off from the store, and another one has taken its work over. It sends and changes nothing any more.
    /// [Shut it down](Self::shutdown), so that answers which are still to come are kept as evidence; then start another
    /// engine, or end the process.
    pub async fn fenced(&self) {
        self.inner.core.fenced().await;
    }

    /// The health of this worker, for probes: whether it is live and ready, and why not. It costs no statement.
    pub fn health(&self) -> Health {
        self.inner.core.health()
    }

    /// The declarations of the registered tools.
    pub fn tools(&self) -> Vec<&ToolSpec> {
        self.inner.core.registry.specs()
    }

    /// The guarantees of the calls of the registered workflows and tools.
    pub fn guarantees(&self) -> Guarantees {
        Guarantees::of(&self.inner.workflows, &self.inner.core.registry)
    }

    /// Starts no new call, waits at most `drain` for those under way, and writes what is queued. Runs go on
    /// where they are when an engine is started on the same store. Calls that are still under way then are
    /// what they are: ambiguous, and reconciled.
    ///
    /// When this returns, another process can open a SQLite file, unless a call is still under way: it may send
    /// yet, so the file stays locked until the call or the process ends. What is recorded can still be read.
    pub async fn shutdown(self, drain: Duration) {
        self.inner.core.begin_closing();
        self.inner.runs.stop_all();
        self.inner.core.close(drain).await;
        self.inner.ends.give_up_all(); // whoever waits for a run without a task is told, instead of waiting for ever
        tracing::info!(worker = %self.inner.core.fence, "engine shut down");
    }
}
