//! A ledger on PostgreSQL that is older than the world: recovered to an earlier instant, copied, or put back under a worker.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::exec::ExecutorBuilder;
use counterfoil::ledger::{Basis, Contract, ContractClass, EffectClass, Key};
use counterfoil::store::QuestionKind;
use counterfoil::{Executor, Tenant, ToolRequest};
use sqlx::postgres::PgConnection;

use crate::flow::store::Tap;
use crate::own_server::Server;
use crate::store::postgres::Schema;
use crate::world::{Chance, Keys, SETTLE, TestClock, World, brief, request, soon};

const LEASE: Duration = Duration::from_secs(10);

fn equipped(builder: ExecutorBuilder, world: &Arc<World>) -> ExecutorBuilder {
    let contract = Contract::new(ContractClass::Lookup);
    let tool = world.tool("pay", EffectClass::InternalMutation, contract).retry(brief());
    builder.dynamic_tool(tool).entropy(Chance::least()).lease(LEASE)
}

/// Opens it, and lets the time pass in which a lost worker might send, and in which its requests arrive.
async fn open(builder: ExecutorBuilder, world: &Arc<World>) -> Executor {
    let clock = TestClock::breathing();
    let executor = equipped(builder, world).clock(clock.clone()).open().await.unwrap();
    clock.advance(SETTLE + LEASE);
    executor
}

fn pay(key: &str) -> ToolRequest {
    ToolRequest { key: Some(Key::of("pay").target(key)), ..request("pay") }
}

/// Makes payments in one life of an executor.
async fn pays(url: &str, world: &Arc<World>, keys: &[&str]) {
    let executor = open(Executor::postgres(url), world).await;
    for key in keys {
        assert!(executor.execute(pay(key)).await.unwrap().answer().is_some());
    }
    executor.shutdown(Duration::from_secs(5)).await;
}

async fn is_asked(executor: &Executor) -> bool {
    let open = executor.questions(&Tenant::ledger()).await.unwrap();
    open.iter().any(|asked| asked.kind == QuestionKind::Restored)
}

/// A start in a new life: is the ledger taken for older than the world?
async fn is_recognised(url: &str, world: &Arc<World>) -> bool {
    let executor = open(Executor::postgres(url), world).await;
    let asked = is_asked(&executor).await;
    assert_eq!(executor.restored().await.unwrap().is_some(), asked);
    executor.shutdown(Duration::ZERO).await;
    asked
}

#[tokio::test]
async fn a_promoted_standby_that_every_commit_waited_for_is_no_restore() {
    let (world, primary) = (World::new(Keys::Ignores), Server::start(&[]).await);
    let standby = primary.standby("second").await;
    primary.wait_for("second").await;
    pays(&primary.url(), &world, &["c1"]).await;
    primary.kill();
    standby.promote().await;
    for _start in 0..2 {
        assert!(!is_recognised(&standby.url(), &world).await);
    }
}

#[tokio::test]
async fn a_promoted_standby_that_no_commit_waited_for_is_asked_about() {
    let (world, primary) = (World::new(Keys::Ignores), Server::start(&[]).await);
    let standby = primary.standby("second").await;
    pays(&primary.url(), &world, &["c1"]).await;
    primary.until("SELECT 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()").await;
    primary.kill();
    standby.promote().await;
    assert!(is_recognised(&standby.url(), &world).await);
}

#[tokio::test]
async fn a_server_recovered_to_an_earlier_instant_looks_before_it_repeats_an_effect_that_it_lost() {
    let (world, primary) = (World::new(Keys::Ignores), Server::start(&[]).await);
    let backup = primary.standby("backup").await;
    backup.stop_fast().await;
    // Also where each commit waits for a standby: the recovery says how far it went.
    let _standby = primary.standby("second").await;
    primary.wait_for("second").await;
    pays(&primary.url(), &world, &["known"]).await;
    let target = primary.sql("SELECT pg_current_wal_lsn()").await;
    pays(&primary.url(), &world, &["lost"]).await;
    let target = format!("recovery_target_lsn='{target}'");
    backup.configure(&[&target, "recovery_target_action='promote'"]);
    backup.start_again().await;
    backup.until("SELECT 1 WHERE NOT pg_is_in_recovery()").await;
    primary.kill();

    let executor = open(Executor::postgres(backup.url()), &world).await;
    assert!(is_asked(&executor).await);
    let found = executor.execute(pay("lost")).await.unwrap();
    assert_eq!(found.answer().map(|answer| answer.basis), Some(Basis::Lookup), "{found:?}");
    assert_eq!(world.count(), 2, "nothing was repeated");
    executor.lift_restored("ann", "all is seen to").await.unwrap();
    executor.shutdown(Duration::ZERO).await;
    assert!(!is_recognised(&backup.url(), &world).await, "the next start has nothing to say about it");
}

