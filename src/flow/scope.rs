//! What is built on a workflow's calls: tools that are put together at run time, under a name that is theirs together.

use std::sync::Arc;

use super::call::{Asked, call};
use super::ctx::Ctx;
use super::failure::Failure;
use super::identity::Kind;
use super::label::Label;
use super::live::Open;
use crate::ledger::{Approval, Key};
use crate::payload::Payload;
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
        let asked = Asked { tool, key: Some(key), id: None, approval: approval.map(Box::new) };
        call(self, asked).await.map(|answer| answer.response)
    }

    /// Does work whose parts are to have a name in common, the same on every resume: that of the label, with the
    /// next ordinal if it has no id.
    pub(crate) async fn scoped<T>(
        &self,
        label: Label,
        work: impl AsyncFnOnce(String) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let scope = Scope(Some(self.open(Kind::Scope, label)?));
        let Some(open) = &scope.0 else { unreachable!("it is closed when it is dropped") };
        let _behind = open.behind();
        // The first `#` ends the name.
        let name = open.identity.name.replace('%', "%25").replace('#', "%23");
        work(format!("{name}#{}", open.identity.id)).await
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
