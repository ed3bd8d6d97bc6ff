//! Many runs, and processes that are killed, stopped and told to go at random for a while: on SQLite one after the
//! other, on PostgreSQL several beside one another (HAZARDS B; R-SCALE-2, R-SIM-3).
//!
//! `COUNTERFOIL_SEED` repeats one, `COUNTERFOIL_SOAK` makes it last so many seconds.

use std::time::Duration;

use counterfoil::id::{Entropy as _, SystemEntropy};

use crate::harness::cluster::{Plan, Tally, storm};
use crate::harness::process::Program;
use crate::harness::worker::Ledger;
use crate::{on_postgres, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// How many runs begin in each second of the storm.
#[derive(Clone, Copy)]
struct Load {
    workers: usize,
    runs_per_second: usize,
}

const ONE: Load = Load { workers: 1, runs_per_second: 7 };
const THREE: Load = Load { workers: 3, runs_per_second: 15 };

fn soak(load: Load, faults: bool, ledger: impl FnOnce(&std::path::Path) -> Ledger) -> Tally {
    let seed = number("COUNTERFOIL_SEED").unwrap_or_else(|| SystemEntropy.bits() % 1_000_000);
    let seconds = number("COUNTERFOIL_SOAK").unwrap_or(20);
    let plan = Plan {
        workers: load.workers,
        runs: load.runs_per_second * usize::try_from(seconds).unwrap(),
        storm: Duration::from_secs(seconds),
        calm: Duration::from_mins(2).max(Duration::from_secs(seconds)), // a long storm leaves more to be done
        lease: Duration::from_secs(2),
        settle: Duration::from_secs(5),
        faults,
        older: None,
        seed,
    };
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
    run(async { ledger.prepare().await.unwrap() });
    let tally = run(async { storm(&program, folder.path(), &ledger, &plan).await.unwrap() });
    eprintln!("COUNTERFOIL_SEED={seed}: {tally:#?}");
    assert!(tally.is_clean() && tally.kills > 0, "COUNTERFOIL_SEED={seed}: {tally:#?}");
    tally
}

#[test]
fn one_process_after_the_other_on_sqlite() {
    let tally = soak(ONE, false, |folder| Ledger::Sqlite(folder.join("ledger.db")));
    assert_eq!(tally.succeeded, tally.runs, "{tally:#?}");
}

#[test]
fn several_beside_one_another_on_postgres() {
    let tally = soak(THREE, false, |_| on_postgres());
    assert_eq!(tally.succeeded, tally.runs, "{tally:#?}");
}

#[test]
fn one_process_after_the_other_on_sqlite_while_provider_and_network_fail_in_every_way() {
    soak(ONE, true, |folder| Ledger::Sqlite(folder.join("ledger.db")));
}

#[test]
fn several_beside_one_another_on_postgres_while_provider_and_network_fail_in_every_way() {
    soak(THREE, true, |_| on_postgres());
}
