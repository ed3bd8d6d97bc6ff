//! Effect classes as types, so that the compiler can insist on what they demand.

use super::{NeedsApproval, Tool};
use crate::ledger::{EffectClass, Package};

/// What a tool does to the world.
pub trait Effect: Send + Sync + 'static {
    /// The class as a value.
    const CLASS: EffectClass;
}

/// What an effect class demands of a tool.
#[diagnostic::on_unimplemented(
    message = "`{T}` does not have what the effect class `{Self}` demands",
    note = "a notification or a deletion needs an approval: implement `NeedsApproval` for `{T}`"
)]
pub trait Demands<T: Tool> {
    /// What must be approved, if anything.
    fn package(tool: &T, input: &T::Input) -> Option<Package>;
}

/// An effect that may go out without an approval.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` must not be sent without an approval",
    label = "this call has none",
    note = "obtain a decision on its package and pass it: `ctx.call::<Tool>(input).approved_by(&approval).await`"
)]
pub trait Unapproved {}

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
            fn package(_: &T, _: &T::Input) -> Option<Package> {
                None
            }
        }
    )*};
}

classes! {
    /// Computes; touches nothing.
    Pure
    /// Asks a model: costs money, changes nothing.
    ModelCall
    /// Reads from the world.
    ReadOnly
    /// Makes something that nobody is shown yet. A second one is a duplicate: a draft is never made again blindly.
    Draft
    /// Changes the own system, with an expected version.
    InternalMutation
    /// Moves money. Must be reconcilable, or sent where the provider itself prevents the duplicate.
    Payment
    /// Writes to an agent's memory.
    MemoryWrite
}

macro_rules! approved_classes {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Effect for $name {
            const CLASS: EffectClass = EffectClass::$name;
        }

        impl<T: NeedsApproval> Demands<T> for $name {
            fn package(tool: &T, input: &T::Input) -> Option<Package> {
                Some(tool.package(input))
            }
        }
    )*};
}

approved_classes! {
    /// Tells somebody something. Needs an approval.
    Notification
    /// Destroys something. Needs an approval.
    Deletion
}
