//! A tool together with one input, its types forgotten: what the executor works on.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::contract::Demands as _;
use super::effect::Demands as _;
use super::{Call, Done, Tool, ToolError, ToolSpec};
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{ApprovalSubject, Key, LookupResult, Record, RequestHash, Scopes};
use crate::payload::{DigestKey, Payload, PayloadError, noticing};

/// One tool, one input.
pub(crate) trait Prepared: Send + Sync {
    fn spec(&self) -> &ToolSpec;
    /// The tool's own key for its input, if it has one.
    fn key(&self) -> Option<Key> {
        None
    }
    /// What must be approved, if anything.
    fn package(&self) -> Option<ApprovalSubject> {
        None
    }
    /// What the provider scopes the call's key and its lookup to, if that differs from call to call.
    fn scopes(&self, _tenant: &Tenant) -> Option<Scopes> {
        None
    }
    /// The canonical request, and whether it holds a secret that would have needed the tenant's key.
    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>;
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>>;
    /// `None` where the contract offers no lookup.
    fn reconcile<'a>(
        &'a self,
        _call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        None
    }
    /// Gets a new credential. `None` where the tool has no way to.
    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        None
    }
    /// A stored request of another version of the input, read as today's and written again. `None` if it cannot be read so.
    fn rewrite(&self, _stored: &Payload, _version: u32) -> Option<Payload> {
        None
    }

    /// Only its caller can have it sent: what is stored of it is not enough. Whoever finds it without its caller looks it up and
    /// sends nothing.
    fn needs_caller(&self) -> bool {
        false
    }

    /// The settled record of an earlier request no longer binds the key: it is removed when this request meets it.
    fn outlives(&self, _record: &Record, _request: &RequestHash, _now: Timestamp) -> bool {
        false
    }
}

/// A tool made two keys of one input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tool {tool:?} made two keys of one input, {first:?} and {second:?}: an unstable key protects nothing, so make it \
     of the input alone (no random number, no time, no counter)"
)]
pub struct UnstableKey {
    /// The tool's name.
    pub tool: String,
    /// The key that the tool made first.
    pub first: String,
    /// The key that the tool made of the same input directly afterwards.
    pub second: String,
}

/// The key that the caller gave, or else the tool's own.
pub(crate) fn given_or_stable(given: Option<Key>, tool: &dyn Prepared) -> Result<Option<Key>, UnstableKey> {
    given.map_or_else(|| stable_key(tool), |key| Ok(Some(key)))
}

/// The tool's own key for its input, computed twice. A key that holds a random number or a time is a new key in each life
/// of the process, and each would be a new effect: it is refused before anything is recorded.
pub(crate) fn stable_key(tool: &dyn Prepared) -> Result<Option<Key>, UnstableKey> {
    let (first, second) = (tool.key(), tool.key());
    if first == second {
        return Ok(first);
    }
    let text = |key: Option<Key>| match key.map(|key| key.render()) {
        Some(Ok(key)) => key.to_string(),
        Some(Err(error)) => error.to_string(),
        None => "no key".to_owned(),
    };
    Err(UnstableKey { tool: tool.spec().name.to_string(), first: text(first), second: text(second) })
}

/// A typed tool with its input.
pub(crate) struct Typed<T: Tool> {
    pub(crate) tool: Arc<T>,
    pub(crate) spec: Arc<ToolSpec>,
    pub(crate) input: T::Input,
}

/// Serializes in the tenant's digest scope, or notices that there should have been one.
pub(crate) fn canonical<V: serde::Serialize + ?Sized>(
    value: &V,
    key: Option<&DigestKey>,
) -> Result<(Payload, bool), PayloadError> {
    match key {
        Some(key) => key.scoped(|| Payload::of(value)).map(|payload| (payload, false)),
        None => {
            let (payload, secret) = noticing(|| Payload::of(value));
            Ok((payload?, secret))
        }
    }
}

impl<T: Tool> Prepared for Typed<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn key(&self) -> Option<Key> {
        self.tool.key(&self.input)
    }

    fn package(&self) -> Option<ApprovalSubject> {
        T::Effect::package(&self.tool, &self.input)
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.tool.scopes(tenant, &self.input)
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        canonical(&self.input, key)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move {
            let done = self.tool.call(call, &self.input).await?;
            let output = written(&done.output)?;
            Ok(done.map(|_| output))
        })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let finding = T::Contract::reconcile(&self.tool, call, &self.input)?;
        Some(Box::pin(async move { finding.await?.try_map(|output| written(&output)) }))
    }

    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        Some(Box::pin(self.tool.refresh()))
    }

    fn rewrite(&self, stored: &Payload, _: u32) -> Option<Payload> {
        Payload::of(&stored.decode::<T::Input>().ok()?).ok()
    }
}

/// The effect has happened: a result that cannot be written down leaves the call ambiguous, not failed.
pub(crate) fn written<V: serde::Serialize>(output: &V) -> Result<Payload, ToolError> {
    Payload::of(output).map_err(|e| {
        ToolError::new(crate::ledger::ErrorKind::Unknown, format!("the result cannot be recorded: {e}"))
    })
}
