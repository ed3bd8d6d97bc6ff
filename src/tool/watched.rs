//! A tool that reports when it touches the world: the seam between the engine and everything outside.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{Call, Done, Prepared, ToolError, ToolSpec};
use crate::clock::Timestamp;
use crate::crash::{CrashPoint, Probe};
use crate::id::Tenant;
use crate::ledger::{
    ApprovalSubject, Key, LookupResult, Record, RequestHash, RetryDecision, Scopes, Verdict,
};
use crate::payload::{DigestKey, Payload, PayloadError};

/// The ways in which a tool touches the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// The tool is being called.
    Call,
    /// The call returned an error that says that nothing happened.
    NothingHappened,
    /// A lookup was made, and found nothing.
    FoundNothing,
    /// A lookup was made, and found the effect or could not tell.
    Looked,
}

/// A witness of the ways in which tools touch the world: a simulation checks that nothing is sent blindly. The attempt
/// and its key are those of the call.
pub(crate) trait Witness: Send + Sync {
    fn touches(&self, touch: Touch, call: &Call, tool: &ToolSpec);
}

/// The observers of tools at work.
#[derive(Clone, Default)]
pub(crate) struct Watching {
    pub(crate) probe: Probe,
    witness: Option<Arc<dyn Witness>>,
}

impl Watching {
    #[cfg(feature = "sim")]
    pub(super) fn witnessed_by(&mut self, witness: Arc<dyn Witness>) {
        self.witness = Some(witness);
    }

    fn touches(&self, touch: Touch, call: &Call, tool: &ToolSpec) {
        if let Some(witness) = &self.witness {
            witness.touches(touch, call, tool);
        }
    }
}

/// A tool with its input, watched.
pub(super) struct Watched {
    tool: Arc<dyn Prepared>,
    by: Watching,
}

impl Watched {
    pub(super) const fn new(tool: Arc<dyn Prepared>, by: Watching) -> Self {
        Self { tool, by }
    }

    fn says_nothing_happened(&self, error: &ToolError) -> bool {
        let spec = self.tool.spec();
        let decision = error.kind.decision(spec.effect, spec.contract.class);
        matches!(decision, RetryDecision::Retry | RetryDecision::DoNotRetry)
    }
}

impl Prepared for Watched {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn key(&self) -> Option<Key> {
        self.tool.key()
    }

    fn package(&self) -> Option<ApprovalSubject> {
        self.tool.package()
    }

    fn verdict(&self) -> Option<Verdict> {
        self.tool.verdict()
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.tool.scopes(tenant)
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        self.tool.request(key)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            self.by.probe.cross(CrashPoint::BeforeCall).await;
            self.by.touches(Touch::Call, call, self.spec());
            let result = self.tool.call(call).await;
            if let Err(error) = &result
                && self.says_nothing_happened(error)
            {
                self.by.touches(Touch::NothingHappened, call, self.spec());
            }
            self.by.probe.cross(CrashPoint::AfterCall).await;
            result
        })
    }

    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        self.tool.refresh()
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let finding = self.tool.reconcile(call)?;
        Some(Box::pin(async move {
            self.by.probe.cross(CrashPoint::BeforeLookup).await;
            let found = finding.await;
            let nothing = matches!(found, Ok(LookupResult::NotFound));
            let touch = if nothing { Touch::FoundNothing } else { Touch::Looked };
            self.by.touches(touch, call, self.spec());
            self.by.probe.cross(CrashPoint::AfterLookup).await;
            found
        }))
    }

    fn rewrite(&self, stored: &Payload, version: u32) -> Option<Payload> {
        self.tool.rewrite(stored, version)
    }

    fn needs_caller(&self) -> bool {
        self.tool.needs_caller()
    }

    fn outlives(&self, record: &Record, request: &RequestHash, now: Timestamp) -> bool {
        self.tool.outlives(record, request, now)
    }
}
