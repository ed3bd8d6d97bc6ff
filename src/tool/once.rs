//! A plain function as a tool, for a call that is declared where it is made.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::{Call, Done, Prepared, ToolError, ToolSpec};
use crate::id::Name;
use crate::ledger::{Contract, ContractClass, EffectClass, ErrorKind, Key, KeyError, Retention, RetryPolicy};
use crate::payload::{DigestKey, Payload, PayloadError};

/// A plain function as a tool that is used once. No provider is declared, so a call of unknown outcome waits for a
/// person.
pub(crate) struct Once<F> {
    spec: ToolSpec,
    payload: Payload,
    function: Mutex<Option<F>>,
}

impl<F> Once<F> {
    pub(crate) fn new(key: &Key, payload: Payload, function: F) -> Result<Self, KeyError> {
        let name = Name::new(key.kind()).map_err(|_| KeyError::Empty { part: "operation type" })?;
        let blind = Contract::new(ContractClass::Blind);
        // A function that can be called only once cannot be retried.
        let retry = RetryPolicy { attempts: 1, ..RetryPolicy::of(&blind) };
        let spec = ToolSpec::of(name, EffectClass::InternalMutation, blind, retry);
        let spec = ToolSpec { retention: Retention::default(), ..spec };
        Ok(Self { spec, payload, function: Mutex::new(Some(function)) })
    }
}

impl<F, Fut> Prepared for Once<F>
where
    F: FnOnce() -> Fut + Send,
    Fut: Future<Output = Result<Payload, ToolError>> + Send,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((self.payload.clone(), false))
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            match function {
                Some(function) => function().await.map(Done::new),
                None => Err(ToolError::new(ErrorKind::Validation, "the function was called already")),
            }
        })
    }
}
