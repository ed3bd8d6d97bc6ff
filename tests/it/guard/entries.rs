//! Ledger entries (GUARD-6): one for each transaction, whoever posts it and however often; the balance is their sum.

use std::sync::Arc;
use std::time::Duration;

use counterfoil::flow::{FailureCode, RunError, TenantClient, WorkflowFn};
use counterfoil::guard::entries::{Account, Amount, Balance, Entry, EntryError};
use counterfoil::sim::{CrashPoint, Simulation};
use counterfoil::{Ctx, Engine, Failure};
use futures_util::future::join_all;
use sqlx::{Connection as _, SqliteConnection};

use crate::flow;
use crate::flow::world::{Process, World};
use crate::sim::quick;
use crate::store::postgres::Schema;

fn cents(minor: i128) -> Amount {
    Amount::of(minor, "EUR cent")
}

#[allow(clippy::unnecessary_wraps, reason = "as it is compared")]
fn has(minor: i128, entries: u32) -> Option<Balance> {
    Some(Balance { amount: cents(minor), entries })
}

/// Posts what it is given, one after the other.
fn books(world: &Arc<World>) -> impl WorkflowFn<Vec<(String, i64)>, Vec<Entry>> + Clone {
    flow!(world, |ctx, all: Vec<(String, i64)>| {
        let account = ctx.account("till/1");
        let mut entries = Vec::new();
        for (transaction, minor) in all {
            entries.push(account.post(transaction, cents(minor.into())).memo("by a run").await?);
        }
        Ok::<_, Failure>(entries)
    })
}

/// The account that no run has to do with.
async fn by_hand(acme: &TenantClient) {
    let till: Account<TenantClient> = acme.account("till");
    assert_eq!((till.balance().await.unwrap(), till.audit().await.unwrap()), (None, None));
    let first = till.post("sale/1", cents(500)).memo("tea").await.unwrap();
    assert_eq!((first.number, &first.balance, first.run, first.memo.as_str()), (1, &cents(500), None, "tea"));
    let out = till.post("sale/2", cents(-700)).await.unwrap();
    assert_eq!((out.number, &out.balance), (2, &cents(-200)));

    // Again: the entry that stands, with its memo and its balance of then.
    assert_eq!(till.post("sale/1", cents(500)).memo("coffee").await.unwrap(), first);
    match till.post("sale/1", cents(501)).await {
        Err(EntryError::Conflict { first: stands, given }) => {
            assert_eq!((*stands, given), (first.clone(), cents(501)));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        till.post("sale/1", Amount::of(500, "USD cent")).await,
        Err(EntryError::Conflict { .. })
    ));
    assert!(matches!(till.post("sale/3", Amount::of(1, "USD cent")).await, Err(EntryError::Unit { .. })));
    assert!(matches!(till.post("sale/3", cents(i128::MIN)).await, Err(EntryError::Overflow { .. })));
    for (transaction, unit) in [("", "x"), ("a\0b", "x"), ("t", "")] {
        assert!(matches!(till.post(transaction, Amount::of(1, unit)).await, Err(EntryError::Name(_))));
    }
    assert_eq!(till.balance().await.unwrap(), has(-200, 2), "nothing refused has left a trace");
    assert_eq!(till.entry("sale/2").await.unwrap(), Some(out.clone()));
    assert_eq!(till.entry("sale/3").await.unwrap(), None);
    assert_eq!(till.statement(0, 9).await.unwrap(), [first.clone(), out.clone()]);
    assert_eq!(till.statement(1, 9).await.unwrap(), [out]);
    assert_eq!(till.statement(0, 1).await.unwrap(), [first]);

    // Accounts whose names begin alike, and end as a number of another's line would.
    for name in ["till/0000000001", "till/", "till%2F", "til", "till'; DROP TABLE document; --"] {
        let other = acme.account(name);
        other.post("sale/1", cents(1)).await.unwrap();
        assert_eq!(other.audit().await.unwrap(), has(1, 1), "{name}");
    }
    assert_eq!(till.audit().await.unwrap(), has(-200, 2));
    // No sum is rounded.
    let large = acme.account("large");
    large.post("a", cents(i128::MAX - 1)).await.unwrap();
    assert_eq!(large.post("b", cents(1)).await.unwrap().balance, cents(i128::MAX));
    assert_eq!(large.audit().await.unwrap(), has(i128::MAX, 2));
}

async fn by_runs(process: &Process, world: &Arc<World>) {
    let acme = process.acme();
    let sales = |from: u32, to: u32| {
        (from..to).map(|n| (format!("sale/{n}"), 100 + i64::from(n))).collect::<Vec<_>>()
    };
    let entries = acme.run(books(world), sales(0, 3)).key("a").await.unwrap();
    assert!(entries.iter().all(|entry| entry.run.is_some() && entry.memo == "by a run"));
    assert_eq!(
        acme.run(books(world), sales(0, 3)).key("b").await.unwrap(),
        entries,
        "another run, the same sales"
    );
    match acme.run(books(world), vec![("sale/1".to_owned(), 7)]).key("c").await {
        Err(RunError::Failed { failure, .. }) => assert_eq!(failure.code, FailureCode::Conflict),
        other => panic!("{other:?}"),
    }
    assert_eq!(acme.account("till/1").audit().await.unwrap(), has(303, 3));
    let globex = process.engine().tenant("globex").unwrap();
    assert_eq!(globex.account("till/1").balance().await.unwrap(), None);
    assert!(globex.account("till/1").statement(0, 9).await.unwrap().is_empty());
}

