//! The whole desk around a notice in real processes: it is killed with SIGKILL all through its day, and the provider, a consumer
//! with an inbox, the memory and the artifacts are counted (the case-notice system; GUARD-1 to GUARD-5, SAGA-1).
//!
//! `COUNTERFOIL_FULL=1` kills at every crossing of every point; without it at fifty, spread over the day.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil::clock::{Clock as _, SystemClock};
use counterfoil::flow::{Became, ForTenant, RunError};
use counterfoil::outbox::{Acked, Event, Sink, SinkError};
use counterfoil::sim::CrashPoint;
use counterfoil::store::sqlite::Sqlite;
use counterfoil::{Ctx, Engine, Failure};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::Failed;
use crate::harness::case_notice::desk::{SendDecision, carried_out};
use crate::harness::case_notice::{Case, Receipt};
use crate::harness::process::Death;
use crate::harness::role::{Ended, Lived, Message, Order, Report, TENANT, say};
use crate::{Bench, full, ledger_violations, run};

/// The provider ignores keys and can be asked.
const CLASS: crate::harness::case_notice::classes::Class =
    crate::harness::case_notice::classes::Class::Lookup;
const AT_ONCE: usize = 4;
/// So many kills are spread over a day.
const KILLS: usize = 50;
/// The time for objections.
const TO_OBJECT: Duration = Duration::from_millis(300);
/// So often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(10);
/// A case that is kept, and one that is withdrawn.
const CASES: [&str; 2] = ["kept", "withdrawn"];

/// What only this program can be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    /// One life of the process in which the desk has its day; the order's case is the desk's name.
    Desk(Order),
}

fn case(desk: &str, which: &str) -> Case {
    Case { id: format!("{desk}/{which}"), recipient: "dora".to_owned(), finding: "granted".to_owned() }
}

async fn case_desk(ctx: Ctx, case: Case) -> Result<Receipt, Failure> {
    carried_out(ctx, case, TO_OBJECT).await
}

/// Whoever is told of events: a consumer with an inbox, and a table of its own.
#[derive(Clone, Default)]
struct Registry(Arc<OnceLock<ForTenant>>);

impl Sink for Registry {
    async fn publish(&self, batch: &[Event]) -> Result<Acked, SinkError> {
        let Some(tenant) = self.0.get() else { return Err(SinkError::unavailable("not open yet")) };
        for event in batch {
            let (aggregate, kind) = (event.aggregate.clone(), event.kind.clone());
            // Killed processes leave tries behind, and none of them is this message's fault.
            let message = counterfoil::inbox::Message::from(event).tries(10_000);
            let taken = tenant.process_once("registry", message, |db: &mut SqliteConnection| {
                Box::pin(async move {
                    let row = sqlx::query("INSERT INTO heard (aggregate, kind) VALUES (?, ?)");
                    row.bind(aggregate).bind(kind).execute(db).await.map(|_| ())
                })
            });
            taken.await.map_err(|error| SinkError::unavailable(error.to_string()))?;
        }
        Ok(Acked::all())
    }
}

pub(crate) async fn play(own: Own) -> Result<i32, Failed> {
    let Own::Desk(order) = own;
    let (watch, registry) = (Arc::new(Lived::new(order.kill()?)), Registry::default());
    let engine = Engine::sqlite(&order.ledger)
        .workflow("case_desk", 1, case_desk)
        .compensable(SendDecision { provider: order.client()? })
        .sink(registry.clone())
        .watch(watch.clone());
    let engine = engine.start().await?;
    let tenant = engine.tenant(TENANT)?;
    drop(registry.0.set(tenant.clone()));
    engine.executor().publish_soon();
    for found in day(&tenant, &order.case).await? {
        say(&Message::Told(found))?;
    }
    let questions = tenant.escalations().await?.iter().map(|question| question.kind).collect();
    while heard(&order).await.len() < 3 {
        SystemClock.sleep(LOOK).await;
    }
    engine.shutdown(order.drain).await;
    let (crossed, taken_over_after) = watch.told();
    let report = Report { ended: Ended::Succeeded, record: None, questions, crossed, taken_over_after };
    say(&Message::Lived(report))?;
    Ok(0)
}

