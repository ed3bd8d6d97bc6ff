//! Compensation: the declaration of a tool that its effects can be undone, and the operation that undoes an effect.
//!
//! A compensation is an operation of its own: with a record, a key derived from that of the forward call, and the same
//! rules for an unknown outcome. Its tool is an [`Undo`], registered beside the tool whose effects it undoes.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dynamic::ScopesFn;
use super::effect::IsUndoable;
use super::prepared::{found, written};
use super::{Call, Done, Prepared, Tool, ToolError, ToolSpec, registry::Unprepared};
use crate::id::{IdError, Name, Tenant};
use crate::ledger::{
    ApprovalRule, BoundFields, Compensation, Contract, Divergence, EffectClass, Key, LookupOffer,
    LookupResult, OperationKey, Quota, Record, Scopes, Undone,
};
use crate::payload::{DigestKey, Payload, PayloadError};

/// The code that undoes a tool's effects. The tool declares its effect as [`Undoable`](super::effect::Undoable), and
/// its effects are undone when the run that owns them fails or is cancelled, the last one first.
///
/// ```
/// use counterfoil::ledger::{LookupResult, Undone};
/// use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract, effect};
/// use counterfoil::Key;
///
/// struct Charge;
///
/// impl Tool for Charge {
///     const NAME: &'static str = "charge";
///     type Effect = effect::Undoable<effect::Payment>;
///     type Contract = contract::ReplaysKey;
///     type Input = u64; // cents
///     type Output = String; // the charge's id
///
///     fn key(&self, _: &u64) -> Option<Key> {
///         Some(Key::of(Self::NAME).target("order_7").operation("pay"))
///     }
///
///     async fn call(&self, call: &Call, cents: &u64) -> Result<Done<String>, ToolError> {
///         Ok(Done::new(format!("ch_{cents}_{}", call.key())))
///     }
/// }
///
/// impl Compensate for Charge {
///     async fn compensate(
///         &self,
///         call: &Call,
///         forward: &OriginalCall<u64, String>,
///     ) -> Result<Done<Undone>, ToolError> {
///         // POST /refunds with `Idempotency-Key: call.key()`. After a crash the forward key may be all there is.
///         let charge = forward.output().cloned().unwrap_or_else(|| format!("by reference {}", forward.key()));
///         Ok(Undone::whole().detail(format!("{charge} refunded under {}", call.key())).into())
///     }
///
///     async fn find_compensation(
///         &self,
///         _: &Call,
///         _: &OriginalCall<u64, String>,
///     ) -> Result<LookupResult<Undone>, ToolError> {
///         Ok(LookupResult::Unknown) // this provider offers no lookup: it replays keys
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the effect of `{Self}` is undoable, but `{Self}` does not say how it is undone",
    label = "`Compensate` is missing",
    note = "implement `Compensate` for `{Self}`, or declare the effect without `effect::Undoable`"
)]
pub trait Compensate: Tool<Effect: IsUndoable, Output: Sync> {
    /// The policy that says when effects are undone.
    fn policy(&self) -> Compensation {
        Compensation::Automatic
    }

    /// The provider's contract for the compensation. Default: the same as for the call.
    ///
    /// If the contract offers a lookup and a second undoing would not collide by its key,
    /// [`find_compensation`](Self::find_compensation) precedes each undoing: an effect that another party has undone
    /// counts as undone, and nothing is sent. With [`look_first`](Contract::look_first) this also holds if copies
    /// collide, because an undoing by hand has another key.
    fn compensation_contract(&self) -> Contract {
        self.contract()
    }

    /// True if surplus effects are undone: the effect happened more than once, and the lookup names all of them. The
    /// first one is kept. If false, a person decides. Default: true if the policy is to undo without asking.
    fn undoes_surplus(&self) -> bool {
        self.policy() == Compensation::Automatic
    }

    /// Undoes the effect. `call` has a key of its own, never that of the forward call, which the provider knows
    /// already.
    fn compensate(
        &self,
        call: &Call,
        forward: &OriginalCall<Self::Input, Self::Output>,
    ) -> impl Future<Output = Result<Done<Undone>, ToolError>> + Send;

    /// Asks the provider if the effect is undone, by this compensation or by any other party. Called if the contract
    /// offers a lookup: after a compensation of unknown outcome, after one that was refused as done before, and before
    /// a compensation that would not collide with the undoing of another party. For a
    /// [surplus](OriginalCall::is_surplus) effect the answer is about that effect.
    fn find_compensation(
        &self,
        call: &Call,
        forward: &OriginalCall<Self::Input, Self::Output>,
    ) -> impl Future<Output = Result<LookupResult<Undone>, ToolError>> + Send;
}

