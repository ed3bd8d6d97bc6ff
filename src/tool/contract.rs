//! Provider contracts as types, so that the compiler can insist on their demands.

use std::marker::PhantomData;

use futures_util::future::BoxFuture;

use super::{Call, Reconcile, Tool, ToolError, approval, effect};
use crate::ledger::{self, ContractClass, LookupOffer, LookupResult};

/// A provider's contract as a type.
pub trait Contract: Send + Sync + 'static {
    /// The contract of this class, with its careful defaults.
    fn declaration() -> ledger::Contract;
}

/// The contract is enough for tools of the effect class `E`.
#[diagnostic::on_unimplemented(
    message = "a `{E}` tool cannot have the contract `{Self}`",
    label = "after a crash nobody could tell what became of a call, or a repeat would be a second effect",
    note = "declare what the provider offers: `contract::ReplaysKey`, `RejectsKey`, `NaturalKey` or `Lookup`",
    note = "a notification whose fate nobody needs to find out has `contract::BlindNotice`"
)]
pub trait Suits<E: effect::Effect> {}

/// The demands of a contract on a tool.
#[diagnostic::on_unimplemented(
    message = "`{T}` does not have what the contract `{Self}` demands",
    note = "this contract is settled by a lookup: implement `Reconcile` for `{T}`"
)]
pub trait Demands<T: Tool> {
    /// Asks the provider, if the contract offers a lookup.
    fn reconcile<'a>(tool: &'a T, call: &'a Call, input: &'a T::Input) -> Option<Reconciling<'a, T>>;
}

/// A lookup in flight.
pub type Reconciling<'a, T> = BoxFuture<'a, Result<LookupResult<<T as Tool>::Output>, ToolError>>;

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident: $($demands:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Contract for $name {
            fn declaration() -> ledger::Contract {
                ledger::Contract::new(ContractClass::$name)
            }
        }

        impl From<$name> for ledger::Contract {
            fn from(_: $name) -> Self {
                $name::declaration()
            }
        }

        impl<T: Tool $(+ $demands)?> Demands<T> for $name {
            fn reconcile<'a>(tool: &'a T, call: &'a Call, input: &'a T::Input) -> Option<Reconciling<'a, T>> {
                classes!(@lookup tool call input $($demands)?)
            }
        }
    )*};
    (@lookup $tool:ident $call:ident $input:ident Reconcile) => {
        Some(Box::pin($tool.reconcile($call, $input)))
    };
    (@lookup $tool:ident $call:ident $input:ident) => {{
        let _ = ($tool, $call, $input);
        None
    }};
}

classes! {
    /// A provider that takes a key, and answers a duplicate with the stored result. No lookup: see [`WithLookup`].
    ReplaysKey:;
    /// A provider that takes a key, and refuses a duplicate without the result.
    RejectsKey: Reconcile;
    /// A conditional create, or an id that is known before sending. No lookup: see [`WithLookup`].
    NaturalKey:;
    /// A provider without a key, but with a strongly consistent lookup by our reference.
    Lookup: Reconcile;
    /// A provider without key and lookup. A call of unknown outcome waits for a person.
    Blind:;
    /// A call that sets a value, or removes what may be gone. It is made again if its outcome is unknown. A late repeat
    /// may overwrite a later value, unless each call carries a [version](ledger::Contract::versioned).
    Idempotent:;
}

/// A contract to which [`WithLookup`] adds a lookup.
#[diagnostic::on_unimplemented(
    message = "`WithLookup` adds nothing to `{Self}`",
    label = "write this contract without `WithLookup`",
    note = "`contract::Lookup` and `contract::RejectsKey` have a lookup already: a lookup is added to `ReplaysKey` or `NaturalKey`"
)]
pub trait WithoutLookup: Contract {}

impl WithoutLookup for ReplaysKey {}

impl WithoutLookup for NaturalKey {}

/// A provider that takes a key *and* can be asked.
#[derive(Debug)]
pub struct WithLookup<C>(PhantomData<C>);

impl<C: WithoutLookup> Contract for WithLookup<C> {
    fn declaration() -> ledger::Contract {
        C::declaration().lookup(LookupOffer::Strong)
    }
}

impl<T: Reconcile, C: WithoutLookup> Demands<T> for WithLookup<C> {
    fn reconcile<'a>(tool: &'a T, call: &'a Call, input: &'a T::Input) -> Option<Reconciling<'a, T>> {
        Some(Box::pin(tool.reconcile(call, input)))
    }
}

macro_rules! suits {
    ($($contract:ty)*) => {$(
        impl<E: effect::Effect> Suits<E> for $contract {}
    )*};
}

suits! { ReplaysKey RejectsKey NaturalKey Lookup }

impl<C: WithoutLookup, E: effect::Effect> Suits<E> for WithLookup<C> {}

macro_rules! some_suit {
    ($contract:ident: $($effect:ident)*) => {
        impl Suits<effect::Pure> for $contract {}
        impl Suits<effect::ModelCall> for $contract {}
        impl Suits<effect::ReadOnly> for $contract {}
        $(impl<A: approval::Rule> Suits<effect::$effect<A>> for $contract {})*
    };
}

impl<E: effect::LeavesMark> Suits<effect::Undoable<E>> for Idempotent where Self: Suits<E> {}

// A second payment, notice or draft is a second effect.
some_suit! { Idempotent: InternalMutation Deletion MemoryWrite }

impl<E: effect::LeavesMark> Suits<effect::Undoable<E>> for Blind where Self: Suits<E> {}

// Every effect but a payment, and a notification, which has a contract of its own.
some_suit! { Blind: Draft InternalMutation Deletion MemoryWrite }

/// [`Blind`], for a notification: its arrival cannot be found out, and the tool accepts that.
#[derive(Debug)]
pub struct BlindNotice;

impl Contract for BlindNotice {
    fn declaration() -> ledger::Contract {
        ledger::Contract::new(ContractClass::Blind).allow_blind_notices()
    }
}

impl<T: Tool> Demands<T> for BlindNotice {
    fn reconcile<'a>(_: &'a T, _: &'a Call, _: &'a T::Input) -> Option<Reconciling<'a, T>> {
        None
    }
}

impl<A: approval::Rule> Suits<effect::Notification<A>> for BlindNotice {}
