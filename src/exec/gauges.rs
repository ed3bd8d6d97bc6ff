//! The gauges of the metrics. They are read at intervals: no call waits for them, and a call costs nothing for them.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::core::Core;
use super::peers::Peers;
use super::throttle::BreakerState;
use crate::store::{Connections, Store as _, StoreError};

impl Core {
    /// Begins to read the gauges, if the engine has metrics.
    pub(crate) fn begin_gauging(self: &Arc<Self>) {
        if self.meter.on().is_some() {
            self.lasting("gauges", read_on);
        }
    }
}

/// The labels that were seen: a gauge of which nothing is left is zero, and not what it was last.
#[derive(Default)]
struct Seen {
    kinds: BTreeSet<&'static str>,
    queues: BTreeSet<String>,
}

/// Reads until the core is gone or closing.
async fn read_on(core: Weak<Core>) {
    let mut seen = Seen::default();
    while let Some(strong) = core.upgrade().filter(|core| !core.is_closing()) {
        let Some(series) = strong.meter.on() else { return };
        own(&strong);
        if let Err(error) = of_database(&strong, &mut seen).await {
            log_trouble!(error, "gauges not read, will retry");
        }
        series.upkeep();
        let rest = strong.clock.rest(series.every());
        drop(strong); // a sleeper must not keep a closed database open
        rest.await;
    }
}

/// The gauges that this worker knows by itself.
fn own(core: &Core) {
    let (meter, group) = (&core.meter, &core.group);
    gauge!(number(core.ceased.count()); meter, AMBIGUOUS_OPEN);
    gauge!(number(group.queued()); meter, WRITES_QUEUED);
    gauge!(group.outage().lasts().as_secs_f64(); meter, DATABASE_AWAY);
    for gate in core.gates.reports(core.now(), core.clock.boot()) {
        let is_open = gate.state != BreakerState::Closed;
        gauge!(f64::from(u8::from(is_open)); meter, BREAKER_OPEN, &gate.name);
    }
    let load = group.load();
    if let Some(bytes) = load.log_bytes {
        gauge!(size(bytes); meter, LOG_BYTES);
    }
    if let Some(Connections { in_use, idle }) = load.connections {
        gauge!(f64::from(in_use); meter, CONNECTIONS, "in use");
        gauge!(f64::from(idle); meter, CONNECTIONS, "idle");
    }
    if let Peers::Shared(shared) = &core.peers
        && let Some(age) = shared.lease.age(&**shared.clock.machine())
    {
        gauge!(age.as_secs_f64(); meter, HEARTBEAT_AGE);
    }
}

/// The gauges that the database is asked for.
async fn of_database(core: &Core, seen: &mut Seen) -> Result<(), StoreError> {
    let meter = &core.meter;
    let (questions, now) = (core.group.escalation_load().await?, core.now());
    seen.kinds.extend(questions.iter().map(|load| load.kind.name()));
    for kind in &seen.kinds {
        let load = questions.iter().find(|load| load.kind.name() == *kind);
        let age = load.map_or(Duration::ZERO, |load| load.oldest.until(now));
        gauge!(size(load.map_or(0, |load| load.open)); meter, QUESTIONS_OPEN, kind);
        gauge!(age.as_secs_f64(); meter, QUESTION_AGE, kind);
    }
    let queues = core.group.queue_load().await?;
    seen.queues.extend(queues.iter().map(|load| load.queue.clone()));
    for queue in &seen.queues {
        let load = queues.iter().find(|load| load.queue == *queue);
        gauge!(size(load.map_or(0, |load| load.queued)); meter, QUEUE_RUNS, queue, "queued");
        gauge!(size(load.map_or(0, |load| load.running)); meter, QUEUE_RUNS, queue, "running");
    }
    Ok(())
}

/// A number as gauges hold it.
pub(super) fn number(n: usize) -> f64 {
    size(u64::try_from(n).unwrap_or(u64::MAX))
}

#[allow(clippy::cast_precision_loss, reason = "a gauge shows a size, and need not be exact beyond 2^53")]
const fn size(n: u64) -> f64 {
    n as f64
}
