//! How the record of an attempt is sealed in the transaction of its effect.

use futures_util::future::BoxFuture;

use crate::payload::Payload;
use crate::store::{Change, StoreError};

/// Seals the record of an attempt in the transaction of its effect.
pub(crate) trait Seals: Send {
    /// Marks the record. Whoever ends the transaction by himself leaves the mark behind, and no seal.
    fn mark(&self) -> Change;
    /// The seal, behind the mark.
    fn seal(&self, response: &Payload) -> Option<Change>;
    /// The transaction has taken place with this seal in it.
    fn took_place(self: Box<Self>, seal: Change);
    /// Makes the mark durable outside of the transaction: it was ended, and nobody knows how.
    fn ended_inside(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>>;
}
