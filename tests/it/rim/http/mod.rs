//! HTTP writes under an `Idempotency-Key`: a real axum server, a real client, and effects that are counted outside of both.

mod bodies;
mod crash;
mod flight;
mod keys;
mod replay;
mod shop;
mod transaction;
