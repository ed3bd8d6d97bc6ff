//! The whole desk around a notice in real processes, killed with SIGKILL in its day: what the provider, a consumer with an inbox,
//! the memory and the artifacts say when it is over.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil::flow::{EffectOutcome, RunError, TenantClient};
use counterfoil::inbox::{Message as Delivered, Processed};
use counterfoil::outbox::{Event, PublishResult, Sink, SinkError};
use counterfoil::store::sqlite::Sqlite;
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Failure};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Executor as _};

use super::Failed;
use super::case_notice::classes::Class;
use super::case_notice::desk::{SendDecision, carried_out};
use super::case_notice::{Case, Receipt};
use super::process::{Death, World};
use super::role::{Ended, Lived, Message, Order, Report, Role, TENANT, say};
use super::trial::Place;

/// The provider ignores keys and can be asked: nothing there stands between a second send and a duplicate.
pub const CLASS: Class = Class::Lookup;
/// So many notices and corrections go out in a day, and so many events are told.
pub const SENT: u64 = 3;
/// The time for objections.
const TO_OBJECT: Duration = Duration::from_millis(300);
/// So often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(10);
/// A case that is kept, and one that is withdrawn.
const CASES: [&str; 2] = ["kept", "withdrawn"];

fn case(desk: &str, which: &str) -> Case {
    Case { id: format!("{desk}/{which}"), recipient: "dora".to_owned(), finding: "granted".to_owned() }
}

async fn case_desk(ctx: Ctx, case: Case) -> Result<Receipt, Failure> {
    carried_out(ctx, case, TO_OBJECT).await
}

/// Whoever is told of events: a consumer with an inbox, and a table of its own.
#[derive(Clone, Default)]
struct Registry(Arc<OnceLock<TenantClient>>);

impl Sink for Registry {
    async fn publish(&self, batch: &[Event]) -> Result<PublishResult, SinkError> {
        let Some(tenant) = self.0.get() else { return Err(SinkError::unavailable("not open yet")) };
        for event in batch {
            let (aggregate, kind) = (event.aggregate.clone(), event.kind.clone());
            // Killed processes leave tries behind, and none of them is this message's fault.
            let message = Delivered::from(event).tries(10_000);
            let taken = tenant.process_once("registry", message, |db: &mut SqliteConnection| {
                Box::pin(async move {
                    let row = sqlx::query("INSERT INTO heard (aggregate, kind) VALUES (?, ?)");
                    row.bind(aggregate).bind(kind).execute(db).await.map(|_| ())
                })
            });
            match taken.await.map_err(|error| SinkError::unavailable(error.to_string()))? {
                Processed::Now(()) | Processed::Before(()) => {}
                other => return Err(SinkError::refused(format!("{other:?}"))),
            }
        }
        Ok(PublishResult::all())
    }
}

/// One life of the process in which the desk has its day; the order's case is the desk's name.
pub async fn live(order: &Order) -> Result<i32, Failed> {
    let (watch, registry) = (Arc::new(Lived::new(order.kill()?)), Registry::default());
    let engine = Engine::sqlite(&order.ledger)
        .workflow("case_desk", 1, case_desk)
        .tool(SendDecision { provider: order.client()? })
        .sink(registry.clone())
        .watch(watch.clone());
    let engine = engine.start().await?;
    let tenant = engine.tenant(TENANT)?;
    drop(registry.0.set(tenant.clone()));
    engine.executor().notify_publisher();
    for found in day(&tenant, &order.case).await? {
        say(&Message::Told(found))?;
    }
    let questions = tenant.questions().await?.iter().map(|question| question.kind).collect();
    while heard(order).await?.len() < 3 {
        SystemClock.sleep(LOOK).await;
    }
    engine.shutdown(order.drain).await;
    let (crossed, taken_over_after) = watch.told();
    let report = Report { ended: Ended::Succeeded, record: None, questions, crossed, taken_over_after };
    say(&Message::Lived(report))?;
    Ok(0)
}

/// The same in each life: what an earlier one has done is found. What is wrong when it is over.
async fn day(tenant: &TenantClient, desk: &str) -> Result<Vec<String>, Failed> {
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
            if undone != [&EffectOutcome::Undone] {
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
        if artifact.as_ref().is_none_or(|found| found.artifact.version != 1) {
            wrong.push(format!("the artifact of {which}: {artifact:?}"));
        }
    }
    Ok(wrong)
}

/// Ann clicks twice, Bob changes his mind too late: until everything is decided, and longer.
async fn decides(tenant: &TenantClient) -> String {
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

async fn own_tables(order: &Order) -> Result<SqliteConnection, sqlx::Error> {
    let own = SqliteConnectOptions::new().filename(&order.ledger).busy_timeout(Duration::from_secs(20));
    own.connect().await
}

async fn heard(order: &Order) -> Result<Vec<(String, String)>, sqlx::Error> {
    let all = sqlx::query_as("SELECT aggregate, kind FROM heard ORDER BY rowid");
    all.fetch_all(&mut own_tables(order).await?).await
}

/// A day that is over.
pub struct Day {
    /// What its last life said.
    pub report: Report,
    /// What is not as it should be: nothing, if all is well.
    pub wrong: Vec<String>,
}

/// Each crossing of a day, as where a life can be killed.
pub fn crossings(report: &Report) -> Vec<String> {
    let mut times = BTreeMap::new();
    let numbered = report.crossed.iter().map(|point| {
        let nth = times.entry(point).and_modify(|nth| *nth += 1).or_insert(1);
        format!("{point}:{nth}")
    });
    numbered.collect()
}

/// One life that is killed, if it comes to that, and one that is not.
pub async fn lived(place: &Place, world: &World, name: &str, kill: Option<String>) -> Result<Day, Failed> {
    let order = place.order(world, CLASS, name);
    drop(Sqlite::open(&order.ledger).await?);
    let table = "CREATE TABLE heard (aggregate TEXT NOT NULL, kind TEXT NOT NULL)";
    own_tables(&order).await?.execute(table).await?;
    let mut wrong = Vec::new();
    if kill.is_some() {
        wrong.append(&mut life(place, Order { kill, ..order.clone() }).await?.told);
    }
    let mut last = life(place, order.clone()).await?;
    wrong.append(&mut last.told);
    let report = last.report.ok_or_else(|| format!("{name}: the last life ended with {}", last.status))?;
    wrong.extend(report.questions.iter().map(|kind| format!("asked: {kind:?}")));
    let mut heard = heard(&order).await?;
    heard.sort();
    let told = |which: &str, kind: &str| (format!("case/{name}/{which}"), kind.to_owned());
    let expected =
        [told("kept", "notice_sent"), told("withdrawn", "notice_sent"), told("withdrawn", "withdrawn")];
    if heard != expected {
        wrong.push(format!("heard {heard:?}"));
    }
    Ok(Day { report, wrong })
}

async fn life(place: &Place, order: Order) -> Result<Death, Failed> {
    place.program.start(&Role::Desk(order))?.death().await
}