/// The call that is to be undone, as far as it is known. After a crash its key may be all that is known.
#[derive(Clone, Debug)]
pub struct OriginalCall<I = Value, O = Value> {
    key: String,
    operation_key: OperationKey,
    external_ref: Option<String>,
    surplus: bool,
    input: Option<I>,
    output: Option<O>,
}

impl<I, O> OriginalCall<I, O> {
    /// The key with which the call went to the provider: the same text as its `call.key()`.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The readable key of the call.
    pub fn operation_key(&self) -> &OperationKey {
        &self.operation_key
    }

    /// The provider's id of the effect to be undone, if it is known.
    pub fn external_ref(&self) -> Option<&str> {
        self.external_ref.as_deref()
    }

    /// True if the call happened more than once and only the effect with this external id is to be undone: the first
    /// one is kept.
    pub const fn is_surplus(&self) -> bool {
        self.surplus
    }

    /// The input of the call. Absent if it held a secret, is too large to be carried along, or no longer parses.
    pub const fn input(&self) -> Option<&I> {
        self.input.as_ref()
    }

    /// The output of the call; for a [surplus](Self::is_surplus) effect, the output that the lookup or the late answer
    /// has shown. Absent for the same reasons, and if a person decided the result.
    pub const fn output(&self) -> Option<&O> {
        self.output.as_ref()
    }
}

/// The request of a compensation, as its record holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undoing {
    /// The forward call's key.
    pub(crate) key: String,
    /// The forward call's wire key, stored because a later build of the tool may derive it in another way.
    pub(crate) wire_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) external_ref: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) surplus: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Value>,
}

impl Undoing {
    /// The fields that the key of a compensation is bound to.
    fn bound() -> BoundFields {
        BoundFields::only(1, ["/key", "/wire_key"])
    }

    /// The key of the compensation, which names the effect that it undoes.
    fn own_key(&self, tool: &str) -> Key {
        let key = undoing_key(tool, &self.key);
        match &self.external_ref {
            Some(effect) if self.surplus => key.operation(effect),
            _ => key,
        }
    }

    fn forward<I: DeserializeOwned, O: DeserializeOwned>(&self) -> OriginalCall<I, O> {
        OriginalCall {
            key: self.wire_key.clone(),
            operation_key: OperationKey::stored(self.key.as_str()),
            external_ref: self.external_ref.clone(),
            surplus: self.surplus,
            input: self.input.as_ref().and_then(|value| I::deserialize(value).ok()),
            output: self.output.as_ref().and_then(|value| O::deserialize(value).ok()),
        }
    }
}

/// The key of the operation that undoes the effect of this record, also where its tool is not registered. `None` if no
/// operation can have such a key.
pub(crate) fn compensation_key(forward: &Record) -> Option<OperationKey> {
    undoing_key(&Undo::name(forward.operation.as_str()), forward.key.as_str()).render().ok()
}

/// The key of an operation of this undoing tool, by the key of the call that it undoes.
fn undoing_key(undo: &str, forward: &str) -> Key {
    Key::of(undo).target(forward).hashed()
}

/// The code that undoes, with its types erased.
pub(crate) trait Undoes: Send + Sync {
    /// The provider's scopes of the compensation, the same as those of the forward call.
    fn scopes(&self, tenant: &Tenant, undoing: &Undoing) -> Option<Scopes>;
    fn undo<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<Done<Undone>, ToolError>>;
    fn find<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<LookupResult<Undone>, ToolError>>;
}

/// The code that undoes a tool's effects, with its policy and contract. The tool's types are erased.
pub struct Compensator {
    pub(super) policy: Compensation,
    pub(super) contract: Contract,
    pub(super) surplus: bool,
    pub(super) undoes: Arc<dyn Undoes>,
}

impl Compensator {
    /// The compensator that a typed tool declares.
    pub(super) fn of<T: Compensate>(tool: &Arc<T>) -> Self {
        Self {
            policy: tool.policy(),
            contract: tool.compensation_contract(),
            surplus: tool.undoes_surplus(),
            undoes: Arc::new(ByTool { tool: tool.clone() }),
        }
    }
}

/// A typed tool that can undo its effects.
struct ByTool<T> {
    tool: Arc<T>,
}

impl<T: Compensate> Undoes for ByTool<T> {
    fn scopes(&self, tenant: &Tenant, undoing: &Undoing) -> Option<Scopes> {
        let input = T::Input::deserialize(undoing.input.as_ref()?).ok()?;
        self.tool.scopes(tenant, &input)
    }