/// Two runs and twenty callers at once, who know of some of the same sales.
async fn at_once(process: &Process, world: &Arc<World>) {
    let acme = process.acme();
    let sales = |from: u32, to: u32| (from..to).map(|n| (format!("m{n}"), i64::from(n))).collect::<Vec<_>>();
    let runs =
        [(0, 30), (20, 50)].map(|(from, to)| acme.run(books(world), sales(from, to)).key(format!("m{from}")));
    let runs = runs.map(IntoFuture::into_future);
    let account = acme.account("till/1");
    let callers = (40..60).map(|n| account.post(format!("m{n}"), cents(n)).into_future());
    let (runs, callers) = tokio::join!(join_all(runs), join_all(callers));
    assert!(runs.iter().all(Result::is_ok) && callers.iter().all(Result::is_ok), "{runs:?} {callers:?}");
    let sum = (0..60).sum::<i128>();
    assert_eq!(account.audit().await.unwrap(), has(303 + sum, 63));
}

fn on(process: &Process, world: &Arc<World>) {
    process.on(async {
        by_hand(&process.acme()).await;
        by_runs(process, world).await;
        at_once(process, world).await;
    });
}

// R-GUARD-6
#[test]
fn a_balance_is_the_sum_of_entries() {
    let world = World::new();
    let process = Process::start(&world, world.engine().workflow("books", 1, books(&world)));
    on(&process, &world);
    process.shut_down();
}

#[test]
fn entries_are_kept_on_postgres() {
    let (world, schema) = (World::new(), Schema::new());
    let engine = world.equip(Engine::postgres_with(crate::server::url(), schema.options()), &world.tap);
    let process = Process::start(&world, engine.workflow("books", 1, books(&world)));
    on(&process, &world);
    process.shut_down();
}

/// Rows that another hand has changed are found.
#[test]
fn an_audit_finds_a_balance_that_does_not_follow() {
    let world = World::new();
    let process = Process::start(&world, world.engine());
    process.on(async {
        let till = process.acme().account("till");
        for n in 1..=3 {
            till.post(format!("sale/{n}"), cents(n)).await.unwrap();
        }
    });
    process.on(async {
        let url = format!("sqlite:{}", world.path().display());
        let mut file = SqliteConnection::connect(&url).await.unwrap();
        let changed = sqlx::query(
            r#"UPDATE document SET body = replace(body, '"minor":"2"', '"minor":"20"') WHERE id = 'till/0000000002'"#,
        );
        assert_eq!(changed.execute(&mut file).await.unwrap().rows_affected(), 1);
    });
    process.on(async {
        let broken = process.acme().account("till").audit().await;
        assert!(matches!(broken, Err(EntryError::Broken { number: 2, .. })), "{broken:?}");
    });
    process.shut_down();
}

/// Two runs that know of some of the same sales; what each posts last tells how many came before it, and their sum.
async fn clerk(ctx: Ctx, sales: Vec<(String, i64)>) -> Result<String, Failure> {
    let till = ctx.account("till");
    for (sale, minor) in &sales {
        till.post(sale, cents((*minor).into())).await?;
        ctx.sleep(Duration::from_mins(1)).await?;
    }
    till.post(&sales[0].0, cents(sales[0].1.into())).await?; // known already
    let fee = till.post(format!("fee of {}", sales[0].0), cents(-1)).await?;
    Ok(format!("number {}: {}", fee.number, fee.balance))
}

// Wherever a process dies: no entry is lost, none is there twice, and they add up.
#[test]
fn no_entry_is_lost_or_doubled_wherever_it_is_crashed() {
    let sales = |names: [&str; 2]| names.map(|name| (name.to_owned(), 10)).to_vec();
    let simulation = Simulation::of(clerk, sales(["a", "b"]))
        .with_run(Simulation::TENANT, "two", clerk, sales(["c", "b"]))
        .with_actor("auditor", |engine, world| async move {
            world.sleep(Duration::from_hours(1)).await;
            let till = engine.tenant(Simulation::TENANT).unwrap().account("till");
            till.audit().await.map_or_else(|error| error.to_string(), |_| "sound".to_owned())
        })
        .check("the till adds up at any time", |end| {
            let broken = end.heard("auditor").into_iter().find(|said| *said != "sound");
            broken.map_or(Ok(()), |said| Err(said.to_owned()))
        })
        .check("the till has each sale once", |end| {
            let states: Vec<_> = end.rows().iter().map(|run| format!("{:?}", run.state)).collect();
            let last = states.iter().any(|state| state.contains("number 5: 28 EUR cent"));
            if end.succeeded() && !last { Err(format!("{states:?}")) } else { Ok(()) }
        });
    let report = quick(simulation).explore();
    assert!(report.failures().is_empty(), "{report}\n{}", report.failures()[0].timeline);
    assert!(report.crashed_at().contains_key(&CrashPoint::AfterDocument));
}
