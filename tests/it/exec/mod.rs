//! The executor: single operations, without any workflow.

mod approval;
mod asked;
mod bound;
mod callers;
mod declared;
mod erase;
mod errors;
mod hostile;
pub(crate) mod inbox;
mod input_versions;
mod late;
mod lease_model;
mod looks;
mod orphans;
mod outbox;
mod oversized;
mod permit;
mod questions;
mod reconcile;
mod record;
mod refused;
mod restored;
mod restored_postgres;
mod retention;
mod secrets;
mod tenants;
mod throttle;
