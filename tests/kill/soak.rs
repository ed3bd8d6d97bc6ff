//! Many runs, and processes that are killed, stopped and told to go at random for a while: on SQLite one after the
//! other, on PostgreSQL several beside one another (HAZARDS B; R-SCALE-2, R-SIM-3).
//!
//! `COUNTERFOIL_SEED` repeats one, `COUNTERFOIL_SOAK` makes it last so many seconds.

use std::time::Duration;

use counterfoil::id::{Entropy as _, SystemEntropy};

use crate::harness::cluster::{Plan, storm};
use crate::harness::process::Program;
use crate::harness::worker::Ledger;
use crate::{on_postgres, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

fn soak(workers: usize, runs: usize, ledger: impl FnOnce(&std::path::Path) -> Ledger) {
    let seed = number("COUNTERFOIL_SEED").unwrap_or_else(|| SystemEntropy.bits() % 1_000_000);
    let plan = Plan {
        workers,
        runs,
        storm: Duration::from_secs(number("COUNTERFOIL_SOAK").unwrap_or(20)),
        calm: Duration::from_mins(2),
        lease: Duration::from_secs(2),
        settle: Duration::from_secs(1),
        seed,
    };
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
    run(async { ledger.prepare().await.unwrap() });
    let tally = run(async { storm(&program, folder.path(), &ledger, &plan).await.unwrap() });
    eprintln!("{tally:#?}");
    assert!(tally.is_clean(), "COUNTERFOIL_SEED={seed}: {tally:#?}");
    assert!(tally.kills > 0 && tally.succeeded == runs, "COUNTERFOIL_SEED={seed}: {tally:#?}");
}

#[test]
fn one_process_after_the_other_on_sqlite() {
    soak(1, 150, |folder| Ledger::Sqlite(folder.join("ledger.db")));
}

#[test]
fn several_beside_one_another_on_postgres() {
    soak(3, 300, |_| on_postgres());
}
