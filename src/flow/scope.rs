//! The base of agents: calls of tools that are built at run time, a common name for several parts, and the responses to
//! a run's operations.

use std::sync::Arc;

use super::call::{Asked, Terms, call};
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
    /// The registry of the engine's tools.
    pub(crate) fn registry(&self) -> &Registry {
        &self.live.core.registry
    }

    /// Calls a tool that was built at run time, for this agent, and returns its response in its recorded form.
    pub(crate) async fn call_prepared(
        &self,
        agent: &str,
        tool: Arc<dyn Prepared>,
        key: Key,
        approval: Option<Approval>,
    ) -> Result<Payload, Failure> {
        let terms = Terms { approval, agent: Some(agent.to_owned()), ..Terms::default() };
        let asked = Asked { tool, key: Some(key), id: None, terms: Some(Box::new(terms)) };
        call(self, asked).await.map(|answer| answer.response)
    }

    /// Does work whose parts have a name in common, the same on every resume: the name of the label, with the next
    /// ordinal if the label has no id.
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
    /// The responses to the operations of a run whose operation type is wanted.
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

/// An open scope. It has no result of its own that a drop could lose: it leaves no mark, but its parts do.
struct Scope(Option<Open>);

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.close();
        }
    }
}