/// As after a dump was read back: the rows are the same, in other tables.
#[tokio::test]
async fn a_dump_that_was_read_back_is_recognised() {
    let (world, schema) = (World::new(Keys::Ignores), Schema::new());
    let builder = || ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
    open(builder(), &world).await.shutdown(Duration::ZERO).await;
    let mut other = schema.plain().await;
    let read_back = "ALTER TABLE record RENAME TO lost; CREATE TABLE record (LIKE lost INCLUDING ALL EXCLUDING GENERATED); \
                     INSERT INTO record SELECT * FROM lost; DROP TABLE lost CASCADE";
    sqlx::raw_sql(read_back).execute(&mut other).await.unwrap();
    let executor = open(builder(), &world).await;
    assert!(is_asked(&executor).await);
    executor.lift_restored("ann", "it is a copy for tests").await.unwrap();
    executor.shutdown(Duration::ZERO).await;
    let executor = open(builder(), &world).await;
    assert!(!is_asked(&executor).await);
    executor.shutdown(Duration::ZERO).await;
}

/// The role may not ask for the number of the system: what is left is compared.
#[tokio::test]
async fn a_role_that_may_not_ask_for_the_system_recognises_a_dump_that_was_read_back() {
    let (world, server) = (World::new(Keys::Ignores), Server::start(&[]).await);
    for sql in [
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
        "CREATE ROLE plain LOGIN",
        "GRANT CREATE ON DATABASE postgres TO plain",
    ] {
        server.sql(sql).await;
    }
    let url = server.url().replace("postgres@", "plain@");
    assert_ne!(url, server.url());
    for _start in 0..2 {
        assert!(!is_recognised(&url, &world).await);
    }
    for sql in [
        "ALTER TABLE counterfoil.record RENAME TO lost",
        "CREATE TABLE counterfoil.record (LIKE counterfoil.lost INCLUDING ALL)",
        "ALTER TABLE counterfoil.record OWNER TO plain",
        "DROP TABLE counterfoil.lost CASCADE",
    ] {
        server.sql(sql).await;
    }
    assert!(is_recognised(&url, &world).await);
}

/// A server that was killed and recovers has lost nothing.
#[tokio::test]
async fn a_crash_of_the_server_is_no_restore() {
    let (world, server) = (World::new(Keys::Ignores), Server::start(&[]).await);
    pays(&server.url(), &world, &["c1"]).await;
    server.kill();
    server.start_again().await;
    assert!(!is_recognised(&server.url(), &world).await);
}

/// Lets time pass until the living worker has renewed its lease. Returns the end of that lease.
async fn renewed(clock: &TestClock, other: &mut PgConnection) -> i64 {
    let mut renewed = 0;
    for beat in 0.. {
        clock.advance(LEASE / 2);
        let query = sqlx::query_scalar("SELECT lease_until FROM worker WHERE ended_at IS NULL");
        let until: i64 = query.fetch_one(&mut *other).await.unwrap();
        if renewed != 0 && until > renewed {
            break;
        }
        renewed = renewed.max(until);
        assert!(beat < 1000, "no heartbeat comes");
        tokio::task::yield_now().await;
    }
    renewed
}

/// Puts the worker's row back until the worker has noticed it.
async fn put_back(
    clock: &TestClock,
    other: &mut PgConnection,
    renewed: i64,
    noticed: impl AsyncFn() -> bool,
) {
    let mut beats = 0;
    while !noticed().await {
        // Again and again: a heartbeat that is under way writes its row anew.
        let back = sqlx::query("UPDATE worker SET lease_until = $1 WHERE ended_at IS NULL");
        back.bind(renewed - 30_000_000).execute(&mut *other).await.unwrap();
        clock.advance(LEASE / 2);
        tokio::task::yield_now().await;
        beats += 1;
        assert!(beats < 1000, "it notices nothing");
    }
}

