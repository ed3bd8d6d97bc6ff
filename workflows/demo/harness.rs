//! What the demo and the kill tests share: processes that live, die and live again, and a provider that counts.
//!
//! | module | what it is |
//! | --- | --- |
//! | `scenario` | what is done to a run: where its process is killed, how the provider misbehaves |
//! | `trial` | a scenario carried out, and what the provider counted |
//! | `process` | the parent's side: start a process, hear from it, kill it |
//! | `role` | the child's side: a life of the workflow, of the naive loop, or the provider |
//! | `cluster` | many workers on one ledger, killed and stopped at random |
//! | `worker` | the child's side of it: one worker |
//! | `desk` | the whole desk around a notice: one life of it, and its day |
//! | `naive` | the retry loop that the other column shows |
//! | `shop` | the child's side of the doors: an order service, naive or behind doors |
//! | `sender` | a sender of webhooks that signs what it sends |
#![allow(missing_docs, unreachable_pub, reason = "included by an example and by a test")]
#![allow(dead_code, reason = "each of the two uses another part")]

#[path = "../case_notice.rs"]
pub mod case_notice;
#[path = "cluster.rs"]
pub mod cluster;
#[path = "desk.rs"]
pub mod desk;
#[path = "naive.rs"]
pub mod naive;
#[path = "process.rs"]
pub mod process;
#[path = "role.rs"]
pub mod role;
#[path = "scenario.rs"]
pub mod scenario;
#[path = "../webhooks/sender.rs"]
pub mod sender;
#[path = "shop.rs"]
pub mod shop;
#[path = "trial.rs"]
pub mod trial;
#[path = "worker.rs"]
pub mod worker;

/// Whatever goes wrong outside the thing that is tried.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
