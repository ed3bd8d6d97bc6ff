//! Real processes, a real SIGKILL, a real provider over HTTP (R-SIM-3). The provider's count is the judge, never
//! the engine's opinion.
//!
//! `COUNTERFOIL_FULL=1` tries every crossing of every point and every system call; without it, the first crossing
//! of each point, every sync and every send, and a sample of the writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

/// A test for each class of provider.
macro_rules! for_each_class {
    ($test:expr) => {
        for_each_class! { $test;
            replays_key_with_lookup: ReplaysKeyWithLookup,
            replays_key: ReplaysKey,
            rejects_key: RejectsKey,
            natural_key: NaturalKey,
            lookup: Lookup,
            blind: Blind,
            ignores_key: IgnoresKey,
        }
    };
    ($test:expr; $($name:ident: $class:ident,)*) => {$(
        #[test]
        fn $name() {
            $test(Class::$class);
        }
    )*};
}

#[path = "kill/agrees.rs"]
mod agrees;
#[path = "kill/alive.rs"]
mod alive;
#[path = "kill/boundaries.rs"]
mod boundaries;
#[path = "kill/desk.rs"]
mod desk;
#[path = "kill/doors.rs"]
mod doors;
#[path = "kill/failover.rs"]
mod failover;
#[path = "../workflows/demo/harness.rs"]
mod harness;
#[path = "kill/heard.rs"]
mod heard;
#[path = "kill/http.rs"]
mod http;
#[path = "kill/office.rs"]
mod office;
#[path = "kill/outbox.rs"]
mod outbox;
#[path = "own_server/mod.rs"]
mod own_server;
#[path = "kill/points.rs"]
mod points;
#[path = "kill/queue.rs"]
mod queue;
#[path = "kill/rabbitmq.rs"]
mod rabbitmq;
#[path = "kill/random.rs"]
mod random;
#[path = "kill/saga.rs"]
mod saga;
#[path = "kill/senders.rs"]
mod senders;
#[path = "kill/service.rs"]
mod service;
#[path = "kill/soak.rs"]
mod soak;
#[path = "kill/syscall.rs"]
mod syscall;
#[path = "kill/tenants.rs"]
mod tenants;
#[path = "kill/webhook.rs"]
mod webhook;
#[path = "kill/zombie.rs"]
mod zombie;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use counterfoil::Tenant;
use counterfoil::id::{Entropy as _, SystemEntropy};
use serde::Deserialize;
use sqlx::Connection as _;
use tempfile::TempDir;

use harness::case_notice::classes::{Class, reference};
use harness::case_notice::provider::Behaviour;
use harness::process::{Death, Program, World};
use harness::role::{self, Ended, Order, Recorded, Report, Role, TENANT, play_if_child_by};
use harness::scenario::Pace;
use harness::trial::Place;
use harness::worker::Ledger;

/// The settle time is long enough that a busy machine does not let a request arrive later than was declared.
const PACE: Pace = Pace { settle: Duration::from_secs(2), patience: Duration::from_secs(2) };
/// Longer than any test: for a sender that must not give up.
const FOR_EVER: Duration = Duration::from_mins(10);

/// Not a test: what this program is when another test has started it once more, as the environment says.
#[test]
fn child() {
    play_if_child_by(async |part| match part {
        Part::Shared(role) => role::play(role).await,
        Part::Tenants(own) => tenants::play(own).await,
        Part::Own(own) => office::play(own).await,
        Part::Messages(own) => outbox::play(own).await,
        Part::Http(own) => http::play(own).await,
        Part::Webhook(own) => webhook::play(own).await,
        Part::Queue(own) => queue::play(own).await,
        Part::Rabbitmq(own) => rabbitmq::play(own).await,
        Part::Service(own) => service::play(own).await,
        Part::Saga(own) => saga::play(own).await,
    });
}

/// What it may be: what the demo's processes are, too, or something of these tests alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Shared(Role),
    Tenants(tenants::Serves),
    Own(office::Own),
    Messages(outbox::Own),
    Http(http::Serves),
    Webhook(webhook::Receives),
    Queue(queue::Own),
    Rabbitmq(rabbitmq::Hears),
    Service(service::Service),
    Saga(saga::Shop),
}

