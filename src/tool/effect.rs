//! Effect classes as types, so that the compiler can insist on their demands. The parameter of a class that writes is the
//! rule by which calls are [approved](super::approval).

use std::marker::PhantomData;
use std::sync::Arc;

use super::compensate::Compensator;
use super::{Compensate, Tool, approval};
use crate::ledger::EffectClass;

/// The class of a tool's effect on the world.
pub trait Effect: Send + Sync + 'static {
    /// The class as a value.
    const CLASS: EffectClass;
}

/// The demands of an effect class on a tool.
#[diagnostic::on_unimplemented(
    message = "`{T}` does not have what the effect class `{Self}` demands",
    note = "a notification or a deletion needs an approval: implement `NeedsApproval` for `{T}`"
)]
pub trait Demands<T: Tool> {
    /// The rule by which the tool's calls are approved.
    type Approval: approval::Demands<T>;

    /// The code that undoes the tool's effects, if they can be undone.
    #[doc(hidden)]
    fn compensator(_tool: &Arc<T>) -> Option<Compensator> {
        None
    }
}

/// An effect that leaves a mark in the world, which can be undone.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` leaves nothing behind that could be undone",
    note = "declare the effect without `Undoable`, and do not implement `Compensate` for the tool"
)]
pub trait LeavesMark: Effect {}

/// An effect whose tool can undo it: [`Undoable`] alone.
#[diagnostic::on_unimplemented(
    message = "a tool that implements `Compensate` must say that its effect is undoable",
    label = "the effect is declared as `{Self}`, so that its compensation would be forgotten",
    note = "wrap the effect class of the tool: `type Effect = effect::Undoable<effect::Payment>`, say"
)]
pub trait IsUndoable: Effect + sealed::Sealed {}

mod sealed {
    /// A seal, because no other type can promise that a compensation is registered.
    pub trait Sealed {}
    impl<E> Sealed for super::Undoable<E> {}
}

/// The effect of another class, from a tool that can undo it: it demands [`Compensate`]. When a run fails or is
/// cancelled, the effects of its undoable tools are undone.
///
/// ```
/// # use counterfoil::ledger::{LookupResult, Undone};
/// # use counterfoil::tool::{Call, Compensate, Done, OriginalCall, Tool, ToolError, contract};
/// use counterfoil::tool::effect;
///
/// struct Charge;
///
/// impl Tool for Charge {
///     const NAME: &'static str = "charge";
///     type Effect = effect::Undoable<effect::Payment>;
///     // …
/// #     type Contract = contract::ReplaysKey;
/// #     type Input = u64;
/// #     type Output = String;
/// #     async fn call(&self, _: &Call, _: &u64) -> Result<Done<String>, ToolError> {
/// #         Ok(Done::new("ch_1".into()))
/// #     }
/// }
/// # impl Compensate for Charge {
/// #     async fn compensate(&self, _: &Call, _: &OriginalCall<u64, String>) -> Result<Done<Undone>, ToolError> {
/// #         Ok(Undone::whole().into())
/// #     }
/// #     async fn find_compensation(
/// #         &self, _: &Call, _: &OriginalCall<u64, String>,
/// #     ) -> Result<LookupResult<Undone>, ToolError> {
/// #         Ok(LookupResult::Unknown)
/// #     }
/// # }
///
/// let engine = counterfoil::Engine::sqlite("agents.db").tool(Charge);
/// ```
#[derive(Debug)]
pub struct Undoable<E>(PhantomData<fn() -> E>);

impl<E: LeavesMark> Effect for Undoable<E> {
    const CLASS: EffectClass = E::CLASS;
}

impl<E: LeavesMark> IsUndoable for Undoable<E> {}

impl<T: Compensate, E: Demands<T>> Demands<T> for Undoable<E> {
    type Approval = E::Approval;

    fn compensator(tool: &Arc<T>) -> Option<Compensator> {
        Some(Compensator::of(tool))
    }
}

/// An effect that may go out without the approval of a person.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` must not be sent without an approval",
    label = "this call has none",
    note = "obtain a decision on its package and pass it: `ctx.call::<Tool>(input).approved_by(&approval).await`",
    note = "if the tool's own policy is to decide, declare its effect with `approval::Policy` and implement `ApprovalPolicy`"
)]
pub trait Unapproved {}

impl<E: Unapproved> Unapproved for Undoable<E> {}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Effect for $name {
            const CLASS: EffectClass = EffectClass::$name;
        }

        impl Unapproved for $name {}

        impl<T: Tool> Demands<T> for $name {
            type Approval = approval::None;
        }
    )*};
}

classes! {
    /// A computation that touches nothing.
    Pure
    /// A call of a model: costs money, changes nothing.
    ModelCall
    /// A read from the world.
    ReadOnly
}

macro_rules! writing_classes {
    ($($(#[$doc:meta])* $name:ident: $default:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<A = approval::$default>(PhantomData<fn() -> A>);

        impl<A: approval::Rule> Effect for $name<A> {
            const CLASS: EffectClass = EffectClass::$name;
        }

        impl<A: approval::Rule> LeavesMark for $name<A> {}

        impl Unapproved for $name<approval::Policy> {}

        impl Unapproved for $name<approval::None> {}

        impl<T: Tool, A: approval::Demands<T>> Demands<T> for $name<A> {
            type Approval = A;
        }
    )*};
}

writing_classes! {
    /// A draft that nobody is shown yet. A second one is a duplicate, so a draft is never made again blindly.
    Draft: None
    /// A change of your own system, with an expected version.
    InternalMutation: None
    /// A movement of money. Must be reconcilable, or sent where the provider itself prevents the duplicate.
    ///
    /// A payment that a person approves:
    ///
    /// ```
    /// # use counterfoil::tool::{Call, Done, Tool, ToolError, contract, NeedsApproval};
    /// # use counterfoil::ApprovalSubject;
    /// use counterfoil::tool::{approval, effect};
    ///
    /// struct Transfer;
    ///
    /// impl Tool for Transfer {
    ///     const NAME: &'static str = "transfer";
    ///     type Effect = effect::Payment<approval::Person>;
    ///     // …
    /// #     type Contract = contract::ReplaysKey;
    /// #     type Input = u64;
    /// #     type Output = String;
    /// #     async fn call(&self, _: &Call, _: &u64) -> Result<Done<String>, ToolError> {
    /// #         Ok(Done::new("tr_1".into()))
    /// #     }
    /// }
    ///
    /// impl NeedsApproval for Transfer {
    ///     fn package(&self, cents: &u64) -> ApprovalSubject {
    ///         ApprovalSubject::of("transfer", cents)
    ///     }
    /// }
    ///
    /// let engine = counterfoil::Engine::sqlite("agents.db").tool(Transfer);
    /// ```
    Payment: None
    /// A write to an agent's memory.
    MemoryWrite: None
    /// A message to a person. A person approves it, unless another rule is named.
    Notification: Person
    /// The destruction of something. A person approves it, unless another rule is named.
    Deletion: Person
}