    fn undo<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<Done<Undone>, ToolError>> {
        Box::pin(async move { self.tool.compensate(call, &undoing.forward()).await })
    }

    fn find<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<LookupResult<Undone>, ToolError>> {
        Box::pin(async move { self.tool.find_compensation(call, &undoing.forward()).await })
    }
}

pub(super) type UndoFn =
    dyn Fn(Call, OriginalCall) -> BoxFuture<'static, Result<Done<Undone>, ToolError>> + Send + Sync;
pub(super) type FindFn =
    dyn Fn(Call, OriginalCall) -> BoxFuture<'static, Result<LookupResult<Undone>, ToolError>> + Send + Sync;

/// Functions that undo, for a tool that is known only at run time.
pub(super) struct ByFunctions {
    pub(super) undo: Arc<UndoFn>,
    pub(super) find: Option<Arc<FindFn>>,
    pub(super) scopes: Option<Arc<ScopesFn>>,
}

impl Undoes for ByFunctions {
    fn scopes(&self, tenant: &Tenant, undoing: &Undoing) -> Option<Scopes> {
        self.scopes.as_ref()?(tenant, undoing.input.as_ref()?)
    }

    fn undo<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<Done<Undone>, ToolError>> {
        (self.undo)(call.clone(), undoing.forward())
    }

    fn find<'a>(
        &'a self,
        call: &'a Call,
        undoing: &'a Undoing,
    ) -> BoxFuture<'a, Result<LookupResult<Undone>, ToolError>> {
        match &self.find {
            Some(find) => find(call.clone(), undoing.forward()),
            None => Box::pin(async { Ok(LookupResult::Unknown) }),
        }
    }
}

/// The tool of the compensations of another tool.
pub(crate) struct Undo {
    pub(super) spec: Arc<ToolSpec>,
    pub(super) undoes: Arc<dyn Undoes>,
    pub(crate) surplus: bool,
}

impl Undo {
    /// The name of the tool that undoes another tool's effects.
    pub(super) fn name(tool: &str) -> String {
        format!("undo {tool}")
    }

    /// The tool that is registered beside the tool of this declaration.
    pub(super) fn of(forward: &ToolSpec, compensator: Compensator) -> Result<Self, IdError> {
        let Compensator { contract, surplus, undoes, .. } = compensator;
        let spec = ToolSpec {
            name: Name::new(Self::name(forward.name.as_str()))?,
            effect: EffectClass::Compensation,
            contract: contract.settled_for(&forward.retry),
            retry: forward.retry,
            lookups: forward.lookups,
            retention: forward.retention,
            quota: Quota { provider: forward.quota.provider.clone(), ..Quota::default() },
            divergence: Divergence::Adopt,
            input_version: 1,
            bound: Undoing::bound(),
            approval: ApprovalRule::None,
            compensation: None,
            any_output: true,
        };
        Ok(Self { spec: Arc::new(spec), undoes, surplus })
    }

    /// The compensation of one effect.
    pub(crate) fn with(&self, undoing: Undoing) -> Result<Arc<dyn Prepared>, PayloadError> {
        let payload = Payload::of(&undoing)?;
        Ok(Arc::new(Ready { spec: self.spec.clone(), undoes: self.undoes.clone(), undoing, payload }))
    }
}

impl Unprepared for Undo {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn prepare(&self, input: &Payload) -> Result<Arc<dyn Prepared>, PayloadError> {
        self.with(input.decode()?)
    }

    fn typed(&self) -> &dyn Any {
        self
    }
}

/// A compensation, ready to be carried out.
struct Ready {
    spec: Arc<ToolSpec>,
    undoes: Arc<dyn Undoes>,
    undoing: Undoing,
    payload: Payload,
}

impl Prepared for Ready {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn key(&self) -> Option<Key> {
        Some(self.undoing.own_key(self.spec.name.as_str()))
    }

    fn scopes(&self, tenant: &Tenant) -> Option<Scopes> {
        self.undoes.scopes(tenant, &self.undoing)
    }

    fn request(&self, _: Option<&DigestKey>) -> Result<(Payload, bool), PayloadError> {
        Ok((self.payload.clone(), false))
    }

    fn call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Done<Payload>, ToolError>> {
        Box::pin(async move { written(self.undoes.undo(call, &self.undoing).await?) })
    }

    fn reconcile<'a>(
        &'a self,
        call: &'a Call,
    ) -> Option<BoxFuture<'a, Result<LookupResult<Payload>, ToolError>>> {
        if self.spec.contract.lookup == LookupOffer::None {
            return None;
        }
        let finding = self.undoes.find(call, &self.undoing);
        Some(Box::pin(async move { found(finding.await?) }))
    }
}
