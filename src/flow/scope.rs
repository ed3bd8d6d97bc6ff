//! What agents are built on: calls of tools that are put together at run time, a name that several parts have in common, and
//! what a run's operations came to.

use std::sync::Arc;

use super::call::{Asked, call};
use super::ctx::Ctx;
use super::error::RunError;
use super::failure::Failure;
use super::identity::Kind;
use super::label::Label;
use super::live::Open;
use super::tenant::TenantClient;
use crate::id::RunId;
use crate::ledger::{Approval, Key};
use crate::payload::Payload;
use crate::store::{Store as _, Turns};
use crate::tool::{Prepared, Registry};

impl Ctx {
    /// The tools that the engine knows.
    pub(crate) fn registry(&self) -> &Registry {
        &self.live.core.registry
    }

    /// Calls a tool that was put together at run time, and gives its response as it is recorded.
    pub(crate) async fn call_prepared(
        &self,
        tool: Arc<dyn Prepared>,
        key: Key,
        approval: Option<Approval>,
    ) -> Result<Payload, Failure> {
        let asked =
            Asked { tool, key: Some(key), id: None, approval: approval.map(Box::new), proposed: true };
        call(self, asked).await.map(|answer| answer.response)
    }

    /// Does work whose parts are to have a name in common, the same on every resume: that of the label, with the
    /// next ordinal if it has no id.
    pub(crate) async fn scoped<T>(
        &self,
        label: Label,
        work: impl AsyncFnOnce(String) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let scope = Scope(Some(self.open(Kind::Scope, label).await?));
        let Some(open) = &scope.0 else { unreachable!("it is closed when it is dropped") };
        let _behind = open.behind();
        // The first `#` ends the name.
        let name = open.identity.name.replace('%', "%25").replace('#', "%23");
        work(format!("{name}#{}", open.identity.id)).await
    }
}

impl TenantClient {
    /// What the operations of a run came to whose type is one of these.
    pub(crate) async fn responses(
        &self,
        run: RunId,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Payload>, RunError> {
        let (core, tenant) = self.core();
        if core.group.run_find(&tenant, run).await?.is_none() {
            return Err(RunError::Unknown { run });
        }
        let mut responses = Vec::new();
        for call in core.group.run_history(&tenant, run, Turns::ALL).await?.calls {
            if let Some(response) = call.response.filter(|_| wanted(&call.operation)) {
                responses.extend(core.load_response(&tenant, &response).await?.ok());
            }
        }
        Ok(responses)
    }
}

/// Has no result of its own that a drop could lose: it leaves no mark, its parts do.
struct Scope(Option<Open>);

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.close();
        }
    }
}
