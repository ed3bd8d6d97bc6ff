//! The webhook door in the simulator: wherever the service dies, an event starts its run once and is signalled to it once, in the
//! order of its versions.

use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::door::Reaction;
use counterfoil::sim::{CrashPoint, End, Rule, Simulation, World};
use counterfoil::webhook::{EventIdentity, Scheme, Webhook, WebhookEvent};
use counterfoil::{Ctx, Engine, Failure, Tenant};
use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::rim::webhook::{Delivery, SECRET, signed_at};

/// Waits until it is paid.
async fn desk(ctx: Ctx, (): ()) -> Result<i64, Failure> {
    ctx.signal("paid").await
}

async fn parcel(ctx: Ctx, order: String) -> Result<String, Failure> {
    ctx.step("packed", &order, String::clone).await
}

/// What an event enters. Nothing of the table's own keeps two of them apart.
fn enter(db: &mut SqliteConnection, state: i64) -> BoxFuture<'_, Result<(), sqlx::Error>> {
    Box::pin(async move {
        db.execute(TABLE).await?;
        sqlx::query("INSERT INTO state VALUES (?)").bind(state).execute(db).await.map(drop)
    })
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS state (version INTEGER NOT NULL)";

/// The door, with what its host says about identities.
fn door(engine: &Engine, key: Identify) -> Webhook {
    let tenant = Tenant::new(Simulation::TENANT).unwrap();
    let shop = engine.tenant(Simulation::TENANT).unwrap();
    let builder = Webhook::source("shop", Scheme::standard_webhooks(), [SECRET], tenant).unwrap();
    let builder =
        builder.tries(1000).identify(move |event| key(event).map(EventIdentity::new)).version(|event| {
            let state: i64 = event.kind()?.parse().ok()?;
            Some(("order".to_owned(), state))
        });
    let react = move |event: WebhookEvent| {
        let shop = shop.clone();
        async move {
            Ok::<_, Failed>(match event.kind() {
                Some("placed") => Reaction::start(shop.run(parcel, "order 9".to_owned())),
                Some("paid") => {
                    let runs = shop.runs(None).await?;
                    let desk = runs
                        .iter()
                        .find(|run| run.workflow.as_str() == "simulated")
                        .ok_or("nobody is there")?;
                    Reaction::signal(shop.handle::<i64>(desk.id).signal("paid", 4200))
                }
                Some(state) => {
                    let state: i64 = state.parse()?;
                    Reaction::transaction(move |db: &mut SqliteConnection| enter(db, state))
                }
                None => Reaction::ignore(),
            })
        }
    };
    builder.on(&engine.executor(), react).unwrap()
}

type Identify = fn(&WebhookEvent) -> Option<String>;
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What is delivered, in this order, as ids and types: the order's later state overtakes the one before.
const EVENTS: [(&str, &str); 4] = [("evt-1", "placed"), ("evt-3", "2"), ("evt-2", "1"), ("evt-4", "paid")];

/// Delivers each event until it is taken, and once more.
async fn sender(engine: Engine, world: World, key: Identify, events: &[(&str, &str)]) -> String {
    let door = door(&engine, key);
    let mut delivered = 0;
    for (id, kind) in events {
        let mut taken = 0;
        while taken < 2 {
            delivered += 1;
            let request = signed(id, &world, &format!(r#"{{"type":"{kind}","delivery":{delivered}}}"#));
            if door.receive(request).await.status().is_success() {
                taken += 1;
            } else if world.clock().boot().0 > Duration::from_mins(10) {
                return format!("gave up with {id}"); // a worker that was taken for dead is refused for ever
            }
            world.clock().sleep(Duration::from_secs(5)).await;
        }
    }
    "done".to_owned()
}

fn signed(id: &str, world: &World, body: &str) -> Delivery {
    signed_at(SECRET, id, world.clock().now().0 / 1_000_000, body)
}

const ONCE: &str = "each event does what it does once, and none is undone by an older one";

fn simulation(key: Identify, events: &'static [(&'static str, &'static str)]) -> Simulation {
    Simulation::of(desk, ())
        .engine(|engine, _| engine.workflow("parcel", 1, parcel))
        .with_actor("sender", move |engine, world| sender(engine, world, key, events))
        .check(ONCE, |end| {
            let parcels = end.rows().iter().filter(|run| run.workflow.as_str() == "parcel").count();
            let states = states(end)?;
            let done = end.heard("sender").contains(&"done");
            match (parcels, states.as_slice()) {
                (1, [2]) if !done || end.succeeded() => Ok(()),
                (0 | 1, [] | [2]) if !done => Ok(()),
                _ => Err(format!("{parcels} parcels, states {states:?}, done: {done}")),
            }
        })
}

fn states(end: &End<'_>) -> Result<Vec<i64>, String> {
    end.tables(|db| {
        Box::pin(async {
            db.execute(TABLE).await?;
            sqlx::query_scalar("SELECT version FROM state ORDER BY rowid").fetch_all(db).await
        })
    })
}

#[test]
fn each_event_is_done_once_wherever_the_service_is_crashed() {
    let report = crate::sim::quick(simulation(|event| event.id().map(str::to_owned), &EVENTS)).explore();
    report.assert_ok();
    for point in [CrashPoint::BeforeProcessed, CrashPoint::AfterProcessed] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
    }
}

// The proof of the proof: each delivery is an event of its own.
#[test]
fn a_door_that_knows_no_ids_is_found_out() {
    let each = |event: &WebhookEvent| Some(String::from_utf8_lossy(event.body()).into_owned());
    let report = crate::sim::quick(simulation(each, &EVENTS[..1])).explore();
    let found = report.failures().iter().flat_map(|failing| &failing.violations);
    assert!(found.into_iter().any(|found| found.rule == Rule::Own(ONCE.to_owned())), "{report}");
}
