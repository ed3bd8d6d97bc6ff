//! The interface for sealing the record of an attempt in the transaction of its effect.

use futures_util::future::BoxFuture;

use crate::payload::Payload;
use crate::store::{Change, StoreError};

/// Seals the record of an attempt in the transaction of its effect.
pub(crate) trait Seals: Send {
    /// Marks the record. Code that ends the transaction by itself leaves the mark, and no seal.
    fn mark(&self) -> Change;
    /// The seal, to be written after the mark.
    fn seal(&self, response: &Payload) -> Option<Change>;
    /// Notes that the transaction was committed with this seal in it.
    fn took_place(self: Box<Self>, seal: Change);
    /// Makes the mark durable outside of the transaction, which was ended in an unknown way.
    fn ended_inside(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>>;
}
