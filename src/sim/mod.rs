//! Proof by killing: named crash points at every seam of the engine, and watches that act at them.
//!
//! All durable state passes the store, and all external effects pass a tool.
//! [`watch`](crate::flow::EngineBuilder::watch) wraps both, and notifies a [`Watch`] of every [`CrashPoint`] that is
//! crossed. One clean run, watched by [`Crossings`], numbers the points of a workflow; then [`KillAt`] kills the
//! process at each of them, the process is started again, and the outside world is asked for its effects.
//!
//! A watch changes nothing in the engine, until it ends the process.
//!
//! [`Simulation`] does the same without processes: a workflow in a simulated [`World`], in virtual time, killed at
//! every point, at every point of each recovery, and under every fault. The guide is `docs/prove-your-workflow.md`.

mod chance;
mod check;
mod clock;
#[cfg(feature = "sqlite")]
mod database;
mod disk;
mod end;
mod explore;
mod family;
mod history;
#[cfg(feature = "sqlite")]
mod inbox;
mod life;
mod machine;
mod outbox;
#[cfg(feature = "html")]
mod page;
mod process;
mod question;
mod report;
mod rest;
mod schedule;
mod service;
mod simulation;
mod sink;
mod store;
mod suite;
mod table;
mod timeline;
mod wire;
mod world;

use std::sync::Arc;

pub use crate::crash::{CrashPoint, UnknownPoint};
pub use check::{Rule, Violation};
pub use clock::SimClock;
pub use end::End;
pub use explore::Replay;
pub use question::{OpenQuestion, truthful};
pub use report::{Failing, Report};
pub use schedule::{Schedule, UnknownIncident};
pub use service::{Offer, Page, Service};
pub use simulation::Simulation;
pub use sink::Listener;
pub use suite::{Explored, Options, Results, Suite, SuiteError};
pub use wire::Request;
pub use world::{Effect, World};

unstable_core! {
    pub use crate::crash::Watch;
    pub use process::{Crossings, KillAt};
    pub use schedule::{Fault, Incident, Stop};
    pub use timeline::{Event, Happened};
}

#[cfg(feature = "sqlite")]
use database::Database;

use crate::crash::Probe;
use crate::exec::ExecutorBuilder;
use crate::flow::EngineBuilder;
use crate::tool::Witness;

impl ExecutorBuilder {
    /// Notifies `watch` of every crash point that is crossed.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn watch(self, watch: Arc<dyn Watch>) -> Self {
        let probe = Probe::of(watch.clone());
        let watched = self.wrap_store(move |store| Arc::new(store::Watched::new(store, probe)));
        watched.register(|registry| {
            registry.watch(watch);
            Ok(())
        })
    }
}

impl EngineBuilder {
    /// Notifies `watch` of every crash point that is crossed.
    #[cfg_attr(not(feature = "unstable-core"), doc(hidden))]
    pub fn watch(self, watch: Arc<dyn Watch>) -> Self {
        self.with(|executor| executor.watch(watch))
    }

    /// Notifies `witness` of every call and lookup of a tool.
    fn witnessed_by(self, witness: Arc<dyn Witness>) -> Self {
        self.with(|executor| {
            executor.register(|registry| {
                registry.witnessed_by(witness);
                Ok(())
            })
        })
    }

    /// Sets the database with the user's own tables.
    #[cfg(feature = "sqlite")]
    fn database(self, database: Database) -> Self {
        self.with(|executor| executor.database(Arc::new(database)))
    }
}
