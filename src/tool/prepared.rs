//! A tool together with one input, with its types erased: the form in which the executor handles it.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::approval::Demands as _;
use super::contract::Demands as _;
use super::{Call, Done, Tool, ToolError, ToolSpec, effect};
use crate::clock::Timestamp;
use crate::id::Tenant;
use crate::ledger::{ApprovalSubject, Key, LookupResult, Record, RequestHash, Scopes, Verdict};
use crate::payload::{DigestKey, Payload, PayloadError, noticing};

/// One tool, one input.
pub(crate) trait Prepared: Send + Sync {
    fn spec(&self) -> &ToolSpec;
    /// The tool's own key for its input, if it has one.
    fn key(&self) -> Option<Key> {
        None
    }
    /// The package that must be approved, if the call needs an approval.
    fn package(&self) -> Option<ApprovalSubject> {
        None
    }
    /// The verdict of the tool's policy, if it has one.
    fn verdict(&self) -> Option<Verdict> {
        None
    }
    /// The provider's scopes of the call's key and of its lookup, if they differ from call to call.
    fn scopes(&self, _tenant: &Tenant) -> Option<Scopes> {
        None
    }
    /// The canonical request. The flag is true if it holds a secret that would have needed the tenant's key.
    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError>;
    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>>;
    /// Looks the call up. `None` if the contract offers no lookup.
    fn reconcile<'a>(
        &'a self,
        _call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        None
    }
    /// Gets a new credential. `None` if the tool has no code for that.
    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        None
    }
    /// A stored request of another input version, read as the present type and written again. `None` if that fails.
    fn rewrite(&self, _stored: &Payload, _version: u32) -> Option<Payload> {
        None
    }

    /// True if only the caller can have the operation sent, because its stored request is not enough. Without its
    /// caller the operation is looked up, and nothing is sent.
    fn needs_caller(&self) -> bool {
        false
    }

    /// True if the settled record of an earlier request no longer binds the key. The record is removed when this
    /// request meets it.
    fn outlives(&self, _record: &Record, _request: &RequestHash, _now: Timestamp) -> bool {
        false
    }
}

/// The error of a tool that made two keys of one input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tool {tool:?} made two keys of one input, {first:?} and {second:?}: an unstable key protects nothing, so make it \
     of the input alone (no random number, no time, no counter) [key]"
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

/// The tool's own key for its input, computed twice. A key that holds a random number or a time differs in each
/// process, and each would be a new effect: it is refused before anything is recorded.
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

/// Serializes in the tenant's digest scope, or reports that the scope was missing.
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
        <T::Effect as effect::Demands<T>>::Approval::package(&self.tool, &self.input)
    }

    fn verdict(&self) -> Option<Verdict> {
        <T::Effect as effect::Demands<T>>::Approval::verdict(&self.tool, &self.input)
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.tool.scopes(tenant, &self.input)
    }

    fn request(&self, key: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        canonical(&self.input, key)
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move { written(self.tool.call(call, &self.input).await?) })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        let finding = T::Contract::reconcile(&self.tool, call, &self.input)?;
        Some(Box::pin(async move { found(finding.await?) }))
    }

    fn refresh(&self) -> Option<BoxFuture<'_, Result<(), ToolError>>> {
        Some(Box::pin(self.tool.refresh()))
    }

    fn rewrite(&self, stored: &Payload, _: u32) -> Option<Payload> {
        Payload::of(&stored.decode::<T::Input>().ok()?).ok()
    }
}

/// The result of a call, serialised.
pub(crate) fn written<V: serde::Serialize>(done: Done<V>) -> Result<Done<Payload>, ToolError> {
    let output = recordable(&done.output)?;
    Ok(done.map(|_| output))
}

/// The result of a lookup, serialised.
pub(crate) fn found<V: serde::Serialize>(found: LookupResult<V>) -> Result<LookupResult<Payload>, ToolError> {
    found.try_map(|output| recordable(&output))
}

/// Serialises the output of an effect that has happened. An output that cannot be serialised leaves the call ambiguous,
/// not failed.
fn recordable<V: serde::Serialize>(output: &V) -> Result<Payload, ToolError> {
    Payload::of(output).map_err(|e| {
        ToolError::new(crate::ledger::ErrorKind::Unknown, format!("the result cannot be recorded: {e}"))
    })
}
