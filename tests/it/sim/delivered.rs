//! From the outbox to the inbox in the simulator: an event may be published twice and delivered as often as anybody likes. What it
//! changes at its consumer, it changes once, wherever a process dies.

use std::time::Duration;

use counterfoil::flow::TenantClient;
use counterfoil::inbox::Message;
use counterfoil::ledger::Backoff;
use counterfoil::outbox::{Event, Publisher};
use counterfoil::sim::{CrashPoint, End, Rule, Simulation, World, truthful};
use counterfoil::{Ctx, Failure};
use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::sim::quick;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS stocked (event TEXT NOT NULL)";
const EVENTS: usize = 3;

/// What a consumer does with an event and the number of its delivery. It is acknowledged if that succeeds.
type Consume = for<'a> fn(&'a TenantClient, &'a Event, usize) -> BoxFuture<'a, Result<(), String>>;

async fn order(ctx: Ctx, number: String) -> Result<(), Failure> {
    let aggregate = format!("order/{number}");
    for kind in ["placed", "packed", "sent"] {
        ctx.emit(&aggregate, kind, &number).await?;
    }
    Ok(())
}

/// The effect. Nothing of the table's own keeps two of them apart.
async fn stock(db: &mut SqliteConnection, event: &str) -> Result<(), String> {
    db.execute(TABLE).await.map_err(|error| error.to_string())?;
    let insert = sqlx::query("INSERT INTO stocked VALUES (?)").bind(event).execute(db);
    insert.await.map(drop).map_err(|error| error.to_string())
}

/// By the inbox: each event once, together with what it changes.
fn once<'a>(tenant: &'a TenantClient, event: &'a Event, _: usize) -> BoxFuture<'a, Result<(), String>> {
    Box::pin(process(tenant, event, Message::new(&event.id).version(&event.aggregate, event.seq)))
}

/// Takes each delivery for a new message.
fn each_time<'a>(
    tenant: &'a TenantClient,
    event: &'a Event,
    delivery: usize,
) -> BoxFuture<'a, Result<(), String>> {
    Box::pin(process(tenant, event, Message::new(format!("delivery {delivery}"))))
}

async fn process(tenant: &TenantClient, event: &Event, message: Message) -> Result<(), String> {
    let id = event.id.clone();
    // Crashes leave tries behind, and are not the fault of the message.
    let processed = tenant.process_once("warehouse", message.tries(100), move |db: &mut SqliteConnection| {
        Box::pin(async move { stock(db, &id).await })
    });
    processed.await.map(drop).map_err(|error| error.to_string())
}

/// Delivers what was published, from the beginning in each life of the process: nothing was acknowledged for good.
async fn deliver(tenant: &TenantClient, world: &World, consume: Consume) {
    let mut delivered = 0;
    for _ in 0..60 {
        while let Some(event) = world.published().get(delivered) {
            match consume(tenant, event, delivered).await {
                Ok(()) => delivered += 1,
                Err(_) => break, // it comes again
            }
        }
        world.sleep(Duration::from_secs(5)).await;
    }
}

fn simulation(consume: Consume) -> Simulation {
    Simulation::of(order, "17".to_owned())
        .engine(|engine, world| {
            let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(20) };
            engine.sink(Publisher::new(world.sink()).batch(2).backoff(backoff))
        })
        .with_actor("warehouse", move |engine, world| async move {
            deliver(&engine.tenant(Simulation::TENANT).unwrap(), &world, consume).await;
            "delivered".to_owned()
        })
        .operator(truthful)
        .check("each event has its effect once, in the order of the events", each_event_once)
}

fn each_event_once(end: &End<'_>) -> Result<(), String> {
    let stocked: Vec<String> = end.tables(|db| {
        Box::pin(async {
            db.execute(TABLE).await?;
            sqlx::query_scalar("SELECT event FROM stocked ORDER BY rowid").fetch_all(db).await
        })
    })?;
    let mut published = end.published();
    published.sort_by_key(|event| event.seq);
    published.dedup_by_key(|event| event.seq);
    let published: Vec<_> = published.into_iter().map(|event| event.id).collect();
    let is_whole = !end.succeeded() || published.len() == EVENTS || !end.questions().is_empty();
    if is_whole && stocked == published {
        return Ok(());
    }
    Err(format!("of {published:?} there is {stocked:?}"))
}

// GUARD-5, SIM-4: what was published twice is a duplicate that the inbox knows.
#[test]
fn each_event_has_its_effect_once_wherever_it_is_crashed() {
    let simulation = quick(simulation(once));
    let report = simulation.explore();
    report.assert_ok();
    for point in [CrashPoint::AfterPublish, CrashPoint::BeforePublished, CrashPoint::BeforeCheckpoint] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
    }
}

// A process that dies between the publishing and the note of it publishes again: without the inbox that is a second effect, and the
// check sees it.
#[test]
fn without_the_inbox_an_event_that_is_published_twice_has_two_effects() {
    let report = simulation(each_time).single_crashes().explore();
    let died_after = report
        .failures()
        .iter()
        .any(|failing| failing.violations.iter().any(|violation| matches!(&violation.rule, Rule::Own(_))));
    assert!(died_after, "{report}");
}
