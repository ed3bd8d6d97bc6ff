//! The whole desk around a notice in real processes: it is killed with SIGKILL all through its day, and the provider, a consumer
//! with an inbox, the memory and the artifacts are counted (the case-notice system; GUARD-1 to GUARD-5, SAGA-1).
//!
//! `COUNTERFOIL_FULL=1` kills at every crossing of every point; without it at fifty, spread over the day.

use std::sync::Arc;

use counterfoil::sim::CrashPoint;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::desk::{CLASS, SENT, crossings, lived};
use crate::{Bench, full, ledger_violations, run};

const AT_ONCE: usize = 4;
/// So many kills are spread over a day.
const KILLS: usize = 50;

#[test]
fn the_whole_desk_is_killed_all_through_its_day() {
    run(async {
        let bench = Arc::new(Bench::of(CLASS).await);
        let clean = day(&bench, "clean", None).await.unwrap();
        for point in [CrashPoint::AfterUndoing, CrashPoint::AfterDocument, CrashPoint::AfterProcessed] {
            assert!(
                clean.iter().any(|at| at.starts_with(point.name())),
                "no {point} in a clean day: {clean:?}"
            );
        }
        let every = if full() { 1 } else { (clean.len() / KILLS).max(1) };
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut trials = JoinSet::new();
        for kill in clean.into_iter().step_by(every) {
            let (bench, slots) = (bench.clone(), slots.clone());
            trials.spawn(async move {
                let _slot = slots.acquire_owned().await.unwrap();
                let name = kill.replace(':', "-");
                day(&bench, &name, Some(kill)).await.map_err(|wrong| format!("{name}: {wrong}"))
            });
        }
        let days = trials.join_all().await;
        let wrong: Vec<_> = days.iter().filter_map(|day| day.as_ref().err().cloned()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(days.len() >= KILLS, "only {} kills", days.len());
        let effects = bench.world.counted().await.unwrap().effects;
        let twice: Vec<_> = effects.iter().filter(|(_, count)| **count != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert_eq!(
            effects.len() as u64,
            SENT * (days.len() as u64 + 1),
            "and nothing that no ledger knows of"
        );
    });
}

/// The crossings of a day; or what was wrong when it was over.
async fn day(bench: &Bench, name: &str, kill: Option<String>) -> Result<Vec<String>, String> {
    let day = lived(&bench.place, &bench.world, name, kill).await.map_err(|error| error.to_string())?;
    let mut wrong = day.wrong;
    wrong.extend(ledger_violations(&bench.place.order(&bench.world, CLASS, name).ledger, false).await);
    if wrong.is_empty() { Ok(crossings(&day.report)) } else { Err(wrong.join("; ")) }
}
