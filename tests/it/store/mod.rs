//! The stores: the suite, the differential test, and what only one of them can get wrong.

mod conformance;
mod differential;
mod encryption;
mod group;
pub(crate) mod postgres;
mod source;
mod sqlite;
mod transfer;
mod views;
mod watched;
