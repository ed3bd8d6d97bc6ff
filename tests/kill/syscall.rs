//! A07: killed at the N-th system call that writes, syncs or sends, whatever the engine was doing. The points have
//! names only where somebody thought of one; system calls are where it really happens.

use std::process::Command;

use counterfoil::sim::CrashPoint;

use crate::harness::case_notice::classes::Class;
use crate::harness::role::{Ended, Order, Role};
use crate::{Bench, full, ledger_violations, run, violations};

/// What the program calls to make something durable. The bundled SQLite uses the first, others the second.
const SYNCS: &[&str] = &["fsync", "fdatasync"];
/// What it calls to talk to the world.
const SENDS: &[&str] = &["writev", "sendto", "sendmsg", "recvfrom"];
/// What it calls to write database and WAL.
const WRITES: &[&str] = &["pwrite64"];

/// A run has fewer calls of any kind: more means that they are not counted.
const TOO_MANY: usize = 1000;

#[test]
fn at_each_sync() {
    run(kill_at_each(SYNCS, 1, None, 12));
}

#[test]
fn at_each_send() {
    run(kill_at_each(SENDS, 1, None, 2));
}

#[test]
fn at_each_write() {
    let stride = if full() { 1 } else { 7 };
    run(kill_at_each(WRITES, stride, None, 70 / stride));
}

/// G18: a crash during the recovery from a crash.
#[test]
fn at_each_sync_of_a_recovery() {
    run(kill_at_each(SYNCS, 1, Some(CrashPoint::AfterCall), 4));
}

/// G18.
#[test]
fn at_each_send_of_a_recovery() {
    run(kill_at_each(SENDS, 1, Some(CrashPoint::AfterCall), 2));
}

/// Kills lives at their 1st, 2nd, 3rd … call of each kind until one gets through, and lets another finish each
/// time. `at_least` so many must have been killed, or nothing was shown.
async fn kill_at_each(calls: &[&str], stride: usize, before: Option<CrashPoint>, at_least: usize) {
    let class = Class::Lookup; // nothing at the provider stands between a crash and a duplicate
    let bench = Bench::of(class).await;
    let mut killed = 0;
    for call in calls {
        for nth in (1..).step_by(stride) {
            assert!(nth < TOO_MANY, "{nth} calls of {call}: strace does not count them");
            let order = bench.place.order(&bench.world, class, &format!("case-{call}-{nth}"));
            if let Some(point) = before {
                let first = bench.life(&Order { kill: Some(point.to_string()), ..order.clone() }).await;
                assert!(first.was_killed(), "{point} was not reached: {first:?}");
            }
            let through = traced(&bench, &order, call, nth).await;
            finish(&bench, &order, &format!("{call}:{nth}")).await;
            if through {
                break;
            }
            killed += 1;
        }
    }
    assert!(killed >= at_least, "killed at only {killed} calls of {calls:?}, {at_least} expected");
}

/// The life after: it succeeds, and the notice was sent once.
async fn finish(bench: &Bench, order: &Order, killed_at: &str) {
    let report = bench.report(order).await;
    let mut wrong = violations(&report);
    let effects = bench.effects(order).await;
    if report.ended != Ended::Succeeded || effects != 1 {
        wrong.push(format!("{effects} effects"));
    }
    wrong.extend(ledger_violations(&order.ledger, true).await);
    assert!(wrong.is_empty(), "killed at {killed_at}: {}\n{report:?}", wrong.join("; "));
}

/// One life under strace, killed at the `nth` call that one of its threads makes; whether it got through.
async fn traced(bench: &Bench, order: &Order, call: &str, nth: usize) -> bool {
    require_strace();
    let inject = format!("inject={call}:signal=SIGKILL:when={nth}");
    let trace = format!("trace={call}");
    // Not with `--seccomp-bpf`, which would be faster: strace 6.1 then no longer counts.
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, "--"];
    let life = bench.place.program.under(&strace).start(&Role::Life(order.clone())).unwrap();
    let death = life.death().await.unwrap();
    match (death.was_killed(), death.report.is_some()) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => panic!("strace could not trace: {death:?}; is ptrace allowed here?"),
    }
}

/// These tests are not skipped: without the tool they fail, and say what to do.
fn require_strace() {
    let found = Command::new("strace").arg("-V").output();
    assert!(found.is_ok_and(|output| output.status.success()), "strace is missing: apt-get install strace");
}
