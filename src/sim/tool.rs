//! The seam to the world: a tool that tells when it is touched.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::crash::cross;
use super::{CrashPoint, Touch, Watch};
use crate::clock::Timestamp;
use crate::ledger::{Finding, Key, Package, Record, RequestHash, RetryDecision};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec};

/// A tool with its input, watched.
pub(crate) struct Watched {
    tool: Arc<dyn Prepared>,
    watch: Arc<dyn Watch>,
}

impl Watched {
    pub(crate) const fn new(tool: Arc<dyn Prepared>, watch: Arc<dyn Watch>) -> Self {
        Self { tool, watch }
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

    fn package(&self) -> Option<Package> {
        self.tool.package()
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        self.tool.request(key)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            cross(&*self.watch, CrashPoint::BeforeCall).await;
            self.watch.touches(Touch::Call, call, self.spec());
            let result = self.tool.call(call).await;
            if let Err(error) = &result
                && self.says_nothing_happened(error)
            {
                self.watch.touches(Touch::NothingHappened, call, self.spec());
            }
            cross(&*self.watch, CrashPoint::AfterCall).await;
            result
        })
    }

    fn reconcile<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Result<Finding<Payload>, ToolError>>> {
        let finding = self.tool.reconcile(call)?;
        Some(Box::pin(async move {
            cross(&*self.watch, CrashPoint::BeforeLookup).await;
            let found = finding.await;
            let nothing = matches!(found, Ok(Finding::NotFound));
            let touch = if nothing { Touch::FoundNothing } else { Touch::Looked };
            self.watch.touches(touch, call, self.spec());
            cross(&*self.watch, CrashPoint::AfterLookup).await;
            found
        }))
    }

    fn rewrite(&self, stored: &Payload) -> Option<Payload> {
        self.tool.rewrite(stored)
    }

    fn needs_caller(&self) -> bool {
        self.tool.needs_caller()
    }

    fn outlives(&self, record: &Record, request: &RequestHash, now: Timestamp) -> bool {
        self.tool.outlives(record, request, now)
    }
}
