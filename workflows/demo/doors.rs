//! The third part of the demo: an order service in a storm of duplicates, naive and behind counterfoil's doors. Each order is posted
//! and each payment is told several times at once, by clients that try again until they are answered, while the service is killed
//! and stopped at random. Then the rows are counted.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use counterfoil::Executor;
use counterfoil::{Clock as _, SystemClock};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Executor as _};
use tokio::task::JoinSet;

use super::Progress;
use super::customer::{Customer, Door};
use super::harness::Failed;
use super::harness::cluster::Dice;
use super::harness::process::{Process, Program};
use super::harness::role::Role;
use super::harness::shop::{Shop, Side, TABLE};
use super::harness::trial::Place;
use super::table::{Cell, Table, Tone};

/// So many orders come in, and so many payments.
const NUMBERS: u32 = 120;
/// Each of them comes so often at once.
const COPIES: u32 = 3;
/// They begin within this time, and in it the service is killed.
const STORM: Duration = Duration::from_secs(8);
/// Longer than any client needs once the storm is over.
const CALM: Duration = Duration::from_mins(2);
/// A service that is stopped stands still for so long.
const STANDSTILL: Duration = Duration::from_millis(500);
/// Below those that the system gives to clients: a service that starts again must find its port free.
const PORTS: std::ops::Range<u16> = 20_000..26_000;

/// What both services have come to.
pub(crate) struct Doors {
    seed: u64,
    naive: Storm,
    ours: Storm,
}

/// A service after its storm.
struct Storm {
    kills: u32,
    stops: u32,
    counts: Vec<Count>,
}

/// What came in by a door.
struct Count {
    door: Door,
    /// Requests, with all tries.
    sent: u64,
    duplicates: u64,
    losses: u64,
}

/// Both services at the same time, under the same kills.
pub(crate) async fn doors(place: &Place, seed: u64) -> Result<Doors, Failed> {
    let answered = Arc::new(AtomicU64::new(0));
    let watched = async {
        let (mut progress, all) = (Progress::new(), 4 * NUMBERS * COPIES);
        loop {
            progress.show(&format!("the doors: {} of {all} requests answered", answered.load(Relaxed)));
            SystemClock.sleep(Duration::from_millis(200)).await;
        }
    };
    let storms = async {
        tokio::try_join!(
            storm(place, Side::Naive, seed, &answered),
            storm(place, Side::Counterfoil, seed, &answered),
        )
    };
    let (naive, ours) = tokio::select! {
        biased;
        storms = storms => storms?,
        () = watched => unreachable!("it watches for ever"),
    };
    Ok(Doors { seed, naive, ours })
}

async fn storm(place: &Place, side: Side, seed: u64, answered: &Arc<AtomicU64>) -> Result<Storm, Failed> {
    let db = place.folder.join(format!("shop-{side:?}.db"));
    let shop = Shop { side, db, port: free_port(side)? };
    Executor::sqlite(&shop.db).open().await?.shutdown(Duration::from_secs(1)).await;
    let mut own = shop.own().connect().await?;
    own.execute(TABLE).await?;

    let sent = Door::ALL.map(|door| (door, Arc::new(AtomicU64::new(0))));
    let clients = clients(shop.port, &sent, answered)?;
    let Blown { mut service, kills, stops } = blow(&place.program, &shop, Dice(seed)).await?;
    tokio::select! {
        biased;
        all = through(clients) => all?,
        () = SystemClock.sleep(CALM) => return Err(format!("{side:?}: not all is answered {CALM:?} after the storm").into()),
    }
    service.kill_and_wait().await?;

    let mut counts = Vec::new();
    for (door, sent) in sent {
        counts.push(Count::of(&mut own, door, sent.load(Relaxed)).await?);
    }
    Ok(Storm { kills, stops, counts })
}

fn free_port(side: Side) -> Result<u16, Failed> {
    // Each side looks in a half of its own.
    let free = PORTS.skip(side as usize).step_by(2);
    let free = free.into_iter().find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| format!("no port of {PORTS:?} is free").into())
}

