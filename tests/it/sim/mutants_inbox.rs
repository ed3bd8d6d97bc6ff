//! Does the simulator bite at the inbox? Consumers that take one of its protections away.

use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil::flow::TenantClient;
use counterfoil::inbox::{InboxError, Message, Processed};
use counterfoil::sim::{Rule, Simulation};
use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::sim::inbox::{Done, Process, ends, hear, message, once, redelivered, simulation};

/// A transaction that is no message's: whenever it comes, it is a new one.
async fn alone<F>(tenant: &TenantClient, work: F) -> Done
where
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<i64, String>> + Send,
{
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let drawn = Message::new(DRAWN.fetch_add(1, Ordering::Relaxed).to_string());
    tenant.process_once("alone", drawn, work).await
}

/// It is to be set aside, which is not what these mutants break.
fn is_broken(id: &str) -> bool {
    id == "broken"
}

/// The message is recorded, and its effect in the transaction after that.
fn recorded_before<'a>(tenant: &'a TenantClient, id: &'static str, version: i64) -> BoxFuture<'a, Done> {
    Box::pin(async move {
        if is_broken(id) {
            return once(tenant, id, version).await;
        }
        let recorded = tenant
            .process_once("desk", message(id, version), |_: &mut SqliteConnection| {
                Box::pin(async { Ok::<i64, String>(0) })
            })
            .await?;
        match recorded {
            Processed::Now(_) => alone(tenant, move |db| hear(db, id)).await,
            known => Ok(known),
        }
    })
}

/// The effect, unless the message is recorded; and that in the transaction after it.
fn recorded_after<'a>(tenant: &'a TenantClient, id: &'static str, version: i64) -> BoxFuture<'a, Done> {
    Box::pin(async move {
        if is_broken(id) || id == "paid" {
            return once(tenant, id, version).await;
        }
        let effect = alone(tenant, move |db| {
            Box::pin(async move {
                let known =
                    "SELECT count(*) FROM inbox WHERE consumer = 'desk' AND message = ? AND state = 2";
                let known = sqlx::query_scalar(known).bind(id).fetch_one(&mut *db).await;
                match known.map_err(|error| error.to_string())? {
                    0 => hear(db, id).await,
                    known => Ok(known),
                }
            })
        });
        let Some(result) = effect.await?.result() else { return Err(InboxError::Failed("none".to_owned())) };
        tenant
            .process_once("desk", message(id, version), move |_: &mut SqliteConnection| {
                Box::pin(async move { Ok(result) })
            })
            .await
    })
}

/// Makes the effect, and leaves a trigger in the tables that takes this from the inbox.
fn without<'a>(
    tenant: &'a TenantClient,
    id: &'static str,
    version: i64,
    trigger: &'static str,
) -> BoxFuture<'a, Done> {
    Box::pin(tenant.process_once("desk", message(id, version), move |db: &mut SqliteConnection| {
        Box::pin(async move {
            db.execute(trigger).await.map_err(|error| error.to_string())?;
            hear(db, id).await
        })
    }))
}

/// That a message is processed is not written.
fn unrecorded<'a>(tenant: &'a TenantClient, id: &'static str, version: i64) -> BoxFuture<'a, Done> {
    const FORGETS: &str = "CREATE TRIGGER IF NOT EXISTS forgets AFTER UPDATE OF state ON inbox WHEN new.state = 2 \
                           BEGIN DELETE FROM inbox WHERE message = new.message; END";
    without(tenant, id, version, FORGETS)
}

/// Which version it brings is not written.
fn unversioned<'a>(tenant: &'a TenantClient, id: &'static str, version: i64) -> BoxFuture<'a, Done> {
    const FORGETS: &str = "CREATE TRIGGER IF NOT EXISTS forgets AFTER UPDATE OF state ON inbox WHEN new.state = 2 \
                           BEGIN DELETE FROM inbox_version; END";
    without(tenant, id, version, FORGETS)
}

/// A closure that commits by itself, in tables with a trigger that takes something from the inbox.
fn ends_without<'a>(
    tenant: &'a TenantClient,
    id: &'static str,
    trigger: &'static str,
) -> BoxFuture<'a, Done> {
    Box::pin(async move {
        let _ = alone(tenant, move |db| {
            Box::pin(async move { db.execute(trigger).await.map(|_| 0).map_err(|error| error.to_string()) })
        })
        .await?;
        ends(tenant, id, 0).await
    })
}

/// No mark is written before the closure runs: only what is known after it sets the message aside.
fn unmarked<'a>(tenant: &'a TenantClient, id: &'static str, _: i64) -> BoxFuture<'a, Done> {
    const FORGETS: &str = "CREATE TRIGGER IF NOT EXISTS forgets AFTER INSERT ON inbox \
                           WHEN new.state = 5 AND new.escalation IS NULL \
                           BEGIN DELETE FROM inbox WHERE message = new.message; END";
    ends_without(tenant, id, FORGETS)
}

/// It is forgotten that the message is set aside: it is delivered as if nothing were known.
fn not_set_aside<'a>(tenant: &'a TenantClient, id: &'static str, _: i64) -> BoxFuture<'a, Done> {
    const FORGETS: &str = "CREATE TRIGGER IF NOT EXISTS forgets AFTER UPDATE OF escalation ON inbox WHEN new.state = 5 \
                           BEGIN DELETE FROM inbox WHERE message = new.message; END";
    ends_without(tenant, id, FORGETS)
}

/// When nothing goes wrong, nothing is wrong with it: it takes a crash to find it out.
fn is_sound_without_a_crash(simulation: &Simulation) -> bool {
    simulation.replay(&counterfoil::sim::Schedule::default()).violations.is_empty()
}

// GUARD-5: what the inbox protects from is what the simulator finds where it does not.
#[test]
fn every_mutant_of_the_inbox_is_found_out() {
    let mutants: [(&str, Process, bool); 4] = [
        ("recorded before", recorded_before, true),
        ("recorded after", recorded_after, true),
        ("unrecorded", unrecorded, false),
        ("unversioned", unversioned, false),
    ];
    for (name, process, needs_a_crash) in mutants {
        is_found_out(
            name,
            || simulation(process, 1),
            needs_a_crash,
            "each message once, in the order of versions",
        );
    }
    let mutants: [(&str, Process, bool); 2] =
        [("unmarked", unmarked, true), ("not set aside", not_set_aside, false)];
    for (name, process, needs_a_crash) in mutants {
        is_found_out(name, || redelivered(process), needs_a_crash, "the effect is made once");
    }
}

fn is_found_out(name: &str, simulation: impl Fn() -> Simulation, needs_a_crash: bool, rule: &str) {
    let rule = Rule::Own(rule.to_owned());
    assert_eq!(is_sound_without_a_crash(&simulation()), needs_a_crash, "{name}");
    let report = simulation().explore_while(|report| report.failures().is_empty());
    let exposes = |failing: &&counterfoil::sim::Failing| failing.violations.iter().any(|v| v.rule == rule);
    let found = report.failures().iter().find(exposes);
    let found = found.unwrap_or_else(|| panic!("{name} survives, or breaks another rule: {report}"));
    println!("{name:<16} {:<40} {rule}", found.schedule.to_string());
}
