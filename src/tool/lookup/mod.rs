//! Ready-made lookups, which a [`Reconcile`](super::Reconcile) calls in one line to find the outcome of a call.
//!
//! | lookup | asks | worth it for |
//! | --- | --- | --- |
//! | `HttpGet` (feature `lookup-http`) | an HTTP interface, by our token, over all pages | notices, payments, tickets |
//! | `HttpObject` (feature `lookup-http`) | an object store, by key and SHA-256 | uploads |
//! | `Rows` (a SQL feature) | a database, by a statement of yours with our key bound | rows in other people's databases |
//! | `CommandLookup` (feature `tool-command`) | another command, by our token | tools that are a program |
//! | [`FileAt`] | a file system, by path and SHA-256 | exports |
//! | [`StreamFrom`] | a log, from a remembered offset on | messages |
//!
//! Each has a `SIGHT`: its trust, its settle time, and the facts that it cannot know, as data
//! ([`Sight`](crate::ledger::Sight)). All keep three rules. First, *not found* is said only if the other side has
//! clearly said so; any other answer (a refused credential, a page too many, a file that is half there) is an error,
//! and leaves the call ambiguous. Second, an effect with our token that is not what was sent is
//! [`Foreign`](crate::ledger::LookupResult::Foreign), never ours and never a miss. Third, several effects are
//! `Duplicated`.

mod digest;
mod expected;
mod file;
#[cfg(feature = "lookup-http")]
mod http;
#[cfg(feature = "lookup-http")]
mod object;
#[cfg(feature = "lookup-http")]
mod pages;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod rows;
#[cfg(any(feature = "lookup-http", feature = "tool-command"))]
mod rules;
mod seen;
mod stream;
#[cfg(feature = "lookup-http")]
mod web;

pub use digest::Sha256;
pub use expected::Expected;
pub use file::{FileAt, Written};
#[cfg(feature = "lookup-http")]
pub use http::HttpGet;
#[cfg(feature = "lookup-http")]
pub use object::{HttpObject, Stored};
#[cfg(feature = "lookup-http")]
pub use pages::Pages;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use rows::Rows;
#[cfg(feature = "tool-command")]
pub(in crate::tool) use rules::{Rules, States, Token};
#[cfg(feature = "tool-command")]
pub(in crate::tool) use seen::unclear;
pub use seen::{LookupTarget, Match};
pub use stream::{Batch, Log, StreamFrom};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use crate::store::Queried;
