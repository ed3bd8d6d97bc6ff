//! Agents: models and servers of their own, and what becomes of what a model writes.

mod approved;
mod crash;
mod explore;
mod hostile;
mod http;
mod limits;
mod models;
mod recorded;
mod server;
