//! A publisher posts events to a consumer, and both are killed with SIGKILL at random: each event is processed once, and
//! those of one aggregate in their order (GUARD-5, REC-2; HAZARDS J03, J05).
//!
//! `COUNTERFOIL_SEED` repeats one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use counterfoil::inbox::Message;
use counterfoil::ledger::Backoff;
use counterfoil::outbox::Publisher;
use counterfoil::{Clock as _, SystemClock};
use counterfoil::{Ctx, Engine, Executor, Failure, HttpSink, Tenant};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteConnection;

use crate::harness::Failed;
use crate::harness::process::{Process, Program};
use crate::harness::role::TENANT;
use crate::heard::Heard;
use crate::own_server::port::Port;
use crate::random::{Chance, seed};
use crate::run;

const ORDERS: u32 = 80;
const KINDS: [&str; 4] = ["placed", "paid", "packed", "sent"];
/// Between one order and the next, so that there is something under way when a process is killed.
const PACE: Duration = Duration::from_millis(15);

/// What only this program can be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    /// Emits events, and posts them.
    Publishes { ledger: PathBuf, url: String },
    /// Takes them, each once.
    Consumes { db: PathBuf, port: u16 },
}

pub(crate) async fn play(own: Own) -> Result<i32, Failed> {
    match own {
        Own::Publishes { ledger, url } => publishes(&ledger, &url).await,
        Own::Consumes { db, port } => consumes(&db, port).await,
    }
}

async fn order(ctx: Ctx, number: u32) -> Result<(), Failure> {
    for kind in KINDS {
        ctx.emit(format!("order/{number}"), kind, &number).await?;
    }
    Ok(())
}

/// Until it is killed.
async fn publishes(ledger: &Path, url: &str) -> Result<i32, Failed> {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
    let backoff = Backoff { base: Duration::from_millis(10), cap: Duration::from_millis(100) };
    let publisher = Publisher::new(HttpSink::with(client, url)).backoff(backoff).batch(16);
    let engine = Engine::sqlite(ledger).workflow("order", 1, order).sink(publisher).start().await?;
    let tenant = engine.tenant(TENANT)?;
    for number in 0..ORDERS {
        tenant.run(order, number).key(number.to_string()).await?;
        SystemClock.sleep(PACE).await;
    }
    std::future::pending().await
}

struct Consumer {
    executor: Executor,
    tenant: Tenant,
}

#[derive(Deserialize)]
struct Posted {
    id: String,
    aggregate: String,
    seq: i64,
}

async fn consumes(db: &Path, port: u16) -> Result<i32, Failed> {
    let executor = Executor::sqlite(db).open().await?;
    let consumer = Arc::new(Consumer { executor, tenant: Tenant::new(TENANT)? });
    let app = Router::new().route("/events", post(take)).with_state(consumer);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, app).await?;
    Ok(0)
}

async fn take(State(consumer): State<Arc<Consumer>>, body: String) -> StatusCode {
    let Ok(Posted { id, aggregate, seq }) = serde_json::from_str(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    // Killed processes leave tries behind, and none of them is this message's fault.
    let message = Message::new(id).version(aggregate.clone(), seq).tries(10_000);
    let taken =
        consumer.executor.process_once(&consumer.tenant, "kill", message, |db: &mut SqliteConnection| {
            Box::pin(Heard::enter(db, aggregate, seq))
        });
    if taken.await.is_ok() { StatusCode::NO_CONTENT } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Both ends, and where they keep what they know.
struct Ends {
    program: Program,
    roles: [Own; 2],
    lives: [Process; 2],
}

impl Ends {
    fn new(folder: &Path, port: u16) -> Self {
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        let url = format!("http://127.0.0.1:{port}/events");
        let roles = [
            Own::Publishes { ledger: folder.join("publisher.db"), url },
            Own::Consumes { db: folder.join("consumer.db"), port },
        ];
        let lives = roles.clone().map(|role| program.start(&role).unwrap());
        Self { program, roles, lives }
    }

    async fn kill(&mut self, end: usize) {
        self.lives[end].kill_and_wait().await.unwrap();
        self.lives[end] = self.program.start(&self.roles[end]).unwrap();
    }
}

#[test]
fn each_event_is_processed_once_and_in_its_order() {
    run(kill_both_ends(seed()));
}

async fn kill_both_ends(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut heard = Heard::new(&folder.path().join("consumer.db")).await;
    let port = Port::free();
    let mut ends = Ends::new(folder.path(), port.number);
    let (mut chance, mut kills, begun) = (Chance(seed), 0, SystemClock.boot());
    let wanted = ORDERS as usize * KINDS.len();
    while heard.all().await.len() < wanted {
        let lived = begun.until(SystemClock.boot());
        assert!(lived < Duration::from_mins(4), "COUNTERFOIL_SEED={seed}: stuck after {kills} kills");
        SystemClock.sleep(Duration::from_millis(100 + chance.below(900))).await;
        let which = chance.below(3);
        for end in [0, 1].into_iter().filter(|end| which == 2 || which == *end) {
            ends.kill(usize::try_from(end).unwrap()).await;
            kills += 1;
        }
    }
    // Whatever is published once more from here on changes nothing.
    SystemClock.sleep(Duration::from_millis(500)).await;
    heard.is_in_order(ORDERS, &[1, 2, 3, 4], seed).await;
    assert!(kills >= 3, "COUNTERFOIL_SEED={seed}: only {kills} kills while there was something to do");
    eprintln!("{wanted} events, {kills} kills, COUNTERFOIL_SEED={seed}");
}
