//! Transactions in the simulator: the user's tables are real, and share the fate of their checkpoint.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::mpsc;
use std::time::Duration;

use counterfoil::sim::{CrashPoint, End, Happened, Offer, Schedule, Simulation};
use counterfoil::{Ctx, Failure};
use futures_util::future::BoxFuture;
use sqlx::Executor as _;
use sqlx::sqlite::SqliteConnection;

use crate::sim::Looks;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// Adds an entry. Nothing of the table's own keeps two of them apart.
fn enter<'c>(ledger: &'c mut SqliteConnection, what: &'static str) -> BoxFuture<'c, Result<i64, Failure>> {
    Box::pin(async move {
        ledger.execute("CREATE TABLE IF NOT EXISTS entry (what TEXT NOT NULL)").await.map_err(failed)?;
        sqlx::query("INSERT INTO entry VALUES (?)").bind(what).execute(&mut *ledger).await.map_err(failed)?;
        sqlx::query_scalar("SELECT count(*) FROM entry").fetch_one(ledger).await.map_err(failed)
    })
}

fn entries(end: &End<'_>) -> Result<Vec<String>, String> {
    end.tables(|db| {
        Box::pin(async {
            db.execute("CREATE TABLE IF NOT EXISTS entry (what TEXT NOT NULL)").await?;
            sqlx::query_scalar("SELECT what FROM entry").fetch_all(db).await
        })
    })
}

async fn book(ctx: Ctx, invoice: String) -> Result<i64, Failure> {
    let before = ctx.transaction("open", |ledger| enter(ledger, "open")).await?;
    ctx.call::<Looks>(invoice).await?;
    let after = ctx.transaction("paid", |ledger| enter(ledger, "paid")).await?;
    Ok(before * 10 + after)
}

fn simulation() -> Simulation {
    Simulation::of(book, "invoice".to_owned())
        .engine(|engine, world| engine.tool(Looks(world.service("bank", Offer::Lookup))))
        .check("each entry once", |end| {
            let entries = entries(end)?;
            let expected: &[&str] = match entries.len() {
                _ if end.succeeded() => &["open", "paid"],
                0 => &[],
                1 => &["open"],
                _ => &["open", "paid"],
            };
            if entries == expected { Ok(()) } else { Err(format!("{entries:?}")) }
        })
}

// DESIGN 4.6: changes and checkpoint are both there, or neither, wherever the process dies and the disk fails.
#[test]
fn a_transaction_takes_place_once_wherever_it_is_crashed() {
    let report = simulation().random(100).explore();
    report.assert_ok();
    for point in [CrashPoint::BeforeTransaction, CrashPoint::AfterTransaction] {
        assert!(report.crashed_at().contains_key(&point), "never died at {point}: {report}");
    }
}

// The closure's error is recorded, and what it wrote is not.
#[test]
fn what_a_failed_closure_wrote_is_rolled_back() {
    async fn fails(ctx: Ctx, (): ()) -> Result<String, Failure> {
        let refused: Result<i64, Failure> = ctx
            .transaction("refused", |ledger| {
                Box::pin(async move {
                    enter(ledger, "refused").await?;
                    Err(Failure::new("no credit"))
                })
            })
            .await;
        let entered = ctx.transaction("noted", |ledger| enter(ledger, "noted")).await?;
        Ok(format!("{entered}: {}", refused.unwrap_err()))
    }
    let report = Simulation::of(fails, ())
        .check("only the second one", |end| match entries(end)? {
            entries if !end.succeeded() && entries.is_empty() => Ok(()),
            entries if entries == ["noted"] => Ok(()),
            entries => Err(format!("{entries:?}")),
        })
        .explore();
    report.assert_ok();
}

// What a closure committed by itself is not committed again.
#[test]
fn a_closure_that_ends_the_transaction_is_found_out() {
    async fn commits(ctx: Ctx, (): ()) -> Result<i64, Failure> {
        ctx.transaction("open", |ledger| {
            Box::pin(async move {
                let entered = enter(ledger, "open").await?;
                ledger.execute("COMMIT").await.map_err(failed)?;
                Ok(entered)
            })
        })
        .await
    }
    let replay = Simulation::of(commits, ())
        .check("it is asked about", |end| match (entries(end)?.len(), end.questions().as_slice()) {
            (1, [asked]) if asked.question.contains("ended the transaction itself") => Ok(()),
            (entries, asked) => Err(format!("{entries} entries, {asked:?}")),
        })
        .replay(&Schedule::default());
    assert_eq!(replay.violations, [], "{}", replay.timeline());
}

/// Says when it goes.
struct Farewell(mpsc::Sender<()>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

// A simulation that is over holds nothing any more. Its database has a thread, and a system has so many of them.
#[test]
fn a_simulation_leaves_nothing_behind() {
    let (farewell, gone) = mpsc::channel();
    let simulation = simulation().check("the database knows when it is closed", move |end| {
        let farewell = Farewell(farewell.clone());
        end.tables(|db| {
            Box::pin(async move {
                db.lock_handle().await?.set_progress_handler(1000, move || {
                    let _ = &farewell;
                    true
                });
                Ok(())
            })
        })
    });
    for schedule in ["", "crash@1.9", "kill@1.12", "pause@1.12"] {
        let replay = simulation.replay(&schedule.parse().unwrap());
        assert_eq!(replay.violations, [], "{}", replay.timeline());
        gone.recv_timeout(Duration::from_secs(10)).expect(schedule);
    }
}

/// All events of some schedules, as one number.
fn digest(seeds: std::ops::Range<u64>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for seed in seeds {
        let crossing = 1 + seed % 30;
        let schedule: Schedule = format!("crash@1.{crossing} answer-lost@1").parse().unwrap();
        let replay = simulation().seed(seed).replay(&schedule);
        assert_eq!(replay.violations, [], "seed {seed}");
        let crossed = Happened::Crossed(CrashPoint::AfterTransaction);
        assert!(replay.events.iter().any(|event| event.what == crossed), "seed {seed} shows nothing");
        format!("{:?}", replay.events).hash(&mut hasher);
    }
    hasher.finish()
}

// SIM-2: the same seed, the same run, although the database has a thread of its own.
#[test]
fn the_same_seed_gives_the_same_events() {
    let twice = std::thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| digest(0..100))).map(|digest| digest.join().unwrap())
    });
    assert_eq!(twice[0], twice[1]);
    assert_eq!(twice[0], digest(0..100));
}
