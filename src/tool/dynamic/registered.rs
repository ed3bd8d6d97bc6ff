//! A dynamic tool as it is registered, and with one input.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::redaction::{Redacted, Redaction};
use super::{About, CallFn, Functions};
use crate::id::Tenant;
use crate::ledger::{ApprovalSubject, Key, LookupResult, Scopes, Verdict};
use crate::payload::{DigestKey, Payload, PayloadError};
use crate::tool::prepared::{canonical, found, written};
use crate::tool::registry::Unprepared;
use crate::tool::{Call, Done, Prepared, ToolError, ToolSpec};

/// A dynamic tool, checked.
pub(super) struct Dynamic {
    pub(super) spec: Arc<ToolSpec>,
    pub(super) call: Arc<CallFn>,
    pub(super) functions: Functions,
    pub(super) redaction: Arc<Redaction>,
    pub(super) about: Option<About>,
}

impl Functions {
    /// The present form of an input that was stored with this version.
    fn upgraded(&self, stored: &Payload, version: u32) -> Option<Payload> {
        let value = self.upgrade.as_ref()?(version, stored.value().ok()?)?;
        Payload::of(&value).ok()
    }
}

impl Unprepared for Dynamic {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        Ok(Arc::new(WithValue {
            spec: self.spec.clone(),
            call: self.call.clone(),
            functions: self.functions.clone(),
            redaction: self.redaction.clone(),
            input: input.value()?,
            payload: input.clone(),
        }))
    }

    fn prepare_stored(&self, stored: &Payload, version: u32) -> Result<Arc<dyn Prepared>, PayloadError> {
        if version == self.spec.input_version {
            return self.prepare(stored);
        }
        let upgraded = self.functions.upgraded(stored, version).ok_or_else(|| PayloadError::Mismatch {
            expected: "the present version of the tool's input",
            reason: format!("it was stored as version {version}, and the tool does not upgrade it"),
        })?;
        self.prepare(&upgraded)
    }

    fn typed(&self) -> &dyn Any {
        self
    }

    fn about(&self) -> Option<&About> {
        self.about.as_ref()
    }
}

/// A dynamic tool with its input.
struct WithValue {
    spec: Arc<ToolSpec>,
    call: Arc<CallFn>,
    functions: Functions,
    redaction: Arc<Redaction>,
    input: Value,
    payload: Payload,
}

impl WithValue {
    /// The input without the fields that are not kept.
    fn redacted(&self) -> Redacted<'_> {
        Redacted { value: &self.input, fields: &self.redaction.input }
    }

    /// The output without the fields that are not kept.
    fn kept(&self, output: Value) -> Value {
        if self.redaction.output.is_empty() {
            return output;
        }
        Redacted { value: &output, fields: &self.redaction.output }.shown().into_owned()
    }
}

impl Prepared for WithValue {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn key(&self) -> Option<Key> {
        self.functions.key.as_ref()?(&self.input)
    }

    fn package(&self) -> Option<ApprovalSubject> {
        match &self.functions.package {
            Some(package) => Some(package(&self.redacted().shown())),
            None => self
                .functions
                .verdict
                .as_ref()
                .map(|_| ApprovalSubject::of(self.spec.name.as_str(), &self.redacted().shown())),
        }
    }

    fn verdict(&self) -> Option<Verdict> {
        Some(self.functions.verdict.as_ref()?(&self.input))
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.functions.scopes.as_ref()?(tenant, &self.input)
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        if self.redaction.input.is_empty() {
            return Ok((self.payload.clone(), false));
        }
        canonical(&self.redacted(), key)
    }

    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        self.functions.refresh.as_ref().map(|refresh| refresh() as BoxFuture<'_, _>)
    }

    fn rewrite(&self, stored: &Payload, version: u32) -> Option<Payload> {
        self.functions.upgraded(stored, version)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            let done = (self.call)(call.clone(), self.input.clone()).await;
            let done = done.map_err(|error| self.redacted().without(error))?;
            written(done.map(|output| self.kept(output)))
        })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let finding = self.functions.reconcile.as_ref()?(call.clone(), self.input.clone());
        Some(Box::pin(async move {
            let found_it = finding.await.map_err(|error| self.redacted().without(error))?;
            found(found_it.try_map(|output| Ok::<_, ToolError>(self.kept(output)))?)
        }))
    }
}
