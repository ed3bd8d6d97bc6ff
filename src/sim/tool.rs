//! The seam to the world: a tool that tells when it is touched.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::{CrashPoint, Watch};
use crate::ledger::{Finding, Key, Package};
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
            self.watch.at(CrashPoint::BeforeCall);
            let result = self.tool.call(call).await;
            self.watch.at(CrashPoint::AfterCall);
            result
        })
    }

    fn reconcile<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Result<Finding<Payload>, ToolError>>> {
        let finding = self.tool.reconcile(call)?;
        Some(Box::pin(async move {
            self.watch.at(CrashPoint::BeforeLookup);
            let found = finding.await;
            self.watch.at(CrashPoint::AfterLookup);
            found
        }))
    }

    fn rewrite(&self, stored: &Payload) -> Option<Payload> {
        self.tool.rewrite(stored)
    }
}