/// As when a snapshot of the disk is put back: the server itself cannot tell.
#[tokio::test]
async fn a_living_worker_notices_that_its_database_went_back() {
    let (world, schema) = (World::new(Keys::Ignores), Schema::new());
    let clock = TestClock::breathing();
    let builder = || ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
    let executor = equipped(builder(), &world).clock(clock.clone()).open().await.unwrap();
    let mut other = schema.plain().await;
    let until = renewed(&clock, &mut other).await;
    assert_eq!(executor.restored().await.unwrap(), None);
    put_back(&clock, &mut other, until, async || executor.restored().await.unwrap().is_some()).await;
    assert!(is_asked(&executor).await);
    executor.shutdown(Duration::ZERO).await;
}

/// The rows that the worker has written since the first restore came with the older state.
#[tokio::test]
async fn a_database_that_goes_back_while_a_restore_is_in_force_is_one_more_restore() {
    let (world, schema) = (World::new(Keys::Ignores), Schema::new());
    let clock = TestClock::breathing();
    let builder = || ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
    open(builder().restored(None), &world).await.shutdown(Duration::ZERO).await;
    let executor = equipped(builder(), &world).clock(clock.clone()).open().await.unwrap();
    let mut other = schema.plain().await;
    let until = renewed(&clock, &mut other).await;
    let first = executor.restored().await.unwrap().unwrap();
    let moved = async || executor.restored().await.unwrap().unwrap().since > first.since;
    put_back(&clock, &mut other, until, moved).await;
    let both = executor.restored().await.unwrap().unwrap();
    assert!(both.by > first.by, "{:?} after {:?}", both.by, first.by);
    assert_eq!(both.as_of, first.as_of);
    assert_eq!(executor.questions(&Tenant::ledger()).await.unwrap().len(), 1);
    executor.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_restore_that_one_worker_was_told_of_is_known_to_the_others() {
    let (world, schema) = (World::new(Keys::Ignores), Schema::new());
    let clock = TestClock::breathing();
    let builder = || ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
    let first = equipped(builder(), &world).clock(clock.clone()).open().await.unwrap();
    let second = open(builder().restored(None), &world).await;
    let sends = async {
        for sent in 0.. {
            let _outcome = first.execute(pay(&sent.to_string())).await.unwrap();
        }
    };
    let looks = soon("the first worker does not learn of it".to_owned(), async {
        while world.lookups().is_empty() {
            clock.advance(LEASE / 2);
            assert!(second.restored().await.unwrap().is_some());
        }
        Ok::<(), std::convert::Infallible>(())
    });
    tokio::select! {
        () = sends => {}
        () = looks => {}
    }
    for executor in [first, second] {
        executor.shutdown(Duration::ZERO).await;
    }
}

/// The note of another worker, which was told nothing, comes between the read and the write of the one that was.
#[tokio::test]
async fn a_restore_is_noted_although_another_worker_writes_the_note_at_that_moment() {
    let (world, schema, tap) = (World::new(Keys::Ignores), Schema::new(), Tap::default());
    let builder = || ExecutorBuilder::postgres_with(crate::server::url(), schema.options());
    let tapped = tap.clone();
    let told = builder().restored(None).wrap_store(move |store| tapped.around(store));
    tap.hold(|change| change.escalations.iter().any(|asked| asked.kind == QuestionKind::Restored));
    let (told, other) = tokio::join!(open(told, &world), async {
        tap.until(|tapped| tapped.held > 0).await;
        let other = open(builder(), &world).await;
        assert!(!is_asked(&other).await);
        tap.release();
        other
    });
    let open = told.questions(&Tenant::ledger()).await.unwrap();
    assert_eq!(open.iter().filter(|asked| asked.kind == QuestionKind::Restored).count(), 1, "{open:#?}");
    assert!(other.restored().await.unwrap().is_some());
    assert!(told.execute(pay("c1")).await.unwrap().answer().is_some());
    assert_eq!((world.lookups().len(), world.count()), (1, 1), "it is looked up before it is sent");
    for executor in [told, other] {
        executor.shutdown(Duration::ZERO).await;
    }
}