/// All requests, each copy by a client of its own.
fn clients(
    port: u16,
    sent: &[(Door, Arc<AtomicU64>)],
    answered: &Arc<AtomicU64>,
) -> Result<JoinSet<Result<(), Failed>>, Failed> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut clients = JoinSet::new();
    for number in 0..NUMBERS {
        for (door, sent) in sent {
            let customer = Customer { http: http.clone(), port, door: *door, number, sent: sent.clone() };
            for _ in 0..COPIES {
                let (customer, answered) = (customer.clone(), answered.clone());
                clients.spawn(async move {
                    SystemClock.sleep(STORM * number / NUMBERS).await;
                    customer.ask().await?;
                    answered.fetch_add(1, Relaxed);
                    Ok(())
                });
            }
        }
    }
    Ok(clients)
}

async fn through(mut clients: JoinSet<Result<(), Failed>>) -> Result<(), Failed> {
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

/// A service that has lived through its storm.
struct Blown {
    service: Process,
    kills: u32,
    stops: u32,
}

/// Has a service serve while the storm lasts: at random it is killed and started again, or stands still for a while.
async fn blow(program: &Program, shop: &Shop, mut dice: Dice) -> Result<Blown, Failed> {
    let role = Role::Shop(shop.clone());
    let mut blown = Blown { service: program.start(&role)?, kills: 0, stops: 0 };
    let begun = SystemClock.boot();
    while begun.until(SystemClock.boot()) < STORM {
        SystemClock.sleep(Duration::from_millis(100 + dice.below(300))).await;
        if blown.service.has_ended()? {
            return Err(format!("the {:?} service has ended by itself", shop.side).into());
        }
        if dice.below(5) == 0 {
            blown.service.signal(Signal::STOP)?;
            SystemClock.sleep(STANDSTILL).await;
            blown.service.signal(Signal::CONT)?;
            blown.stops += 1;
        } else {
            blown.service.kill_and_wait().await?;
            blown.service = program.start(&role)?;
            blown.kills += 1;
        }
    }
    Ok(blown)
}

impl Count {
    /// Each number was answered, and is to be there once.
    async fn of(own: &mut SqliteConnection, door: Door, sent: u64) -> Result<Self, Failed> {
        let rows = "SELECT count(*), count(DISTINCT number) FROM entered WHERE door = ?";
        let (rows, numbers): (i64, i64) = sqlx::query_as(rows).bind(door.name()).fetch_one(own).await?;
        let (duplicates, losses) =
            (u64::try_from(rows - numbers)?, u64::try_from(i64::from(NUMBERS) - numbers)?);
        Ok(Self { door, sent, duplicates, losses })
    }

    const fn is_well(&self) -> bool {
        self.duplicates == 0 && self.losses == 0
    }

    fn cells(&self, service: &str) -> Vec<Cell> {
        let judged =
            |count: u64| Cell::new(if count == 0 { Tone::Good } else { Tone::Bad }, format!("{count}"));
        vec![
            Cell::plain(match self.door {
                Door::Orders => "POST /orders",
                Door::Payments => "webhook",
            }),
            Cell::plain(service),
            Cell::plain(NUMBERS.to_string()),
            Cell::plain(self.sent.to_string()),
            judged(self.duplicates),
            judged(self.losses),
        ]
    }
}

impl Doors {
    pub(crate) fn is_well(&self) -> bool {
        self.ours.counts.iter().all(Count::is_well)
    }

    pub(crate) fn json(&self) -> Value {
        let side = |storm: &Storm| {
            let counts = storm.counts.iter().map(|count| {
                let Count { door, sent, duplicates, losses } = count;
                json!({ "door": door.name(), "sent": sent, "duplicates": duplicates, "losses": losses })
            });
            json!({ "kills": storm.kills, "stops": storm.stops, "counts": counts.collect::<Vec<_>>() })
        };
        json!({ "doors": {
            "seed": self.seed, "numbers": NUMBERS, "copies": COPIES,
            "naive": side(&self.naive), "counterfoil": side(&self.ours),
        }})
    }

    pub(crate) fn text(&self, colour: bool) -> String {
        let mut table = Table::new(["door", "service", "asked for", "requests", "duplicates", "losses"]);
        for (naive, ours) in self.naive.counts.iter().zip(&self.ours.counts) {
            table.row(naive.cells("naive"));
            table.row(ours.cells("counterfoil"));
        }
        let weather = |storm: &Storm| format!("{} times and stopped {} times", storm.kills, storm.stops);
        format!(
            "the doors: each request came {COPIES} times at once, under one key, from clients that try again until they are \
             answered\nnaive was killed {}, counterfoil {} (seed {}); rows in the table:\n{}",
            weather(&self.naive),
            weather(&self.ours),
            self.seed,
            table.render(colour),
        )
    }
}