/// The same in each life: what an earlier one has done is found. What is wrong when it is over.
async fn day(tenant: &ForTenant, desk: &str) -> Result<Vec<String>, Failed> {
    let start = |which: &str| tenant.run(case_desk, case(desk, which)).key(which).start();
    let (kept, withdrawn) = (start(CASES[0]).await?, start(CASES[1]).await?);
    match withdrawn.signal("withdrawn", "moved away").id("dora").await {
        Ok(_) | Err(RunError::Over { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let results = async { (kept.result().await, withdrawn.result().await) };
    let (kept, withdrawn) = tokio::select! {
        results = results => results,
        never = decides(tenant) => return Err(never.into()),
    };
    let mut wrong = Vec::new();
    if let Err(error) = kept {
        wrong.push(format!("the case that is kept: {error}"));
    }
    match withdrawn {
        Err(RunError::Failed { failure, .. }) => {
            let undone = failure.effects.iter().map(|effect| &effect.became).collect::<Vec<_>>();
            if undone != [&Became::Undone] {
                wrong.push(format!("withdrawn, and {undone:?}"));
            }
        }
        other => wrong.push(format!("the case that is withdrawn: {other:?}")),
    }
    let known = tenant.memory("dora").recall("contact").await?.memories;
    let sources: Vec<_> = known.iter().map(|memory| memory.sources).collect();
    if sources != [1, 1] {
        wrong.push(format!("{} memories of {sources:?} sources", known.len()));
    }
    for which in CASES {
        let artifact = tenant.artifact("notice", &case(desk, which).id, None).await?;
        if !artifact.as_ref().is_some_and(|found| found.artifact.version == 1) {
            wrong.push(format!("the artifact of {which}: {artifact:?}"));
        }
    }
    Ok(wrong)
}

/// Ann clicks twice, Bob changes his mind too late: until everything is decided, and longer.
async fn decides(tenant: &ForTenant) -> String {
    loop {
        for review in tenant.reviews(None).await.into_iter().flatten() {
            for who in ["ann", "ann", "bob"] {
                let _decided_before = tenant.decide(&review.id, review.version).approve(who).await;
            }
            if tenant.decide(&review.id, review.version).reject("bob", "on second thoughts").await.is_ok() {
                return format!("bob decided both ways about {}", review.id);
            }
        }
        SystemClock.sleep(LOOK).await;
    }
}

async fn own_tables(order: &Order) -> SqliteConnection {
    let own = SqliteConnectOptions::new().filename(&order.ledger).busy_timeout(Duration::from_secs(20));
    own.connect().await.unwrap()
}

async fn heard(order: &Order) -> Vec<(String, String)> {
    let all = sqlx::query_as("SELECT aggregate, kind FROM heard ORDER BY rowid");
    all.fetch_all(&mut own_tables(order).await).await.unwrap()
}

#[test]
fn the_whole_desk_is_killed_all_through_its_day() {
    run(async {
        let bench = Arc::new(Bench::of(CLASS).await);
        let clean = lived(&bench, "clean", None).await.unwrap();
        let mut crossings = Vec::new();
        for name in &clean.crossed {
            let nth = crossings.iter().filter(|(point, _)| point == name).count() + 1;
            crossings.push((name.clone(), nth));
        }
        for point in [CrashPoint::AfterUndoing, CrashPoint::AfterMemory, CrashPoint::AfterProcessed] {
            assert!(clean.crossed(point) > 0, "a clean day does not cross {point}: {:?}", clean.crossed);
        }
        let every = if full() { 1 } else { (crossings.len() / KILLS).max(1) };
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut trials = JoinSet::new();
        for (point, nth) in crossings.into_iter().step_by(every) {
            let (bench, slots) = (bench.clone(), slots.clone());
            trials.spawn(async move {
                let _slot = slots.acquire_owned().await.unwrap();
                let name = format!("{point}-{nth}");
                lived(&bench, &name, Some(format!("{point}:{nth}")))
                    .await
                    .map_err(|wrong| format!("{name}: {wrong}"))
            });
        }
        let days = trials.join_all().await;
        let wrong: Vec<_> = days.iter().filter_map(|day| day.as_ref().err().cloned()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(days.len() >= KILLS, "only {} kills", days.len());
        // Of each day two notices and a correction, and nothing that no ledger knows of.
        let sent: u64 = bench.world.counted().await.unwrap().effects.values().sum();
        assert_eq!(sent, 3 * (days.len() as u64 + 1));
    });
}

/// One life that is killed, if it comes to that, and one that is not; or what was wrong when all was over.
async fn lived(bench: &Bench, name: &str, kill: Option<String>) -> Result<Report, String> {
    let order = bench.place.order(&bench.world, CLASS, name);
    drop(Sqlite::open(&order.ledger).await.map_err(|error| error.to_string())?);
    let table = "CREATE TABLE heard (aggregate TEXT NOT NULL, kind TEXT NOT NULL)";
    own_tables(&order).await.execute(table).await.map_err(|error| error.to_string())?;
    let mut told = Vec::new();
    if kill.is_some() {
        told.append(&mut life(bench, Order { kill, ..order.clone() }).await?.told);
    }
    let mut last = life(bench, order.clone()).await?;
    told.append(&mut last.told);
    let report = last.report.ok_or_else(|| format!("the last life ended with {}", last.status))?;
    let mut wrong = told;
    wrong.extend(ledger_violations(&order.ledger, false).await);
    wrong.extend(report.questions.iter().map(|kind| format!("asked: {kind:?}")));
    let mut heard = heard(&order).await;
    heard.sort();
    let told = |which: &str, kind: &str| (format!("case/{name}/{which}"), kind.to_owned());
    let expected =
        [told("kept", "notice_sent"), told("withdrawn", "notice_sent"), told("withdrawn", "withdrawn")];
    if heard != expected {
        wrong.push(format!("heard {heard:?}"));
    }
    if wrong.is_empty() { Ok(report) } else { Err(wrong.join("; ")) }
}

async fn life(bench: &Bench, order: Order) -> Result<Death, String> {
    let process = bench.place.program.start(&Own::Desk(order)).unwrap();
    process.death().await.map_err(|stuck| stuck.to_string())
}