/// A schema of its own in the tests' PostgreSQL.
fn on_postgres() -> Ledger {
    let url = std::env::var("TEST_DATABASE_URL")
        .expect("this test needs a PostgreSQL server: run `./test`, which brings one");
    Ledger::Postgres { url, schema: format!("kill_{:x}", SystemEntropy.bits()) }
}

/// A folder, a provider, and how to start lives in them.
struct Bench {
    place: Place,
    world: World,
    _folder: TempDir,
}

impl Bench {
    async fn new(behaviour: &Behaviour) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::this(&["child", "--exact", "--nocapture"]).unwrap();
        let world = World::start(&program, &folder.path().join("provider.db"), behaviour).await.unwrap();
        let place = Place { program, folder: folder.path().to_owned(), pace: PACE };
        Self { place, world, _folder: folder }
    }

    async fn of(class: Class) -> Self {
        Self::new(&healthy(class)).await
    }

    fn order(&self, class: Class) -> Order {
        self.place.order(&self.world, class, "case-1")
    }

    /// One life, to its end.
    async fn life(&self, order: &Order) -> Death {
        self.place.program.start(&Role::Life(order.clone())).unwrap().death().await.unwrap()
    }

    /// A life that is expected to come to its end by itself.
    async fn report(&self, order: &Order) -> Report {
        let death = self.life(order).await;
        death.report.unwrap_or_else(|| panic!("no report: {:?}", death.status))
    }

    async fn effects(&self, order: &Order) -> u64 {
        let reference = reference(&Tenant::new(TENANT).unwrap(), &order.case()).unwrap();
        self.world.effects(&reference).await.unwrap()
    }

    async fn requests(&self) -> u64 {
        self.world.counted().await.unwrap().requests
    }
}

fn healthy(class: Class) -> Behaviour {
    Behaviour { contract: class.provider(), ..Behaviour::default() }
}

/// A fault of the provider for the first request alone.
fn at_first(class: Class, fault: impl FnOnce(&mut Behaviour)) -> Behaviour {
    let mut behaviour = Behaviour { faults_for_next: Some(1), ..healthy(class) };
    fault(&mut behaviour);
    behaviour
}

/// Everything is tried, and not a sample.
fn full() -> bool {
    std::env::var_os("COUNTERFOIL_FULL").is_some()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// What holds of every run that was left alone at last, whatever was done to it before.
fn violations(report: &Report) -> Vec<String> {
    let mut violations = Vec::new();
    // A record that is neither committed nor failed must be somebody's question (invariant 8).
    let settled = |record: &Recorded| record.state == "committed" || record.asked;
    if !report.record.as_ref().is_some_and(settled) {
        violations.push(format!("its record is left open: {:?}", report.record));
    }
    match &report.ended {
        Ended::Succeeded => {}
        Ended::Asked if !report.questions.is_empty() => {}
        ended => violations.push(format!("it ended as {ended:?}, with the questions {:?}", report.questions)),
    }
    // FLOW-8 says a second; the limit here is generous because the machine may be busy.
    if let Some(after) = report.taken_over_after.filter(|after| *after > Duration::from_secs(5)) {
        violations.push(format!("it was taken over only after {after:?}"));
    }
    violations
}

/// The ledger's file is whole, and the case was closed once, if its run has ended well (A07, DESIGN 4.6).
async fn ledger_violations(ledger: &Path, succeeded: bool) -> Vec<String> {
    let url = format!("sqlite://{}", ledger.display());
    let mut db = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let whole: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut db).await.unwrap();
    let mut violations = Vec::new();
    if whole != "ok" {
        violations.push(format!("integrity check: {whole}"));
    }
    if succeeded {
        let closed: i64 =
            sqlx::query_scalar("SELECT count(*) FROM closed_case").fetch_one(&mut db).await.unwrap();
        if closed != 1 {
            violations.push(format!("the case was closed {closed} times"));
        }
    }
    violations
}
